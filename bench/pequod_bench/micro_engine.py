"""Micro benchmarks of the engine alone, in the shapes that Twip and Newp give it."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import count
from typing import Final

from pequod_grammar import parse

from pequod.engine import Engine
from pequod_bench import keys
from pequod_bench.micro import Samples, Scale, Size, Workload, clock

_TWEET: Final = b"x" * 140
#: Operations a sample, where a single one is too short for the clock.
_RUN: Final = 64


def _twip_engine() -> Engine:
    engine = Engine()
    engine.add_joins(parse(keys.PUSH_JOIN))
    return engine


def put_new(_: Scale) -> Samples:
    """Put ascending keys that no join reads."""
    engine = Engine()
    for start in count(0, _RUN):
        new = [b"x|%010d" % i for i in range(start, start + _RUN)]
        begun = clock()
        for key in new:
            engine.put(key, _TWEET)
        yield _RUN, clock() - begun


def put_again(scale: Scale) -> Samples:
    """Overwrite keys of a table of 100,000 that no join reads."""
    engine = Engine()
    present = [b"x|%010d" % i for i in range(scale.of(100_000))]
    for key in present:
        engine.put(key, b"old")
    for start in count(0, 7919):
        some = [present[(start + i * 104_729) % len(present)] for i in range(_RUN)]
        begun = clock()
        for key in some:
            engine.put(key, _TWEET)
        yield _RUN, clock() - begun


def fan_out(scale: Scale) -> Samples:
    """Post to 100 followers who all have their timeline materialised."""
    engine = _twip_engine()
    followers = scale.of(100)
    for user in range(followers):
        engine.put(keys.subscription_key(user, 1), keys.FOLLOWS)
        engine.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
    for tick in count():
        key = keys.post_key(1, tick)
        begun = clock()
        engine.put(key, _TWEET)
        yield followers, clock() - begun


def subscribe(scale: Scale) -> Samples:
    """Follow somebody new, with the timeline materialised: noted in the log, applied later."""
    engine = _twip_engine()
    user_count = scale.of(1_000)
    for user in range(user_count):
        engine.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
    for poster in count(user_count):
        new = [keys.subscription_key(user % user_count, poster) for user in range(_RUN)]
        begun = clock()
        for key in new:
            engine.put(key, keys.FOLLOWS)
        yield _RUN, clock() - begun


def check_after_subscribe(_: Scale) -> Samples:
    """Check after following one more poster with one post: the log of one entry is applied."""
    engine = _twip_engine()
    user_count = _RUN
    for user in range(user_count):
        engine.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
    for poster in count(user_count):
        engine.put(keys.post_key(poster, poster), _TWEET)
        for user in range(user_count):
            engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)
        ranges = [(keys.timeline_first(user, poster), keys.timeline_last(user)) for user in range(user_count)]
        begun = clock()
        for first, last in ranges:
            engine.scan(first, last)
        yield user_count, clock() - begun


def check_incremental(scale: Scale) -> Samples:
    """Check with three new rows in a timeline of 100 that is up to date."""
    engine = _twip_engine()
    user_count = scale.of(1_000)
    for user in range(user_count):
        engine.put(keys.subscription_key(user, 1), keys.FOLLOWS)
        engine.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
    for tick in range(100):
        engine.put(keys.post_key(1, tick), _TWEET)
    for start in count(0, _RUN):
        users = [(start + i) % user_count for i in range(_RUN)]
        ranges = [(keys.timeline_first(user, 97), keys.timeline_last(user)) for user in users]
        begun = clock()
        for first, last in ranges:
            engine.scan(first, last)
        yield _RUN, clock() - begun


def check_first(scale: Scale) -> Samples:
    """Check for the first time: 100 followed, 100 posts each."""
    engine = _twip_engine()
    followed, each = scale.of(100), scale.of(100)
    for poster in range(followed):
        for i in range(each):
            engine.put(keys.post_key(poster, i * followed + poster), _TWEET)
    for user in count(10_000):
        for poster in range(followed):
            engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)
        first, last = keys.timeline_first(user, 0), keys.timeline_last(user)
        begun = clock()
        rows = engine.scan(first, last)
        yield 1, clock() - begun
        assert len(rows.keys) == followed * each


def scan_50(scale: Scale) -> Samples:
    """Scan 50 neighbouring rows of 100,000 that no join computes."""
    engine = Engine()
    present = scale.of(100_000)
    for i in range(present):
        engine.put(b"x|%010d" % i, _TWEET)
    for start in count(0, 7919):
        at = [(start + i * 104_729) % max(1, present - 50) for i in range(_RUN)]
        ranges = [(b"x|%010d" % i, b"x|%010d" % (i + 50)) for i in at]
        begun = clock()
        for first, last in ranges:
            engine.scan(first, last)
        yield _RUN, clock() - begun


def get_base(scale: Scale) -> Samples:
    """Get keys of a table of 100,000 that no join computes."""
    engine = Engine()
    present = [b"x|%010d" % i for i in range(scale.of(100_000))]
    for key in present:
        engine.put(key, _TWEET)
    for start in count(0, 7919):
        some = [present[(start + i * 104_729) % len(present)] for i in range(_RUN)]
        begun = clock()
        for key in some:
            engine.get(key)
        yield _RUN, clock() - begun


def aggregate(operator: str) -> Workload:
    """Return the row that adds one source key to one of 100 groups that are materialised."""

    def samples(scale: Scale) -> Samples:
        engine = Engine()
        engine.add_joins(parse(f"agg|<group> = {operator} src|<group>|<id>"))
        groups = [b"%04d" % i for i in range(scale.of(100))]
        for group in groups:
            engine.put(b"src|%s|0" % group, b"1")
        engine.scan(b"agg|", b"agg}")
        for start in count(1, _RUN):
            new = [b"src|%s|%010d" % (groups[i % len(groups)], i) for i in range(start, start + _RUN)]
            begun = clock()
            for i, key in enumerate(new):
                engine.put(key, b"%d" % i)
            yield _RUN, clock() - begun

    return Workload(f"aggregate {operator}", "a put of one source key", samples)


WORKLOADS: Final = (
    Workload("put, new key", "a put", put_new),
    Workload("put, old key", "a put", put_again),
    Workload("get", "a get", get_base),
    Workload("scan 50 rows", "a scan", scan_50),
    Workload("fan-out", "an entry in a timeline", fan_out),
    Workload("check, incremental", "a scan of 3 rows", check_incremental),
    Workload("check, first, 100 x 100", "a scan of 10,000 rows", check_first),
    Workload("subscribe", "a put that is logged", subscribe),
    Workload("check after subscribe", "a scan that applies one logged key", check_after_subscribe),
    *(aggregate(operator) for operator in ("count", "sum", "min", "max")),
)


def timeline_entry_size(scale: Scale) -> Size:
    """Return what one entry of a timeline occupies beside the tweet that it shares with the post.

    Measured by tracemalloc over 200 timelines of 1,000 entries, updaters and status ranges included.
    """
    engine = _twip_engine()
    users, followed, each = scale.of(200), scale.of(50), scale.of(20)
    for poster in range(followed):
        for i in range(each):
            engine.put(keys.post_key(poster, i * followed + poster), _TWEET)
        for user in range(users):
            engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)
    ranges = [(keys.timeline_first(user, 0), keys.timeline_last(user)) for user in range(users)]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for first, last in ranges:
        engine.scan(first, last)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return Size("a timeline entry beside its tweet", (after - before) / (users * followed * each))


#: What has a size worth knowing, by a part of its name.
SIZES: Final = {"timeline entry": timeline_entry_size}
