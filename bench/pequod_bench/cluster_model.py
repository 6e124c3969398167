"""A cluster of any size on paper: what its servers do in a run of Twip, and what that costs by measured prices.

    work(stream, 12)   where each timeline is computed; so which computes hear of each post and each subscription
    fitted(runs)       what a check, a change that is delivered and a write cost, from the accounts of small clusters
    predicted(...)     CPU seconds of all computes, and of the busiest one: its core is what limits the cluster

The counts are exact: the client's own rendezvous hashing says which compute has which timeline. The prices are CPU time
of the servers' processes, so they hold also where there are more processes than cores; that computes wait for nothing
but their own core is an assumption (the paper's §5.5 found the same).

Limits: every active user's timeline is loaded from the start, as in the paper; logouts cost nothing; homes are as many
as it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pequod.cluster.rendezvous import owners
from pequod_bench.graph import Ids
from pequod_bench.keys import timeline_last
from pequod_bench.stream import CHECK, POST, SUBSCRIBE, TwipStream


@dataclass(frozen=True, slots=True)
class ClusterWork:
    """What a run asks of the servers of a cluster."""

    computes: int
    ticks: int
    #: Checks of each compute.
    checks: Ids
    #: Changes delivered to each compute: a post goes to all computes with an active follower, a subscription to one.
    changes: Ids
    #: Rows that come into the timelines of each compute; together they do not depend on the number of computes.
    rows: Ids
    #: Writes at the homes.
    writes: int
    #: Posters whose posts a compute has, summed over the computes, by those that any compute has: 1 without duplicates.
    duplication: float

    @property
    def change_count(self) -> int:
        """All changes that the homes deliver."""
        return int(self.changes.sum())


@dataclass(frozen=True, slots=True)
class Account:
    """What the servers of one run took."""

    work: ClusterWork
    #: CPU seconds of all computes and of all homes.
    compute_cpu_s: float
    home_cpu_s: float


@dataclass(frozen=True, slots=True)
class Prices:
    """CPU time, in microseconds."""

    #: Of a compute: a tick with its share of checks and timeline rows, and a change that is delivered to it.
    tick_us: float
    change_us: float
    #: Of the homes: a write, and a change that is delivered.
    write_us: float
    delivery_us: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a cluster would do."""

    computes: int
    compute_cpu_s: float
    home_cpu_s: float
    #: With a core for each compute and homes enough.
    ticks_per_s: float
    #: How many cores the homes need for that.
    home_cores: float
    duplication: float


@lru_cache(maxsize=64)
def _owner_numbers(user_count: int, computes: int) -> Ids:
    """Return for each user the number of the compute that has the timeline."""
    servers = [(f"c{number}", 1.0) for number in range(1, computes + 1)]
    # The group of a timeline is its table and user: `t|00000007|`.
    groups = (timeline_last(user)[:-1] + b"|" for user in range(user_count))
    return np.array([int(owners(group, servers)[0][1:]) - 1 for group in groups], dtype=np.int64)


def work(stream: TwipStream, computes: int) -> ClusterWork:
    """Count what a run asks of each server, if timelines are spread over a number of computes.

    Cost:
        1 us for each user and compute, and a sort of the edges.
    """
    graph = stream.graph
    owner = _owner_numbers(graph.user_count, computes)
    is_active = np.zeros(graph.user_count, dtype=bool)
    is_active[stream.active] = True
    is_check, is_subscribe, is_post = (stream.kinds == kind for kind in (CHECK, SUBSCRIBE, POST))
    subscribers, followed = stream.users[is_subscribe], stream.details[is_subscribe]
    # All subscriptions of the run count as if they were there from its start: they are few beside the graph.
    users, posters = np.append(graph.users, subscribers), np.append(graph.posters, followed)
    kept = is_active[users]
    pairs = np.unique(posters[kept] * computes + owner[users[kept]])
    hears = np.zeros((graph.user_count, computes), dtype=bool)
    hears[pairs // computes, pairs % computes] = True
    post_counts = np.bincount(stream.users[is_post], minlength=graph.user_count)
    changes = post_counts @ hears
    changes += np.bincount(owner[subscribers[is_active[subscribers]]], minlength=computes)
    rows = np.bincount(owner[users[kept]], weights=post_counts[posters[kept]], minlength=computes)
    heard_by = hears.sum(axis=1)
    return ClusterWork(
        computes,
        stream.tick_count,
        np.bincount(owner[stream.users[is_check]], minlength=computes),
        changes.astype(np.int64),
        rows.astype(np.int64),
        int(is_subscribe.sum() + is_post.sum()),
        float(heard_by.sum() / max(1, (heard_by > 0).sum())),
    )


def fitted(accounts: Sequence[Account]) -> Prices:
    """Return the prices that explain some runs of one stream on clusters of several sizes, by least squares.

    Raises:
        ValueError: There are fewer than two sizes, so that nothing tells the prices apart.
    """
    if len({account.work.computes for account in accounts}) < 2:
        raise ValueError("prices follow from runs with two numbers of computes, or more")
    ticks = np.array([account.work.ticks for account in accounts], dtype=float)
    writes = np.array([account.work.writes for account in accounts], dtype=float)
    changes = np.array([account.work.change_count for account in accounts], dtype=float)
    compute = _least_squares(ticks, changes, np.array([account.compute_cpu_s for account in accounts]))
    home = _least_squares(writes, changes, np.array([account.home_cpu_s for account in accounts]))
    return Prices(*(1e6 * price for price in (*compute, *home)))


def _least_squares(first: np.ndarray, second: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Return the two prices, none of them below zero: noise would make one that is near zero negative."""
    found, *_ = np.linalg.lstsq(np.stack([first, second], axis=1), seconds, rcond=None)
    if found[1] < 0:
        return float((first @ seconds) / (first @ first)), 0.0
    if found[0] < 0:
        return 0.0, float((second @ seconds) / (second @ second))
    return float(found[0]), float(found[1])


def predicted(stream: TwipStream, computes: int, prices: Prices) -> Prediction:
    """Return what a cluster of some size would do."""
    asked = work(stream, computes)
    # What a tick costs at a compute is spread as checks and rows are; the busiest compute limits the cluster.
    checks_part = asked.checks / max(1, asked.checks.sum())
    rows_part = asked.rows / max(1, asked.rows.sum())
    own_s = (checks_part + rows_part) / 2 * asked.ticks * prices.tick_us * 1e-6
    busy_s = own_s + asked.changes * prices.change_us * 1e-6
    home_cpu_s = (asked.writes * prices.write_us + asked.change_count * prices.delivery_us) * 1e-6
    seconds = float(busy_s.max())
    return Prediction(
        computes, float(busy_s.sum()), home_cpu_s, asked.ticks / seconds, home_cpu_s / seconds, asked.duplication
    )
