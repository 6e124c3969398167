"""etcd and Redis, with the same rows, beside Pequod.

etcd's reads are serializable: it answers from what it has, as Pequod does, and asks no other node. Redis keeps the rows
as strings, and the keys of its scans in a sorted set with the values behind them, since its strings have no order.
What asks it at once goes out by one write of the event loop: its commands come pipelined, where uvloop is.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, cast

from grpc import aio
from pequod_proto.etcd_pb2 import PutRequest, RangeReply, RangeRequest

from pequod_bench.report.printed import WrongAnswerError
from pequod_bench.systems.pipe import Pipe, connected
from pequod_bench.systems.redis_system import pack, parser
from pequod_bench.wire.callee import IN_FLIGHT, KEYS, ROWS, VALUE

_OWN_CONNECTION: Final = [("grpc.use_local_subchannel_pool", 1)]
#: The field `serializable` of a RangeRequest of etcd, true.
_SERIALIZABLE: Final = b"\x38\x01"
_LAST: Final = len(KEYS) - ROWS
_SET: Final = b"rows"


@dataclass(slots=True)
class EtcdCallee:
    """One node of etcd."""

    target: str
    pid: int | None
    _channels: list[aio.Channel] = field(default_factory=list)
    _ranges: list[Any] = field(default_factory=list)
    _puts: list[Any] = field(default_factory=list)

    async def connect(self) -> None:
        """Connect and write all rows."""
        self._channels = [aio.insecure_channel(self.target, _OWN_CONNECTION) for _ in range(IN_FLIGHT)]
        self._ranges = [channel.unary_unary("/etcdserverpb.KV/Range") for channel in self._channels]
        self._puts = [channel.unary_unary("/etcdserverpb.KV/Put") for channel in self._channels]
        await asyncio.gather(*(self.put(number, 0) for number in range(len(KEYS))))

    async def get(self, number: int, connection: int) -> None:
        """Get a row."""
        request = RangeRequest(key=KEYS[number % len(KEYS)]).SerializeToString() + _SERIALIZABLE
        reply = RangeReply.FromString(await self._ranges[connection](request))
        if [row.value for row in reply.kvs] != [VALUE]:
            raise WrongAnswerError(f"etcd's Range returned {reply!r:.200}")

    async def put(self, number: int, connection: int) -> None:
        """Put a row, which etcd has then written to its log."""
        await self._puts[connection](PutRequest(key=KEYS[number % len(KEYS)], value=VALUE).SerializeToString())

    async def scan(self, number: int, connection: int) -> None:
        """Read ten rows."""
        start = number % _LAST
        request = RangeRequest(key=KEYS[start], range_end=KEYS[start + ROWS]).SerializeToString() + _SERIALIZABLE
        reply = RangeReply.FromString(await self._ranges[connection](request))
        if [row.key for row in reply.kvs] != KEYS[start : start + ROWS]:
            raise WrongAnswerError(f"etcd's Range returned {reply!r:.200}")

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels:
            await channel.close()


@dataclass(slots=True)
class RedisCallee:
    """One Redis, without persistence."""

    port: int
    pid: int | None
    _pipes: list[Pipe] = field(default_factory=list)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def connect(self) -> None:
        """Connect and write all rows."""
        self._pipes = [await self._stack.enter_async_context(connected(self.port, parser)) for _ in range(IN_FLIGHT)]
        for number, key in enumerate(KEYS):
            await self.put(number, 0)
            await self._pipes[0].send(pack(b"ZADD", _SET, 0, key + b"\0" + VALUE), 1)

    async def get(self, number: int, connection: int) -> None:
        """Get a row."""
        (found,) = await self._pipes[connection].send(pack(b"GET", KEYS[number % len(KEYS)]), 1)
        if found != VALUE:
            raise WrongAnswerError(f"Redis's GET returned {found!r:.200}")

    async def put(self, number: int, connection: int) -> None:
        """Put a row."""
        await self._pipes[connection].send(pack(b"SET", KEYS[number % len(KEYS)], VALUE), 1)

    async def multi_put(self, number: int, connection: int) -> None:
        """Put ten rows by one command."""
        start = number % _LAST
        rows = [part for key in KEYS[start : start + ROWS] for part in (key, VALUE)]
        await self._pipes[connection].send(pack(b"MSET", *rows), 1)

    async def scan(self, number: int, connection: int) -> None:
        """Read ten rows."""
        start = number % _LAST
        first, last = b"[" + KEYS[start], b"(" + KEYS[start + ROWS]
        (found,) = await self._pipes[connection].send(pack(b"ZRANGE", _SET, first, last, b"BYLEX"), 1)
        if [row.partition(b"\0")[0] for row in cast("list[bytes]", found)] != KEYS[start : start + ROWS]:
            raise WrongAnswerError(f"Redis's ZRANGE returned {found!r:.200}")

    async def close(self) -> None:
        """Close all connections."""
        await self._stack.aclose()
