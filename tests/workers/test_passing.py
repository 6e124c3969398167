"""What a worker passes on to another one, and what it does itself; the other one answers as tests say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.access.access_file import token_as
from pequod_server.wire.errors import status_of, stopping_status
from pequod_server.worker import Worker

from pequod.cluster.document import written
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.rendezvous import owners
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import LimitExceededError, StaleError
from tests.workers.conftest import TIMELINES

IDS: Final = ("w0", "w1")
TOKEN: Final = "trusted by workers"
ACCESS: Final = f"""
[roles.reader]
read = ["s|", "p|", "t|"]

[tokens.reader]
role = "reader"
sha256 = "{sha256(b"reader").hexdigest()}"
"""


def user_of(worker: str) -> bytes:
    """Return a user whose posts and timeline are computed at a worker."""
    names = (b"user%d" % number for number in range(1000))
    return next(
        name
        for name in names
        if {owners(table + name + b"|", [(one, 1.0) for one in IDS])[0] for table in (b"t|", b"p|")} == {worker}
    )


class Other:
    """The other worker: it notes calls of Get and Scan, and answers as it is told."""

    def __init__(self, door: str) -> None:
        self._door = door
        self.calls: list[tuple[Any, dict[str, Any], float | None]] = []
        self.answer: Callable[[Any], Awaitable[bytes]] = self.value
        self.token = b""
        self._server: aio.Server | None = None

    async def value(self, _context: Any) -> bytes:
        return b"of the other"

    async def start(self) -> None:
        async def get(request: pb.GetRequest, context: Any) -> pb.GetReply:
            self.calls.append((request, dict(context.invocation_metadata()), context.time_remaining()))
            value = await self.answer(context)
            return pb.GetReply(header=pb.Header(server_id=7, token=self.token), value=value)

        async def scan(request: pb.ScanRequest, context: Any) -> AsyncIterator[pb.ScanReply]:
            self.calls.append((request, dict(context.invocation_metadata()), context.time_remaining()))
            value = await self.answer(context)
            yield pb.ScanReply(header=pb.Header(server_id=7, token=self.token), keys=[b"k"], values=[value])

        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Get": grpc.unary_unary_rpc_method_handler(get, pb.GetRequest.FromString, pb.GetReply.SerializeToString),
            "Scan": grpc.unary_stream_rpc_method_handler(
                scan, pb.ScanRequest.FromString, pb.ScanReply.SerializeToString
            ),
        }
        self._server = aio.server()
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pequod.v1.Pequod", handlers),))
        self._server.add_insecure_port(self._door)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None


@pytest.fixture
def access() -> str:
    return ""


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Other]:
    one = Other(f"unix:{tmp_path / 'w1.sock'}")
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
async def server(tmp_path: Path, access: str, other: Other) -> AsyncIterator[PequodServer]:
    doors = {name: f"unix:{tmp_path / name}.sock" for name in IDS}
    both = frozenset({ServerRole.HOME, ServerRole.COMPUTE})
    entries = [
        ServerEntry("w0", doors["w0"], both, "workers"),
        ServerEntry("w1", doors["w1"], frozenset({ServerRole.COMPUTE})),
    ]
    ranges = tuple(HomeRange(table + b"|", table + b"}", "workers") for table in (b"p", b"s"))
    file = tmp_path / "map.toml"
    file.write_text(written(ClusterState.of(ClusterMap("workers", 1, TIMELINES, home_ranges=ranges), entries)))
    access_file = None
    if access:
        access_file = tmp_path / "access.toml"
        access_file.write_text(access)
    config = ServerConfig(
        listen="127.0.0.1:0", cluster=f"static:{file}", cluster_id="w0", drain_s=0, access_file=access_file
    )
    server = PequodServer(config, worker=Worker("w0", doors["w0"], token=TOKEN if access else ""))
    server.port = await server.start()  # type: ignore[attr-defined]
    server.engine.put(b"p|" + user_of("w1") + b"|1", b"mine")
    server.engine.put(b"p|" + user_of("w0") + b"|1", b"mine")
    yield server
    await server.stop()


@pytest.fixture
async def stub(server: PequodServer) -> AsyncIterator[Any]:
    async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:  # type: ignore[attr-defined]
        yield PequodStub(channel)  # type: ignore[no-untyped-call]


def computed_at(worker: str) -> bytes:
    """Return a key that no core answers without a handler: it is computed when it is read."""
    return b"t|" + user_of(worker) + b"|0000000001|bob"


def level(token: bytes) -> pb.Freshness:
    return pb.Freshness(after=token)


async def test_a_read_goes_to_the_worker_of_its_group_with_its_deadline(stub: Any, other: Other) -> None:
    reply = await stub.Get(pb.GetRequest(key=computed_at("w1")), timeout=50)
    assert (reply.value, reply.header.server_id) == (b"of the other", 7)
    rows = [chunk async for chunk in stub.Scan(pb.ScanRequest(prefix=b"t|" + user_of("w1") + b"|"), timeout=50)]
    assert [list(chunk.values) for chunk in rows] == [[b"of the other"]]
    assert all(left_s is not None and left_s < 60 for _, _, left_s in other.calls)
    assert len(other.calls) == 2


async def test_a_read_of_an_own_group_is_not_passed_on(stub: Any, other: Other) -> None:
    reply = await stub.Get(pb.GetRequest(key=computed_at("w0")))
    assert not reply.HasField("value")
    assert other.calls == []


async def test_a_call_that_has_come_from_a_worker_goes_no_further(
    server: PequodServer, tmp_path: Path, other: Other
) -> None:
    async with aio.insecure_channel(f"unix:{tmp_path / 'w0.sock'}") as channel:
        door = PequodStub(channel)  # type: ignore[no-untyped-call]
        reply = await door.Get(pb.GetRequest(key=computed_at("w1")))
    assert reply.header.server_id == server.service.server_id
    assert other.calls == []


async def test_a_read_asks_for_what_this_worker_shows_until_the_other_has_shown_it(
    stub: Any, server: PequodServer, other: Other
) -> None:
    token = server.service.levels.token
    await stub.Get(pb.GetRequest(key=computed_at("w1")))
    other.token = token
    await stub.Get(pb.GetRequest(key=computed_at("w1")))
    await stub.Get(pb.GetRequest(key=computed_at("w1")))
    await stub.Put(pb.PutRequest(key=b"p|bob|0000000001", value=b"Hi"))
    await stub.Get(pb.GetRequest(key=computed_at("w1")))
    assert [request.freshness for request, _, _ in other.calls] == [
        level(token),
        level(token),
        pb.Freshness(),
        level(server.service.levels.token),
    ]


async def test_the_level_of_a_client_is_passed_on_as_it_is(stub: Any, other: Other) -> None:
    wanted = pb.Freshness(max_age_ms=5, wait_ms=77)
    await stub.Get(pb.GetRequest(key=computed_at("w1"), freshness=wanted))
    assert [request.freshness for request, _, _ in other.calls] == [wanted]


async def test_a_status_of_the_other_worker_reaches_the_client_unchanged(stub: Any, other: Other) -> None:
    status = status_of(LimitExceededError("rows_max", 7, 3))

    async def refuse(context: Any) -> bytes:
        await context.abort(status.code, status.details, status.trailing_metadata)
        raise AssertionError

    other.answer = refuse
    for call in (stub.Get(pb.GetRequest(key=computed_at("w1"))), stub.Scan(pb.ScanRequest(prefix=computed_at("w1")))):
        with pytest.raises(aio.AioRpcError) as caught:
            await (call if isinstance(call, aio.UnaryUnaryCall) else call.read())
        assert (caught.value.code(), caught.value.details()) == (status.code, status.details)
        assert set(status.trailing_metadata) <= set(caught.value.trailing_metadata() or ())


async def test_what_the_other_worker_does_not_do_is_done_here(stub: Any, server: PequodServer, other: Other) -> None:
    refusals = [stopping_status(), status_of(StaleError(None, 1.0, "its feed is late"))]

    async def refuse(context: Any) -> bytes:
        status = refusals[0]
        await context.abort(status.code, status.details, status.trailing_metadata)
        raise AssertionError

    other.answer = refuse
    request = pb.GetRequest(key=computed_at("w1"))
    while refusals:
        assert (await stub.Get(request)).header.server_id == server.service.server_id
        chunks = [chunk async for chunk in stub.Scan(pb.ScanRequest(prefix=computed_at("w1")))]
        assert {chunk.header.server_id for chunk in chunks} == {server.service.server_id}
        refusals.pop(0)
    await other.stop()
    assert (await stub.Get(request)).header.server_id == server.service.server_id


async def test_a_level_of_a_client_that_cannot_be_had_is_an_error(stub: Any, other: Other) -> None:
    status = status_of(StaleError(None, 1.0, "its feed is late"))

    async def refuse(context: Any) -> bytes:
        await context.abort(status.code, status.details, status.trailing_metadata)
        raise AssertionError

    other.answer = refuse
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.Get(pb.GetRequest(key=computed_at("w1"), freshness=pb.Freshness(latest=True)))
    assert caught.value.details() == status.details


@pytest.mark.parametrize("access", [ACCESS])
async def test_the_other_worker_goes_by_the_role_of_the_caller(stub: Any, other: Other) -> None:
    mine = (("authorization", "Bearer reader"),)
    await stub.Get(pb.GetRequest(key=computed_at("w1")), metadata=mine)
    ((_, metadata, _),) = other.calls
    assert metadata["authorization"] == f"Bearer {token_as(TOKEN, 'reader')}"
    with pytest.raises(aio.AioRpcError, match="PERMISSION_DENIED"):
        await stub.Get(pb.GetRequest(key=b"other|1"), metadata=mine)
    assert len(other.calls) == 1


@pytest.mark.parametrize("access", [ACCESS])
async def test_a_worker_knows_the_others_and_their_callers_by_tokens(
    server: PequodServer, tmp_path: Path, other: Other
) -> None:
    async with aio.insecure_channel(f"unix:{tmp_path / 'w0.sock'}") as channel:
        door = PequodStub(channel)  # type: ignore[no-untyped-call]
        request = pb.PutRequest(key=b"p|bob|0000000002", value=b"Hi")
        await door.Put(request, metadata=(("authorization", f"Bearer {TOKEN}"),))
        with pytest.raises(aio.AioRpcError, match="PERMISSION_DENIED"):
            await door.Put(request, metadata=(("authorization", f"Bearer {token_as(TOKEN, 'reader')}"),))
        with pytest.raises(aio.AioRpcError, match="UNAUTHENTICATED"):
            await door.Put(request)
