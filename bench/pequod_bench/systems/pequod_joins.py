"""Pequod with joins: the server keeps the timelines, the client only says what happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pequod.client import AsyncClient, Result, Rows
from pequod_bench.systems.pequod_results import count_rows, empty, raise_first, timelines
from pequod_bench.systems.system import BATCH, WINDOW, SystemWorkload, Work, at_once
from pequod_bench.workloads import keys
from pequod_bench.workloads.commands import load_batches
from pequod_bench.workloads.stream import CHECK, LOGOUT, SUBSCRIBE

_LOAD_BATCH: Final = 512


@dataclass(frozen=True, slots=True)
class Timelines:
    """How the server keeps timelines."""

    joins: str = keys.PUSH_JOIN
    #: Every user's timeline is read before the clock starts.
    is_whole: bool = False
    #: The part of the users, by followers, whose posts go under cp| instead of p|.
    celebrity_part: float = 0.0
    #: Seconds after which timelines show everything that was written before.
    stale_s_max: float = 0.0


class JoinSession:
    """Timelines that the server computes."""

    def __init__(self, client: AsyncClient, workload: SystemWorkload, how: Timelines) -> None:
        self._client = client
        self._workload = workload
        self._how = how
        followers = workload.stream.graph.follower_counts()
        celebrity_count = round(len(followers) * how.celebrity_part)
        self._celebrities = frozenset(np.argsort(-followers, kind="stable")[:celebrity_count].tolist())

    async def load(self) -> None:
        """Install the joins and write the graph; read every user's timeline once if all are to be kept."""
        await self._client.add_join(self._how.joins)
        stream = self._workload.stream
        for kinds, arguments in load_batches(stream, self._workload.tweet_bytes, _LOAD_BATCH):
            batch = self._client.batch()
            batch.kinds += kinds
            batch.arguments += map(self._apart, arguments) if self._celebrities else arguments
            raise_first(await batch.send())
        if self._how.is_whole:
            users = range(stream.graph.user_count)
            for i in range(0, len(users), _LOAD_BATCH):
                await timelines(self._client, users[i : i + _LOAD_BATCH])

    async def run(self) -> Work:
        """Send every operation as it is."""
        stream, tweet_bytes = self._workload.stream, self._workload.tweet_bytes
        under_way: deque[Awaitable[list[Result]]] = deque()
        row_count = command_count = message_count = 0
        kinds, users, details = stream.kinds.tolist(), stream.users.tolist(), stream.details.tolist()
        for start in range(0, len(kinds), BATCH):
            if len(under_way) == WINDOW:
                row_count += count_rows(await under_way.popleft())
            batch = self._client.batch()
            for row in range(start, min(start + BATCH, len(kinds))):
                kind, user = kinds[row], users[row]
                if kind == CHECK:
                    batch.scan(keys.timeline_first(user, details[row]), keys.timeline_last(user))
                elif kind == SUBSCRIBE:
                    batch.put(keys.subscription_key(user, details[row]), keys.FOLLOWS)
                elif kind != LOGOUT:
                    tick = stream.first_tick + row
                    batch.put(self._post_key(user, tick), keys.tweet(tick, tweet_bytes))
            if len(batch):
                command_count += len(batch)
                message_count += 1
                under_way.append(batch.send())
        for replies in under_way:
            row_count += count_rows(await replies)
        return Work(row_count, command_count, message_count)

    def _apart(self, argument: bytes) -> bytes:
        """Return the key of a celebrity's post where that is kept, anything else as it is."""
        is_apart = argument.startswith(b"p|") and int(argument[2:10]) in self._celebrities
        return b"c" + argument if is_apart else argument

    def _post_key(self, poster: int, tick: int) -> bytes:
        return keys.celebrity_key(poster, tick) if poster in self._celebrities else keys.post_key(poster, tick)

    async def timelines(self, users: Sequence[int]) -> list[Rows]:
        """Scan whole timelines."""
        return await timelines(self._client, users)

    async def check(self, user: int, since: int) -> int:
        """Scan a timeline."""
        return len(await self._client.scan(keys.timeline_first(user, since), keys.timeline_last(user)))

    async def post(self, poster: int, tick: int, text: bytes) -> Awaitable[None]:
        """Put a post; timelines have it at once."""
        await self._client.put(self._post_key(poster, tick), text)
        return at_once()

    async def clear(self) -> None:
        """Remove the joins and all keys."""
        await empty(self._client)
