"""Transactions over the wire: outcomes by both clients and by a plain one, rights, limits, loads, calls cut short."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig

import pequod
from pequod.calls import Data
from pequod.client import AsyncClient, Client
from pequod.commands.kinds import ABSENT, COUNT, GET, OK, PUT, PUT_IF, REMOVE, SCAN
from pequod.engine import Rows
from pequod.errors import BackingUnavailableError, LimitExceededError, MixedWriteError, TokenLostError, TransactionError
from pequod.interface import AsyncCalls
from pequod.interface.transaction_parts import TransactionCommand
from pequod.language.transactions import KeyCompare
from tests.backing.test_loader import serving as serving_fake
from tests.server import roles
from tests.server.roles import As
from tests.server.serving import connect, serving
from tests.server.test_metrics import Observed, observed

__all__ = ["observed"]

# Fixtures of this module.
access_file, server, stub = roles.access_file, roles.server, roles.stub
IS_ABSENT, EQUAL, LESS = 1, 3, 5
LISTEN = "127.0.0.1:0"


def request(
    compares: list[tuple[bytes, int, bytes]],
    then: tuple[list[int], list[bytes]],
    otherwise: tuple[list[int], list[bytes]],
) -> pb.TransactionRequest:
    return pb.TransactionRequest(
        compare_keys=[key for key, _, _ in compares],
        compare_operators=bytes([operator for _, operator, _ in compares]),
        compare_values=[value for _, _, value in compares],
        then=pb.CommandColumns(kinds=bytes(then[0]), arguments=then[1]),
        otherwise=pb.CommandColumns(kinds=bytes(otherwise[0]), arguments=otherwise[1]),
    )


async def test_a_plain_client_is_told_the_columns_of_the_list_that_ran(stub: Any, server: PequodServer) -> None:
    calls = As(stub, "root")
    asked = request(
        [(b"x|a", IS_ABSENT, b"")],
        ([PUT, PUT, GET, GET, SCAN, COUNT, REMOVE, REMOVE], [
            b"x|a", b"1", b"x|b", b"2", b"x|a", b"x|c", b"x|", b"x}", b"x|", b"x}", b"x|a", b"x|a",
        ]),
        ([GET], [b"x|b"]),
    )  # fmt: skip
    before = server.engine.revision
    first = await calls.Transaction(asked)
    assert (first.held, list(first.statuses)) == (True, [OK, OK, OK, ABSENT, OK, OK, OK, ABSENT])
    assert (list(first.keys), list(first.values), list(first.counts)) == ([b"x|a", b"x|b"], [b"1", b"1", b"2"], [2, 2])
    assert first.header.revision == server.engine.revision > before
    asked.compare_operators = bytes([2])
    second = await calls.Transaction(asked)
    assert (second.held, list(second.statuses), list(second.values)) == (False, [OK], [b"2"])
    assert second.header.revision == first.header.revision


async def test_what_a_request_lacks_is_said(stub: Any, server: PequodServer) -> None:
    server.engine.add_joins(parse("t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"))
    for wrong, reason, text in (
        (pb.TransactionRequest(compare_keys=[b"k"]), "BadRequestError", "1 keys, 0 operators and 0 values"),
        (request([], ([PUT_IF], [b"k", b"v", b""]), ([], [])), "TransactionError", "say the condition as a compare"),
        (request([], ([], []), ([PUT], [b"k"])), "TransactionError", "their kinds take 2"),
        (
            request([(b"t|ann|1|bob", IS_ABSENT, b"")], ([], []), ([], [])),
            "TransactionError",
            "compare the keys from which",
        ),
    ):
        with pytest.raises(aio.AioRpcError) as refused:
            await As(stub, "root").Transaction(wrong)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert text in (refused.value.details() or ""), reason


async def test_rights_are_needed_for_both_lists(stub: Any, server: PequodServer) -> None:
    """The role `web` reads posts and writes them, and writes subscriptions alone."""
    server.engine.put(b"p|bob|0001", b"Hi")
    allowed = request(
        [(b"p|bob|0001", EQUAL, b"Hi")], ([PUT, PUT], [b"s|ann|bob", b"1", b"p|bob|0002", b"Ho"]), ([], [])
    )
    assert (await As(stub, "web").Transaction(allowed)).held
    for refused in (
        request([(b"s|ann|bob", IS_ABSENT, b"")], ([], []), ([], [])),
        request([], ([GET], [b"s|ann|bob"]), ([], [])),
        request([(b"p|bob|0001", EQUAL, b"Hi")], ([], []), ([GET], [b"s|ann|bob"])),
        request([(b"p|bob|0001", EQUAL, b"Hi")], ([], []), ([PUT], [b"other|1", b""])),
        request([(b"p|bob|0001", EQUAL, b"Hi")], ([PUT, SCAN], [b"p|bob|0003", b"", b"", b""]), ([], [])),
    ):
        with pytest.raises(aio.AioRpcError) as error:
            await As(stub, "web").Transaction(refused)
        assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert server.engine.get(b"p|bob|0003") is None
    with pytest.raises(aio.AioRpcError) as error:
        await As(stub, "web").Transaction(request([], ([GET], []), ([], [])))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_transfer_by_the_asynchronous_client(server: PequodServer) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}", token="root") as client:  # type: ignore[attr-defined]
        await client.multi_put({"account|ann": "50", "account|bob": "0"})

        async def transfer(calls: AsyncCalls, before: Data, after: Data) -> Any:
            return await calls.transaction(
                [pequod.value_of("account|ann") > 9, pequod.value_of("account|ann") == before],
                [
                    pequod.Put("account|ann", after),
                    pequod.Remove("account|bob"),
                    pequod.Scan(prefix="account|", limit=5),
                ],
                [pequod.Get("account|ann"), pequod.Count(prefix="account|")],
            )

        done = await transfer(client, b"50", b"5")
        assert done
        assert done == (True, [None, True, Rows([b"account|ann"], [b"5"])])
        session = client.session()
        refused = await transfer(session, b"5", b"0")
        assert not refused
        assert refused == (False, [b"5", 1])
        assert session.token


def test_a_store_in_the_process_does_the_same() -> None:
    with pequod.open() as store:
        assert store.transaction([pequod.absent("lock|a")], [pequod.Put("lock|a", "me")]) == (True, [None])
        taken = store.transaction([pequod.absent("lock|a")], [pequod.Put("lock|a", "you")], [pequod.Get("lock|a")])
        assert taken == (False, [b"me"])
        assert store.session().transaction([pequod.present("lock|a")], [pequod.Remove("lock|a")]) == (True, [True])
        with pytest.raises(TransactionError, match="is no number"):
            store.transaction([pequod.value_of("a") < "x"], [])
        with pytest.raises(LimitExceededError):
            store.transaction([], [pequod.Get("a")] * 129)


async def test_the_client_that_waits_has_transactions() -> None:
    async with serving(ServerConfig(listen=LISTEN)) as port:

        def lock() -> None:
            with Client(f"127.0.0.1:{port}") as client:
                done = client.transaction([pequod.absent("lock|a")], [pequod.Put("lock|a", "me"), pequod.Get("lock|a")])
                assert done == (True, [None, b"me"])
                assert client.session().transaction([pequod.value_of("lock|a") != "me"], []).held is False

        await asyncio.to_thread(lock)


def test_what_is_no_compare_or_command_is_said_where_it_is_written() -> None:
    with pequod.open() as store:
        with pytest.raises(TypeError, match="True is no compare"):
            store.transaction([True], [])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="is no command of a transaction"):
            store.transaction([], ["get"])  # type: ignore[list-item]
        with pytest.raises(TypeError, match=r"give an int, a Decimal"):
            _ = pequod.value_of("a") > 1.5  # type: ignore[operator]
        with pytest.raises(TypeError, match="is not known here"):
            bool(pequod.value_of("a"))


async def test_limits_of_a_transaction_are_refused_by_name() -> None:
    config = ServerConfig(listen=LISTEN, transaction_commands_max=3, reply_bytes_max=2000, rows_max=30)
    async with serving(config) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        await client.multi_put({f"k|{number:02}": "v" * 100 for number in range(40)})
        get = pequod.Get("k|00")
        refusals: list[tuple[list[KeyCompare], list[TransactionCommand], str]] = [
            ([pequod.present("k|00")] * 4, [], "transaction_commands_max"),
            ([], [get] * 4, "transaction_commands_max"),
            ([], [pequod.Put("a", ""), pequod.Scan(prefix="k|")], "rows_max"),
            ([], [pequod.Put("a", ""), pequod.Scan(prefix="k|", limit=29)], "reply_bytes_max"),
        ]
        assert (await client.transaction([pequod.present("k|00")] * 3, [get, get], [get])).held
        for compares, then, setting in refusals:
            with pytest.raises(LimitExceededError) as refused:
                await client.transaction(compares, then)
            assert refused.value.setting == setting
        assert await client.get("a") is None


async def test_long_columns_are_refused_before_they_are_decoded() -> None:
    async with serving(ServerConfig(listen=LISTEN)) as port, connect(port) as channel:
        calls: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        for wrong in (
            pb.TransactionRequest(compare_keys=[b""] * 500_000),
            pb.TransactionRequest(then=pb.CommandColumns(arguments=[b""] * 500_000)),
        ):
            with pytest.raises(aio.AioRpcError) as refused:
                await calls.Transaction(wrong)
            assert refused.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)


async def test_reads_of_what_is_not_loaded_are_loaded_first_and_nothing_is_visible_before() -> None:
    async with serving_fake({}, backing_mode="write-through") as setting:
        client, engine, store = setting.client, setting.server.engine, setting.store
        store.commit({b"s|ann|bob": b"1", b"p|bob|0100": b"Hi"})
        async with store.held("load"):
            loading = asyncio.create_task(
                client.transaction([pequod.absent("own|1")], [pequod.Scan(prefix="t|ann|"), pequod.Put("own|1", "x")])
            )
            await _until(lambda: store.loads)
            assert engine.get(b"own|1") is None
            assert not loading.done()
        assert await loading == (True, [Rows([b"t|ann|0100|bob"], [b"Hi"]), None])
        assert await client.get("own|1") == b"x"
        # What was put meanwhile decides.
        engine.forget(b"", None)
        async with store.held("load"):
            loading = asyncio.create_task(
                client.transaction([pequod.absent("own|2")], [pequod.Scan(prefix="t|ann|"), pequod.Put("own|2", "x")])
            )
            await _until(lambda: len(store.loads) > 1)
            await client.put("own|2", "other")
        assert await loading == (False, [])
        assert await client.get("own|2") == b"other"


async def test_a_call_that_is_cancelled_while_it_waits_does_nothing() -> None:
    async with serving_fake({}, backing_mode="write-through") as setting:
        client, store = setting.client, setting.store
        async with store.held("load"):
            waiting = asyncio.create_task(
                client.transaction([], [pequod.Scan(prefix="t|ann|"), pequod.Put("own|1", "x")])
            )
            await _until(lambda: store.loads)
            assert setting.server._calls._under_way
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            # The server learns of it before the load ends.
            await _until(lambda: not setting.server._calls._under_way)
        await client.scan(prefix="t|ann|")
        assert await client.get("own|1") is None


async def test_where_a_database_decides_all_is_its_own() -> None:
    async with serving_fake({}, backing_mode="write-through") as setting:
        client, store = setting.client, setting.store
        store.commit({b"p|bob|0100": b"theirs"})
        done = await client.transaction(
            [pequod.value_of("p|bob|0100") == "theirs"],
            [pequod.Put("p|bob|0200", "Ho"), pequod.Remove("p|bob|0100"), pequod.Scan(prefix="p|bob|")],
        )
        assert done == (True, [None, True, Rows([b"p|bob|0200"], [b"Ho"])])
        assert await client.scan(prefix="p|bob|") == [(b"p|bob|0200", b"Ho")]
        assert store.rows == {b"p|bob|0200": b"Ho"}
        with pytest.raises(MixedWriteError):
            await client.transaction([pequod.absent("own|1")], [pequod.Put("p|bob|0300", "no")])
        for read in (pequod.Scan(prefix="t|ann|"), pequod.Get("t|ann|0200|bob"), pequod.Get("own|1"), pequod.Scan()):
            with pytest.raises(TransactionError, match="read them after the transaction"):
                await client.transaction([], [pequod.Put("p|bob|0300", "no"), read])
        store.fail("write")
        with pytest.raises(BackingUnavailableError):
            await client.transaction([], [pequod.Put("p|bob|0300", "no")])
        assert store.rows == {b"p|bob|0200": b"Ho"}


async def test_reads_are_as_fresh_as_they_ask_for_and_sessions_ask_by_themselves() -> None:
    config = ServerConfig(listen=LISTEN)
    async with (
        serving(config) as port,
        serving(config) as other,
        AsyncClient(f"127.0.0.1:{port}") as client,
        AsyncClient(f"127.0.0.1:{other}") as elsewhere,
    ):
        await elsewhere.put("a", "1")
        lost = elsewhere.last_token
        with pytest.raises(TokenLostError):
            await client.transaction([], [pequod.Put("a", ""), pequod.Get("b")], freshness=pequod.after(lost))
        with pytest.raises(TokenLostError):
            await client.session(lost).transaction([], [pequod.Get("a"), pequod.Put("a", "")])
        assert await client.get("a") is None
        assert (await client.session(lost).transaction([], [pequod.Put("a", "")])).held, "it reads nothing"
        assert (await client.transaction([], [pequod.Get("a")], freshness=pequod.LATEST)).outcomes == [b""]


async def test_watches_hear_of_a_transaction_in_one_event() -> None:
    async with serving(ServerConfig(listen=LISTEN)) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        watch = client.watch("a", "b")
        assert (await anext(watch)).changes == []
        done = await client.transaction([], [pequod.Put(f"a|{number:02}", "") for number in range(50)])
        assert done.held
        event = await anext(watch)
        assert (len(event.changes), event.revision) == (50, client.revision)
        await watch.aclose()


async def test_transactions_are_counted_by_the_list_that_ran(observed: Observed) -> None:
    absent = pb.TransactionRequest(compare_keys=[b"lock|a"], compare_operators=b"\1", compare_values=[b""])
    absent.then.CopyFrom(pb.CommandColumns(kinds=bytes([PUT]), arguments=[b"lock|a", b"me"]))
    for _ in range(3):
        await observed.stub.Transaction(absent)
    absent.compare_operators = b"\0"
    with pytest.raises(aio.AioRpcError):
        await observed.stub.Transaction(absent)
    samples = await observed.samples()
    assert samples["pequod_transactions_total{list=then}"] == 1
    assert samples["pequod_transactions_total{list=otherwise}"] == 2


async def _until(holds: Any) -> None:
    while not holds():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.002)
