"""Pequod, with the timeline join in the server and without: the same server, the same client library.

With joins the client only says what happened; without, it keeps the timelines, in base keys:

    f|<poster:8>|<user:8>                                    followers by poster, so that one scan finds them
    p|<poster:8>|<time:10>, t|<user:8>|<time:10>|<poster:8>  as with joins
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pequod_installed.names import version
from pequod_workloads import twip as keys

from pequod.client import AsyncBatch, AsyncClient, Result, Rows
from pequod.engine import FLAVOUR
from pequod_bench.systems.client_managed import ManagedSession, TimelineMessage
from pequod_bench.systems.pequod_results import checked, count_rows, empty, raise_first, timelines
from pequod_bench.systems.server import started_server
from pequod_bench.systems.system import Found, Presence, Server, SystemWorkload, Work, in_messages
from pequod_bench.workloads.stream import CHECK, LOGOUT, SUBSCRIBE, load_batches

#: First checks of large timelines may take a while.
TIMEOUT_S: Final = 120.0
_LOAD_BATCH: Final = 512


@dataclass(frozen=True, slots=True)
class Timelines:
    """How the server keeps timelines."""

    joins: str = keys.PUSH_JOIN
    #: Every user's timeline is read before the clock starts.
    is_whole: bool = False


class PequodSystem:
    """`pequod serve`, and timelines that joins keep, or the client."""

    def __init__(self, name: str, title: str, tuning: str, how: Timelines | None) -> None:
        self.name = name
        self.title = title
        self.tuning = tuning
        #: None if the client keeps them.
        self._how = how

    def find(self) -> Presence:
        return Found(Path(sys.executable), f"pequod {version()}, engine {FLAVOUR}, Python {sys.version.split()[0]}")

    @contextmanager
    def started(self, directory: Path) -> Iterator[Server]:
        del directory
        with started_server() as (target, pid):
            yield Server(int(target.rpartition(":")[2]), pid)

    @asynccontextmanager
    async def session(self, server: Server, workload: SystemWorkload) -> AsyncIterator[JoinSession | ClientSession]:
        async with AsyncClient(f"127.0.0.1:{server.port}", timeout_s=TIMEOUT_S) as client:
            yield JoinSession(client, workload, self._how) if self._how else ClientSession(client, workload)


class _PequodSession:
    """The calls that both sessions below make alike."""

    _client: AsyncClient

    async def timelines(self, users: Sequence[int]) -> list[Rows]:
        return await timelines(self._client, users)

    async def clear(self) -> None:
        await empty(self._client)


class JoinSession(_PequodSession):
    """Timelines that the server computes."""

    def __init__(self, client: AsyncClient, workload: SystemWorkload, how: Timelines) -> None:
        self._client = client
        self._workload = workload
        self._how = how

    async def load(self) -> None:
        """Install the joins and write the graph; read every user's timeline once if all are to be kept."""
        await self._client.add_join(self._how.joins)
        stream = self._workload.stream
        for kinds, arguments in load_batches(stream, self._workload.tweet_bytes, _LOAD_BATCH):
            batch = self._client.batch()
            batch.kinds += kinds
            batch.arguments += arguments
            raise_first(await batch.send())
        if self._how.is_whole:
            users = range(stream.graph.user_count)
            for i in range(0, len(users), _LOAD_BATCH):
                await timelines(self._client, users[i : i + _LOAD_BATCH])

    async def run(self) -> Work:
        stream, tweet_bytes = self._workload.stream, self._workload.tweet_bytes

        def fill(batch: AsyncBatch, start: int, stop: int) -> None:
            for tick, (kind, user, detail) in enumerate(stream.operations(start, stop), stream.first_tick + start):
                if kind == CHECK:
                    batch.scan(keys.timeline_first(user, detail), keys.timeline_last(user))
                elif kind == SUBSCRIBE:
                    batch.put(keys.subscription_key(user, detail), keys.FOLLOWS)
                elif kind != LOGOUT:
                    batch.put(keys.post_key(user, tick), keys.tweet(tick, tweet_bytes))

        def settle(_batch: AsyncBatch, results: list[Result], _asked: None) -> int:
            return count_rows(results)

        return await in_messages(self._client.batch, fill, settle, stream.tick_count)

    async def check(self, user: int, since: int) -> int:
        return len(await self._client.scan(*keys.timeline(user, since)))

    async def post(self, poster: int, tick: int, text: bytes) -> None:
        await self._client.put(keys.post_key(poster, tick), text)


#: The tail of a post's key in a timeline, and the text.
Tail = tuple[bytes, bytes]


class ClientSession(_PequodSession, ManagedSession[Tail]):
    """Timelines that the client keeps, in base keys."""

    def __init__(self, client: AsyncClient, workload: SystemWorkload) -> None:
        super().__init__(workload, lambda: _PequodMessage(client))
        self._client = client

    async def load(self) -> None:
        graph = self._workload.stream.graph
        edges = sorted(zip(graph.posters.tolist(), graph.users.tolist(), strict=True))
        for i in range(0, len(edges), _LOAD_BATCH):
            await self._client.multi_put([(b"f|%08d|%08d" % edge, keys.FOLLOWS) for edge in edges[i : i + _LOAD_BATCH]])


class _PequodMessage(TimelineMessage[Tail]):
    """Commands for a store without joins."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__()
        self._batch: AsyncBatch = client.batch()

    def __len__(self) -> int:
        return len(self._batch)

    def check(self, user: int, since: int) -> None:
        self.kinds.append("checked")
        self._batch.scan(keys.timeline_first(user, since), keys.timeline_last(user))

    def follow(self, user: int, poster: int) -> None:
        self.kinds += ("subscribed", "written", "posts")
        key = b"f|%08d|%08d" % (poster, user)
        self._batch.get(key)
        self._batch.put(key, keys.FOLLOWS)
        self._batch.scan(*keys.posts_of(poster))

    def publish(self, poster: int, tick: int, text: bytes) -> Tail:
        self.kinds += ("written", "followers")
        self._batch.put(keys.post_key(poster, tick), text)
        self._batch.scan(b"f|%08d|" % poster, b"f|%08d}" % poster)
        return b"|%010d|%08d" % (tick, poster), text

    def deliver(self, users: Collection[int], post: Tail) -> None:
        self.kinds += ["written"] * len(users)
        put = self._batch.put
        tail, text = post
        for user in users:
            put(b"t|%08d" % user + tail, text)

    def copy(self, user: int, posts: Sequence[Tail]) -> None:
        for post in posts:
            self.deliver((user,), post)

    def replies(self) -> Awaitable[Sequence[Any]]:
        return checked(self._batch.send())

    def rows(self, reply: Any) -> int:
        return len(reply.keys)

    def is_new(self, reply: Any) -> bool:
        return reply is None

    def posts(self, reply: Any) -> Sequence[Tail]:
        """Turn rows p|<poster>|<time> into the tails that they have in timelines."""
        return [(b"|" + key[11:21] + key[1:10], text) for key, text in zip(*reply, strict=True)]

    def followers(self, reply: Any) -> list[int]:
        return [int(key[11:]) for key in reply.keys]


PEQUOD: Final = PequodSystem(
    "pequod",
    "Pequod",
    "One join in the server. Batches of 256 commands through the client's batch stream, 2 under way.",
    Timelines(),
)
CLIENT_PEQUOD: Final = PequodSystem(
    "client-pequod",
    "client Pequod",
    "The same server without a join; followers are kept by poster (f|poster|user), so that one scan finds them. "
    "Messages of 256 operations and what earlier ones ask for, 2 under way.",
    None,
)
