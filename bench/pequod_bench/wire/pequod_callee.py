"""Pequod as a plain gRPC client calls it, and as our client does, by either transport of clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pequod_proto.pequod_pb2 import GetRequest, MultiPutRequest, PutRequest, ScanRequest
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.client import AsyncClient
from pequod.client.credentials import Channel, Credentials
from pequod.freshness import LATEST
from pequod_bench.report.printed import WrongAnswerError
from pequod_bench.wire.callee import IN_FLIGHT, KEYS, RANGE, ROWS, VALUE

_TIMEOUT_S: Final = 60.0
#: gRPC's channels to one address share a connection otherwise.
_OWN_CONNECTION: Final = [("grpc.use_local_subchannel_pool", 1)]
#: The last key from which a call of several rows begins.
_LAST: Final = len(KEYS) - ROWS


@dataclass(slots=True)
class PequodCallee:
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
        opened = Credentials(ca=self.ca, transport=self.transport).connector(self.target, _OWN_CONNECTION)
        self._channels = [opened() for _ in range(IN_FLIGHT)]
        self._stubs = [PequodStub(channel) for channel in self._channels]  # type: ignore[no-untyped-call]

    async def get(self, number: int, connection: int) -> None:
        """Get a row."""
        request = GetRequest(key=KEYS[number % len(KEYS)])
        reply = await self._stubs[connection].Get(request, metadata=self._metadata)
        if reply.value != VALUE:
            raise WrongAnswerError(f"Get returned {reply.value!r:.200}")

    async def put(self, number: int, connection: int) -> None:
        """Put a row."""
        request = PutRequest(key=KEYS[number % len(KEYS)], value=VALUE)
        await self._stubs[connection].Put(request, metadata=self._metadata)

    async def multi_put(self, number: int, connection: int) -> None:
        """Put ten rows."""
        start = number % _LAST
        request = MultiPutRequest(keys=KEYS[start : start + ROWS], values=[VALUE] * ROWS)
        await self._stubs[connection].MultiPut(request, metadata=self._metadata)

    async def scan(self, number: int, connection: int) -> None:
        """Read ten rows."""
        start = number % _LAST
        request = ScanRequest(first=KEYS[start], last=KEYS[start + ROWS])
        chunks = self._stubs[connection].Scan(request, metadata=self._metadata)
        found = [key async for chunk in chunks for key in chunk.keys]
        if found != KEYS[start : start + ROWS]:
            raise WrongAnswerError(f"Scan returned {found!r:.200}")

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels:
            await channel.close()


@dataclass(slots=True)
class ClientCallee:
    """A server, called by our asyncio client."""

    target: str
    pid: int | None
    transport: str
    _client: AsyncClient | None = None

    async def connect(self) -> None:
        """Connect, and write all rows."""
        self._client = AsyncClient(self.target, timeout_s=_TIMEOUT_S, transport=self.transport)
        await self._client.multi_put(dict.fromkeys(KEYS, VALUE))

    async def get(self, number: int, _connection: int) -> None:
        """Get a row."""
        assert self._client is not None, "it is connected first"
        found = await self._client.get(KEYS[number % len(KEYS)])
        if found != VALUE:
            raise WrongAnswerError(f"get returned {found!r:.200}")

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.close()
