"""The classes of views of VMS: for each a view, and what plain Python computes from the base data for its table.

The base data are in a dictionary of keys and values:

    vote|<author>|<id>|<voter>     nothing
    cost|<author>|<id>             a decimal number
    p|<poster>|<time:3>            a record: body, likes
    s|<user>|<poster>              who follows whom
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from pequod_views import DurableView

Base: TypeAlias = dict[str, str]
#: The columns of a table without the key, in the order of the keys.
Rows: TypeAlias = list[tuple[Any, ...]]

USERS: Final = "abcde"
_LIKED: Final = 5


@dataclass(frozen=True, slots=True)
class ViewClass:
    """A class of views by an example."""

    name: str
    #: Of the server; empty if the view shows base data themselves.
    joins: str
    #: Of the file of views, beside name and table.
    members: dict[str, Any]
    #: Computes the table without Pequod.
    recompute: Callable[[Base], Rows]

    @property
    def _declared(self) -> dict[str, Any]:
        return {"name": self.name, "parts": 2, "log": True, **self.members}

    @property
    def view(self) -> DurableView:
        return DurableView.parse(self._declared)

    def file(self, server: str, database: str) -> str:
        """Return a file of this view alone."""
        settings = _toml({"server": server, "database": database, "joins": self.joins})
        return f"{settings}\n[[view]]\n{_toml(self._declared)}\n"


def _toml(settings: dict[str, Any]) -> str:
    return "\n".join(f"{name} = {_inline(value)}" for name, value in settings.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_inline(inner)}" for name, inner in value.items()) + " }"
    return json.dumps(value)


def changes(rng: random.Random, count: int) -> dict[str, str | None]:
    """Return random changes of the base; None removes a key."""
    found: dict[str, str | None] = {}
    for _ in range(count):
        one, other, number = rng.choice(USERS), rng.choice(USERS), rng.randrange(100)
        record = json.dumps({"body": f"post {number}", "likes": rng.randrange(10)})
        key, value = rng.choice(
            [
                (f"vote|{one}|{number % 4}|{other}", ""),
                (f"cost|{one}|{number % 4}", f"{rng.randrange(-50, 50)}.{number % 10}"),
                (f"p|{one}|{number % 20:03}", record),
                (f"s|{one}|{other}", "1"),
            ]
        )
        found[key] = None if rng.random() < 0.35 else value
    return found


def apply(base: Base, changed: dict[str, str | None]) -> None:
    """Make changes."""
    for key, value in changed.items():
        if value is None:
            base.pop(key, None)
        else:
            base[key] = value


def _of(base: Base, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the slots and the value of each key of a table, in order."""
    for key in sorted(base):
        name, *slots = key.split("|")
        if name == table:
            yield (*slots, base[key])


def _posts(base: Base) -> list[tuple[str, str, str, int]]:
    return [
        (poster, time, record["body"], record["likes"])
        for poster, time, text in _of(base, "p")
        for record in [json.loads(text)]
    ]


def _heard(base: Base) -> list[tuple[str, str, str, str, int]]:
    """Follow everybody: user, time, poster, body, likes of each post that a user hears of."""
    follows = [(user, poster) for user, poster, _ in _of(base, "s")]
    return sorted(
        (user, time, poster, body, likes)
        for user, followed in follows
        for poster, time, body, likes in _posts(base)
        if poster == followed
    )


def _karma(base: Base) -> dict[str, int]:
    return dict(Counter(author for author, _id, _voter, _ in _of(base, "vote")))


def _karma_over_1(base: Base) -> dict[str, int]:
    return {author: karma for author, karma in _karma(base).items() if karma > 1}


def _grouped(pairs: Iterator[tuple[str, Any]], of: Callable[[list[Any]], Any]) -> Rows:
    groups = defaultdict(list)
    for group, value in pairs:
        groups[group].append(value)
    return [(group, of(values)) for group, values in sorted(groups.items())]


def _costs(base: Base) -> Iterator[tuple[str, Decimal]]:
    return ((author, Decimal(text)) for author, _id, text in _of(base, "cost"))


def _sum(values: list[Decimal]) -> Decimal:
    return sum(values, Decimal(0)).normalize()


def _integer(column: str) -> dict[str, str]:
    return {"column": column, "type": "integer"}


_NUMERIC: Final = {"column": "number", "type": "numeric"}
_TIMELINE: Final = "t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:3> as body;"

CLASSES: Final = (
    ViewClass(
        "selection",
        "",
        {"keys": "p|<poster>|<time:3>", "first": "p|b", "last": "p|d|010", "fields": {"body": "body"}},
        lambda base: [post[:3] for post in _posts(base) if ("b", "") <= post[:2] < ("d", "010")],
    ),
    ViewClass(
        "projection",
        "",
        {"keys": "p|<poster>|<time:3>", "slots": {"poster": False}, "fields": {"likes": _integer("likes")}},
        lambda base: [(time, likes) for _, time, _, likes in _posts(base)],
    ),
    ViewClass(
        "index",
        "liked|<likes:3>|<poster>|<time:3> = copy p|<poster>|<time:3> with likes = <likes:3> as body",
        {"keys": "liked|<likes:3>|<poster>|<time:3>", "value": "body", "slots": {"likes": _integer("likes")}},
        lambda base: sorted((likes, poster, time, body) for poster, time, body, likes in _posts(base)),
    ),
    ViewClass(
        "count",
        "karma|<author> = count vote|<author>|<id>|<voter>",
        {"keys": "karma|<author>", "value": _integer("votes")},
        lambda base: sorted(_karma(base).items()),
    ),
    ViewClass(
        "sum",
        "spent|<author> = sum cost|<author>|<id>",
        {"keys": "spent|<author>", "value": _NUMERIC},
        lambda base: _grouped(_costs(base), _sum),
    ),
    ViewClass(
        "min",
        "least|<author> = min cost|<author>|<id>",
        {"keys": "least|<author>", "value": _NUMERIC},
        lambda base: _grouped(_costs(base), min),
    ),
    ViewClass(
        "max",
        "most|<author> = max cost|<author>|<id>",
        {"keys": "most|<author>", "value": _NUMERIC},
        lambda base: _grouped(_costs(base), max),
    ),
    ViewClass(
        "join",
        _TIMELINE,
        {"keys": "t|<user>|<time:3>|<poster>", "value": "body"},
        lambda base: [heard[:4] for heard in _heard(base)],
    ),
    ViewClass(
        "outer_join",
        """karma|<author> = count vote|<author>|<id>|<voter>;
        told|<poster>|<time:3> = copy p|<poster>|<time:3> as {body} check? karma|<poster> with . > 1 as {karma: .}""",
        {"keys": "told|<poster>|<time:3>", "fields": {"body": "body", "karma": _integer("karma")}},
        lambda base: [(*post[:3], _karma_over_1(base).get(post[0])) for post in _posts(base)],
    ),
    ViewClass(
        "selection_and_projection",
        f"loved|<poster>|<time:3> = copy p|<poster>|<time:3> with likes >= {_LIKED} as {{likes}}",
        {"keys": "loved|<poster>|<time:3>", "fields": {"likes": _integer("likes")}},
        lambda base: [(poster, time, likes) for poster, time, _, likes in _posts(base) if likes >= _LIKED],
    ),
    ViewClass(
        "count_of_selection",
        f"success|<poster> = count p|<poster>|<time:3> with likes >= {_LIKED}",
        {"keys": "success|<poster>", "value": _integer("posts")},
        lambda base: _grouped(((poster, 1) for poster, _, _, likes in _posts(base) if likes >= _LIKED), len),
    ),
    ViewClass(
        "count_of_join",
        f"{_TIMELINE} reach|<poster> = count t|<user>|<time:3>|<poster>",
        {"keys": "reach|<poster>", "value": _integer("posts")},
        lambda base: _grouped(((heard[2], heard) for heard in _heard(base)), len),
    ),
    ViewClass(
        "sum_of_join",
        "noise|<user> = check s|<user>|<poster> sum p|<poster>|<time:3> as likes",
        {"keys": "noise|<user>", "value": _integer("likes")},
        lambda base: _grouped(((heard[0], heard[4]) for heard in _heard(base)), sum),
    ),
    ViewClass(
        "max_of_join",
        "top|<user> = check s|<user>|<poster> max p|<poster>|<time:3> as likes",
        {"keys": "top|<user>", "value": _integer("likes")},
        lambda base: _grouped(((heard[0], heard[4]) for heard in _heard(base)), max),
    ),
    ViewClass(
        "join_with_count",
        "karma|<author> = count vote|<author>|<id>|<voter>;"
        "idol|<user>|<author> = check s|<user>|<author> copy karma|<author>",
        {"keys": "idol|<user>|<author>", "value": _integer("votes")},
        lambda base: [
            (user, author, _karma(base)[author]) for user, author, _ in _of(base, "s") if author in _karma(base)
        ],
    ),
    ViewClass(
        "sum_of_counts",
        "karma|<author> = count vote|<author>|<id>|<voter>;taste|<user> = check s|<user>|<author> sum karma|<author>",
        {"keys": "taste|<user>", "value": _integer("votes")},
        lambda base: _grouped(
            ((user, _karma(base)[author]) for user, author, _ in _of(base, "s") if author in _karma(base)), sum
        ),
    ),
)
