"""Calls that end without a reply leave nothing behind that only the cyclic collector would find."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer, ServerConfig

from pequod.commands.kinds import PUT
from pequod.engine import PequodError
from tests.server.serving import connect

SERVICE = "/pequod.v1.Pequod/"
METHODS = tuple(pb.DESCRIPTOR.services_by_name["Pequod"].methods)
ROLES = "".join(
    f'[tokens.{name}]\nrole = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n[roles.{name}]\n{rights}\n'
    for name, rights in (
        ("root", "".join(f'{right} = [""]\n' for right in ("read", "write", "join", "admin"))),
        ("no", ""),
    )
)
#: Requests that are refused to a caller who may do everything.
REFUSED: tuple[tuple[str, Any], ...] = (
    ("Put", pb.PutRequest(key=b"k", value=bytes(2000))),
    ("Put", pb.PutRequest(key=b"t|a|b")),
    ("Remove", pb.RemoveRequest(key=b"t|a|b")),
    ("MultiGet", pb.MultiGetRequest(keys=[b"k"] * 11)),
    ("MultiPut", pb.MultiPutRequest(keys=[b"k", b"l"], values=[b"v"])),
    ("MultiPut", pb.MultiPutRequest(keys=[b"k", b"t|a|b"], values=[b"v", b"v"])),
    ("RemoveRange", pb.RemoveRangeRequest()),
    ("Splits", pb.SplitsRequest(count=11)),
    ("Execute", pb.ExecuteRequest(kinds=bytes([PUT]), arguments=[b"k"])),
    ("Execute", pb.ExecuteRequest(kinds=bytes([PUT]) * 11, arguments=[b"k"] * 22)),
    ("Watch", pb.WatchRequest(first=b"k", after=pb.Header(server_id=1))),
    ("Watch", pb.WatchRequest(first=b"k", rows=True, after=pb.Header())),
    ("AddJoin", pb.AddJoinRequest(text="nonsense")),
    ("DropJoin", pb.DropJoinRequest(name="nothing")),
    ("ReplaceJoin", pb.ReplaceJoinRequest(name="nothing", text="t|<a> = copy p|<a>")),
    ("ReplaceJoin", pb.ReplaceJoinRequest(name="t", undo=True)),
    ("ReplaceJoin", pb.ReplaceJoinRequest(name="t", text="nonsense")),
    ("Explain", pb.ExplainRequest()),
    ("Explain", pb.ExplainRequest(join="nothing")),
    ("Invalidate", pb.InvalidateRequest()),
    ("Invalidate", pb.InvalidateRequest(join="nothing")),
    ("SaveSnapshot", pb.SaveSnapshotRequest()),
    ("RestoreSnapshot", pb.RestoreSnapshotRequest()),
    ("BeginBackfill", pb.BeginBackfillRequest(join="nothing")),
    ("ReadBackfill", pb.ReadBackfillRequest(id=1, join="t")),
    ("LoadBackfill", pb.LoadBackfillRequest(id=1, join="t")),
    ("RenewBackfill", pb.RenewBackfillRequest(id=1, join="t")),
    ("EndBackfill", pb.EndBackfillRequest(id=1, join="t")),
)


class Caller:
    """Makes calls of any bytes."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def call(
        self, name: str, request: bytes, token: str | None = "root", timeout_s: float = 20
    ) -> grpc.StatusCode:
        """Make a call, read all replies, and return the code."""
        method = pb.DESCRIPTOR.services_by_name["Pequod"].methods_by_name[name]
        metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        make = self._channel.stream_stream if method.client_streaming else self._channel.unary_stream
        requests = iter([request]) if method.client_streaming else request
        call = make(SERVICE + name)(requests, metadata=metadata, timeout=timeout_s)
        try:
            async for _ in call:
                pass
        except (aio.AioRpcError, asyncio.CancelledError):
            pass
        code: grpc.StatusCode = await call.code()
        return code


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[PequodServer]:
    access_file = tmp_path / "access.toml"
    access_file.write_text(ROLES)
    config = ServerConfig(
        listen="127.0.0.1:0",
        drain_s=0.5,
        access_file=access_file,
        value_bytes_max=1000,
        message_bytes_max=3000,
        batch_commands_max=10,
        calls_max=5,
        joins="t|<a>|<b> = copy s|<b>|<a>",
    )
    server = PequodServer(config)
    server.port = await server.start()  # type: ignore[attr-defined]
    yield server
    await server.stop()


@pytest.fixture
async def caller(server: PequodServer) -> AsyncIterator[Caller]:
    async with connect(server.port) as channel:  # type: ignore[attr-defined]
        yield Caller(channel)


@contextmanager
def nothing_left() -> Iterator[None]:
    """Expect that what is done within leaves no ring with something of a call of the server's."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        left = Counter(type(thing).__name__ for thing in gc.garbage if _is_of_a_call(thing))
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.garbage.clear()
    assert not left


def _is_of_a_call(thing: object) -> bool:
    if isinstance(thing, FrameType):
        return "pequod_server" in thing.f_code.co_filename
    if isinstance(thing, ModuleType):
        return False
    return isinstance(thing, PequodError) or type(thing).__name__ in {
        "AbortError",
        "_ServicerContext",
        "RPCState",
        "Feed",
    }


async def test_refused_calls_of_every_method_leave_nothing(caller: Caller) -> None:
    refused = {method.name for method in METHODS}
    garbage, long = b"\x0f\x01", b"\x0a\x90\x4e" + bytes(10_000)
    with nothing_left():
        for name in refused:
            assert await caller.call(name, b"", token=None) is grpc.StatusCode.UNAUTHENTICATED
            assert await caller.call(name, b"", token="unknown") is grpc.StatusCode.UNAUTHENTICATED
            assert await caller.call(name, garbage) is grpc.StatusCode.INVALID_ARGUMENT
            assert await caller.call(name, long) is grpc.StatusCode.RESOURCE_EXHAUSTED
            await caller.call(name, b"", token="no")


@pytest.mark.parametrize(("name", "request_"), REFUSED)
async def test_a_call_that_its_handler_refuses_leaves_nothing(caller: Caller, name: str, request_: Any) -> None:
    with nothing_left():
        assert await caller.call(name, request_.SerializeToString()) is not grpc.StatusCode.OK
        await caller.call(name, request_.SerializeToString(), token="no")


async def test_calls_beyond_the_limit_late_and_cancelled_ones_leave_nothing(caller: Caller) -> None:
    with nothing_left():
        watches = [asyncio.create_task(caller.call("Watch", b"", timeout_s=1)) for _ in range(5)]
        await asyncio.sleep(0.3)
        assert await caller.call("Get", b"") is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await caller.call("Execute", b"") is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert set(await asyncio.gather(*watches)) == {grpc.StatusCode.DEADLINE_EXCEEDED}
        watch = asyncio.create_task(caller.call("Watch", b""))
        await asyncio.sleep(0.1)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await asyncio.sleep(0.1)


async def test_calls_on_a_connection_too_many_leave_nothing() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", drain_s=0.5, connections_max=1))
    port = await server.start()
    async with connect(port) as first, connect(port) as second:
        assert await Caller(first).call("Get", b"\x0a\x01k") is grpc.StatusCode.OK
        with nothing_left():
            for method in METHODS:
                assert await Caller(second).call(method.name, b"") is grpc.StatusCode.RESOURCE_EXHAUSTED
    await server.stop()


async def test_a_handler_that_fails_leaves_nothing_and_its_traceback_is_logged(
    server: PequodServer, caller: Caller, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        kept = ValueError("a defect")
        raise kept

    monkeypatch.setattr(server.engine, "get", fail)
    with nothing_left():
        assert await caller.call("Get", b"") is grpc.StatusCode.UNKNOWN
        caplog.clear()
    assert await caller.call("Get", b"") is grpc.StatusCode.UNKNOWN
    assert "raise kept" in caplog.text
