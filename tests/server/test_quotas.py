"""Quotas of roles: exact, by whatever way a call comes, refused by name with a hint when to try again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import ClientSession
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodPeerStub, PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.access.grants import Quotas, Role
from pequod_server.access.quotas import Meter, charge

import pequod
from pequod import AsyncClient
from pequod.commands import kinds
from pequod.engine import Engine
from pequod.errors import PermissionDeniedError, QuotaExceededError, SettingError
from tests.server.conftest import TRANSPORTS
from tests.server.roles import bearer, rewrite

ROLES = """
[roles.web]
read = [""]
write = ["p|", "s|"]
{quotas}

[roles.free]
read = [""]
write = [""]
join = [""]
"""


def access_text(quotas: str = "") -> str:
    tokens = (
        f'[tokens.{name}]\nrole = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n' for name in ROLE_NAMES
    )
    return ROLES.format(quotas=f"[roles.web.quotas]\n{quotas}" if quotas else "") + "".join(tokens)


ROLE_NAMES = ("web", "free")


class Bounded:
    """A server whose role `web` has quotas, and a clock that stands still."""

    def __init__(self, server: PequodServer, port: int, path: Path) -> None:
        self.server, self.port, self.path = server, port, path
        self.now_s = 1000.0
        assert server.guard is not None
        server.guard.meters.clock = lambda: self.now_s

    def allow(self, quotas: str) -> None:
        """Give the role other quotas."""
        rewrite(self.path, access_text(quotas))
        self.server.reload()

    def client(self, name: str = "web") -> AsyncClient:
        return AsyncClient(f"127.0.0.1:{self.port}", token=name, retries=0)

    @property
    def engine(self) -> Engine:
        return self.server.engine

    def watch_count(self) -> int:
        return self.meter.watch_count

    @property
    def meter(self) -> Meter:
        assert self.server.guard is not None
        (found,) = self.server.guard.present_meters()
        return found


@pytest.fixture(params=TRANSPORTS)
async def bounded(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bounded]:
    path = tmp_path / "access.toml"
    path.write_text(access_text())
    server = PequodServer(
        ServerConfig(
            listen="127.0.0.1:0", http="127.0.0.1:0", metrics="127.0.0.1:0", drain_s=0.5, access_file=path,
            transport=request.param,
        )
    )  # fmt: skip
    yield Bounded(server, await server.start(), path)
    await server.stop()
    server.engine._check()


def quota_of(raised: pytest.ExceptionInfo[QuotaExceededError]) -> tuple[str, str, float]:
    error = raised.value
    assert f"role {error.role!r}" in str(error)
    return error.role, error.quota, error.maximum


async def test_keys_are_counted_where_they_are_whoever_wrote_them(bounded: Bounded) -> None:
    bounded.engine.put(b"p|0", b"")
    bounded.engine.put(b"elsewhere|0", b"")
    bounded.allow("keys = 3")
    async with bounded.client() as web, bounded.client("free") as free:
        await web.put("p|1", "1")
        await web.put("s|1", "1")
        with pytest.raises(QuotaExceededError) as raised:
            await web.put("p|2", "2")
        assert quota_of(raised) == ("web", "keys", 3)
        assert (raised.value.retry_s, str(raised.value).endswith("; remove keys")) == (None, True)
        await web.put("p|1", "another value")
        assert bounded.engine.get(b"p|2") is None
        await free.put("p|3", "the others have no quota")
        await web.remove("p|0")
        with pytest.raises(QuotaExceededError):
            await web.put("p|2", "2")
        await web.remove("s|1")
        await web.put("p|2", "2")
    assert bounded.meter.stored()[0] == 3


async def test_bytes_are_those_of_keys_and_values(bounded: Bounded) -> None:
    bounded.allow("bytes = 20")
    async with bounded.client() as web:
        await web.put("p|1", "x" * 17)
        for key in ("p|2", "s|1"):
            with pytest.raises(QuotaExceededError) as raised:
                await web.put(key, "")
            assert quota_of(raised) == ("web", "bytes", 20)
        with pytest.raises(QuotaExceededError):
            await web.put("p|1", "x" * 18)
        await web.put("p|1", "x" * 14)
        await web.put("p|2", "")
    assert bounded.meter.stored() == (2, 20)


async def test_a_batch_stores_up_to_the_quota_and_tells_of_the_rest(bounded: Bounded) -> None:
    bounded.allow("keys = 3")
    async with bounded.client() as web:
        puts = (web.put(f"p|{number}", "") for number in (1, 1, 2, 3, 4, 5, 1))
        results = await asyncio.gather(*puts, return_exceptions=True)
    assert [isinstance(one, QuotaExceededError) for one in results] == [False, False, False, False, True, True, False]
    assert bounded.meter.stored()[0] == 3


CALLS: dict[str, Callable[[AsyncClient], Any]] = {
    "put": lambda web: web.put("p|9", "x"),
    "put under a condition": lambda web: web.put("p|9", "x", condition=pequod.IF_ABSENT),
    "put with a deadline": lambda web: web.put("p|9", "x", ttl_s=60),
    "add": lambda web: web.add("p|9", 1),
    "multi_put": lambda web: web.multi_put({"p|9": "x"}),
    "transaction": lambda web: web.transaction([pequod.absent("p|9")], [pequod.Put("p|9", "x")]),
}


@pytest.mark.parametrize("call", CALLS)
async def test_each_call_that_stores_is_bounded(bounded: Bounded, call: str) -> None:
    bounded.allow("keys = 0")
    async with bounded.client() as web:
        with pytest.raises(QuotaExceededError):
            await CALLS[call](web)
        bounded.allow("keys = 1")
        await CALLS[call](web)
    assert bounded.meter.stored()[0] == 1


async def stub_of(bounded: Bounded, channel: aio.Channel) -> Any:
    return PequodStub(channel)  # type: ignore[no-untyped-call]


async def test_single_calls_are_counted_with_hot_calls_too(bounded: Bounded) -> None:
    bounded.allow("calls_per_s = 4")
    async with aio.insecure_channel(f"127.0.0.1:{bounded.port}") as channel:
        stub = await stub_of(bounded, channel)
        for _ in range(4):
            await stub.Get(pb.GetRequest(key=b"p|1"), metadata=bearer("web"))
        with pytest.raises(aio.AioRpcError) as raised:
            await stub.Get(pb.GetRequest(key=b"p|1"), metadata=bearer("web"))
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (
            "role 'web' is allowed 4 calls and commands a second (calls_per_s), and this would be more; "
            "try again in 0.25 s" in str(raised.value.details())
        )
        status = rpc_status.from_call(raised.value)
        retry = error_details_pb2.RetryInfo()
        assert status.details[1].Unpack(retry)
        assert retry.retry_delay.ToNanoseconds() == 250_000_000
        for _ in range(20):
            await stub.Get(pb.GetRequest(key=b"p|1"), metadata=bearer("free"))
        bounded.now_s += 0.5
        for _ in range(2):
            await stub.Put(pb.PutRequest(key=b"p|1", value=b""), metadata=bearer("web"))
        with pytest.raises(aio.AioRpcError):
            await stub.Put(pb.PutRequest(key=b"p|2", value=b""), metadata=bearer("web"))
    assert bounded.meter.call_count == 6
    assert bounded.engine.get(b"p|2") is None


async def test_commands_of_batches_are_calls_and_a_large_batch_owes(bounded: Bounded) -> None:
    bounded.allow("calls_per_s = 10")
    async with bounded.client() as web:
        assert await asyncio.gather(*(web.get(f"p|{number}") for number in range(30))) == [None] * 30
        assert bounded.meter.call_count == 30, "more than a second's worth comes at once when nothing is owed"
        with pytest.raises(QuotaExceededError) as raised:
            await web.get("p|1")
        assert quota_of(raised) == ("web", "calls_per_s", 10)
        assert raised.value.retry_s == pytest.approx(2.1)
        bounded.now_s += 2
        with pytest.raises(QuotaExceededError):
            await web.get("p|1")
        bounded.now_s += 0.2
        assert await web.get("p|1") is None


async def test_keys_of_one_call_are_calls(bounded: Bounded) -> None:
    bounded.allow("calls_per_s = 10")
    async with bounded.client() as web:
        await web.multi_put({f"p|{number}": "" for number in range(10)})
        with pytest.raises(QuotaExceededError):
            await web.multi_get(["p|1"])
    assert bounded.meter.call_count == 10


async def test_a_transaction_counts_by_its_compares_and_commands(bounded: Bounded) -> None:
    bounded.allow("calls_per_s = 10")
    puts = [pequod.Put(f"p|{number}", "") for number in range(100)]
    async with bounded.client() as web:
        await web.transaction([pequod.absent("p|1"), pequod.absent("p|2")], puts, [pequod.Get("p|1")])
        assert bounded.meter.call_count == 2 + 100 + 1
        with pytest.raises(QuotaExceededError) as raised:
            await web.transaction([], [pequod.Put("p|1", "another value")])
    assert quota_of(raised) == ("web", "calls_per_s", 10)
    assert bounded.engine.get(b"p|1") == b""


async def test_a_transaction_over_http_counts_by_its_commands(bounded: Bounded) -> None:
    bounded.allow("calls_per_s = 1")
    body = {"then": [{"put": f"p|{number}", "value": ""} for number in range(20)]}
    async with ClientSession(headers={"Authorization": "Bearer web"}) as session:
        for status in (200, 429):
            async with session.post(f"{bounded.server.http_url}/v1/transaction", json=body) as reply:
                assert reply.status == status, await reply.text()
    assert bounded.meter.call_count == 20


async def test_a_transaction_of_nothing_counts_as_a_call(bounded: Bounded) -> None:
    bounded.allow("calls_per_s = 1")
    async with aio.insecure_channel(f"127.0.0.1:{bounded.port}") as channel:
        stub = await stub_of(bounded, channel)
        await stub.Transaction(pb.TransactionRequest(), metadata=bearer("web"))
        with pytest.raises(aio.AioRpcError) as raised:
            await stub.Transaction(pb.TransactionRequest(), metadata=bearer("web"))
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_the_pieces_of_a_load_are_counted() -> None:
    quotas = Quotas(calls_per_s=10)
    meter = Meter(Role("web", {}, quotas), quotas, Engine(), lambda: 0.0)
    charge(
        meter, "/pequod.v1.Pequod/LoadBackfill", pb.LoadBackfillRequest(firsts=[b"t|1", b"t|2"], lasts=[b"t|2", b""])
    )
    assert meter.call_count == 2


async def test_a_batch_that_is_refused_changes_nothing(bounded: Bounded) -> None:
    bounded.allow("calls_per_s = 1")
    async with aio.insecure_channel(f"127.0.0.1:{bounded.port}") as channel:
        stream = (await stub_of(bounded, channel)).Execute(metadata=bearer("web"))
        request = pb.ExecuteRequest(kinds=bytes([kinds.PUT, kinds.PUT]), arguments=[b"p|1", b"", b"p|2", b""])
        for failed in (0, 2, 2):
            await stream.write(request)
            reply = await stream.read()
            assert [error.reason for error in reply.errors] == ["QuotaExceededError"] * failed
            if not failed:
                bounded.engine.remove(b"p|1")
                bounded.engine.remove(b"p|2")
        assert bounded.engine.scan(b"p|", b"p}") == ([], [])


async def test_watches_are_counted_while_they_are_open(bounded: Bounded) -> None:
    bounded.allow("watches = 1")
    async with bounded.client() as one, bounded.client() as another:
        async with aclosing(one.watch("p|", "p}")) as watch:
            await anext(watch)
            with pytest.raises(QuotaExceededError) as raised:
                await anext(another.watch("p|", "p}"))
            assert quota_of(raised) == ("web", "watches", 1)
        while bounded.watch_count():  # noqa: ASYNC110 - the server hears of the end when it does
            await asyncio.sleep(0.002)
        async with aclosing(another.watch("p|", "p}")) as watch:
            await anext(watch)
            assert bounded.watch_count() == 1


async def test_http_is_bounded_and_says_when_to_come_again(bounded: Bounded) -> None:
    bounded.allow("calls_per_s = 1\nwatches = 1\nkeys = 1")
    url, headers = bounded.server.http_url, {"Authorization": "Bearer web"}
    async with ClientSession(headers=headers) as session:
        async with session.put(f"{url}/v1/keys/p|1", json={"value": "x"}) as reply:
            assert reply.status == 200
        async with session.put(f"{url}/v1/keys/p|2", json={"value": "x"}) as reply:
            assert (reply.status, reply.headers["Retry-After"]) == (429, "1")
            assert (await reply.json())["error"]["reason"] == "QuotaExceededError"
        bounded.now_s += 1
        async with session.put(f"{url}/v1/keys/p|2", json={"value": "x"}) as reply:
            assert (reply.status, "Retry-After" in reply.headers) == (429, False)
            facts = (await reply.json())["error"]["facts"]
            assert (facts["quota"], "retry_s" in facts) == ("keys", False)
        bounded.now_s += 1
        async with session.get(f"{url}/v1/watch?prefix=p|") as reply:
            assert reply.status == 200
            bounded.now_s += 1
            async with session.get(f"{url}/v1/watch?prefix=p|") as second:
                assert (second.status, (await second.json())["error"]["facts"]["quota"]) == (429, "watches")


async def test_rights_come_before_quotas(bounded: Bounded) -> None:
    bounded.allow("keys = 0\ncalls_per_s = 1")
    async with bounded.client() as web:
        for _ in range(2):
            with pytest.raises(PermissionDeniedError):
                await web.put("elsewhere|1", "")


async def test_calls_of_servers_are_no_way_round(bounded: Bounded) -> None:
    bounded.allow("keys = 0")
    async with aio.insecure_channel(f"127.0.0.1:{bounded.port}") as channel:
        peer: Any = PequodPeerStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(aio.AioRpcError) as raised:
            await peer.Add(pb.PeerAddRequest(key=b"p|1", delta=b"1"), metadata=bearer("web"))
    assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_quotas_follow_the_file_and_uses_stay(bounded: Bounded) -> None:
    bounded.allow("watches = 2")
    async with bounded.client() as web, aclosing(web.watch("p|", "p}")) as watch:
        await anext(watch)
        bounded.allow("watches = 1")
        with pytest.raises(QuotaExceededError):
            await anext(web.watch("p|", "p}"))
        bounded.allow("")
        async with aclosing(web.watch("p|", "p}")) as other:
            await anext(other)


async def test_metrics_tell_the_use(bounded: Bounded) -> None:
    bounded.allow('calls_per_s = 100\nwatches = 5\nkeys = 2\nbytes = "1KiB"')
    async with bounded.client() as web, ClientSession() as session:
        for number in (1, 2):
            await web.put(f"p|{number}", "value")
        with pytest.raises(QuotaExceededError):
            await web.put("p|3", "value")
        async with session.get(f"{bounded.server.instruments.url}/metrics") as reply:
            lines = (await reply.text()).splitlines()
    for line in (
        'pequod_quota_used{quota="keys",role="web"} 2.0',
        'pequod_quota_used{quota="bytes",role="web"} 16.0',
        'pequod_quota_limit{quota="bytes",role="web"} 1024.0',
        'pequod_quota_limit{quota="calls_per_s",role="web"} 100.0',
        'pequod_quota_used{quota="watches",role="web"} 0.0',
        'pequod_quota_calls_total{role="web"} 3.0',
        'pequod_quota_refusals_total{quota="keys",role="web"} 1.0',
    ):
        assert line in lines
    page = (Path(__file__).parents[2] / "docs/security.md").read_text()
    for line in lines:
        if line.startswith("pequod_quota_"):
            assert f"`{line.partition('{')[0]}`" in page


def test_keys_without_a_table_and_prefixes_of_names_are_counted() -> None:
    engine = Engine()
    for key, value in ((b"acme", b"12"), (b"acme.p|1", b"3"), (b"acme.s|1", b""), (b"other|1", b"4"), (b"b", b"")):
        engine.put(key, value)
    assert engine.stored(b"acme") == (3, 6 + 9 + 8)
    assert engine.stored(b"acme.") == (2, 17)
    assert engine.stored(b"acme.p|") == (1, 9)
    assert engine.stored(b"") == (5, 6 + 9 + 8 + 8 + 1)
    engine.remove(b"acme.p|1")
    assert engine.stored(b"acme.") == (1, 8)


def test_data_of_a_database_is_not_counted_here(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text(access_text("keys = 1"))
    config = ServerConfig(
        listen="127.0.0.1:0", access_file=path, backing=f"sqlite:{tmp_path / 'x.db'}", backing_tables="p"
    )
    with pytest.raises(SettingError, match=r"roles\.web\.quotas: keys and bytes cannot be counted here"):
        PequodServer(config)
