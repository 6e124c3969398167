"""Micro benchmarks of single structures of the engine: updaters, logs, aggregate states, computed keys."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import count
from typing import Final

from pequod_grammar import parse

from pequod.engine import Engine
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.updaters import Site
from pequod_bench import keys
from pequod_bench.micro import Samples, Scale, Size, Workload, clock

_TWEET: Final = b"x" * 140
#: Operations a sample, where a single one is too short for the clock.
_RUN: Final = 64
#: Subscriptions that wait in a log together.
_LOGGED: Final = 10


def _timelines(user_count: int, poster_count: int) -> Engine:
    """Return an engine in which every user follows every poster and has an empty timeline materialised."""
    engine = Engine()
    engine.add_joins(parse(keys.PUSH_JOIN))
    for user in range(user_count):
        for poster in range(poster_count):
            engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)
        engine.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
    return engine


def _site_of_posts(engine: Engine) -> Site:
    (join,) = engine._catalog
    return join.sites[1][0]


def add_updaters(scale: Scale) -> Samples:
    """Let a new context wait at 100 frame keys, where 100 others wait already."""
    frame_count = scale.of(100)
    engine = _timelines(scale.of(100), frame_count)
    site = _site_of_posts(engine)
    frame_keys: list[bytes | tuple[bytes, ...]] = [b"p|%08d|" % poster for poster in range(frame_count)]
    for user in count(10_000):
        context = Context(site.join, site.plan, [b""] * site.plan.env_size, b"t|%08d|" % user)
        begun = clock()
        site.add_all(frame_keys, context)
        yield frame_count, clock() - begun


def find_updaters(scale: Scale) -> Samples:
    """Find who waits for a post, among 10,000 posters."""
    poster_count = scale.of(10_000)
    engine = _timelines(2, poster_count)
    site = _site_of_posts(engine)
    for tick in count():
        posts = [keys.post_key((tick * 7919 + i * 104_729) % poster_count, tick) for i in range(_RUN)]
        begun = clock()
        for key in posts:
            match = site.step.match(key)
            assert match is not None
            site.at(key, match)
        yield _RUN, clock() - begun


def apply_log(scale: Scale) -> Samples:
    """Check after following ten more posters with ten posts each, together."""
    user_count = scale.of(_RUN)
    engine = _timelines(user_count, 2)
    for start in count(1_000, _LOGGED):
        for poster in range(start, start + _LOGGED):
            for tick in range(10):
                engine.put(keys.post_key(poster, start * 10 + tick), _TWEET)
            for user in range(user_count):
                engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)
        ranges = [(keys.timeline_first(user, start * 10), keys.timeline_last(user)) for user in range(user_count)]
        begun = clock()
        for first, last in ranges:
            engine.scan(first, last)
        yield user_count * _LOGGED, clock() - begun


def unfollow(scale: Scale) -> Samples:
    """Check after no longer following a poster with ten posts."""
    user_count = scale.of(_RUN)
    engine = _timelines(user_count, 2)
    for poster in count(1_000):
        for tick in range(10):
            engine.put(keys.post_key(poster, poster * 10 + tick), _TWEET)
        ranges = [(keys.timeline_first(user, poster * 10), keys.timeline_last(user)) for user in range(user_count)]
        for user, (first, last) in enumerate(ranges):
            engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)
            engine.scan(first, last)
            engine.remove(keys.subscription_key(user, poster))
        begun = clock()
        for first, last in ranges:
            engine.scan(first, last)
        yield user_count, clock() - begun


def remove_least(scale: Scale) -> Samples:
    """Remove the key that a min shows, of 1,000 that contribute to it."""
    engine = Engine()
    engine.add_joins(parse("least|<group> = min src|<group>|<id>"))
    size = scale.of(1_000)
    for i in range(size):
        engine.put(b"src|g|%010d" % i, b"%d" % i)
    engine.scan(b"least|", b"least}")
    for start in count(0, _RUN):
        for i in range(start + size, start + size + _RUN):
            engine.put(b"src|g|%010d" % i, b"%d" % i)
        least = [b"src|g|%010d" % i for i in range(start, start + _RUN)]
        begun = clock()
        for key in least:
            engine.remove(key)
        yield _RUN, clock() - begun
        assert engine.get(b"least|g") == b"%d" % (start + _RUN)


def get_computed(scale: Scale) -> Samples:
    """Get single rows of timelines that are materialised."""
    user_count = scale.of(1_000)
    engine = _timelines(user_count, 2)
    for tick in range(100):
        engine.put(keys.post_key(1, tick), _TWEET)
    for start in count(0, _RUN):
        rows = [keys.timeline_key((start + i) % user_count, i % 100, 1) for i in range(_RUN)]
        begun = clock()
        for key in rows:
            engine.get(key)
        yield _RUN, clock() - begun


STRUCTURES: Final = (
    Workload("updaters, add", "a frame that a timeline waits at", add_updaters),
    Workload("updaters, find", "a post's key", find_updaters),
    Workload("log, 10 keys of 10 posts", "a key applied", apply_log),
    Workload("check after unfollow", "a scan that takes ten rows out", unfollow),
    Workload("aggregate min, least removed", "a remove of one source key", remove_least),
    Workload("get, computed", "a get of a timeline's row", get_computed),
)


def fan_out_entry_size(scale: Scale) -> Size:
    """Return what one entry of a timeline occupies that came with a post; its tail is shared by all timelines."""
    user_count, posts = scale.of(200), scale.of(1_000)
    engine = _timelines(user_count, 1)
    rendered = [(keys.post_key(0, tick), keys.tweet(tick, 140)) for tick in range(posts)]
    gc.collect()
    tracemalloc.start()
    for key, value in rendered:
        engine.put(key, value)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return Size("a timeline entry of a fan-out", grown / (user_count * posts))


#: What has a size worth knowing, by a part of its name.
STRUCTURE_SIZES: Final = {"timeline entry of a fan-out": fan_out_entry_size}
