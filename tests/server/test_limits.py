"""What is over a limit is refused with the name of the setting, and changes nothing."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from pequod_proto import pequod_pb2 as pb
from pequod_proto.contract import MESSAGE_SLACK_BYTES
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig

from pequod import AsyncClient
from pequod.commands.kinds import GET, OK, PART, PUT, SCAN
from pequod.errors import LimitExceededError, PequodError, UnavailableError
from tests.server.serving import connect, serving

LISTEN = "127.0.0.1:0"


def _batch(count: int) -> pb.ExecuteRequest:
    return pb.ExecuteRequest(batch=1, kinds=bytes([PUT]) * count, arguments=[b"k", b"v"] * count)


async def _open_stream(stub: Any) -> Any:
    """Return an Execute call that the server has admitted: it has answered."""
    call = stub.Execute()
    await call.write(pb.ExecuteRequest(batch=1, kinds=bytes([GET]), arguments=[b"k"]))
    assert isinstance(await call.read(), pb.ExecuteReply)
    return call


async def _refused(answer: Awaitable[Any], setting: str, size: int, maximum: int) -> None:
    with pytest.raises(aio.AioRpcError) as caught:
        await answer
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert setting in (caught.value.details() or "")
    status = rpc_status.from_call(caught.value)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert dict(info.metadata) == {"setting": setting, "size": str(size), "maximum": str(maximum)}


async def test_a_batch_of_too_many_commands_is_refused_whole() -> None:
    async with serving(ServerConfig(listen=LISTEN, batch_commands_max=3)) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        call = await _open_stream(stub)
        await call.write(_batch(4))
        await _refused(call.read(), "batch_commands_max", 4, 3)
        assert (await stub.Count(pb.CountRequest())).count == 0
        call = stub.Execute()
        await call.write(_batch(3))
        assert (await call.read()).batch == 1
        await call.done_writing()
    async with (
        serving(ServerConfig(listen=LISTEN, batch_commands_max=3)) as port,
        AsyncClient(f"127.0.0.1:{port}") as client,
    ):
        batch = client.batch()
        for number in range(4):
            batch.put(f"k{number}", "v")
        with pytest.raises(PequodError, match="batch_commands_max is 3, and this needs 4"):
            await batch.send()
        assert await client.count("") == 0


async def test_streams_beyond_the_limit_are_refused_until_one_ends() -> None:
    async with serving(ServerConfig(listen=LISTEN, streams_max=2)) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        first, second = await _open_stream(stub), await _open_stream(stub)
        await _refused(stub.Execute().read(), "streams_max", 3, 2)
        assert (await stub.Count(pb.CountRequest())).count == 0, "other calls are not concerned"
        await first.done_writing()
        assert await first.read() is aio.EOF
        await _eventually_admitted(stub)
        second.cancel()
        await _eventually_admitted(stub)


async def _eventually_admitted(stub: Any) -> None:
    """Open a stream; the server may learn a moment later than the client that another has ended."""
    async with asyncio.timeout(20):
        while True:
            call = stub.Execute()
            await call.done_writing()
            if await call.code() is grpc.StatusCode.OK:
                return


async def test_calls_beyond_the_limit_are_refused_but_health_is_answered() -> None:
    async with serving(ServerConfig(listen=LISTEN, calls_max=1)) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        call = await _open_stream(stub)
        await _refused(stub.Get(pb.GetRequest(key=b"k")), "calls_max", 2, 1)
        await _refused(stub.Scan(pb.ScanRequest()).read(), "calls_max", 2, 1)
        health: Any = health_pb2_grpc.HealthStub(channel)
        reply = await health.Check(health_pb2.HealthCheckRequest())
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        await call.done_writing()


def _putting(value: bytes) -> pb.ExecuteRequest:
    return pb.ExecuteRequest(batch=1, kinds=bytes([PUT]), arguments=[b"k", value])


async def test_messages_beyond_the_limit_are_refused_by_name() -> None:
    async with serving(ServerConfig(listen=LISTEN, message_bytes_max=1000)) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        longest, too_long = b"v" * 990, b"v" * 2000
        put = pb.PutRequest(key=b"k", value=longest + b"v" * (1000 - pb.PutRequest(key=b"k", value=longest).ByteSize()))
        assert put.ByteSize() == 1000
        await stub.Put(put)
        beyond = pb.PutRequest(key=b"k", value=put.value + b"v")
        await _refused(stub.Put(beyond), "message_bytes_max", 1001, 1000)
        scan = pb.ScanRequest(first=too_long)
        await _refused(stub.Scan(scan).read(), "message_bytes_max", scan.ByteSize(), 1000)
        call = await _open_stream(stub)
        await call.write(_putting(too_long))
        await _refused(call.read(), "message_bytes_max", _putting(too_long).ByteSize(), 1000)
        assert (await stub.Get(pb.GetRequest(key=b"k"))).value == put.value, "nothing was changed"


async def test_messages_far_beyond_the_limit_are_refused_before_they_are_read() -> None:
    far = b"v" * (MESSAGE_SLACK_BYTES + 2000)
    async with (
        serving(ServerConfig(listen=LISTEN, message_bytes_max=1000)) as port,
        AsyncClient(f"127.0.0.1:{port}") as client,
    ):
        for call, size in (
            (client.multi_put({"k": far}), pb.MultiPutRequest(keys=[b"k"], values=[far]).ByteSize()),
            (client.put("k", far), _putting(far).ByteSize()),
        ):
            with pytest.raises(LimitExceededError) as caught:
                await call
            assert (caught.value.setting, caught.value.maximum) == ("message_bytes_max", 1000)
            assert caught.value.size == size
        await client.put("k", "v")
        assert await client.count() == 1


async def test_connections_beyond_the_limit_are_refused_until_one_goes() -> None:
    async with serving(ServerConfig(listen=LISTEN, connections_max=1)) as port:
        async with connect(port) as channel:
            first: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
            await first.Put(pb.PutRequest(key=b"k"))
            async with connect(port) as another, AsyncClient(f"127.0.0.1:{port}", retries=0) as client:
                second: Any = PequodStub(another)  # type: ignore[no-untyped-call]
                scan = second.Scan(pb.ScanRequest())
                for call in (second.Put(pb.PutRequest(key=b"k")), scan.read(), second.Execute().read()):
                    with pytest.raises(aio.AioRpcError) as caught:
                        await call
                    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                with pytest.raises(LimitExceededError) as refused:
                    await client.put("k", "v")
                assert (refused.value.setting, refused.value.maximum) == ("connections_max", 1)
                health: Any = health_pb2_grpc.HealthStub(another)
                assert (await health.Check(health_pb2.HealthCheckRequest())).status
            await first.Put(pb.PutRequest(key=b"k"))
        async with connect(port) as channel:
            stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
            for _ in range(50):
                try:
                    await stub.Put(pb.PutRequest(key=b"k"))
                    break
                except aio.AioRpcError as error:
                    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                    await asyncio.sleep(0.2)
            else:
                pytest.fail("the place of a connection that has gone is not given to another")


async def test_connections_far_beyond_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pequod_server.wire.serving.SLACK", 0)
    async with serving(ServerConfig(listen=LISTEN, connections_max=1)) as port, connect(port) as channel:
        await PequodStub(channel).Put(pb.PutRequest(key=b"k"))  # type: ignore[no-untyped-call]
        async with AsyncClient(f"127.0.0.1:{port}", retries=0) as client:
            with pytest.raises(UnavailableError, match="`connections_max`") as refused:
                await client.put("k", "v")
        assert refused.value.is_unapplied


async def test_a_reply_of_the_default_size_fits_a_client_with_default_limits() -> None:
    # Pieces are smaller where there is less memory for messages.
    async with serving(ServerConfig(listen=LISTEN, messages_bytes_max=256 << 20)) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        call = stub.Execute()
        rows = [part for number in range(1000) for part in (b"k%04d" % number, b"v" * 5000)]
        await call.write(pb.ExecuteRequest(batch=1, kinds=bytes([PUT]) * 1000, arguments=rows))
        assert (await call.read()).batch == 1
        await call.write(pb.ExecuteRequest(batch=2, kinds=bytes([SCAN]), arguments=[b"k", b"l"]))
        reply = await call.read()
        assert list(reply.statuses) == [PART]
        assert 3_000_000 < reply.ByteSize() < 4 << 20
        assert list((await call.read()).statuses) == [OK]
        await call.done_writing()


async def test_no_call_is_held_after_it_has_ended() -> None:
    server = PequodServer(ServerConfig(listen=LISTEN))
    async with connect(await server.start()) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        call = await _open_stream(stub)
        for _ in range(10):
            await stub.Put(pb.PutRequest(key=b"k"))
        assert len(server._calls._streams) == 1
        await call.done_writing()
        await call.code()
    await server.stop()
    assert not server._calls._streams
    assert not server._calls._under_way


@pytest.mark.parametrize(
    ("text", "setting", "size", "maximum"),
    [
        (";".join(f"t{n}|<a> = copy s|<a>" for n in range(5)), "joins_max", 5, 3),
        ("t|<a>|<b>|<c> = copy s|<a>|<b>|<c>", "join_slots_max", 6, 5),
        ("<" * 201, "join_text_bytes_max", 201, 200),
    ],
)
async def test_texts_of_joins_beyond_a_limit_are_refused_unparsed(
    text: str, setting: str, size: int, maximum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(_text: str) -> None:
        pytest.fail("it is parsed")

    monkeypatch.setattr("pequod_server.calls.administration.parse_some", parse)
    config = ServerConfig(listen=LISTEN, joins_max=3, join_slots_max=5, join_text_bytes_max=200)
    async with serving(config) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        await _refused(stub.AddJoin(pb.AddJoinRequest(text=text)), setting, size, maximum)


async def test_joins_beyond_the_limit_are_refused_and_those_that_are_there_are_not() -> None:
    async with serving(ServerConfig(listen=LISTEN, joins_max=2)) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        text = "t|<a> = copy s|<a>; u|<a> = copy s|<a>"
        await stub.AddJoin(pb.AddJoinRequest(text=text))
        await stub.AddJoin(pb.AddJoinRequest(text=text))
        await _refused(stub.AddJoin(pb.AddJoinRequest(text="v|<a> = copy s|<a>")), "joins_max", 3, 2)
        assert len((await stub.ListJoins(pb.ListJoinsRequest())).joins) == 2
