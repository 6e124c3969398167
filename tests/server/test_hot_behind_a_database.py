"""Hot calls of what is loaded of a database; what is not loaded, or owned by it and written, is left to handlers."""

from typing import Any

import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.native.http2 import why_absent
from tests.backing.test_loader import serving, until
from tests.server.test_hot import hot_counts

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
ROWS = {b"p|bob|%04d" % number: b"%d" % number for number in range(20)} | {b"s|ann|bob": b"1"}
GET = pb.GetRequest(key=b"p|bob|0007")


def key_range(kind: Any, name: bytes) -> Any:
    return kind(first=name, last=name[:-1] + b"}")


async def test_reads_of_loaded_ranges_are_hot_and_say_of_when_they_are() -> None:
    async with serving(ROWS, transport="native") as setting, aio.insecure_channel(setting.target) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        whole = key_range(pb.ScanRequest, b"p|bob|")
        assert len((await anext(aiter(stub.Scan(whole)))).keys) == 20
        assert hot_counts(setting.server) == {}
        assert (await stub.Get(GET)).value == b"7"
        assert (await stub.Get(pb.GetRequest(key=b"p|bob|9999"))).value == b""
        assert (await stub.Count(key_range(pb.CountRequest, b"p|bob|"))).count == 20
        reply = await anext(aiter(stub.Scan(whole)))
        assert dict(zip(reply.keys, reply.values, strict=True)) == {key: ROWS[key] for key in ROWS if key < b"s"}
        many = await stub.MultiGet(pb.MultiGetRequest(keys=[b"p|bob|0001", b"p|bob|9999"]))
        assert list(many.present) == [True, False]
        assert hot_counts(setting.server) == {"Get": 2, "Count": 1, "Scan": 1, "MultiGet": 1}
        assert reply.header.token == setting.server.service.levels.token
        assert reply.header.HasField("age_ms")


async def test_what_the_database_changes_is_seen_by_hot_reads() -> None:
    async with serving(ROWS, transport="native") as setting, aio.insecure_channel(setting.target) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        await stub.Get(GET)
        setting.store.commit({GET.key: b"new"})
        await until(lambda: setting.server.engine.get(GET.key) == b"new")
        before = hot_counts(setting.server).get("Get", 0)
        assert (await stub.Get(GET)).value == b"new"
        assert hot_counts(setting.server) == {"Get": before + 1}


async def test_what_is_not_loaded_is_loaded_by_the_handler() -> None:
    async with serving(ROWS, transport="native") as setting, aio.insecure_channel(setting.target) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        assert (await stub.Get(GET)).value == b"7"
        assert hot_counts(setting.server) == {}
        # One key is loaded, and not its neighbour.
        assert (await stub.Get(pb.GetRequest(key=b"p|bob|0008"))).value == b"8"
        assert hot_counts(setting.server) == {}
        assert setting.loads == [1, 1]
        setting.server.engine.forget(b"p|bob|", b"p|bob}")
        assert (await stub.Get(GET)).value == b"7"
        assert hot_counts(setting.server) == {}
        assert setting.loads == [1, 1, 1]


async def test_timelines_of_loaded_rows_are_hot() -> None:
    async with serving(ROWS, transport="native") as setting, aio.insecure_channel(setting.target) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        timeline = key_range(pb.ScanRequest, b"t|ann|")
        replies = [await anext(aiter(stub.Scan(timeline))) for _ in range(4)]
        assert {len(reply.keys) for reply in replies} == {20}
        assert hot_counts(setting.server).get("Scan", 0) >= 1


async def test_writes_of_what_the_database_owns_are_written_through_and_seen() -> None:
    settings = {"backing_mode": "write-through", "transport": "native"}
    async with serving(ROWS, **settings) as setting, aio.insecure_channel(setting.target) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        await stub.Get(GET)
        reply = await stub.Put(pb.PutRequest(key=GET.key, value=b"put"))
        assert reply.header.token
        assert hot_counts(setting.server) == {}
        assert (await stub.Get(GET)).value == b"put"
        assert hot_counts(setting.server) == {"Get": 1}
