"""memcached: one value for each timeline, to which the client appends.

    t:<user>     records of tick:4 poster:4 tweet, in the order of their coming
    p:<poster>   the same records
    f:<poster>   ids of 4 bytes

Records are binary and all of one size, so that a client finds those since a tick without a loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray
from pequod_workloads.twip import timeline_key

from pequod.engine import Rows
from pequod_bench.systems.client_managed import Kind, ManagedSession, TimelineMessage
from pequod_bench.systems.pipe import NOTHING_YET, Pipe, connected
from pequod_bench.systems.server import find_program, free_port, running
from pequod_bench.systems.system import PeerError, Presence, Server, SystemWorkload

_ID: Final = np.dtype(">u4")
#: Values a message while the graph is loaded.
_LOAD_BATCH: Final = 500
#: Ends a message: it is answered when everything before it has been carried out.
_END: Final = b"mn\r\n"


class MemcachedSystem:
    """One memcached with room for everything."""

    name = "memcached"
    title = "memcached"
    tuning = (
        "One value a timeline, grown with append. Memory for all data (-m 8192), values up to 64 MiB (-I 64m), no "
        "compare-and-swap ids (-C), large sockets' worth of requests a turn (-R 2000). The client speaks the meta "
        "protocol itself: writes are quiet, so that they cost no reply, and a no-op ends each message of 256 "
        "operations, 2 messages under way. Records have a fixed size and are searched with numpy."
    )

    def find(self) -> Presence:
        return find_program("memcached", "install it with: apt-get install memcached")

    def started(self, directory: Path) -> AbstractContextManager[Server]:
        del directory
        port = free_port()
        command = ["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0"]
        # As root it insists on being told to stay so; for others the flag means nothing.
        return running([*command, "-m", "8192", "-I", "64m", "-C", "-R", "2000", "-u", "root"], port)

    @asynccontextmanager
    async def session(self, server: Server, workload: SystemWorkload) -> AsyncIterator[_MemcachedSession]:
        async with connected(server.port, MetaParser) as pipe:
            yield _MemcachedSession(pipe, workload)


class MetaParser:
    """Takes replies of the meta protocol apart.

    A value becomes bytes, a miss None, the end of a message True; whatever else comes is a refusal, because writes are
    quiet.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def gets(self) -> object:
        buffer, at = self._buffer, self._at
        end = buffer.find(b"\r\n", at)
        if end < 0:
            return NOTHING_YET
        line = bytes(buffer[at:end])
        if line.startswith(b"VA "):
            last = end + 2 + int(line.split(b" ", 2)[1])
            if len(buffer) < last + 2:
                return NOTHING_YET
            self._at = last + 2
            return bytes(buffer[end + 2 : last])
        self._at = end + 2
        if line == b"EN":
            return None
        return True if line == b"MN" else PeerError(line.decode("utf-8", "replace"))


def record_of(tweet_bytes: int) -> np.dtype[Any]:
    """Return the form of a post in a timeline."""
    return np.dtype([("tick", _ID), ("poster", _ID), ("tweet", f"V{max(1, tweet_bytes)}")])


def _set(key: bytes, value: bytes) -> bytes:
    return b"ms %b %d q\r\n%b\r\n" % (key, len(value), value)


def _append(key: bytes, value: bytes) -> bytes:
    """Return a quiet append; the value must be there."""
    return b"ms %b %d MA q\r\n%b\r\n" % (key, len(value), value)


class _MemcachedSession(ManagedSession[bytes]):
    def __init__(self, pipe: Pipe, workload: SystemWorkload) -> None:
        self._record = record_of(workload.tweet_bytes)
        super().__init__(workload, lambda: _MemcachedMessage(pipe, self._record))
        self._pipe = pipe

    async def load(self) -> None:
        graph = self._workload.stream.graph
        followers: defaultdict[int, list[int]] = defaultdict(list)
        for user, poster in zip(graph.users.tolist(), graph.posters.tolist(), strict=True):
            followers[poster].append(user)
        # Appending makes no value, so all are there from the start.
        sets = [
            command
            for user in range(graph.user_count)
            for command in (
                _set(b"f:%08d" % user, np.array(followers[user], _ID).tobytes()),
                _set(b"p:%08d" % user, b""),
                _set(b"t:%08d" % user, b""),
            )
        ]
        for i in range(0, len(sets), _LOAD_BATCH):
            await self._pipe.send(b"".join((*sets[i : i + _LOAD_BATCH], _END)), 1)

    async def clear(self) -> None:
        # Not flush_all, which goes by the second and also takes what is written in the second after it.
        users = range(self._workload.stream.graph.user_count)
        deletes = [b"md %b:%08d q\r\n" % (kind, user) for user in users for kind in (b"t", b"p", b"f")]
        await self._pipe.send(b"".join((*deletes, _END)), 1)

    async def timelines(self, users: Sequence[int]) -> list[Rows]:
        request = b"".join(b"mg t:%08d v\r\n" % user for user in users) + _END
        *values, _ = await self._pipe.send(request, len(users) + 1)
        return [self._rows(user, cast("bytes | None", value)) for user, value in zip(users, values, strict=True)]

    def _rows(self, user: int, value: bytes | None) -> Rows:
        records = records_since(value, 0, self._record)
        ticks, posters = records["tick"].tolist(), records["poster"].tolist()
        tweets = [bytes(tweet)[: self._workload.tweet_bytes] for tweet in records["tweet"].tolist()]
        return Rows([timeline_key(user, *row) for row in zip(ticks, posters, strict=True)], tweets)


def records_since(value: bytes | None, tick: int, record: np.dtype[Any]) -> NDArray[Any]:
    """Return the records of a timeline from a tick on, in the order of time."""
    records = np.frombuffer(value or b"", record)
    found = records[records["tick"] >= tick]
    return found[found["tick"].argsort()] if len(found) > 1 else found


class _MemcachedMessage(TimelineMessage[bytes]):
    """Commands of the meta protocol; writes have no reply."""

    def __init__(self, pipe: Pipe, record: np.dtype[Any]) -> None:
        super().__init__()
        self._pipe = pipe
        self._record = record
        self._parts: list[bytes] = []
        #: Of each reply: the tick of a check, or the user of a subscription.
        self._details: list[int] = []

    def __len__(self) -> int:
        return len(self._parts)

    def _get(self, kind: Kind, detail: int, key: bytes) -> None:
        self.kinds.append(kind)
        self._details.append(detail)
        self._parts.append(b"mg %b v\r\n" % key)

    def check(self, user: int, since: int) -> None:
        self._get("checked", since, b"t:%08d" % user)

    def follow(self, user: int, poster: int) -> None:
        self._get("subscribed", user, b"f:%08d" % poster)
        self._parts.append(_append(b"f:%08d" % poster, user.to_bytes(4)))
        self._get("posts", 0, b"p:%08d" % poster)

    def publish(self, poster: int, tick: int, text: bytes) -> bytes:
        post = (tick.to_bytes(4) + poster.to_bytes(4) + text).ljust(self._record.itemsize, b"\0")
        self._parts.append(_append(b"p:%08d" % poster, post))
        self._get("followers", 0, b"f:%08d" % poster)
        return post

    def deliver(self, users: Collection[int], post: bytes) -> None:
        self._parts += [_append(b"t:%08d" % user, post) for user in users]

    def copy(self, user: int, posts: Sequence[bytes]) -> None:
        self._parts.append(_append(b"t:%08d" % user, b"".join(posts)))

    def replies(self) -> Awaitable[Sequence[Any]]:
        request = b"".join((*self._parts, _END))
        return self._detailed(self._pipe.send(request, len(self.kinds) + 1))

    async def _detailed(self, coming: Awaitable[list[object]]) -> Sequence[Any]:
        """Return each value with its detail; the last reply is the message's end."""
        return list(zip((await coming)[:-1], self._details, strict=True))

    def rows(self, reply: Any) -> int:
        value, tick = reply
        return len(records_since(value, tick, self._record))

    def is_new(self, reply: Any) -> bool:
        return reply[1] not in np.frombuffer(reply[0] or b"", _ID)

    def posts(self, reply: Any) -> Sequence[bytes]:
        return [reply[0]] if reply[0] else []

    def followers(self, reply: Any) -> list[int]:
        users: list[int] = np.frombuffer(reply[0] or b"", _ID).tolist()
        return users
