"""Micro benchmarks of joins that keep the newest rows of each group, or say what must not be there."""

from __future__ import annotations

from itertools import count
from typing import Final

from pequod_grammar import parse
from pequod_workloads import twip as keys

from pequod.engine import Engine, general_way
from pequod_bench.micro.frame import MicroRows, MicroScale, Samples, clock, over_and_over, timed

KEEP: Final = MicroRows()
#: (row, than, times at the most): a post to timelines that are capped beside one to timelines that are not; a first
#: check that leaves 400 of a million rows beside one of 400 rows; a check with `unless` beside one without. First
#: checks are compared with the loops for any join, which these take at least in part.
RATIOS: Final = (
    ("keep: fan-out", "keep: fan-out, uncapped", 1.5),
    ("keep: check, first, 400 of 116 x 10,000", "keep: check, first, 400 in all, general way", 1.5),
    ("unless: check, first", "unless: check, first, without, general way", 1.2),
    ("unless: check", "unless: check, without", 1.2),
)
_TWEET: Final = b"x" * 100
_KEPT: Final = 400
#: Posts whose fan-out is timed together: more than fill the room of a full timeline.
_POSTS: Final = 256
_JOIN: Final = keys.PUSH_JOIN.strip().rstrip(";")
_UNLESS: Final = _JOIN.replace(" copy", " unless mute|<user>|<poster> copy")
#: One whom a user follows of this many is muted.
_MUTED: Final = 10


def _engine(followers: int, posters: int, posts: int, *, is_capped: bool = True, decided: str = "") -> Engine:
    """Return an engine in which posters have posted in turn, and all followers follow all of them."""
    engine = Engine()
    engine.add_joins(parse(f"{_JOIN}{decided} keep last {_KEPT} of <user>" if is_capped else _JOIN))
    for user in range(followers):
        for poster in range(posters):
            engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)
    for tick in range(posters * posts):
        engine.put(keys.post_key(tick % posters, tick), _TWEET)
    return engine


@KEEP.row("keep: check, first", "a scan of 400 of 100 x 1,000 rows")
def check_first(scale: MicroScale) -> Samples:
    """Check for the first time: 100 followed, 1,000 posts each, of which the timeline keeps 400."""
    return _first_checks(_engine(1, scale.of(100), scale.of(1_000)))


@KEEP.row("keep: check, first, decided", "the same, and two keys decide of each row")
def check_decided(scale: MicroScale) -> Samples:
    """Check for the first time where sources behind the posts say which of them are there."""
    engine = _engine(1, scale.of(100), scale.of(1_000), decided=" check s|<user>|<poster> unless m|<user>|<poster>")
    return _first_checks(engine)


@KEEP.row("keep: check, first, newest", "a scan of 20 of 100 x 1,000 rows")
def check_newest(scale: MicroScale) -> Samples:
    """Check for the first time for the newest 20 rows, from a key on: what is below it is not read."""
    posters, posts = scale.of(100), scale.of(1_000)
    return _first_checks(_engine(1, posters, posts), since=posters * posts - 20)


def _first_checks(engine: Engine, since: int = 0) -> Samples:
    while True:
        yield 1, timed(engine.scan, [keys.timeline(0, since)])
        engine.invalidate(*keys.timeline(0))


def _first_checks_of(posters: int, rows: int, *, is_capped: bool) -> Samples:
    """Check for the first time: 116 followed, who have posted in turn."""
    engine = Engine()
    engine.add_joins(parse(f"{_JOIN} keep last {_KEPT} of <user>" if is_capped else _JOIN))
    for poster in range(posters):
        engine.put(keys.subscription_key(0, poster), keys.FOLLOWS)
        posts = [keys.post_key(poster, tick) for tick in range(poster, rows, posters)]
        engine.put_all(posts, [_TWEET] * len(posts))
    return _first_checks(engine)


@KEEP.row("keep: check, first, 400 of 116 x 10,000", "a scan of 400 rows")
def check_first_of_many(scale: MicroScale) -> Samples:
    """Check for the first time where all have posted for years."""
    return _first_checks_of(scale.of(116), scale.of(116) * scale.of(10_000), is_capped=True)


@KEEP.row("keep: check, first, 400 in all", "a scan of 400 rows")
def check_first_of_few(scale: MicroScale) -> Samples:
    """Check for the first time where the posts of all are 400, and the join keeps all rows: natively."""
    return _first_checks_of(scale.of(116), _KEPT, is_capped=False)


@KEEP.row("keep: check, first, 400 in all, general way", "a scan of 400 rows")
def check_first_of_few_in_general(scale: MicroScale) -> Samples:
    """Do the same by the loops for any join."""
    return _in_general(_first_checks_of(scale.of(116), _KEPT, is_capped=False))


def _in_general(samples: Samples) -> Samples:
    """Take samples of joins that are compiled without the kernel."""
    with general_way():
        first = next(samples)
    yield first
    yield from samples


def _muting(join: str, scale: MicroScale) -> Engine:
    """Return an engine with a user who follows 100 with 100 posts each, and has muted a tenth of those."""
    posters, engine = scale.of(100), Engine()
    engine.add_joins(parse(join))
    for poster in range(posters):
        engine.put(keys.subscription_key(0, poster), keys.FOLLOWS)
        for tick in range(poster, posters * scale.of(100), posters):
            engine.put(keys.post_key(poster, tick), _TWEET)
    for poster in range(0, posters, _MUTED):
        # Without `unless`, as many rows are left out because the user does not follow those.
        if "unless" in join:
            engine.put(b"mute|%08d|%08d" % (0, poster), b"")
        else:
            engine.remove(keys.subscription_key(0, poster))
    return engine


def _first_muted_checks(join: str, scale: MicroScale) -> Samples:
    return _first_checks(_muting(join, scale))


def _checks(join: str, scale: MicroScale) -> Samples:
    """Check for the three latest rows of a timeline that is there."""
    engine = _muting(join, scale)
    rows = engine.scan(*keys.timeline(0)).keys
    first, last = rows[-3], keys.timeline_last(0)
    return over_and_over(engine.scan, [(first, last)])


for _without, _text in (("", _UNLESS), (", without", _JOIN)):
    KEEP.add(f"unless: check{_without}", "a scan of 3 rows", _checks, _text)
    KEEP.add(f"unless: check, first{_without}", "a scan of 90 x 100 rows", _first_muted_checks, _text)


@KEEP.row("unless: check, first, without, general way", "a scan of 90 x 100 rows")
def check_first_without(scale: MicroScale) -> Samples:
    """Check for the first time without `unless`, by the loops for any join, as with it."""
    return _in_general(_first_muted_checks(_JOIN, scale))


def _fan_out(scale: MicroScale, *, is_capped: bool) -> Samples:
    followers = scale.of(100)
    engine = _engine(followers, 1, _KEPT, is_capped=is_capped)
    for user in range(followers):
        engine.scan(*keys.timeline(user))
    for start in count(_KEPT, _POSTS):
        posts = [(keys.post_key(0, tick), _TWEET) for tick in range(start, start + _POSTS)]
        yield _POSTS * followers, timed(engine.put, posts)


@KEEP.row("keep: fan-out", "an entry in a full timeline")
def fan_out(scale: MicroScale) -> Samples:
    """Post to 100 followers whose timelines are full: each entry pushes one out."""
    return _fan_out(scale, is_capped=True)


@KEEP.row("keep: fan-out, uncapped", "an entry in a timeline")
def fan_out_uncapped(scale: MicroScale) -> Samples:
    """Do the same for timelines that keep all rows."""
    return _fan_out(scale, is_capped=False)


@KEEP.row("keep: removal", "a removal, and a scan of 3 rows")
def removal(scale: MicroScale) -> Samples:
    """Remove the newest post, and check: an older one takes its place; now and then the timeline is computed again."""
    posters, posts = scale.of(100), scale.of(1_000)
    engine = _engine(1, posters, posts)
    engine.scan(*keys.timeline(0))
    tick = posters * posts
    while True:
        tick -= 1
        if tick < posts:
            engine, tick = _engine(1, posters, posts), posters * posts - 1
            engine.scan(*keys.timeline(0))
        first, last = keys.timeline(0, tick - 3)
        begun = clock()
        engine.remove(keys.post_key(tick % posters, tick))
        engine.scan(first, last)
        yield 1, clock() - begun
