"""What statistics tell of calls and batches: how many there were, and how long they took."""

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import ServerConfig

from pequod.commands.kinds import GET, PUT, SCAN
from tests.server.serving import connect, serving

BATCH = pb.ExecuteRequest(
    kinds=bytes([PUT, PUT, GET, SCAN]), arguments=[b"k|1", b"x", b"k|2", b"x", b"k|1", b"k|", b"k}"]
)


async def _batches(stub: Any, count: int) -> None:
    call = stub.Execute()
    for _ in range(count):
        await call.write(BATCH)
        assert (await call.read()) is not aio.EOF
    await call.done_writing()
    assert (await call.read()) is aio.EOF


@pytest.mark.parametrize("transport", ["grpcio", "auto"])
async def test_each_call_and_each_command_counts_once(transport: Literal["grpcio", "auto"]) -> None:
    config = ServerConfig(listen="127.0.0.1:0", http="127.0.0.1:0", transport=transport)
    async with serving(config) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        await _batches(stub, 3)
        for _ in range(5):
            await stub.Get(pb.GetRequest(key=b"k|1"))
        with pytest.raises(aio.AioRpcError):
            await stub.Add(pb.AddRequest(key=b"k|1", delta=b"no number"))
        told = await stub.Stats(pb.StatsRequest())
    calls = {one.method: one for one in told.calls}
    assert {name: (one.calls, one.failed) for name, one in calls.items()} == {
        "Get": (5, 0),
        "Add": (1, 1),
        "Execute": (3, 0),
    }
    for one in calls.values():
        assert len(one.buckets) == len(told.call_bounds_s) + 1
        assert sum(one.buckets) == one.calls
        assert one.seconds > 0
    assert {name: count for name, count in told.commands.items() if count} == {"PUT": 6, "GET": 3, "SCAN": 3}


async def test_a_server_without_http_and_metrics_counts_nothing() -> None:
    async with serving(ServerConfig(listen="127.0.0.1:0")) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        await stub.Get(pb.GetRequest(key=b"k|1"))
        told = await stub.Stats(pb.StatsRequest())
        assert (list(told.calls), list(told.call_bounds_s), dict(told.commands)) == ([], [], {})


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Any]:
    """A stub of a server with two roles."""
    access = tmp_path / "access.toml"
    tokens = "".join(
        f'[tokens.{name}]\nrole = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n'
        for name in ("some", "all")
    )
    access.write_text(f'[roles.some]\nread = ["k|"]\n[roles.all]\nread = [""]\n{tokens}')
    access.chmod(0o600)
    config = ServerConfig(listen="127.0.0.1:0", http="127.0.0.1:0", access_file=access)
    async with serving(config) as port, connect(port) as channel:
        yield PequodStub(channel)  # type: ignore[no-untyped-call]


async def test_only_those_who_may_see_everything_are_told(guarded: Any) -> None:
    for name, is_told in (("some", False), ("all", True)):
        metadata = (("authorization", f"Bearer {name}"),)
        await guarded.Get(pb.GetRequest(key=b"k|1"), metadata=metadata)
        told = await guarded.Stats(pb.StatsRequest(), metadata=metadata)
        assert (bool(told.calls), bool(told.call_bounds_s), bool(told.commands)) == (is_told,) * 3
