"""What a schedule has much of and what it lacks, drawn anew for each seed.

Schedules that are all alike find the same faults again: one with many evictions and no failover, one with slow loads
and a trickling feed, and one with hardly any keys reach states that their average does not. (Swarm testing.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

#: By name of the method, how often a step is drawn on average.
WEIGHTS: Final = {
    "commit": 24,
    "burst": 4,
    "get": 6,
    "multi_get": 6,
    "count": 5,
    "scan": 18,
    "execute": 10,
    "put": 8,
    "remove": 3,
    "decide": 6,
    "remove_range": 1,
    "hand_on": 2,
    "evict": 8,
    "invalidate": 3,
    "add_join": 5,
    "drop_join": 2,
    "watch": 3,
    "unwatch": 2,
    "fault": 5,
}
#: What goes wrong, each as often as it stands here.
FAULTS: Final = (
    "cut",
    "heal",
    "heal",
    "reset",
    "half open",
    "stall",
    "stall",
    "lose feed",
    "fail over",
    "fail over, and cut off",
    "restart",
    "clock",
)


@dataclass(frozen=True)
class Mix:
    """The habits of one schedule."""

    weights: dict[str, float]
    #: The share of keys that come from a pool of few, and the size of the pool.
    hot_share: float
    hot_count: int
    #: Pauses between two steps, in seconds; one of them is drawn each time.
    pauses_s: tuple[float, ...]
    #: A message takes up to this long.
    slowest_s: float
    #: A load takes up to this long at the database, before and after it reads.
    load_s: float
    #: The feed waits up to this long before it sends a commit.
    trickle_s: float
    #: The share of a feed's events at which somebody reads at once, before and after.
    read_at_event: float
    #: The share of reads by sessions.
    session_share: float
    #: Whether some joins are snapshots.
    has_snapshots: bool
    #: The share of single writes whose clients give up after a deadline.
    deadline_share: float
    #: How many messages of a home's feed are under way at most: commits that come meanwhile are told together.
    feed_window: int


def drawn_weights(random: Random, weights: Mapping[str, float]) -> dict[str, float]:
    """Draw how often each step is drawn in one schedule, about an average."""
    return {name: weight * random.choice([0.3, 1.0, 1.0, 3.0]) for name, weight in weights.items()}


def draw_mix(random: Random) -> Mix:
    """Draw the habits of a schedule."""
    return Mix(
        weights=drawn_weights(random, WEIGHTS),
        hot_share=random.choice([0.0, 0.6, 0.9]),
        hot_count=random.choice([2, 4, 8]),
        pauses_s=random.choice(
            [(0.0, 0.0, 0.001, 0.01, 0.05, 0.2, 1.0), (0.0, 0.001, 0.01), (0.0, 0.01, 0.05, 0.2), (0.05, 0.5, 2.0)]
        ),
        slowest_s=random.choice([0.01, 0.05, 0.05, 0.5]),
        load_s=random.choice([0.0, 0.0, 0.05, 0.5]),
        trickle_s=random.choice([0.0, 0.0, 0.02, 0.3]),
        read_at_event=random.choice([0.0, 0.0, 0.1, 0.4]),
        session_share=random.choice([0.2, 0.5, 0.9]),
        has_snapshots=random.random() < 0.3,
        feed_window=random.choice([1, 4, 1000]),
        deadline_share=random.choice([0.0, 0.3, 0.0, 0.0]),
    )
