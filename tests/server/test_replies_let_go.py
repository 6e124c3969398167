"""Streams of replies: what waits for memory, or for news, holds nothing of the reply before."""

import asyncio
import sys
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer, ServerConfig
from pequod_server.transport.choice import choose
from pequod_server.wire.endings import Endings
from pequod_server.wire.requests import RequestReader
from pequod_server.wire.serving import make_server

from tests.server.conftest import TRANSPORTS
from tests.server.roles import access_text

LISTEN = "127.0.0.1:0"


class Reply:
    """A reply that can be watched."""


class Scanning:
    """Yields two replies, and notes before the second one whether anybody holds the first."""

    def __init__(self) -> None:
        self.is_held: list[bool] = []

    async def scan(self, _request: Any, _context: Any) -> AsyncIterator[Reply]:
        reply = Reply()
        seen = weakref.ref(reply)
        yield reply
        del reply
        self.is_held.append(seen() is not None)
        yield Reply()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_nobody_between_a_handler_and_its_client_holds_a_reply_that_is_sent(
    transport: str, tmp_path: Path
) -> None:
    path = tmp_path / "access.toml"
    path.write_text(access_text("root"))
    made, scanning = PequodServer(config := ServerConfig(listen=LISTEN, access_file=path)), Scanning()
    assert made.guard is not None
    interceptors = [RequestReader(made._admission), made.instruments.interceptor, Endings(), made._calls, made.guard]
    server = make_server(config, interceptors, choose(transport))
    handler: Any = grpc.unary_stream_rpc_method_handler(scanning.scan, pb.ScanRequest.FromString, lambda _reply: b"")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pequod.v1.Pequod", {"Scan": handler}),))
    port = server.add_insecure_port(LISTEN)
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        scan: Any = channel.unary_stream("/pequod.v1.Pequod/Scan")
        assert [reply async for reply in scan(b"", metadata=(("authorization", "Bearer root"),))] == [b"", b""]
    await server.stop(None)
    assert scanning.is_held == [False]


async def _has_turn(task: asyncio.Task[Any]) -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()


async def test_a_scan_that_waits_for_memory_holds_nothing_of_the_chunk_before() -> None:
    server = PequodServer(ServerConfig(listen=LISTEN, chunk_bytes=1000))
    for number in range(100):
        server.engine.put(b"x|%02d" % number, bytes(100))
    scan: Any = server.service.Scan
    chunks = scan(pb.ScanRequest(first=b"x|", last=b"x}"), None)
    chunk = await anext(chunks)
    # It comes first once the chunk's memory is given back.
    everything = asyncio.create_task(server._admission.acquire(server._admission.bytes_max))
    await asyncio.sleep(0)
    task = asyncio.create_task(anext(chunks))
    await _has_turn(task)
    # By this name, and as the argument.
    assert sys.getrefcount(chunk) == 2
    server._admission.release(await everything)
    assert (await task).keys[0] > chunk.keys[-1]
    await chunks.aclose()


async def test_a_watch_that_waits_for_news_holds_nothing_of_those_before() -> None:
    server = PequodServer(ServerConfig(listen=LISTEN))
    watch: Any = server.service.Watch
    told = watch(pb.WatchRequest(first=b"x|", last=b"x}"), None)
    assert (await anext(told)).ready
    server.engine.put(b"x|1", bytes(100))
    news = await anext(told)
    assert [change.key for change in news.changes] == [b"x|1"]
    task = asyncio.create_task(anext(told))
    await _has_turn(task)
    assert sys.getrefcount(news) == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await server.close()
