"""Servers of neighbouring versions work together where they have a version in common, and say why not otherwise."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import aio

from tests.peer.homes import LATEST, Running, computing, rows_of, running, until
from tests.peer.test_wire import Plain, hello, load

_SERVICE = "pequod.v1.PequodPeer"
#: A member that no version has yet: field 1000 with the value 1.
_FUTURE = b"\xc0\x3e\x01"


@asynccontextmanager
async def of_version(home: Running, version_min: int, version_max: int) -> AsyncIterator[str]:
    """Yield the address of a home of another version: the messages of a real one, each with a member more."""
    # `version_min` and `version_max` of `PeerPositionReply`, written also if they are 0.
    own = bytes([2 << 3, version_min, 3 << 3, version_max])

    async with aio.insecure_channel(home.address) as typed:
        # The stubs know nothing of bytes.
        channel: Any = typed

        async def position(request: bytes, _context: Any) -> bytes:
            # Of a member that comes twice, the last one counts.
            found: bytes = await channel.unary_unary(f"/{_SERVICE}/Position")(request)
            return found + own + _FUTURE

        async def write(request: bytes, _context: Any) -> bytes:
            found: bytes = await channel.unary_unary(f"/{_SERVICE}/Write")(request + _FUTURE)
            return found + _FUTURE

        async def loaded(request: bytes, _context: Any) -> AsyncIterator[bytes]:
            async for reply in channel.unary_stream(f"/{_SERVICE}/Load")(request + _FUTURE):
                yield reply + _FUTURE

        async def fed(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
            async def with_more() -> AsyncIterator[bytes]:
                async for request in requests:
                    yield request + _FUTURE

            async for reply in channel.stream_stream(f"/{_SERVICE}/Feed")(with_more()):
                yield reply + _FUTURE

        server = aio.server()
        calls: dict[str, Any] = {
            "Position": grpc.unary_unary_rpc_method_handler(position),
            "Write": grpc.unary_unary_rpc_method_handler(write),
            "Load": grpc.unary_stream_rpc_method_handler(loaded),
            "Feed": grpc.stream_stream_rpc_method_handler(fed),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, calls),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await server.stop(None)


@pytest.mark.parametrize(("version_min", "version_max"), [(1, 2), (2, 3)], ids=["older", "newer"])
async def test_a_home_answers_a_compute_that_is_one_version_apart(version_min: int, version_max: int) -> None:
    async with running() as home, Plain(home) as plain:
        await home.client.put("p|bob|0001", "hi")
        request = hello(7)
        request.hello.version_min, request.hello.version_max = version_min, version_max
        feed = plain.feed(request)
        assert (await feed.read()).version == 2
        versions = {"version_min": version_min, "version_max": version_max}
        assert await plain.load(load((b"p|", b"p}"), feed=7, **versions)) == [(b"p|bob|0001", b"hi")]
        feed.cancel()


@pytest.mark.parametrize(("version_min", "version_max"), [(1, 2), (2, 3)], ids=["older", "newer"])
async def test_a_compute_works_with_a_home_that_is_one_version_apart(version_min: int, version_max: int) -> None:
    async with (
        running() as home,
        of_version(home, version_min, version_max) as address,
        computing([address]) as compute,
    ):
        await home.client.multi_put({"s|ann|bob": "1", "p|bob|0001": "hi"})
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == [(b"t|ann|0001|bob", b"hi")]
        await compute.client.put("p|bob|0002", "ho")
        assert await home.client.get("p|bob|0002") == b"ho"
        await home.client.remove("p|bob|0001")
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == [(b"t|ann|0002|bob", b"ho")]
        await until(lambda: compute.store is not None and compute.store.status.state == "ok")


@pytest.mark.parametrize("version", [1, 3], ids=["older", "newer"])
async def test_a_server_without_a_common_version_says_so_and_does_not_start(version: int) -> None:
    async with running() as home, of_version(home, version, version) as address:
        command = [sys.executable, "-m", "pequod.cli", "serve", "--listen", "127.0.0.1:0"]
        command += ["--backing", f"pequod://{address}", "--backing-tables", "p,s"]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        assert process.returncode != 0
        assert f"{address} speaks versions {version} to {version}" in said.decode()
        assert "this one versions 2 to 2; bring the older one up to date" in said.decode()
