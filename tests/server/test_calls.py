"""Each call of the contract over a real socket, and each error with its code and details."""

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


async def _fill(stub: Any, count: int = 100) -> None:
    for number in range(count):
        await stub.Put(pb.PutRequest(key=b"x|%03d" % number, value=b"v%d" % number))


async def test_put_get_remove_count(stub: Any) -> None:
    put = await stub.Put(pb.PutRequest(key=b"a", value=b""))
    got = await stub.Get(pb.GetRequest(key=b"a"))
    assert got.HasField("value")
    assert got.value == b""
    assert got.header == put.header
    assert not (await stub.Get(pb.GetRequest(key=b"b"))).HasField("value")
    assert (await stub.Count(pb.CountRequest(first=b""))).count == 1
    removed = await stub.Remove(pb.RemoveRequest(key=b"a"))
    assert removed.removed
    assert removed.header.revision > put.header.revision
    assert not (await stub.Remove(pb.RemoveRequest(key=b"a"))).removed
    assert (await stub.Count(pb.CountRequest(first=b"a", last=b"b"))).count == 0


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 0, 1, 20, 33])
async def test_a_scan_comes_in_chunks_and_is_whole(stub: Any, reverse: bool, limit: int | None) -> None:
    await _fill(stub)
    request = pb.ScanRequest(first=b"x|010", last=b"x|090", reverse=reverse, limit=limit)
    chunks = [chunk async for chunk in stub.Scan(request)]
    rows = [row for chunk in chunks for row in zip(chunk.keys, chunk.values, strict=True)]
    expected = [(b"x|%03d" % number, b"v%d" % number) for number in range(10, 90)]
    assert rows == (expected[::-1] if reverse else expected)[:limit]
    assert all(sum(map(len, [*chunk.keys, *chunk.values])) <= 300 for chunk in chunks)


async def test_an_unbounded_scan_and_one_of_large_rows(stub: Any) -> None:
    await stub.Put(pb.PutRequest(key=b"y", value=b"*" * 1000))
    await stub.Put(pb.PutRequest(key=b"z", value=b"*" * 1000))
    chunks = [chunk async for chunk in stub.Scan(pb.ScanRequest(first=b""))]
    assert [list(chunk.keys) for chunk in chunks if chunk.keys] == [[b"y"], [b"z"]], "one row at least"


async def test_chunks_are_full_though_rows_grow_and_shrink(stub: Any) -> None:
    sizes = [1] * 60 + [250] * 10 + [1] * 60
    for number, size in enumerate(sizes):
        await stub.Put(pb.PutRequest(key=b"x|%03d" % number, value=b"*" * size))
    chunks = [chunk async for chunk in stub.Scan(pb.ScanRequest(first=b"x|", last=b"x}"))]
    assert [len(value) for chunk in chunks for value in chunk.values] == sizes
    assert all(sum(map(len, [*chunk.keys, *chunk.values])) <= 300 for chunk in chunks)
    assert len(chunks) < 30


async def test_a_chunk_is_no_larger_than_a_reply_whatever_is_asked_for(stub: Any, server: PequodServer) -> None:
    for number in range(15):
        server.engine.put(b"x|%03d" % number, b"*" * 500)
    chunks = [chunk async for chunk in stub.Scan(pb.ScanRequest(first=b"x|", last=b"x}", chunk_bytes=1 << 40))]
    assert [len(chunk.keys) for chunk in chunks if chunk.keys] == [3, 3, 3, 3, 3]


async def test_joins_are_added_listed_and_dropped(stub: Any) -> None:
    added = await stub.AddJoin(pb.AddJoinRequest(text=TIMELINE + "; k|<t> = copy p|<u>|<t>"))
    assert [join.name for join in added.joins] == ["t", "k"]
    assert "<u>" in added.joins[1].warnings[0]
    assert (await stub.ListJoins(pb.ListJoinsRequest())).joins == added.joins
    again = await stub.AddJoin(pb.AddJoinRequest(text=TIMELINE))
    assert again.header.revision == added.header.revision
    await stub.Put(pb.PutRequest(key=b"s|ann|bob", value=b"1"))
    await stub.Put(pb.PutRequest(key=b"p|bob|0001", value=b"Hi"))
    assert (await stub.Get(pb.GetRequest(key=b"t|ann|0001|bob"))).value == b"Hi"
    plan = await stub.Explain(pb.ExplainRequest(join="t"))
    assert [source.reads for source in plan.join.sources] == ["s|<user>|", "p|<poster>|"]
    found = await stub.Explain(pb.ExplainRequest(range=pb.Range(first=b"t|ann|", last=b"t|ann}")))
    assert [part.state for part in found.range.joins[0].parts] == ["absent", "valid", "absent"]
    stats = await stub.Stats(pb.StatsRequest())
    assert {join.join: join.rows for join in stats.joins} == {"t": 1, "k": 0}
    assert {table.table: table.keys for table in stats.tables} == {b"p": 1, b"s": 1}
    await stub.DropJoin(pb.DropJoinRequest(name="t"))
    assert not (await stub.Get(pb.GetRequest(key=b"t|ann|0001|bob"))).HasField("value")


ERRORS = [
    ("Put", pb.PutRequest(key=b"t|a|0001|b"), grpc.StatusCode.FAILED_PRECONDITION, "ComputedKeyError", {"join": "t"}),
    ("Put", pb.PutRequest(key=b""), grpc.StatusCode.INVALID_ARGUMENT, "InvalidKeyError", {"key_hex": ""}),
    (
        "Put",
        pb.PutRequest(key=b"k" * 5000),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "LimitExceededError",
        {"setting": "key_bytes_max", "size": "5000", "maximum": "4096"},
    ),
    ("Remove", pb.RemoveRequest(key=b"t|a|0001|b"), grpc.StatusCode.FAILED_PRECONDITION, "ComputedKeyError", {}),
    ("DropJoin", pb.DropJoinRequest(name="no"), grpc.StatusCode.NOT_FOUND, "UnknownJoinError", {"name": "no"}),
    ("Explain", pb.ExplainRequest(join="no"), grpc.StatusCode.NOT_FOUND, "UnknownJoinError", {"name": "no"}),
    (
        "AddJoin",
        pb.AddJoinRequest(text="a|<x> = copy b|<x>;\nc|<x> = copi d|<x>"),
        grpc.StatusCode.INVALID_ARGUMENT,
        "JoinError",
        {"line": "2", "column": "9", "reason": "'copi' is no operator"},
    ),
    (
        "AddJoin",
        pb.AddJoinRequest(text="s|<u>|<p> = copy t|<u>|<x:4>|<p>"),
        grpc.StatusCode.INVALID_ARGUMENT,
        "JoinError",
        {"line": "1", "column": "1"},
    ),
]


@pytest.mark.parametrize(("call", "request_", "code", "reason", "facts"), ERRORS)
async def test_errors_have_canonical_codes_and_details(
    stub: Any, server: PequodServer, call: str, request_: Any, code: grpc.StatusCode, reason: str, facts: dict[str, str]
) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text=TIMELINE))
    revision = server.engine.revision
    with pytest.raises(aio.AioRpcError) as caught:
        await getattr(stub, call)(request_)
    assert caught.value.code() is code
    status = rpc_status.from_call(caught.value)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == (reason, "pequod.v1")
    assert facts.items() <= dict(info.metadata).items()
    assert server.engine.revision == revision, "nothing changed"
    assert len(server.engine.joins()) == 1


async def test_a_bad_join_is_shown_with_a_caret(stub: Any) -> None:
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.AddJoin(pb.AddJoinRequest(text="a|<x> = copi b|<x>"))
    assert "\n            ^^^^\n" in (caught.value.details() or "")


async def test_explaining_nothing_is_refused(stub: Any) -> None:
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.Explain(pb.ExplainRequest())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_taken_port_is_refused(server: PequodServer) -> None:
    from pequod_server import ServerConfig

    with pytest.raises(OSError, match="is another server there"):
        await PequodServer(ServerConfig(listen=f"127.0.0.1:{server.port}")).start()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("method", "shape"), [("Put", "unary_unary"), ("Scan", "unary_stream"), ("Execute", "stream_stream")]
)
async def test_bytes_that_are_no_message_are_refused(
    server: PequodServer, stub: Any, channel: aio.Channel, caplog: pytest.LogCaptureFixture, method: str, shape: str
) -> None:
    call = getattr(channel, shape)(f"/pequod.v1.Pequod/{method}")
    with pytest.raises(aio.AioRpcError, match="is no message of this call") as caught:
        if shape == "unary_unary":
            await call(b"\x0f\xff")
        elif shape == "unary_stream":
            await call(b"\x0f\xff").read()
        else:
            stream = call()
            await stream.write(b"\x0f\xff")
            await stream.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not [record for record in caplog.records if record.levelname == "ERROR"], "anybody could fill the log"
