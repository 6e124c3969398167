"""Calls for many keys, and scans by prefix, keys alone and page by page, over a real socket."""

import asyncio
import itertools
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.steps.executor import _REMOVED_AT_A_TIME

from tests.server.serving import connect, serving

KARMA = "karma|<author> = count vote|<author>|<id>"


async def _refused(answer: Any, code: grpc.StatusCode, match: str | None = None) -> None:
    with pytest.raises(aio.AioRpcError, match=match) as caught:
        await answer
    assert caught.value.code() is code


async def _fill(stub: Any, keys: list[bytes]) -> None:
    await stub.MultiPut(pb.MultiPutRequest(keys=keys, values=[b"of " + key for key in keys]))


async def test_multi_get_gives_values_in_order_and_marks_the_absent(stub: Any) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text=KARMA))
    put = await stub.MultiPut(pb.MultiPutRequest(keys=[b"vote|ann|1", b"vote|ann|2", b"a"], values=[b"", b"", b""]))
    got = await stub.MultiGet(pb.MultiGetRequest(keys=[b"karma|ann", b"karma|bob", b"a", b"b", b"a"]))
    assert list(got.values) == [b"2", b"", b"", b"", b""]
    assert list(got.present) == [True, False, True, False, True]
    assert got.header == put.header
    assert list((await stub.MultiGet(pb.MultiGetRequest())).values) == []


async def test_a_multi_get_that_would_be_too_long_gives_the_first_values(stub: Any) -> None:
    keys = [b"k%d" % number for number in range(5)]
    await stub.MultiPut(pb.MultiPutRequest(keys=keys, values=[b"x" * 900] * 5))
    assert len((await stub.MultiGet(pb.MultiGetRequest(keys=keys))).values) == 2, "reply_bytes_max is 2000"
    await stub.Put(pb.PutRequest(key=b"large", value=b"x" * 5000))
    got = await stub.MultiGet(pb.MultiGetRequest(keys=[b"none", b"large", b"k1"]))
    assert list(got.present) == [False]
    got = await stub.MultiGet(pb.MultiGetRequest(keys=[b"large", b"k1"]))
    assert [len(value) for value in got.values] == [5000]


async def test_a_multi_put_writes_all_or_nothing(stub: Any, server: PequodServer) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text=KARMA))
    before = server.engine.revision
    for key, value, code in [
        (b"karma|ann", b"9", grpc.StatusCode.FAILED_PRECONDITION),
        (b"", b"", grpc.StatusCode.INVALID_ARGUMENT),
        (b"k" * 5000, b"", grpc.StatusCode.RESOURCE_EXHAUSTED),
        (b"k", b"v" * (1 << 20) + b"v", grpc.StatusCode.RESOURCE_EXHAUSTED),
    ]:
        await _refused(stub.MultiPut(pb.MultiPutRequest(keys=[b"a", key], values=[b"1", value])), code)
    unequal = pb.MultiPutRequest(keys=[b"a", b"b"], values=[b"1"])
    await _refused(stub.MultiPut(unequal), grpc.StatusCode.INVALID_ARGUMENT, "2 keys and 1 values")
    assert server.engine.revision == before
    await stub.MultiPut(pb.MultiPutRequest(keys=[b"a", b"karma", b"a"], values=[b"1", b"no output", b"2"]))
    assert (await stub.Get(pb.GetRequest(key=b"a"))).value == b"2", "the last of a key stays"


async def test_more_keys_than_a_batch_may_have_are_refused() -> None:
    async with serving(ServerConfig(listen="127.0.0.1:0", batch_commands_max=2)) as port, connect(port) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        keys = [b"a", b"b", b"c"]
        exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
        await _refused(stub.MultiGet(pb.MultiGetRequest(keys=keys)), exhausted, "batch_commands_max is 2")
        await _refused(stub.MultiPut(pb.MultiPutRequest(keys=keys, values=keys)), exhausted, "batch_commands_max is 2")
        assert (await stub.Count(pb.CountRequest())).count == 0


async def test_remove_range_takes_base_keys_out_and_leaves_computed_ones_to_their_joins(
    stub: Any, server: PequodServer
) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text=KARMA))
    await _fill(stub, [b"a", b"l|1", b"l|2", b"vote|ann|1", b"vote|ann|2", b"vote|bob|1", b"x"])
    before = (await stub.Count(pb.CountRequest(prefix=b"karma|"))).header.revision
    removed = await stub.RemoveRange(pb.RemoveRangeRequest(first=b"karma|", last=b"karma}"))
    assert (removed.removed, removed.header.revision) == (0, before)
    assert (await stub.RemoveRange(pb.RemoveRangeRequest(prefix=b"vote|ann|"))).removed == 2
    rows = [row async for row in stub.Scan(pb.ScanRequest(prefix=b"karma|"))]
    assert [list(chunk.keys) for chunk in rows] == [[b"karma|bob"]], "what follows from them is gone"
    assert (await stub.RemoveRange(pb.RemoveRangeRequest(first=b"l|2", last=b"l|1"))).removed == 0
    assert (await stub.RemoveRange(pb.RemoveRangeRequest(prefix=b"l|", first=b"l|2"))).removed == 1
    await _refused(stub.RemoveRange(pb.RemoveRangeRequest()), grpc.StatusCode.INVALID_ARGUMENT, "first or prefix")
    assert (await stub.RemoveRange(pb.RemoveRangeRequest(first=b""))).removed == 4
    assert (await stub.Count(pb.CountRequest())).count == 0
    server.engine._check()


async def test_others_have_their_turn_while_a_range_is_removed(stub: Any) -> None:
    keys = [b"p|%06d" % number for number in range(20 * _REMOVED_AT_A_TIME)]
    for start in range(0, len(keys), 1000):
        await _fill(stub, keys[start : start + 1000])
    removal = asyncio.ensure_future(_of(stub.RemoveRange(pb.RemoveRangeRequest(prefix=b"p|"))))
    seen = set()
    while not removal.done():
        seen.add((await stub.Count(pb.CountRequest(prefix=b"p|"))).count)
    assert removal.result().removed == len(keys)
    assert all(count % _REMOVED_AT_A_TIME == 0 for count in seen), "each piece is whole"
    assert (await stub.Count(pb.CountRequest(prefix=b"p|"))).count == 0


async def _of(call: Any) -> Any:
    return await call


async def test_a_scan_by_prefix_can_be_narrowed(stub: Any) -> None:
    await _fill(stub, [b"t|ann", b"t|ann|1", b"t|ann|2", b"t|anna|1", b"\xff\xff"])

    async def keys(**options: Any) -> list[bytes]:
        return [key async for chunk in stub.Scan(pb.ScanRequest(**options)) for key in chunk.keys]

    assert await keys(prefix=b"t|ann|") == [b"t|ann|1", b"t|ann|2"]
    assert await keys(prefix=b"t|ann|", first=b"t|ann|2") == [b"t|ann|2"]
    assert await keys(prefix=b"t|ann|", first=b"t|", last=b"t|ann|2", reverse=True) == [b"t|ann|1"]
    assert await keys(prefix=b"\xff") == [b"\xff\xff"]
    assert await keys(prefix=b"t|x", last=b"a") == []
    assert (await stub.Count(pb.CountRequest(prefix=b"t|ann"))).count == 4
    assert (await stub.Count(pb.CountRequest(prefix=b"t|ann", first=b"t|ann|1"))).count == 2


async def test_a_scan_of_keys_only_has_no_values(stub: Any) -> None:
    keys = [b"x|%03d" % number for number in range(50)]
    await stub.MultiPut(pb.MultiPutRequest(keys=keys, values=[b"v" * 200] * 50))
    chunks = [chunk async for chunk in stub.Scan(pb.ScanRequest(prefix=b"x|", keys_only=True))]
    assert [key for chunk in chunks for key in chunk.keys] == keys
    assert not any(chunk.values for chunk in chunks)
    assert len(chunks) == 3, "20 at a time: values do not count"


@pytest.mark.parametrize("reverse", [False, True])
async def test_pages_go_on_at_the_resume_key_until_there_is_none(stub: Any, reverse: bool) -> None:
    keys = [b"x|%03d" % number for number in range(60)]
    await _fill(stub, keys)
    found, sizes = [], []
    bound: dict[str, Any] = {}
    while True:
        request = pb.ScanRequest(prefix=b"x|", limit=12, reverse=reverse, one_chunk=True, **bound)
        (page,) = [chunk async for chunk in stub.Scan(request)]
        found += page.keys
        sizes.append(len(page.keys))
        if not page.HasField("resume_key"):
            break
        bound = {"last" if reverse else "first": page.resume_key}
    assert found == (keys[::-1] if reverse else keys)
    assert sizes == [12] * 5, "the last one says that it is the last"


async def test_every_chunk_tells_where_to_go_on(stub: Any) -> None:
    await _fill(stub, [b"x|%03d" % number for number in range(50)])
    chunks = [chunk async for chunk in stub.Scan(pb.ScanRequest(limit=45))]
    assert len(chunks) > 2
    for chunk, following in itertools.pairwise(chunks):
        assert chunk.keys[-1] < chunk.resume_key <= following.keys[0]
    assert chunks[-1].resume_key == b"x|044\0", "there is more, beyond the limit"
    (empty,) = [chunk async for chunk in stub.Scan(pb.ScanRequest(first=b"y", one_chunk=True))]
    assert not empty.keys
    assert not empty.HasField("resume_key")


async def test_a_chunk_is_never_larger_than_a_reply_may_be(stub: Any) -> None:
    await stub.MultiPut(pb.MultiPutRequest(keys=[b"a", b"b", b"c"], values=[b"v" * 900] * 3))
    chunks = [chunk async for chunk in stub.Scan(pb.ScanRequest(chunk_bytes=1 << 40))]
    assert [len(chunk.keys) for chunk in chunks] == [2, 1]
