"""What an entry of a timeline takes, by tracemalloc."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Final

from pequod_bench.micro.engine import TWEET, timeline, twip_engine
from pequod_bench.micro.frame import MicroScale, MicroSize
from pequod_bench.workloads import keys


def entry_size(scale: MicroScale) -> MicroSize:
    """Return what an entry of a first check takes beside the tweet: 200 timelines, updaters and status ranges too."""
    users, followed, each = scale.of(200), scale.of(50), scale.of(20)
    engine = twip_engine()
    for poster in range(followed):
        for i in range(each):
            engine.put(keys.post_key(poster, i * followed + poster), TWEET)
        for user in range(users):
            engine.put(keys.subscription_key(user, poster), keys.FOLLOWS)

    def check_all() -> None:
        for user in range(users):
            engine.scan(*timeline(user))

    return MicroSize("a timeline entry beside its tweet", grown_bytes(check_all) / (users * followed * each))


def fan_out_entry_size(scale: MicroScale) -> MicroSize:
    """Return what an entry takes that came with a post; its tail is shared by all timelines."""
    users, posts = scale.of(200), scale.of(1_000)
    engine = twip_engine(users, 1)
    rendered = [(keys.post_key(1, tick), keys.tweet(tick, 140)) for tick in range(posts)]

    def post_all() -> None:
        for key, value in rendered:
            engine.put(key, value)

    return MicroSize("a timeline entry of a fan-out", grown_bytes(post_all) / (users * posts))


def grown_bytes(work: Callable[[], None]) -> int:
    """Return the bytes that some work has left behind."""
    gc.collect()
    tracemalloc.start()
    work()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return grown


#: What has a size worth knowing, by a part of its name.
SIZES: Final = {"timeline entry": entry_size, "timeline entry of a fan-out": fan_out_entry_size}
