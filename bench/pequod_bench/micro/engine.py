"""Micro benchmarks of the engine alone: a row for each operation for which it has a special way.

Comments of the engine cite these rows by their names.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Final

from pequod_grammar import parse
from pequod_workloads import newp
from pequod_workloads import twip as keys

from pequod.engine import Engine, Piece, general_way
from pequod_bench.micro.frame import RUN, MicroRows, MicroScale, Samples, clock, over_and_over, timed

ENGINE: Final = MicroRows()
TWEET: Final = b"x" * 140
#: Rows of a table that is large.
_MANY: Final = 100_000
#: Subscriptions that wait in a log together, and posts of each; posts whose fan-out is timed together.
_LOGGED, _POSTS = 10, 10
#: Comments of a page, which four joins fill, interleaved (paper §2.3).
_COMMENTS: Final = 5
#: Enough for every round.
_RECORD_BYTES_MAX: Final = 1 << 30


def twip_engine(user_count: int = 0, poster_count: int = 0, post_count: int = 0, joins: str = keys.PUSH_JOIN) -> Engine:
    """Return an engine in which every user follows every poster and has checked; then poster 1 has posted."""
    engine = Engine()
    engine.add_joins(parse(joins))
    for user in range(user_count):
        _follow(engine, [user], range(1, poster_count + 1))
        engine.scan(*keys.timeline(user))
    for tick in range(post_count):
        engine.put(keys.post_key(1, tick), TWEET)
    return engine


def archive_engine(followed: int, each: int) -> Engine:
    """Return an engine in which posters have posted in turn, and nobody has checked."""
    engine = twip_engine()
    for tick in range(followed * each):
        engine.put(keys.post_key(tick % followed, tick), TWEET)
    return engine


def _follow(engine: Engine, users: list[int] | range, posters: list[int] | range) -> None:
    for poster in posters:
        for user in users:
            engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)


def _plain(scale: MicroScale) -> tuple[Engine, list[bytes]]:
    """Return an engine with one large table that no join reads, and its keys."""
    engine = Engine()
    present = [b"x|%010d" % i for i in range(scale.of(_MANY))]
    for key in present:
        engine.put(key, b"old")
    return engine, present


@ENGINE.row("put, new key", "a put")
def put_new(_: MicroScale) -> Samples:
    """Put ascending keys that no join reads."""
    engine = Engine()
    for start in count(0, RUN):
        yield RUN, timed(engine.put, [(b"x|%010d" % i, TWEET) for i in range(start, start + RUN)])


@ENGINE.row("put, old key", "a put")
def put_again(scale: MicroScale) -> Samples:
    """Overwrite keys of a large table that no join reads."""
    engine, present = _plain(scale)
    return over_and_over(engine.put, [(key, TWEET) for key in present], stride=104_729)


@ENGINE.row("put run", "a row of 1,000")
def put_run(_: MicroScale) -> Samples:
    """Put 1,000 ascending keys of a table that no join reads, all together."""
    engine, size = Engine(), 1_000
    for start in count(0, size):
        yield size, timed(engine.put_all, [([b"x|%010d" % i for i in range(start, start + size)], [TWEET] * size)])


@ENGINE.row("load", "a row of a range of 100")
def load(_: MicroScale) -> Samples:
    """Load ranges of 100 rows of a table that a database owns."""
    engine, size = Engine(backed=[b"x"]), 100
    for number in count():
        rows = [(b"x|%010d|%03d" % (number, i), TWEET) for i in range(size)]
        begun = clock()
        engine.load(b"x|%010d|" % number, b"x|%010d}" % number, rows)
        yield size, clock() - begun


@ENGINE.row("backfill, changed posts", "a row of a timeline of 100")
def load_changed(scale: MicroScale) -> Samples:
    """Load timelines whose 100 posts have all been put since the backfill began."""
    user_count, post_count = scale.of(RUN), scale.of(100)
    engine = twip_engine(user_count, 1)
    pieces = [Piece(*keys.timeline(user), (), ()) for user in range(user_count)]
    for number in count():
        engine.invalidate(*keys.TIMELINES)
        backfill = engine.backfills.begin(
            "t", *keys.TIMELINES, engine.revision, level=None, record_bytes_max=_RECORD_BYTES_MAX
        )
        for tick in range(post_count):
            engine.put(keys.post_key(1, tick), TWEET + b"%d" % number)
        yield user_count * post_count, timed(engine.backfills.load, [(backfill, [piece]) for piece in pieces])
        engine.backfills.end(backfill, "the sample ends")


@ENGINE.row("get", "a get")
def get_base(scale: MicroScale) -> Samples:
    """Get keys of a large table that no join computes."""
    engine, present = _plain(scale)
    return over_and_over(_get_of(engine), [(key, None) for key in present], stride=104_729)


@ENGINE.row("get, computed", "a get of a timeline's row")
def get_computed(scale: MicroScale) -> Samples:
    """Get single rows of timelines of 100 that are materialised."""
    user_count = scale.of(1_000)
    engine = twip_engine(user_count, 2, 100)
    rows = [(keys.timeline_key(user, user % 100, 1), None) for user in range(user_count)]
    return over_and_over(_get_of(engine), rows)


def _get_of(engine: Engine) -> Callable[[bytes, None], object]:
    get = engine.get
    return lambda key, _: get(key)


@ENGINE.row("scan 50 rows", "a scan")
def scan_50(scale: MicroScale) -> Samples:
    """Scan 50 neighbouring rows of a large table that no join computes."""
    engine, present = _plain(scale)
    return over_and_over(engine.scan, [(key, key[:-2] + b"99") for key in present if key.endswith(b"49")], stride=7919)


@ENGINE.row("scan, loaded", "a scan of 50 rows")
def scan_loaded(scale: MicroScale) -> Samples:
    """Scan 50 rows of loaded ranges of a table that a database owns."""
    engine = Engine(backed=[b"x"])
    ranges = [(b"x|%010d|" % number, b"x|%010d}" % number) for number in range(scale.of(1_000))]
    for first, last in ranges:
        engine.load(first, last, [(first + b"%03d" % i, TWEET) for i in range(50)])
    return over_and_over(engine.scan, ranges)


@ENGINE.row("scan in pieces", "a row of a piece of 100")
def scan_in_pieces(scale: MicroScale) -> Samples:
    """Scan 1,000 timelines of 20 rows in pieces of 100 rows."""
    engine = twip_engine(scale.of(1_000), 1, 20)
    while True:
        first = b"t|"
        while True:
            begun = clock()
            found = engine.scan(first, b"t}", limit=100).keys
            spent = clock() - begun
            if not found:
                break
            yield len(found), spent
            first = found[-1] + b"\0"


@ENGINE.row("scan inside a timeline", "a scan of 3 rows")
def scan_inside(scale: MicroScale) -> Samples:
    """Scan three rows out of the middle of timelines of 100 that are up to date."""
    user_count = scale.of(1_000)
    ranges = [(keys.timeline_first(user, 50), keys.timeline_first(user, 53)) for user in range(user_count)]
    return over_and_over(twip_engine(user_count, 1, 100).scan, ranges)


@ENGINE.row("check, incremental", "a scan of 3 rows")
def check_incremental(scale: MicroScale) -> Samples:
    """Check with three new rows in a timeline of 100 that is up to date."""
    user_count = scale.of(1_000)
    engine = twip_engine(user_count, 1, 100)
    return over_and_over(engine.scan, [keys.timeline(user, 97) for user in range(user_count)])


@ENGINE.row("check, first", "a scan of 100 x 100 rows")
def check_first(scale: MicroScale) -> Samples:
    """Check for the first time: 100 followed, 100 posts each."""
    followed = scale.of(100)
    return _first_checks(archive_engine(followed, scale.of(100)), followed, operation_count=1)


@ENGINE.row("check, first, general way", "a scan of 100 x 100 rows")
def check_first_general(scale: MicroScale) -> Samples:
    """Do the same the general way, as for joins that the timeline's kernel does not take."""
    samples = check_first(scale)
    with general_way():
        # The first check compiles the plan, which stays.
        next(samples)
    return samples


@ENGINE.row("check, first, loaded", "a scan of 100 x 100 rows")
def check_first_loaded(scale: MicroScale) -> Samples:
    """Do the same over loaded ranges of a database, as computes have them."""
    followed, each = scale.of(100), scale.of(100)
    engine = Engine(backed=[b"p", b"s"])
    engine.add_joins(parse(keys.PUSH_JOIN))
    for poster in range(followed):
        rows = [(keys.post_key(poster, i * followed + poster), TWEET) for i in range(each)]
        engine.load(*keys.posts_of(poster), rows)
    for user in count(10_000):
        selected = [(keys.subscription_key(user, poster), keys.FOLLOWS) for poster in range(followed)]
        engine.load(b"s|%08d|" % user, b"s|%08d}" % user, selected)
        yield 1, timed(engine.scan, [keys.timeline(user)])


@ENGINE.row("check, first, no posts", "a poster to wait for")
def add_waiting(scale: MicroScale) -> Samples:
    """Check for the first time: 100 followed without posts, for each of whom others wait already."""
    followed = scale.of(100)
    return _first_checks(twip_engine(scale.of(100), followed), followed, operation_count=followed)


def _first_checks(engine: Engine, followed: int, operation_count: int) -> Samples:
    for user in count(10_000):
        _follow(engine, [user], range(followed))
        yield operation_count, timed(engine.scan, [keys.timeline(user)])


@ENGINE.row("check after subscribe", "a scan that applies one logged key")
def check_after_subscribe(_: MicroScale) -> Samples:
    """Check after following one more poster with one post: the log of one entry is applied."""
    engine = twip_engine(RUN)
    for poster in count(1):
        engine.put(keys.post_key(poster, poster), TWEET)
        _follow(engine, range(RUN), [poster])
        yield RUN, timed(engine.scan, [keys.timeline(user, poster) for user in range(RUN)])


@ENGINE.row("check after unfollow", "a scan that takes ten rows out")
def unfollow(scale: MicroScale) -> Samples:
    """Check after no longer following a poster with ten posts."""
    user_count = scale.of(RUN)
    engine = twip_engine(user_count, 2)
    for poster in count(1_000):
        _post(engine, poster, poster)
        checks = [keys.timeline(user, poster * _LOGGED) for user in range(user_count)]
        for user, check in enumerate(checks):
            _follow(engine, [user], [poster])
            engine.scan(*check)
            engine.remove(keys.subscription_key(user, poster))
        yield user_count, timed(engine.scan, checks)


@ENGINE.row("log, 10 keys of 10 posts", "a key applied")
def apply_log(scale: MicroScale) -> Samples:
    """Check after following ten more posters with ten posts each, together."""
    user_count = scale.of(RUN)
    engine = twip_engine(user_count, 2)
    for start in count(1_000, _LOGGED):
        for poster in range(start, start + _LOGGED):
            _post(engine, poster, start)
        _follow(engine, range(user_count), range(start, start + _LOGGED))
        checks = [keys.timeline(user, start * _LOGGED) for user in range(user_count)]
        yield user_count * _LOGGED, timed(engine.scan, checks)


def _post(engine: Engine, poster: int, start: int) -> None:
    for tick in range(start * _LOGGED, start * _LOGGED + _LOGGED):
        engine.put(keys.post_key(poster, tick), TWEET)


@ENGINE.row("page, four joins", "a scan of 12 rows")
def page(scale: MicroScale) -> Samples:
    """Read pages that four joins fill, each with five comments, all up to date."""
    page_count = scale.of(300)
    return over_and_over(_pages(page_count).scan, [_page(number) for number in range(page_count)])


def _pages(page_count: int) -> Engine:
    """Return an engine with pages of author 1, all of which have been read; ranks and karma are written by hand."""
    engine = Engine()
    engine.add_joins(parse(newp.PAGE_JOINS))
    for number in range(page_count):
        engine.put(newp.ARTICLE % (1, number), TWEET)
        engine.put(newp.RANK % (1, number), b"5")
        for i in range(_COMMENTS):
            engine.put(newp.COMMENT % (1, number, i, i), TWEET)
            engine.put(newp.KARMA % i, b"1")
    for number in range(page_count):
        engine.scan(*_page(number))
    return engine


def _page(number: int) -> tuple[bytes, bytes]:
    return newp.PAGE_FIRST % (1, number), newp.PAGE_LAST % (1, number)


@ENGINE.row("pull, celebrity", "a scan of 4 rows, 1 computed")
def pull_celebrity(scale: MicroScale) -> Samples:
    """Check a timeline of 100 rows, of which one by a celebrity is new and computed by the check."""
    user_count = scale.of(1_000)
    engine = twip_engine(user_count, 2, 100, keys.CELEBRITY_JOINS)
    engine.put(keys.celebrity_key(2, 100), TWEET)
    return over_and_over(engine.scan, [keys.timeline(user, 97) for user in range(user_count)])


@ENGINE.row("subscribe", "a put that is logged")
def subscribe(scale: MicroScale) -> Samples:
    """Follow one more poster, with the timeline materialised: noted in the log, applied later."""
    user_count = scale.of(1_000)
    engine = twip_engine(user_count)
    for poster in count(1):
        new = [(keys.subscription_key(user % user_count, poster), keys.FOLLOWS) for user in range(RUN)]
        yield RUN, timed(engine.put, new)


@ENGINE.row("fan-out", "an entry in a timeline")
def fan_out(scale: MicroScale) -> Samples:
    """Post to 100 followers who all have their timeline materialised."""
    followers = scale.of(100)
    engine = twip_engine(followers, 1)
    for start in count(0, _POSTS):
        posts = [(keys.post_key(1, tick), TWEET) for tick in range(start, start + _POSTS)]
        yield _POSTS * followers, timed(engine.put, posts)


@ENGINE.row("fan-out, watched", "an entry that a watch is told")
def fan_out_watched(scale: MicroScale) -> Samples:
    """Post to 100 followers, one watch over all of whose timelines is told."""
    followers = scale.of(100)
    engine = twip_engine(followers, 1)
    watch = engine.watch(*keys.TIMELINES, lambda: None)
    for tick in count():
        yield followers, timed(engine.put, [(keys.post_key(1, tick), TWEET)])
        engine.settle(watch)


@ENGINE.row("post, not followed", "a put")
def post_unread(scale: MicroScale) -> Samples:
    """Post where timelines wait for 10,000 posters, but not for this one."""
    poster_count = scale.of(10_000)
    engine = twip_engine(2, poster_count)
    for tick in count():
        strangers = (poster_count + 1 + (tick * 7919 + i * 104_729) % poster_count for i in range(RUN))
        yield RUN, timed(engine.put, [(keys.post_key(poster, tick), TWEET) for poster in strangers])


@ENGINE.row("replace", "a row of a page")
def replace(scale: MicroScale) -> Samples:
    """Change the karma of five users beside whose comments 100 pages show it."""
    page_count = scale.of(100)
    engine = _pages(page_count)
    for value in count(2):
        karma = [(newp.KARMA % user, b"%d" % value) for user in range(_COMMENTS)]
        yield _COMMENTS * page_count, timed(engine.put, karma)


def _aggregate(operator: str, scale: MicroScale) -> Samples:
    """Add one source key to one of 100 groups that are materialised."""
    engine = Engine()
    engine.add_joins(parse(f"agg|<group> = {operator} src|<group>|<id>"))
    groups = [b"%04d" % i for i in range(scale.of(100))]
    for group in groups:
        engine.put(b"src|%s|0" % group, b"1")
    engine.scan(b"agg|", b"agg}")
    for start in count(1, RUN):
        new = [b"src|%s|%010d" % (groups[i % len(groups)], i) for i in range(start, start + RUN)]
        yield RUN, timed(engine.put, [(key, b"%d" % i) for i, key in enumerate(new)])


for _operator in ("count", "sum", "min", "max"):
    ENGINE.add(f"aggregate {_operator}", "a put of one source key", _aggregate, _operator)


@ENGINE.row("aggregate min, least removed", "a remove of one source key")
def remove_least(scale: MicroScale) -> Samples:
    """Remove the key that a min shows, of 1,000 that contribute to it."""
    engine = Engine()
    engine.add_joins(parse("least|<group> = min src|<group>|<id>"))
    size = scale.of(1_000)
    for i in range(size):
        engine.put(b"src|g|%010d" % i, b"%d" % i)
    engine.scan(b"least|", b"least}")
    for start in count(0, RUN):
        for i in range(start + size, start + size + RUN):
            engine.put(b"src|g|%010d" % i, b"%d" % i)
        least = [b"src|g|%010d" % i for i in range(start, start + RUN)]
        begun = clock()
        for key in least:
            engine.remove(key)
        yield RUN, clock() - begun
