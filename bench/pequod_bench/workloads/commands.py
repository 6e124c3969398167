"""Twip's operations as commands for a store, rendered before anything is timed.

A batch is columns, as the server's batch stream takes them: a byte for each command, and all their arguments in
one row, two for each:

    kinds      SCAN          PUT           PUT
    arguments  t|17|0 t|17}  s|4|9 1       p|9|2 tweet      first and last key, or key and value

Logouts concern the client alone and make no command.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pequod_workloads import twip as keys

from pequod.commands.kinds import PUT, SCAN
from pequod_bench.workloads.stream import CHECK, LOGOUT, SUBSCRIBE, TwipStream


class CommandBatch(NamedTuple):
    """Commands that go out together, as columns."""

    #: SCAN or PUT, one byte a command.
    kinds: bytes
    #: Two for each command.
    arguments: list[bytes]


def load_batches(stream: TwipStream, tweet_bytes: int, size: int) -> Iterator[CommandBatch]:
    """Yield the puts of what is there before the start: the graph's subscriptions and the initial posts."""
    arguments: list[bytes] = []
    for key, value in _load_rows(stream, tweet_bytes):
        arguments += (key, value)
        if len(arguments) == 2 * size:
            yield CommandBatch(bytes([PUT]) * size, arguments)
            arguments = []
    if arguments:
        yield CommandBatch(bytes([PUT]) * (len(arguments) // 2), arguments)


def _load_rows(stream: TwipStream, tweet_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    users, posters = stream.graph.users.tolist(), stream.graph.posters.tolist()
    for user, poster in zip(users, posters, strict=True):
        yield keys.subscription_key(user, poster), keys.FOLLOWS
    for tick, poster in enumerate(stream.initial_posters.tolist()):
        yield keys.post_key(poster, tick), keys.tweet(tick, tweet_bytes)


def timed_batches(stream: TwipStream, tweet_bytes: int, size: int) -> list[CommandBatch]:
    """Render the operations, ``size`` commands to a batch (the last one may be shorter)."""
    kinds = bytearray()
    arguments: list[bytes] = []
    lasts = {user: keys.timeline_last(user) for user in stream.active.tolist()}
    for tick, (kind, user, detail) in enumerate(stream.operations(), stream.first_tick):
        if kind == LOGOUT:
            continue
        if kind == CHECK:
            kinds.append(SCAN)
            arguments += (keys.timeline_first(user, detail), lasts[user])
            continue
        kinds.append(PUT)
        if kind == SUBSCRIBE:
            arguments += (keys.subscription_key(user, detail), keys.FOLLOWS)
        else:
            arguments += (keys.post_key(user, tick), keys.tweet(tick, tweet_bytes))
    return [
        CommandBatch(bytes(kinds[i : i + size]), arguments[2 * i : 2 * (i + size)]) for i in range(0, len(kinds), size)
    ]


def timeline_scans(stream: TwipStream, size: int) -> Iterator[CommandBatch]:
    """Yield scans of every active user's whole timeline, in the order of `verify.final_timelines`."""
    users = stream.active.tolist()
    for i in range(0, len(users), size):
        some = users[i : i + size]
        bounds = [bound for user in some for bound in keys.timeline(user)]
        yield CommandBatch(bytes([SCAN]) * len(some), bounds)
