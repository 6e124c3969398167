"""Pequod without joins: the client keeps the timelines, in base keys."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Final

from pequod.client import AsyncBatch, AsyncClient, Result, Rows
from pequod_bench.systems.client_managed import Answers, ManagedSession
from pequod_bench.systems.pequod_results import empty, raise_first, timelines
from pequod_bench.systems.system import SystemWorkload
from pequod_bench.workloads import keys

_LOAD_BATCH: Final = 512


class ClientSession(ManagedSession[tuple[bytes, bytes]]):
    """Timelines that the client keeps, in base keys."""

    def __init__(self, client: AsyncClient, workload: SystemWorkload) -> None:
        super().__init__(workload, lambda: _PequodTimelineMessage(client))
        self._client = client

    async def load(self) -> None:
        """Write the graph, by poster."""
        graph = self._workload.stream.graph
        edges = sorted(zip(graph.posters.tolist(), graph.users.tolist(), strict=True))
        for i in range(0, len(edges), _LOAD_BATCH):
            batch = self._client.batch()
            for edge in edges[i : i + _LOAD_BATCH]:
                batch.put(_follower_key(*edge), keys.FOLLOWS)
            raise_first(await batch.send())

    async def timelines(self, users: Sequence[int]) -> list[Rows]:
        """Scan whole timelines."""
        return await timelines(self._client, users)

    async def clear(self) -> None:
        """Remove all keys."""
        await empty(self._client)


def _follower_key(poster: int, user: int) -> bytes:
    return b"f|%08d|%08d" % (poster, user)


class _PequodTimelineMessage:
    """Commands for a store without joins; a post in a timeline is the key's tail and the value.

    ``_kinds`` tells what each reply is: ``c`` a check, ``s`` an earlier subscription, ``p`` posts, ``f`` followers,
    ``w`` a write.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._batch: AsyncBatch = client.batch()
        self._kinds: list[str] = []

    @property
    def command_count(self) -> int:
        return len(self._batch)

    def check(self, user: int, since: int) -> None:
        self._kinds.append("c")
        self._batch.scan(keys.timeline_first(user, since), keys.timeline_last(user))

    def follow(self, user: int, poster: int) -> None:
        self._kinds += "swp"
        key = _follower_key(poster, user)
        self._batch.get(key)
        self._batch.put(key, keys.FOLLOWS)
        self._batch.scan(b"p|%08d|" % poster, b"p|%08d}" % poster)

    def publish(self, poster: int, tick: int, text: bytes) -> tuple[bytes, bytes]:
        self._kinds += "wf"
        self._batch.put(keys.post_key(poster, tick), text)
        self._batch.scan(b"f|%08d|" % poster, b"f|%08d}" % poster)
        return b"|%010d|%08d" % (tick, poster), text

    def deliver(self, users: Collection[int], post: tuple[bytes, bytes]) -> None:
        self._kinds += "w" * len(users)
        put = self._batch.put
        tail, text = post
        for user in users:
            put(b"t|%08d" % user + tail, text)

    def copy(self, user: int, posts: Sequence[tuple[bytes, bytes]]) -> None:
        self._kinds += "w" * len(posts)
        for tail, text in posts:
            self._batch.put(b"t|%08d" % user + tail, text)

    def send(self) -> Awaitable[Answers[tuple[bytes, bytes]]]:
        return self._answers(self._batch.send())

    async def _answers(self, coming: Awaitable[list[Result]]) -> Answers[tuple[bytes, bytes]]:
        results = await coming
        raise_first(results)
        row_count = 0
        is_new = False
        posts: list[list[tuple[bytes, bytes]]] = []
        followers: list[list[int]] = []
        for kind, result in zip(self._kinds, results, strict=True):
            if kind == "s":
                is_new = result is None
            elif isinstance(result, Rows):
                if kind == "c":
                    row_count += len(result.keys)
                elif kind == "p":
                    posts.append(_tails(result) if is_new else [])
                elif kind == "f":
                    followers.append([int(key[11:]) for key in result.keys])
        return Answers(row_count, posts, followers)


def _tails(rows: Rows) -> list[tuple[bytes, bytes]]:
    """Turn rows p|<poster>|<time> into the tails that they have in timelines."""
    tails = [b"|" + key[11:21] + key[1:10] for key in rows.keys]
    return list(zip(tails, rows.values, strict=True))
