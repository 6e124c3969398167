"""Pequod, with the timeline join in the server and without: the same server, the same client library."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal, cast

from pequod.client import AsyncBatch, AsyncClient, PequodError, Result, Rows
from pequod_bench import keys
from pequod_bench.commands import load_batches
from pequod_bench.compare import client_managed
from pequod_bench.compare.client_managed import Answers
from pequod_bench.compare.system import BATCH, WINDOW, Found, Presence, Server, Work, Workload
from pequod_bench.process import started_server
from pequod_bench.stream import CHECK, LOGOUT, SUBSCRIBE

#: First checks of large timelines may take a while.
TIMEOUT_S: Final = 120.0
_LOAD_BATCH: Final = 512
#: How timelines are kept: when they are first read, from the start on for everybody, never, or by the client.
Materialisation = Literal["dynamic", "full", "none", "client"]


class PequodSystem:
    """`pequod serve`, and timelines that are kept in one of four ways."""

    def __init__(self, name: str, title: str, materialisation: Materialisation, tuning: str) -> None:
        self.name = name
        self.title = title
        self.tuning = tuning
        self._materialisation = materialisation

    def find(self) -> Presence:
        """Find it; it is always there."""
        return Found(Path(sys.executable), f"pequod {version('pequod')}, Python {sys.version.split()[0]}")

    @contextmanager
    def started(self, directory: Path) -> Iterator[Server]:
        """Start the server; it has no files."""
        del directory
        with started_server() as (target, pid):
            yield Server(int(target.rpartition(":")[2]), pid)

    @asynccontextmanager
    async def session(self, server: Server, workload: Workload) -> AsyncIterator[JoinSession | ClientSession]:
        """Connect."""
        async with AsyncClient(f"127.0.0.1:{server.port}", timeout_s=TIMEOUT_S) as client:
            if self._materialisation == "client":
                yield ClientSession(client, workload)
            else:
                yield JoinSession(client, workload, self._materialisation)


PEQUOD: Final = PequodSystem(
    "pequod",
    "Pequod",
    "dynamic",
    "One join in the server. Batches of 256 commands through the client's batch stream, 2 under way.",
)
CLIENT_PEQUOD: Final = PequodSystem(
    "client-pequod",
    "client Pequod",
    "client",
    "The same server without a join; followers are kept by poster (f|poster|user), so that one scan finds them. "
    "Messages of 256 operations and what earlier ones ask for, 2 under way.",
)


class JoinSession:
    """Timelines that the server computes."""

    def __init__(self, client: AsyncClient, workload: Workload, materialisation: Materialisation) -> None:
        self._client = client
        self._workload = workload
        self._materialisation = materialisation

    async def load(self) -> None:
        """Install the join and write the graph; read every user's timeline once if all are to be kept."""
        await self._client.add_join(keys.PULL_JOIN if self._materialisation == "none" else keys.PUSH_JOIN)
        stream = self._workload.stream
        for kinds, arguments in load_batches(stream, self._workload.tweet_bytes, _LOAD_BATCH):
            batch = self._client.batch()
            batch.kinds += kinds
            batch.arguments += arguments
            raise_first(await batch.send())
        if self._materialisation == "full":
            users = range(stream.graph.user_count)
            for i in range(0, len(users), _LOAD_BATCH):
                await self.timelines(users[i : i + _LOAD_BATCH])

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
                    batch.put(keys.post_key(user, tick), keys.tweet(tick, tweet_bytes))
            if len(batch):
                command_count += len(batch)
                message_count += 1
                under_way.append(batch.send())
        for replies in under_way:
            row_count += count_rows(await replies)
        return Work(row_count, command_count, message_count)

    async def timelines(self, users: Sequence[int]) -> list[Rows]:
        """Scan whole timelines."""
        return await _timelines(self._client, users)


class ClientSession:
    """Timelines that the client keeps, in base keys."""

    def __init__(self, client: AsyncClient, workload: Workload) -> None:
        self._client = client
        self._workload = workload

    async def load(self) -> None:
        """Write the graph, by poster."""
        graph = self._workload.stream.graph
        edges = sorted(zip(graph.posters.tolist(), graph.users.tolist(), strict=True))
        for i in range(0, len(edges), _LOAD_BATCH):
            batch = self._client.batch()
            for edge in edges[i : i + _LOAD_BATCH]:
                batch.put(_follower_key(*edge), keys.FOLLOWS)
            raise_first(await batch.send())

    async def run(self) -> Work:
        """Let the client do what the join would."""
        return await client_managed.run(self._workload, lambda: _Message(self._client))

    async def timelines(self, users: Sequence[int]) -> list[Rows]:
        """Scan whole timelines."""
        return await _timelines(self._client, users)


async def _timelines(client: AsyncClient, users: Sequence[int]) -> list[Rows]:
    batch = client.batch()
    for user in users:
        batch.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
    results = await batch.send()
    raise_first(results)
    return cast("list[Rows]", results)


def raise_first(results: Sequence[Result]) -> None:
    """Raise the error of the first command that failed, if any did."""
    for result in results:
        if isinstance(result, PequodError):
            raise result


def count_rows(results: Sequence[Result]) -> int:
    """Return how many rows the scans of a batch gave.

    Raises:
        PequodError: A command failed.
    """
    count = 0
    for result in results:
        if isinstance(result, Rows):
            count += len(result.keys)
        elif result is not None:
            raise_first(results)
    return count


def _follower_key(poster: int, user: int) -> bytes:
    return b"f|%08d|%08d" % (poster, user)


class _Message:
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
