"""A real server on a free port of the loopback, and a client made of nothing but the generated stubs.

On each transport that is there, unless the variable PEQUOD_TRANSPORT names one (`make test-grpcio`).
"""

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from grpc import aio
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig

from pequod.native.http2 import why_absent

TRANSPORTS = [os.environ.get("PEQUOD_TRANSPORT") or "grpcio"]
if "PEQUOD_TRANSPORT" not in os.environ and why_absent() is None:
    TRANSPORTS.append("native")


@pytest.fixture(params=TRANSPORTS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[PequodServer]:
    server = PequodServer(
        ServerConfig(
            listen="127.0.0.1:0",
            drain_s=0.5,
            reply_bytes_max=2000,
            rows_max=20,
            chunk_bytes=300,
            transport=request.param,
        )
    )
    server.port = await server.start()  # type: ignore[attr-defined]
    yield server
    await server.stop()
    server.engine._check()


@pytest.fixture
async def channel(server: PequodServer) -> AsyncIterator[aio.Channel]:
    async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:  # type: ignore[attr-defined]
        yield channel


@pytest.fixture
async def stub(channel: aio.Channel) -> Any:
    return PequodStub(channel)  # type: ignore[no-untyped-call]
