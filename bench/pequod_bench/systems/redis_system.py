"""Redis: a sorted set for each timeline, kept by the client.

t:<user>     sorted set   tick -> time:10|poster:8|tweet
p:<poster>   list         the same members, in the order of time
f:<poster>   set          followers
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import hiredis
from pequod_workloads.twip import timeline_key

from pequod.engine import Rows
from pequod_bench.systems.client_managed import Kind, ManagedSession, TimelineMessage
from pequod_bench.systems.pipe import NOTHING_YET, Parser, Pipe, connected
from pequod_bench.systems.server import find_program, free_port, running
from pequod_bench.systems.system import Presence, Server, SystemWorkload

#: Subscriptions a message while the graph is loaded.
_LOAD_BATCH: Final = 2_000


class RedisSystem:
    """One redis-server, without persistence."""

    name = "redis"
    title = "Redis"
    tuning = (
        "Sorted sets, the tweet in the member, so that a check is one ZRANGE ... BYSCORE. No snapshots, no append-only "
        "file. Follower sets are sets of integers, kept compact up to 4,096 (set-max-intset-entries), "
        "and so are timelines up to 128 tweets (zset-max-listpack-value). The client "
        "builds and parses messages with hiredis, the C library behind redis-py, on a connection of its own "
        "(redis-py's own pipeline object costs its client several times as much a command), 256 operations to a "
        "message, 2 messages under way."
    )

    def find(self) -> Presence:
        return find_program("redis-server", "install it with: apt-get install redis-server")

    def started(self, directory: Path) -> AbstractContextManager[Server]:
        port = free_port()
        settings = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(directory),
            "save": "",
            "appendonly": "no",
            "set-max-intset-entries": "4096",
            # A tenth less memory at the same speed.
            "zset-max-listpack-value": "256",
        }
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return running(["redis-server", *flags], port)

    @asynccontextmanager
    async def session(self, server: Server, workload: SystemWorkload) -> AsyncIterator[_RedisSession]:
        async with connected(server.port, parser) as pipe:
            yield _RedisSession(pipe, workload)


def parser() -> Parser:
    """Return hiredis's parser of replies."""
    return cast("Parser", hiredis.Reader(notEnoughData=NOTHING_YET))


def pack(*command: bytes | int) -> bytes:
    """Return a command as it is sent."""
    # Its stub takes tuples of one.
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]
    return packed


class _RedisSession(ManagedSession[bytes]):
    def __init__(self, pipe: Pipe, workload: SystemWorkload) -> None:
        super().__init__(workload, lambda: _RedisMessage(pipe))
        self._pipe = pipe

    async def load(self) -> None:
        graph = self._workload.stream.graph
        users, posters = graph.users.tolist(), graph.posters.tolist()
        for i in range(0, len(users), _LOAD_BATCH):
            rows = zip(users[i : i + _LOAD_BATCH], posters[i : i + _LOAD_BATCH], strict=True)
            commands = [pack(b"SADD", b"f:%08d" % poster, user) for user, poster in rows]
            await self._pipe.send(b"".join(commands), len(commands))

    async def clear(self) -> None:
        await self._pipe.send(pack(b"FLUSHALL", b"SYNC"), 1)

    async def timelines(self, users: Sequence[int]) -> list[Rows]:
        commands = [pack(b"ZRANGE", b"t:%08d" % user, 0, -1) for user in users]
        replies = await self._pipe.send(b"".join(commands), len(commands))
        return [_rows(user, cast("list[bytes]", reply)) for user, reply in zip(users, replies, strict=True)]


def _rows(user: int, members: list[bytes]) -> Rows:
    return Rows([timeline_key(user, int(m[:10]), int(m[11:19])) for m in members], [m[20:] for m in members])


class _RedisMessage(TimelineMessage[bytes]):
    """Commands in the protocol of Redis."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self._pipe = pipe
        self._parts: list[bytes] = []

    def __len__(self) -> int:
        return len(self._parts)

    def _add(self, kind: Kind, *command: bytes | int) -> None:
        self.kinds.append(kind)
        self._parts.append(pack(*command))

    def check(self, user: int, since: int) -> None:
        self._add("checked", b"ZRANGE", b"t:%08d" % user, since, b"+inf", b"BYSCORE")

    def follow(self, user: int, poster: int) -> None:
        self._add("subscribed", b"SADD", b"f:%08d" % poster, user)
        self._add("posts", b"LRANGE", b"p:%08d" % poster, 0, -1)

    def publish(self, poster: int, tick: int, text: bytes) -> bytes:
        post = b"%010d|%08d|%b" % (tick, poster, text)
        self._add("written", b"RPUSH", b"p:%08d" % poster, post)
        self._add("followers", b"SMEMBERS", b"f:%08d" % poster)
        return post

    def deliver(self, users: Collection[int], post: bytes) -> None:
        tick = int(post[:10])
        for user in users:
            self._add("written", b"ZADD", b"t:%08d" % user, tick, post)

    def copy(self, user: int, posts: Sequence[bytes]) -> None:
        scored = [part for post in posts for part in (int(post[:10]), post)]
        self._add("written", b"ZADD", b"t:%08d" % user, *scored)

    def replies(self) -> Awaitable[Sequence[Any]]:
        return self._pipe.send(b"".join(self._parts), len(self._parts))

    def rows(self, reply: Any) -> int:
        return len(reply)

    def is_new(self, reply: Any) -> bool:
        return bool(reply == 1)

    def posts(self, reply: Any) -> Sequence[bytes]:
        posts: list[bytes] = reply
        return posts

    def followers(self, reply: Any) -> list[int]:
        return [int(user) for user in reply]
