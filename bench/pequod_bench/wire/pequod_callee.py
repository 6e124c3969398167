"""Pequod as a plain gRPC client calls it, and as our client does, by either transport of clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pequod_proto.pequod_pb2 import GetRequest, MultiPutRequest, PutRequest, ScanRequest
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.client import AsyncClient
from pequod.client.credentials import Channel, Credentials
from pequod.freshness import LATEST
from pequod_bench.wire.callee import IN_FLIGHT, KEYS, OWN_CONNECTION, RANGE, VALUE, Callee

_TIMEOUT_S: Final = 60.0


@dataclass(slots=True)
class PequodCallee(Callee):
    """A server, called without a client of ours."""

    target: str
    pid: int | None
    #: Where the rows are written, if not at the server itself.
    written_at: str = ""
    #: A file of authorities; calls are in plain text without one.
    ca: Path | None = None
    token: str = ""
    #: The transport of the calls.
    transport: str = "grpcio"
    _channels: list[Channel] = field(default_factory=list)
    _stubs: list[Any] = field(default_factory=list)
    _metadata: tuple[tuple[str, str], ...] = ()

    async def connect(self) -> None:
        """Connect, write all rows, and have them loaded at the server that is called."""
        if self.token:
            self._metadata = (("authorization", f"Bearer {self.token}"),)
        known: dict[str, Any] = {"ca": self.ca, "token": self.token or None, "timeout_s": _TIMEOUT_S}
        async with AsyncClient(self.written_at or self.target, **known) as client:
            await client.multi_put(dict.fromkeys(KEYS, VALUE))
        async with AsyncClient(self.target, **known) as client:
            await client.scan(*RANGE, freshness=LATEST)
        opened = Credentials(ca=self.ca, transport=self.transport).connector(self.target, OWN_CONNECTION)
        self._channels = [opened() for _ in range(IN_FLIGHT)]
        self._stubs = [PequodStub(channel) for channel in self._channels]  # type: ignore[no-untyped-call]

    async def read(self, key: bytes, connection: int) -> bytes | None:
        reply = await self._stubs[connection].Get(GetRequest(key=key), metadata=self._metadata)
        value: bytes = reply.value
        return value

    async def write(self, key: bytes, connection: int) -> None:
        await self._stubs[connection].Put(PutRequest(key=key, value=VALUE), metadata=self._metadata)

    async def write_all(self, keys: Sequence[bytes], connection: int) -> None:
        request = MultiPutRequest(keys=keys, values=[VALUE] * len(keys))
        await self._stubs[connection].MultiPut(request, metadata=self._metadata)

    async def keys(self, first: bytes, last: bytes, connection: int) -> list[bytes]:
        chunks = self._stubs[connection].Scan(ScanRequest(first=first, last=last), metadata=self._metadata)
        return [key async for chunk in chunks for key in chunk.keys]

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


@dataclass(slots=True)
class ClientCallee(Callee):
    """A server, called by our asyncio client."""

    target: str
    pid: int | None
    transport: str
    _client: AsyncClient | None = None

    async def connect(self) -> None:
        """Connect, and write all rows."""
        self._client = AsyncClient(self.target, timeout_s=_TIMEOUT_S, transport=self.transport)
        await self._client.multi_put(dict.fromkeys(KEYS, VALUE))

    async def read(self, key: bytes, _connection: int) -> bytes | None:
        assert self._client is not None, "it is connected first"
        return await self._client.get(key)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
