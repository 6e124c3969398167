"""One compute of a cluster of any size, with all that it is asked in a run of Twip.

    member(settings, stream, 48, 17)   of the timelines of compute 17 of 48: checks and subscriptions; and all posts

The client's own rendezvous hashing says which compute has which timeline. A message of the client has as many commands
for each compute, however many computes there are; what others are asked is left out of it. So a home and one compute
run here as they would beside all others, however few cores there are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from pequod.cluster.rendezvous import owners
from pequod_bench.twip import Prepared, TwipSettings
from pequod_bench.workloads.commands import CommandBatch, timed_batches
from pequod_bench.workloads.graph import Ids
from pequod_bench.workloads.keys import timeline_last
from pequod_bench.workloads.stream import CHECK, LOGOUT, POST, TwipStream


@lru_cache(maxsize=64)
def owner_numbers(user_count: int, computes: int) -> Ids:
    """Return for each user the number of the compute that has the timeline."""
    servers = [(f"c{number}", 1.0) for number in range(computes)]
    # The group of a timeline is its table and user: `t|00000007|`.
    groups = (timeline_last(user)[:-1] + b"|" for user in range(user_count))
    return np.array([int(owners(group, servers)[0][1:]) for group in groups], dtype=np.int64)


def busiest(stream: TwipStream, computes: int) -> int:
    """Return the number of the compute that gets the most checks: its core limits the cluster."""
    owner = owner_numbers(stream.graph.user_count, computes)
    return int(np.bincount(owner[stream.users[stream.kinds == CHECK]], minlength=computes).argmax())


def copies_of_posts(stream: TwipStream, computes: int) -> float:
    """Return how many computes have the posts of a poster, on average over the posters that any of them has."""
    graph, owner = stream.graph, owner_numbers(stream.graph.user_count, computes)
    is_read = np.isin(graph.users, stream.active)
    posters = graph.posters[is_read]
    return len(np.unique(posters * computes + owner[graph.users[is_read]])) / max(1, len(np.unique(posters)))


def member(settings: TwipSettings, stream: TwipStream, computes: int, number: int) -> Prepared:
    """Return what one compute of a cluster is asked in a run.

    Args:
        settings: ``batch`` is for each compute.
        number: From 0 up.
    """
    graph = stream.graph
    is_own = owner_numbers(graph.user_count, computes) == number
    is_asked = (stream.kinds == POST) | (is_own[stream.users] & (stream.kinds != LOGOUT))
    # A logout keeps its tick, and is no command.
    own = replace(
        stream,
        graph=replace(graph, users=graph.users[is_own[graph.users]], posters=graph.posters[is_own[graph.users]]),
        active=stream.active[is_own[stream.active]],
        kinds=np.where(is_asked, stream.kinds, np.int8(LOGOUT)),
    )
    message = ((np.cumsum(stream.kinds != LOGOUT) - 1) // (settings.batch * computes))[is_asked]
    starts = [0, *(np.flatnonzero(np.diff(message)) + 1).tolist(), len(message)]
    whole = joined(timed_batches(own, settings.tweet_bytes, settings.batch))
    batches = [cut(whole, start, stop) for start, stop in pairwise(starts) if start < stop]
    return Prepared(settings, own, batches)


def joined(batches: list[CommandBatch]) -> CommandBatch:
    """Return the commands of all batches as one."""
    return CommandBatch(b"".join(one.kinds for one in batches), [each for one in batches for each in one.arguments])


def cut(commands: CommandBatch, start: int, stop: int) -> CommandBatch:
    """Return some commands of a batch."""
    return CommandBatch(commands.kinds[start:stop], commands.arguments[2 * start : 2 * stop])
