"""etcd and Redis, with the same rows, beside Pequod.

etcd's reads are serializable: it answers from what it has, as Pequod does, and asks no other node. Redis keeps the rows
as strings, and the keys of its scans in a sorted set with the values behind them, since its strings have no order.
What asks it at once goes out by one write of the event loop: its commands come pipelined, where uvloop is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, cast

from grpc import aio
from pequod_proto.etcd_pb2 import KeyValue, PutRequest, RangeReply, RangeRequest

from pequod_bench.systems.pipe import Pipe, connected
from pequod_bench.systems.redis_system import pack, parser
from pequod_bench.wire.callee import IN_FLIGHT, KEYS, OWN_CONNECTION, VALUE, Callee

#: The field `serializable` of a RangeRequest of etcd, true.
_SERIALIZABLE: Final = b"\x38\x01"
_SET: Final = b"rows"


@dataclass(slots=True)
class EtcdCallee(Callee):
    """One node of etcd."""

    target: str
    pid: int | None
    _channels: list[aio.Channel] = field(default_factory=list)
    _ranges: list[Any] = field(default_factory=list)
    _puts: list[Any] = field(default_factory=list)

    async def connect(self) -> None:
        self._channels = [aio.insecure_channel(self.target, OWN_CONNECTION) for _ in range(IN_FLIGHT)]
        self._ranges = [channel.unary_unary("/etcdserverpb.KV/Range") for channel in self._channels]
        self._puts = [channel.unary_unary("/etcdserverpb.KV/Put") for channel in self._channels]
        await asyncio.gather(*(self.put(number, 0) for number in range(len(KEYS))))

    async def read(self, key: bytes, connection: int) -> bytes | None:
        rows = await self._range(RangeRequest(key=key), connection)
        return rows[0].value if rows else None

    async def write(self, key: bytes, connection: int) -> None:
        """Write the value of a key, which etcd has then written to its log."""
        await self._puts[connection](PutRequest(key=key, value=VALUE).SerializeToString())

    async def keys(self, first: bytes, last: bytes, connection: int) -> list[bytes]:
        return [row.key for row in await self._range(RangeRequest(key=first, range_end=last), connection)]

    async def _range(self, request: RangeRequest, connection: int) -> Sequence[KeyValue]:
        found = await self._ranges[connection](request.SerializeToString() + _SERIALIZABLE)
        return RangeReply.FromString(found).kvs

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


@dataclass(slots=True)
class RedisCallee(Callee):
    """One Redis, without persistence."""

    port: int
    pid: int | None
    _pipes: list[Pipe] = field(default_factory=list)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def connect(self) -> None:
        self._pipes = [await self._stack.enter_async_context(connected(self.port, parser)) for _ in range(IN_FLIGHT)]
        for number, key in enumerate(KEYS):
            await self.put(number, 0)
            await self._pipes[0].send(pack(b"ZADD", _SET, 0, key + b"\0" + VALUE), 1)

    async def read(self, key: bytes, connection: int) -> bytes | None:
        (found,) = await self._pipes[connection].send(pack(b"GET", key), 1)
        return cast("bytes | None", found)

    async def write(self, key: bytes, connection: int) -> None:
        await self._pipes[connection].send(pack(b"SET", key, VALUE), 1)

    async def write_all(self, keys: Sequence[bytes], connection: int) -> None:
        rows = [part for key in keys for part in (key, VALUE)]
        await self._pipes[connection].send(pack(b"MSET", *rows), 1)

    async def keys(self, first: bytes, last: bytes, connection: int) -> list[bytes]:
        (found,) = await self._pipes[connection].send(pack(b"ZRANGE", _SET, b"[" + first, b"(" + last, b"BYLEX"), 1)
        return [row.partition(b"\0")[0] for row in cast("list[bytes]", found)]

    async def close(self) -> None:
        await self._stack.aclose()
