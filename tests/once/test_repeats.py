"""Writes that come twice with one request id are done once, in memory, in a folder and beside a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import SqliteStore
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.data.disk import Disk
from pequod_server.data.library import RowsError
from pequod_server.data.loading import FolderLoading

from pequod.commands.kinds import ABSENT, ADD, FAILED, GET, OK, PUT, PUT_IF, REMOVE_IF, UNMET
from pequod.engine import Engine
from pequod.errors import DiskFullError
from pequod.language.conditions import IF_ABSENT, coded
from tests.backing.test_twip import Database, database
from tests.disk.folders import killed
from tests.peer.homes import computing, on_sqlite, running, sqlite

__all__ = ["database"]
ID, OTHER, THIRD = b"a" * 16, b"b" * 16, b"c" * 16
KEY, FREE = b"p|bob|0000000001", b"p|bob|0000000002"
#: Makes a server.
Make = Callable[[], PequodServer]


@asynccontextmanager
async def called(make: Make) -> AsyncIterator[Any]:
    """Run a server, and yield a stub of it."""
    server = make()
    port = await server.start()
    try:
        async with aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            yield PequodStub(channel)  # type: ignore[no-untyped-call]
    finally:
        await server.stop()
        server.engine._check()
        server.service.served.executor.ids._check()


async def executed(stub: Any, request: pb.ExecuteRequest) -> pb.ExecuteReply:
    call = stub.Execute()
    await call.write(request)
    reply: pb.ExecuteReply = await call.read()
    await call.done_writing()
    return reply


async def put_if(stub: Any, value: bytes, request_id: bytes) -> tuple[bool, bytes]:
    condition, _ = coded(IF_ABSENT)
    request = pb.WriteIfRequest(key=FREE, value=value, condition=condition, request_id=request_id)
    reply = await stub.WriteIf(request)
    return reply.met, reply.present


def transfer(request_id: bytes) -> pb.TransactionRequest:
    add = pb.CommandColumns(kinds=bytes([ADD, GET]), arguments=[KEY, b"10", KEY])
    return pb.TransactionRequest(then=add, request_id=request_id)


async def calls_that_come_again_get_their_first_outcome(make: Make) -> None:
    async with called(make) as stub:
        add = pb.AddRequest(key=KEY, delta=b"2", request_id=ID)
        assert [(await stub.Add(add)).value for _ in range(3)] == [b"2"] * 3
        assert [list((await stub.Transaction(transfer(OTHER))).values) for _ in range(2)] == [[b"12", b"12"]] * 2
        assert [await put_if(stub, b"mine", THIRD) for _ in range(2)] == [(True, b"")] * 2, (
            "its own value is no obstacle"
        )
        assert await put_if(stub, b"yours", b"d" * 16) == (False, b"mine")
        await stub.Remove(pb.RemoveRequest(key=FREE))
        assert await put_if(stub, b"yours", b"d" * 16) == (False, b"mine"), "it was told so, and comes late now"
        assert (await stub.Get(pb.GetRequest(key=KEY))).value == b"12"
        assert not (await stub.Get(pb.GetRequest(key=FREE))).HasField("value")
        assert (await stub.Add(pb.AddRequest(key=KEY, delta=b"2"))).value == b"14", "one without an id"


async def a_batch_that_comes_again_is_done_once(make: Make) -> None:
    condition, _ = coded(IF_ABSENT)
    request = pb.ExecuteRequest(
        kinds=bytes([ADD, PUT_IF, ADD, REMOVE_IF, GET]),
        arguments=[KEY, b"2", FREE, b"v", b"", KEY, b"10", FREE, b"other", KEY],
        numbers=[condition, 0, 3],
        once_commands=[0, 1, 3],
        request_ids=[ID, OTHER, THIRD],
    )
    async with called(make) as stub:
        first = await executed(stub, request)
        assert (list(first.statuses), list(first.values)) == ([OK, OK, OK, UNMET, OK], [b"2", b"12", b"v", b"12"])
        await stub.Remove(pb.RemoveRequest(key=FREE))
        again = await executed(stub, request)
        assert list(again.statuses) == [OK, OK, OK, UNMET, OK]
        assert list(again.values) == [b"2", b"22", b"v", b"22"], "the add without an id is added twice"
        # The command alone, in another batch, and as a call.
        alone = pb.ExecuteRequest(
            kinds=bytes([PUT, ADD]), arguments=[FREE, b"1", KEY, b"2"], once_commands=[1], request_ids=[ID]
        )
        assert list((await executed(stub, alone)).values) == [b"2"]
        assert (await stub.Add(pb.AddRequest(key=KEY, delta=b"2", request_id=ID))).value == b"2"


async def the_next_start_knows_what_came_before(make: Make) -> None:
    async with called(make) as stub:
        assert (await stub.Add(pb.AddRequest(key=KEY, delta=b"2", request_id=ID))).value == b"2"
        assert list((await stub.Transaction(transfer(OTHER))).values) == [b"12", b"12"]
    async with called(make) as stub:
        assert (await stub.Add(pb.AddRequest(key=KEY, delta=b"2", request_id=ID))).value == b"2"
        assert list((await stub.Transaction(transfer(OTHER))).values) == [b"12", b"12"]
        assert (await stub.Get(pb.GetRequest(key=KEY))).value == b"12"


async def writes_with_one_id_that_come_at_once_are_done_once(make: Make) -> None:
    async with called(make) as stub:
        add = pb.AddRequest(key=KEY, delta=b"1", request_id=ID)
        replies = await asyncio.gather(*(stub.Add(add) for _ in range(8)))
        assert {reply.value for reply in replies} == {b"1"}
        done = await asyncio.gather(*(stub.Transaction(transfer(OTHER)) for _ in range(4)))
        assert {tuple(reply.values) for reply in done} == {(b"11", b"11")}


async def what_was_refused_may_be_done_later(make: Make) -> None:
    async with called(make) as stub:
        await stub.Put(pb.PutRequest(key=KEY, value=b"text"))
        add = pb.AddRequest(key=KEY, delta=b"1", request_id=ID)
        with pytest.raises(aio.AioRpcError) as refused:
            await stub.Add(add)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        await stub.Put(pb.PutRequest(key=KEY, value=b"41"))
        assert [(await stub.Add(add)).value for _ in range(2)] == [b"42"] * 2


async def an_id_goes_with_one_write(make: Make) -> None:
    async with called(make) as stub:
        await stub.Add(pb.AddRequest(key=KEY, delta=b"1", request_id=ID))
        for wrong in (
            stub.Add(pb.AddRequest(key=KEY, delta=b"2", request_id=ID)),
            stub.Transaction(transfer(ID)),
            put_if(stub, b"v", ID),
            stub.Add(pb.AddRequest(key=KEY, delta=b"1", request_id=b"short")),
            stub.Transaction(transfer(b"short")),
        ):
            with pytest.raises(aio.AioRpcError) as refused:
                await wrong
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        reply = await executed(
            stub,
            pb.ExecuteRequest(
                kinds=bytes([ADD, ADD]), arguments=[KEY, b"2", KEY, b"1"], once_commands=[0], request_ids=[ID]
            ),
        )
        assert (list(reply.statuses), list(reply.values)) == ([FAILED, OK], [b"2"])
        assert (await stub.Get(pb.GetRequest(key=KEY))).value == b"2"


LAWS = [
    calls_that_come_again_get_their_first_outcome,
    a_batch_that_comes_again_is_done_once,
    writes_with_one_id_that_come_at_once_are_done_once,
    what_was_refused_may_be_done_later,
    an_id_goes_with_one_write,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
async def test_a_server_in_memory_keeps_the_law(law: Callable[[Make], Awaitable[None]]) -> None:
    await law(lambda: PequodServer(ServerConfig(listen="127.0.0.1:0")))


@pytest.mark.parametrize("law", [*LAWS, the_next_start_knows_what_came_before], ids=lambda law: law.__name__)
async def test_a_folder_keeps_the_law(law: Callable[[Make], Awaitable[None]], tmp_path: Path) -> None:
    await law(lambda: PequodServer(ServerConfig(listen="127.0.0.1:0", data=tmp_path / "data", fsync="always")))


@pytest.mark.parametrize("law", [*LAWS, the_next_start_knows_what_came_before], ids=lambda law: law.__name__)
async def test_a_database_keeps_the_law(law: Callable[[Make], Awaitable[None]], database: Database) -> None:
    settings: dict[str, Any] = {**database.config, "backing_mode": "write-through"}
    await law(lambda: PequodServer(ServerConfig(listen="127.0.0.1:0", **settings)))


@pytest.mark.parametrize(
    ("positions", "ids"),
    [([0], []), ([0, 1], [ID]), ([0], [b"short"]), ([1], [ID]), ([2], [ID]), ([0, 0], [ID, OTHER])],
)
async def test_a_batch_whose_ids_do_not_fit_ends_the_stream(positions: list[int], ids: list[bytes]) -> None:
    async with called(lambda: PequodServer(ServerConfig(listen="127.0.0.1:0"))) as stub:
        request = pb.ExecuteRequest(
            kinds=bytes([ADD, GET]), arguments=[KEY, b"1", KEY], once_commands=positions, request_ids=ids
        )
        call = stub.Execute()
        await call.write(request)
        with pytest.raises(aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not (await stub.Get(pb.GetRequest(key=KEY))).HasField("value"), "nothing of it is applied"


async def test_sums_of_a_batch_in_pieces_are_done_once() -> None:
    settings = ServerConfig(listen="127.0.0.1:0", reply_bytes_max=100)
    async with called(lambda: PequodServer(settings)) as stub:
        ids = [b"%016d" % number for number in range(60)]
        request = pb.ExecuteRequest(
            kinds=bytes([ADD]) * 60, arguments=[KEY, b"1"] * 60, once_commands=range(60), request_ids=ids
        )
        for _ in range(2):
            call, values, more = stub.Execute(), list[bytes](), True
            await call.write(request)
            while more:
                piece = await call.read()
                values += piece.values
                more = piece.more
            assert values == [b"%d" % number for number in range(1, 61)]


async def test_a_transaction_that_cannot_write_is_not_remembered() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    async with called(lambda: server) as stub:
        read = pb.TransactionRequest(then=pb.CommandColumns(kinds=bytes([GET]), arguments=[KEY]), request_id=ID)
        assert list((await stub.Transaction(read)).statuses) == [ABSENT]
        await stub.Put(pb.PutRequest(key=KEY, value=b"1"))
        assert list((await stub.Transaction(read)).values) == [b"1"]
        assert server.service.served.executor.ids.figures.id_count == 0


async def test_a_folder_after_a_kill_has_the_ids_of_all_that_was_answered(tmp_path: Path) -> None:
    settings = {"listen": "127.0.0.1:0", "fsync": "always"}
    async with called(lambda: PequodServer(ServerConfig(data=tmp_path / "data", **settings))) as stub:  # type: ignore[arg-type]
        add = pb.AddRequest(key=KEY, delta=b"2", request_id=ID)
        assert (await stub.Add(add)).value == b"2"
        copy = killed(tmp_path / "data", tmp_path / "killed")
    async with called(lambda: PequodServer(ServerConfig(data=copy, **settings))) as stub:  # type: ignore[arg-type]
        assert (await stub.Add(add)).value == b"2"


async def test_an_add_that_is_undone_on_a_full_disk_is_done_when_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    disk = Disk(tmp_path / "data", engine, "always")
    await FolderLoading(engine, disk, keeps_joins=True).run()
    rows = disk._rows
    assert rows is not None

    def full(*_: object) -> int:
        raise RowsError("IO error: No space left on device")

    engine.add(b"n", b"1")
    disk.ids.remember(ID, b"first")
    with monkeypatch.context() as patched:
        patched.setattr(type(rows), "write", full)
        with pytest.raises(DiskFullError):
            disk.commit()
    assert (engine.get(b"n"), disk.ids.known(ID)) == (None, None)
    await disk.end()


async def test_the_home_that_writes_keeps_the_ids(tmp_path: Path) -> None:
    """A compute passes ids on; with the next home of one database an add is still done once."""
    await sqlite(tmp_path / "posts.db")
    add = pb.AddRequest(key=b"p|bob|0100", delta=b"2", request_id=ID)
    transaction = pb.TransactionRequest(
        then=pb.CommandColumns(kinds=bytes([ADD]), arguments=[b"p|bob|0101", b"1"]), request_id=OTHER
    )
    async with (
        running(on_sqlite(tmp_path / "posts.db"), backing_mode="write-through") as second,
        running(on_sqlite(tmp_path / "posts.db"), backing_mode="write-through") as first,
        computing([first.address, second.address]) as compute,
        aio.insecure_channel(compute.address) as channel,
    ):
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        assert (await stub.Add(add)).value == b"2"
        assert list((await stub.Transaction(transaction)).values) == [b"1"]
        await first.server.close()
        assert (await stub.Add(add)).value == b"2"
        assert list((await stub.Transaction(transaction)).values) == [b"1"]
        assert await second.client.get("p|bob|0100") == b"2"


async def test_a_home_in_memory_keeps_the_ids_for_its_computes() -> None:
    add = pb.AddRequest(key=b"p|bob|0100", delta=b"2", request_id=ID)
    change = pb.WriteIfRequest(key=b"p|bob|0101", value=b"1", condition=1, request_id=OTHER)
    async with (
        running() as home,
        computing([home.address]) as compute,
        aio.insecure_channel(compute.address) as channel,
        aio.insecure_channel(home.address) as direct,
    ):
        for one in (channel, channel, direct):
            stub: Any = PequodStub(one)  # type: ignore[no-untyped-call]
            assert (await stub.Add(add)).value == b"2"
            assert (await stub.WriteIf(change)).met


async def test_old_ids_go_from_the_database(database: Database) -> None:
    store_settings = {**database.config, "backing_mode": "write-through", "request_ids_keep_s": 77}
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", **store_settings))  # type: ignore[arg-type]
    async with called(lambda: server) as stub:
        loader = server.loader
        assert loader is not None
        store = loader.store
        for number in range(3):
            await stub.Add(pb.AddRequest(key=KEY, delta=b"1", request_id=b"%016d" % number))
        if isinstance(store, PostgresStore):
            assert store.request_ids._keep.total_seconds() == 77
            store.request_ids._keep = timedelta()
            await store.request_ids.sweep()
            async with store._session.connection() as connection:
                left = await connection.fetchval("SELECT count(*) FROM pequod_requests")
            assert left == 0
        else:
            assert isinstance(store, SqliteStore)
            assert store.request_ids.keep_s == 77
            # Its clock has whole seconds.
            store.request_ids.keep_s = -1.0
            await stub.Add(pb.AddRequest(key=KEY, delta=b"1", request_id=b"%016d" % 3))
            left = await store._loads.run(lambda line: line.execute("SELECT count(*) FROM pequod_requests").fetchone())
            assert left == (2,), "each write takes up to two"
