"""Hot calls of a server: what handlers would have said, and who must not be passed by."""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.calls.hot import _CALLERS_MAX
from pequod_server.ops.tallies import SECONDS

from pequod.language.deadlines import NO_DEADLINE
from pequod.native.http2 import HOT_METHODS, why_absent

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
GET = pb.GetRequest(key=b"x|1")


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[PequodServer, Any]]:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", drain_s=0.5, transport="native", **settings))
    port = await server.start()
    server.engine.put(b"x|1", b"one")
    try:
        async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield server, PequodStub(channel)  # type: ignore[no-untyped-call]
    finally:
        await server.stop()


async def value_at_last(stub: Any) -> bytes:
    """Return what a client gets that tries until it has a connection which lasts."""
    while True:
        with contextlib.suppress(aio.AioRpcError):
            value: bytes = (await stub.Get(GET, wait_for_ready=True)).value
            return value


def hot_counts(server: PequodServer) -> dict[str, int]:
    """Return how many calls of each method were hot."""
    hot = server._server.hot  # type: ignore[attr-defined]
    tallies = () if hot is None else zip(HOT_METHODS, hot.native.tallies(), strict=True)
    return {name: tally[0] for name, tally in tallies if tally[0]}


def test_the_core_and_the_server_have_the_same_methods_callers_and_bounds() -> None:
    folder = Path(__file__).parents[2] / "pequod/native/http2"
    source = "".join((folder / name).read_text() for name in ("session.hpp", "hot_calls.hpp", "hot_calls.cpp"))
    (names,) = re.findall(r"NAMES\[HOT_METHODS\] = \{(.*?)\};", source, re.DOTALL)
    assert tuple(re.findall(r'"(.*?)"', names)) == HOT_METHODS
    (bounds,) = re.findall(r"HOT_BOUNDS_S\[\] = \{(.*?)\};", source, re.DOTALL)
    assert tuple(map(float, bounds.split(","))) == SECONDS
    assert f"constexpr size_t RIGHTS_MAX = {_CALLERS_MAX};" in source


async def test_calls_are_hot_and_channelz_counts_them() -> None:
    async with served() as (server, stub):
        replies = await asyncio.gather(*(stub.Get(GET) for _ in range(300)))
        assert {reply.value for reply in replies} == {b"one"}
        await stub.MultiPut(pb.MultiPutRequest(keys=[b"x|2", b"x|4"], values=[b"old", b"four"]))
        await stub.Put(pb.PutRequest(key=b"x|2", value=b"two"))
        reply = await stub.MultiGet(pb.MultiGetRequest(keys=[b"x|1", b"x|2", b"x|3"]))
        assert list(reply.present) == [True, True, False]
        assert reply.header.server_id == server.service.server_id
        assert reply.header.token == server.service.levels.token
        counts = hot_counts(server)
        assert (counts["Put"], counts["MultiPut"], counts["MultiGet"]) == (1, 1, 1)
        # One whose bytes two reads brought is not hot.
        assert 250 <= counts["Get"] <= 300
        assert server._server.counts.succeeded >= 303  # type: ignore[attr-defined]
        assert server.service.levels.counters.all_reads()["any"] == 301


async def test_deadlines_are_set_kept_and_told_without_python() -> None:
    async with served() as (server, stub):
        await stub.WriteIf(pb.WriteIfRequest(key=b"x|2", value=b"two", condition=1, ttl_ms=3_600_000))
        await stub.MultiPut(pb.MultiPutRequest(keys=[b"x|2"], values=[b"new"], keep_ttl=True))
        assert 0 < (await stub.Ttl(pb.TtlRequest(key=b"x|2"))).remaining_ms <= 3_600_000
        assert (await stub.Expire(pb.ExpireRequest(key=b"x|2"))).was_there
        assert (await stub.Ttl(pb.TtlRequest(key=b"x|2"))).remaining_ms == NO_DEADLINE
        assert not (await stub.Expire(pb.ExpireRequest(key=b"x|9", ttl_ms=5))).was_there
        assert not (await stub.Ttl(pb.TtlRequest(key=b"x|9"))).HasField("remaining_ms")
        assert hot_counts(server) == {"WriteIf": 1, "MultiPut": 1, "Ttl": 3, "Expire": 2}


async def test_metrics_have_them_beside_the_others() -> None:
    async with served(metrics="127.0.0.1:0") as (server, stub):
        for key in (b"x|1", b"x|2", b""):
            await stub.Get(pb.GetRequest(key=key))
        scraped, _ = await server.instruments._metrics.scrape("")  # type: ignore[union-attr]
        assert b'pequod_calls_total{code="OK",method="Get"} 3.0' in scraped
        assert b'pequod_call_seconds_count{code="OK",method="Get"} 3.0' in scraped
        assert hot_counts(server) == {"Get": 2}


async def test_nothing_is_hot_while_the_log_wants_each_call(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as (server, stub):
        with caplog.at_level(logging.DEBUG, "pequod.server"):
            assert (await stub.Get(GET)).value == b"one"
            assert hot_counts(server) == {}
        assert [record.message for record in caplog.records if record.message == "call"] == ["call"]
        await stub.Get(GET)
        assert hot_counts(server) == {"Get": 1}


async def test_nothing_is_hot_while_a_join_is_a_snapshot() -> None:
    async with served() as (server, stub):
        server.engine.add_joins(parse("t|<a> = snapshot 10 copy y|<a>"))
        assert (await stub.Get(GET)).value == b"one"
        assert hot_counts(server) == {}


async def test_a_slow_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with served(slow_ms=1e-6) as (server, stub):
        await stub.Get(GET, metadata=(("x-request-id", "mine"),))
        assert hot_counts(server) == {"Get": 1}
    (record,) = [record for record in caplog.records if record.message == "slow call"]
    assert (record.method, record.key, record.request_id) == ("Get", "x|1", "mine")  # type: ignore[attr-defined]


async def test_calls_beyond_a_limit_are_refused_by_name() -> None:
    async with served(calls_max=1) as (server, stub):
        watch = stub.Watch(pb.WatchRequest(first=b"x|", last=b"x}", rows=True))
        await watch.read()
        with pytest.raises(aio.AioRpcError, match="calls_max"):
            await stub.Get(GET)
        watch.cancel()
        assert hot_counts(server) == {}


async def test_watches_are_told_of_puts_and_joins_of_what_comes_between() -> None:
    async with served() as (server, stub):
        watch = stub.Watch(pb.WatchRequest(first=b"x|", last=b"x}", rows=True))
        await watch.read()
        await asyncio.gather(*(stub.Put(pb.PutRequest(key=b"y|%d" % n, value=b"1")) for n in range(50)))
        await stub.AddJoin(pb.AddJoinRequest(text="t|<a> = copy y|<a>"))
        scanned = [reply async for reply in stub.Scan(pb.ScanRequest(first=b"t|", last=b"t}"))]
        assert sum(len(reply.keys) for reply in scanned) == 50
        await stub.Put(pb.PutRequest(key=b"y|7", value=b"2"))
        assert (await stub.Get(pb.GetRequest(key=b"t|7"))).value == b"2"
        await stub.Put(pb.PutRequest(key=b"x|1", value=b"other"))
        assert (await stub.Get(GET)).value == b"other"
        async with asyncio.timeout(20):
            while b"other" not in (await watch.read()).SerializeToString():
                pass
        watch.cancel()
        server.engine._check()


async def test_a_token_that_is_withdrawn_does_nothing_more(tmp_path: Path) -> None:
    text = '[roles.web]\nread = ["x|"]\n[tokens.a]\nrole = "web"\nsha256 = "{}"\n'
    path = tmp_path / "access.toml"
    path.write_text(text.format(sha256(b"mine").hexdigest()))
    async with served(access_file=path) as (server, stub):
        mine: Any = {"metadata": (("authorization", "Bearer mine"),)}
        for _ in range(3):
            assert (await stub.Get(GET, **mine)).value == b"one"
        assert hot_counts(server) == {"Get": 3}
        refused = {
            "other keys": (stub.Get(pb.GetRequest(key=b"y|1"), **mine), grpc.StatusCode.PERMISSION_DENIED),
            "writes": (stub.Put(pb.PutRequest(key=b"x|1"), **mine), grpc.StatusCode.PERMISSION_DENIED),
            "many writes": (
                stub.MultiPut(pb.MultiPutRequest(keys=[b"x|1"], values=[b""]), **mine),
                grpc.StatusCode.PERMISSION_DENIED,
            ),
            "no token": (stub.Get(GET), grpc.StatusCode.UNAUTHENTICATED),
        }
        for call, code in refused.values():
            with pytest.raises(aio.AioRpcError) as error:
                await call
            assert error.value.code() is code
        path.write_text(text.format(sha256(b"yours").hexdigest()))
        server.reload()
        with pytest.raises(aio.AioRpcError) as error:
            await stub.Get(GET, **mine)
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert hot_counts(server) == {"Get": 3}


async def test_a_defect_ends_the_connection_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as (server, stub):
        await stub.Get(GET)
        right, server.engine.ledger = server.engine.ledger, None  # type: ignore[assignment]
        with pytest.raises(aio.AioRpcError) as error:
            await stub.Get(GET)
        server.engine.ledger = right
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await value_at_last(stub) == b"one"
    # A client of gRPC may try again by itself what got no answer.
    assert [record.message for record in caplog.records].count("a defect ended a connection") >= 1
