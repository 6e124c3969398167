"""A cluster of any size on paper: what its servers do in a run of Twip, and what that costs by measured prices.

    work(stream, 12, 3072)   where each timeline is computed; so which computes hear of each post and each subscription
    fitted(accounts)         what a command, a message, a change and a load cost, from the accounts of small clusters
    predicted(...)           CPU seconds of all computes, and of the busiest one: its core is what limits the cluster

The counts of `work` are exact, or follow from the stream: the client's own rendezvous hashing says which compute has
which timeline. A home tells a compute the changes of one message of a client in one message, so both kinds of messages
are counted from the messages of clients. The prices are CPU time of the servers' processes, so they hold also where
there are more processes than cores; that computes wait for nothing but their own core is an assumption (the paper's
§5.5 found the same).

Limits: every active user's timeline is loaded from the start, as in the paper; logouts cost nothing; homes are as many
as it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np

from pequod.cluster.rendezvous import owners
from pequod_bench.graph import Ids
from pequod_bench.keys import timeline_last
from pequod_bench.stream import CHECK, LOGOUT, POST, SUBSCRIBE, TwipStream


class ClusterCounts(NamedTuple):
    """What servers of one role were asked: what prices are found for."""

    #: Of clients: checks at computes, writes at homes; and the messages that brought them.
    commands: float
    messages: float
    #: Changes that homes deliver to computes, and the messages that bring them.
    changes: float
    feed_messages: float
    #: Loads of computes from homes, their ranges and their rows.
    loads: float
    loaded_ranges: float
    loaded_rows: float


class RolePrices(NamedTuple):
    """CPU time of the servers of one role, in microseconds, for one of each in `ClusterCounts`."""

    command_us: float
    message_us: float
    change_us: float
    feed_message_us: float
    load_us: float
    loaded_range_us: float
    loaded_row_us: float

    def cpu_s(self, counts: ClusterCounts) -> float:
        """Return what some work costs."""
        return sum(price * count for price, count in zip(self, counts, strict=True)) * 1e-6

    @classmethod
    def fitted(cls, counts: Sequence[ClusterCounts], seconds: Sequence[float]) -> Self:
        """Return the prices that explain accounts best, by least squares of the relative errors, none below zero.

        A price that would be negative is noise about a small one: it is zero, and the others are found without it.
        """
        table, paid = np.array(counts, dtype=float), np.array(seconds, dtype=float)
        weights = 1 / np.maximum(paid, 1e-9)
        kept = [column for column in range(table.shape[1]) if table[:, column].any()]
        found = np.zeros(table.shape[1])
        while kept:
            # Columns of one size: a load is as rare as commands are many.
            sizes = table[:, kept].max(axis=0)
            prices, *_ = np.linalg.lstsq(table[:, kept] / sizes * weights[:, None], paid * weights, rcond=None)
            if prices.min() >= 0:
                found[kept] = prices / sizes
                break
            del kept[int(prices.argmin())]
        return cls(*(found * 1e6).tolist())


@dataclass(frozen=True, slots=True)
class Prices:
    """What everything costs at a compute, and at a home."""

    compute: RolePrices
    home: RolePrices


@dataclass(frozen=True, slots=True)
class Account:
    """What a phase of a run asked of the servers, and what it took."""

    computes: int
    #: All computes, and all homes.
    compute: ClusterCounts
    home: ClusterCounts
    compute_cpu_s: float
    home_cpu_s: float


@dataclass(frozen=True, slots=True)
class ClusterWork:
    """What a run asks of the servers of a cluster."""

    computes: int
    ticks: int
    #: Checks of each compute, and messages of clients with any of them.
    checks: Ids
    messages: Ids
    #: Changes delivered to each compute: a post goes to all computes with an active follower, a subscription to one;
    #: and the messages that bring them, one for each message of a client with such a write.
    changes: Ids
    feed_messages: Ids
    #: Rows that come into the timelines of each compute; together they do not depend on the number of computes.
    rows: Ids
    #: Posters that nobody at a compute followed before: each is a range to load. What checks of one message lack is
    #: loaded together, so there is one load for each message of a client with such a subscription.
    loads: Ids
    loaded_ranges: Ids
    #: Writes at the homes, and messages of clients with any of them.
    writes: int
    write_messages: int
    #: Posters whose posts a compute has, summed over the computes, by those that any compute has: 1 without duplicates.
    duplication: float

    @property
    def change_count(self) -> int:
        """All changes that the homes deliver."""
        return int(self.changes.sum())

    @property
    def of_computes(self) -> ClusterCounts:
        """What all computes are asked."""
        return ClusterCounts(
            float(self.checks.sum()),
            float(self.messages.sum()),
            self.change_count,
            float(self.feed_messages.sum()),
            float(self.loads.sum()),
            float(self.loaded_ranges.sum()),
            0.0,
        )

    @property
    def of_homes(self) -> ClusterCounts:
        """What all homes are asked."""
        of_computes = self.of_computes
        return of_computes._replace(commands=self.writes, messages=self.write_messages)


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


def work(stream: TwipStream, computes: int, batch: int) -> ClusterWork:
    """Count what a run asks of each server, if timelines are spread over a number of computes.

    Args:
        batch: Commands in a message of a client, for all servers together.

    Cost:
        1 us for each user and compute, and a sort of the edges.
    """
    graph = stream.graph
    owner = _owner_numbers(graph.user_count, computes)
    is_active = np.zeros(graph.user_count, dtype=bool)
    is_active[stream.active] = True
    is_check, is_subscribe, is_post = (stream.kinds == kind for kind in (CHECK, SUBSCRIBE, POST))
    subscribers, followed = stream.users[is_subscribe], stream.details[is_subscribe]
    is_kept = is_active[subscribers]
    # All subscriptions of the run count as if they were there from its start: they are few beside the graph.
    users, posters = np.append(graph.users, subscribers), np.append(graph.posters, followed)
    kept = is_active[users]
    before = _pairs(graph.users[is_active[graph.users]], graph.posters[is_active[graph.users]], owner, computes)
    pairs = _pairs(users[kept], posters[kept], owner, computes)
    hears = np.zeros((graph.user_count, computes), dtype=bool)
    hears[pairs // computes, pairs % computes] = True
    post_counts = np.bincount(stream.users[is_post], minlength=graph.user_count)
    changes = post_counts @ hears
    changes += np.bincount(owner[subscribers[is_kept]], minlength=computes)
    rows = np.bincount(owner[users[kept]], weights=post_counts[posters[kept]], minlength=computes)
    # Which message of a client has each tick; logouts are in none.
    message = (np.cumsum(stream.kinds != LOGOUT) - 1) // batch
    asked = np.zeros((int(message[-1]) + 1, computes), dtype=bool)
    told, loaded = asked.copy(), asked.copy()
    asked[message[is_check], owner[stream.users[is_check]]] = True
    np.logical_or.at(told, message[is_post], hears[stream.users[is_post]])
    told[message[is_subscribe][is_kept], owner[subscribers[is_kept]]] = True
    fresh, first = np.unique(followed[is_kept] * computes + owner[subscribers[is_kept]], return_index=True)
    is_new = ~np.isin(fresh, before)
    loaded[message[is_subscribe][is_kept][first[is_new]], fresh[is_new] % computes] = True
    heard_by = hears.sum(axis=1)
    return ClusterWork(
        computes=computes,
        ticks=stream.tick_count,
        checks=np.bincount(owner[stream.users[is_check]], minlength=computes),
        messages=asked.sum(axis=0),
        changes=changes.astype(np.int64),
        feed_messages=told.sum(axis=0),
        rows=rows.astype(np.int64),
        loads=loaded.sum(axis=0),
        loaded_ranges=np.bincount(fresh[is_new] % computes, minlength=computes),
        writes=int(is_subscribe.sum() + is_post.sum()),
        write_messages=len(np.unique(message[is_subscribe | is_post])),
        duplication=float(heard_by.sum() / max(1, (heard_by > 0).sum())),
    )


def _pairs(users: Ids, posters: Ids, owner: Ids, computes: int) -> Ids:
    """Return the posters that are followed at each compute, as poster times computes plus compute."""
    return np.unique(posters * computes + owner[users])


def fitted(accounts: Sequence[Account]) -> Prices:
    """Return the prices that explain phases of runs on clusters of several sizes.

    Raises:
        ValueError: There are fewer than two sizes, so that nothing tells the prices apart.
    """
    if len({account.computes for account in accounts}) < 2:
        raise ValueError("prices follow from runs with two numbers of computes, or more")
    return Prices(
        RolePrices.fitted([one.compute for one in accounts], [one.compute_cpu_s for one in accounts]),
        RolePrices.fitted([one.home for one in accounts], [one.home_cpu_s for one in accounts]),
    )


def predicted(stream: TwipStream, computes: int, batch: int, prices: Prices) -> Prediction:
    """Return what a cluster of some size would do.

    Args:
        batch: Commands in a message of a client, for each compute.
    """
    asked = work(stream, computes, batch * computes)
    price = prices.compute
    # What a check costs at a compute is spread as checks and rows are; the busiest compute limits the cluster.
    checks_part = asked.checks / max(1, asked.checks.sum())
    rows_part = asked.rows / max(1, asked.rows.sum())
    busy_us = (checks_part + rows_part) / 2 * asked.checks.sum() * price.command_us
    busy_us += (
        asked.messages * price.message_us + asked.loads * price.load_us + asked.loaded_ranges * price.loaded_range_us
    )
    busy_us += asked.changes * price.change_us + asked.feed_messages * price.feed_message_us
    home_cpu_s = prices.home.cpu_s(asked.of_homes)
    seconds = float(busy_us.max()) * 1e-6
    return Prediction(
        computes, float(busy_us.sum()) * 1e-6, home_cpu_s, asked.ticks / seconds, home_cpu_s / seconds,
        asked.duplication,
    )  # fmt: skip
