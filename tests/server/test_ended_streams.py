"""Streams of batches that the server ends while one comes: clients are told that it is not applied, and it is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.transport.server import WireServer

from pequod.commands.kinds import PUT
from pequod.engine import UNLIMITED
from tests.server.frames import DATA, frame, message
from tests.server.serving import connect


def _for_memory(server: PequodServer) -> None:
    """End the streams that wait, as where the process is far too large."""
    pressure = server._admission.pressure
    for task in pressure.streams:
        pressure.streams[task] = time.monotonic() - 1
    pressure._limit_bytes, pressure._resident = 1000, lambda: 2000
    pressure.look()
    pressure._limit_bytes, pressure._resident = UNLIMITED, lambda: 0


def _for_a_stop(server: PequodServer) -> None:
    server.service.batches.end()


@pytest.mark.parametrize("end", [_for_memory, _for_a_stop], ids=["for memory", "for a stop"])
@pytest.mark.parametrize("is_durable", [False, True], ids=["in memory", "with a folder"])
async def test_a_batch_that_comes_while_its_stream_is_ended_is_not_applied(
    end: Callable[[PequodServer], None], is_durable: bool, tmp_path: Path
) -> None:
    config = ServerConfig(listen="127.0.0.1:0", data=tmp_path if is_durable else None)
    server: Any = PequodServer(config)
    port = await server.start()
    if not isinstance(server._server, WireServer):
        await server.stop()
        pytest.skip("gRPC's own transport runs no batch beside a handler")
    async with connect(port) as channel:
        call: Any = PequodStub(channel).Execute()  # type: ignore[no-untyped-call]
        for number in (b"1", b"2"):
            await call.write(pb.ExecuteRequest(kinds=bytes([PUT]), arguments=[b"b", number]))
            assert (await call.read()).statuses == b"\0"
        (connection,) = server._server.connections
        (stream,) = connection.exchanges
        request = pb.ExecuteRequest(kinds=bytes([PUT]), arguments=[b"b", b"late"])
        sent = frame(DATA, 0, stream, message(request.SerializeToString()))
        # One after the other in one turn of the event loop, as where it is late: the handler has not run meanwhile.
        end(server)
        connection.get_buffer(len(sent))[: len(sent)] = sent
        connection.buffer_updated(len(sent))
        async with asyncio.timeout(10):
            assert await call.code() in (StatusCode.RESOURCE_EXHAUSTED, StatusCode.UNAVAILABLE)
        assert server.engine.get(b"b") == b"2"
    await server.stop()
