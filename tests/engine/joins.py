"""Joins that many tests use, and an engine with rows in it."""

from pequod_grammar import parse

from pequod.engine import Engine

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"

CELEBRITY = """
    ct|<time:4>|<poster> = copy cp|<poster>|<time>;
    t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
    t|<user>|<time:4>|<poster> = pull copy ct|<time>|<poster> check s|<user>|<poster>;
"""

NEWP = """
    karma|<author> = count vote|<author>|<id>|<voter>;
    rank|<author>|<id> = count vote|<author>|<id>|<voter>;
    page|<author>|<id>|a = copy article|<author>|<id>;
    page|<author>|<id>|r = copy rank|<author>|<id>;
    page|<author>|<id>|c|<cid>|<commenter> = copy comment|<author>|<id>|<cid>|<commenter>;
    page|<author>|<id>|k|<cid>|<commenter> = check comment|<author>|<id>|<cid>|<commenter> copy karma|<commenter>;
"""

BY_AUTHOR = "by_author|<author>|<id> = copy article|<id> with author = <author> as {title, stats.votes}"
REVIEW = (
    "review|<item>|<date>|<id> = check item|<item> with visible = true "
    "copy review|<id> with item = <item>, date = <date> as {subject, rating}"
)


def engine_with(joins: str) -> Engine:
    """Return an engine with joins installed."""
    engine = Engine()
    engine.add_joins(parse(joins))
    return engine


def put_all(engine: Engine, rows: dict[str, str]) -> None:
    """Put rows given as text."""
    for key, value in rows.items():
        engine.put(key.encode(), value.encode())


def scan(engine: Engine, first: str, last: str | None = None, *, now: float = 0.0) -> dict[str, str]:
    """Return the rows of a range, of a prefix if there is no last key, as text."""
    stop = last.encode() if last is not None else first.encode()[:-1] + b"}"
    rows = engine.scan(first.encode(), stop, now=now)
    engine._check()
    return {key.decode(): value.decode() for key, value in zip(rows.keys, rows.values, strict=True)}
