"""Micro benchmarks of reads that the engine has a short way for, other than checks of a timeline up to its end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Final

from pequod_grammar import parse

from pequod.engine import Engine
from pequod_bench import keys
from pequod_bench.micro import Samples, Scale, Workload, clock

_TWEET: Final = b"x" * 140
#: Operations a sample, where a single one is too short for the clock.
_RUN: Final = 64
#: Four joins fill one table, interleaved (paper §2.3).
_PAGE_JOINS: Final = """
    page|<author>|<id>|a = copy article|<author>|<id>;
    page|<author>|<id>|r = count vote|<author>|<id>|<voter>;
    page|<author>|<id>|c|<number>|<user> = copy comment|<author>|<id>|<number>|<user>;
    page|<author>|<id>|k|<number>|<user> = check comment|<author>|<id>|<number>|<user> copy karma|<user>;
"""


def scan_inside(scale: Scale) -> Samples:
    """Scan three rows out of the middle of timelines of 100 that are up to date."""
    engine = Engine()
    engine.add_joins(parse(keys.PUSH_JOIN))
    user_count = scale.of(1_000)
    for user in range(user_count):
        engine.put(keys.subscription_key(user, 1), keys.FOLLOWS)
        engine.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
    for tick in range(100):
        engine.put(keys.post_key(1, tick), _TWEET)
    users = range(user_count)
    yield from _scans(engine, [(keys.timeline_first(user, 50), keys.timeline_first(user, 53)) for user in users])


def page(scale: Scale) -> Samples:
    """Read pages that four joins fill, each with five comments, all up to date."""
    engine = Engine()
    engine.add_joins(parse(_PAGE_JOINS))
    page_count = scale.of(300)
    for number in range(page_count):
        engine.put(b"article|ann|%d" % number, _TWEET)
        for i in range(5):
            engine.put(b"vote|ann|%d|%d" % (number, i), b"1")
            engine.put(b"comment|ann|%d|%d|%d" % (number, i, i), _TWEET)
            engine.put(b"karma|%d" % i, b"1")
    ranges = [(b"page|ann|%d|" % number, b"page|ann|%d|}" % number) for number in range(page_count)]
    for first, last in ranges:
        engine.scan(first, last)
    yield from _scans(engine, ranges)


def pull_celebrity(scale: Scale) -> Samples:
    """Check a timeline of 100 rows, of which one by a celebrity is new and computed by the check."""
    engine = Engine()
    engine.add_joins(parse(keys.CELEBRITY_JOINS))
    user_count = scale.of(1_000)
    for user in range(user_count):
        engine.put(keys.subscription_key(user, 1), keys.FOLLOWS)
        engine.put(keys.subscription_key(user, 2), keys.FOLLOWS)
        engine.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
    for tick in range(100):
        engine.put(keys.post_key(1, tick), _TWEET)
    engine.put(keys.celebrity_key(2, 100), _TWEET)
    users = range(user_count)
    yield from _scans(engine, [(keys.timeline_first(user, 97), keys.timeline_last(user)) for user in users])


def _scans(engine: Engine, ranges: Sequence[tuple[bytes, bytes]]) -> Samples:
    """Scan ranges one after another, and all of them again, for as long as samples are taken."""
    for start in count(0, _RUN):
        some = [ranges[(start + i) % len(ranges)] for i in range(_RUN)]
        begun = clock()
        for first, last in some:
            engine.scan(first, last)
        yield _RUN, clock() - begun


READS: Final = (
    Workload("scan inside a timeline", "a scan of 3 rows", scan_inside),
    Workload("page, four joins", "a scan of 12 rows", page),
    Workload("pull, celebrity", "a scan of 4 rows, 1 computed", pull_celebrity),
)
