"""Micro benchmarks of joins that keep the newest rows of each group."""

from __future__ import annotations

from itertools import count
from typing import Final

from pequod_grammar import parse
from pequod_workloads import twip as keys

from pequod.engine import Engine
from pequod_bench.micro.frame import MicroRows, MicroScale, Samples, clock, timed

KEEP: Final = MicroRows()
#: (row, than, times at the most): a post to timelines that are capped beside one to timelines that are not.
RATIOS: Final = (("keep: fan-out", "keep: fan-out, uncapped", 1.5),)
_TWEET: Final = b"x" * 100
_KEPT: Final = 400
#: Posts whose fan-out is timed together: more than fill the room of a full timeline.
_POSTS: Final = 256
_JOIN: Final = keys.PUSH_JOIN.strip().rstrip(";")


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
