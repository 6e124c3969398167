"""What an entry of a timeline and a subscription take, by tracemalloc."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Final

from pequod_server.homes.subscriptions import Subscriptions
from pequod_workloads import twip as keys

from pequod_bench.micro.engine import archive_engine, twip_engine
from pequod_bench.micro.frame import MicroScale, MicroSize, timed


def entry_size(scale: MicroScale) -> MicroSize:
    """Return what an entry of a first check takes beside the tweet: 200 timelines, updaters and status ranges too."""
    users, followed, each = scale.of(200), scale.of(50), scale.of(20)
    engine = archive_engine(followed, each)
    for poster in range(followed):
        for user in range(users):
            engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)
    return _grown(
        "a timeline entry beside its tweet", engine.scan, list(map(keys.timeline, range(users))), followed * each
    )


def fan_out_entry_size(scale: MicroScale) -> MicroSize:
    """Return what an entry takes that came with a post; its tail is shared by all timelines."""
    users, posts = scale.of(200), scale.of(1_000)
    rows = [(keys.post_key(1, tick), keys.tweet(tick)) for tick in range(posts)]
    return _grown("a timeline entry of a fan-out", twip_engine(users, 1).put, rows, users)


def subscription_size(scale: MicroScale) -> MicroSize:
    """Return what a compute's subscription to the posts of one poster costs its home; every third poster has none."""
    posters = [keys.posts_of(poster) for poster in range(0, scale.of(30_000), 3)]
    wants = Subscriptions()
    return _grown("a subscription at a home", lambda first, last: wants.add(first, last, 1), posters, 1)


def _grown(
    name: str, call: Callable[[bytes, bytes], object], arguments: Sequence[tuple[bytes, bytes]], each: int
) -> MicroSize:
    """Return the bytes that calls have left behind, for each of the ``each`` things that a call makes."""
    gc.collect()
    tracemalloc.start()
    timed(call, arguments)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return MicroSize(name, grown / (len(arguments) * each))


#: What has a size worth knowing, by a part of its name.
SIZES: Final = {
    "timeline entry": entry_size,
    "timeline entry of a fan-out": fan_out_entry_size,
    "subscription at a home": subscription_size,
}
