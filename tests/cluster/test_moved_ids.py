"""Writes with request ids that are sent again after their range has moved are done once, whatever keeps the ids."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer
from pequod_server.backing import SqliteStore
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.cluster import copying, own_entry
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.cluster.operating import ClusterEditor
from pequod_server.homes.compute.channel import GrpcPeerChannel
from pequod_server.homes.messages import copies_request

from pequod import Client
from pequod.cli import cluster_move
from pequod.cluster.map import ClusterMap, HomeRange
from pequod.commands.kinds import ADD
from pequod.errors import BackingUnavailableError, ClusterMapError
from pequod.language.conditions import IF_ABSENT, coded
from tests.backing.conftest import clear, postgres
from tests.cluster.conftest import Etcd
from tests.cluster.test_commands import Servers, servers
from tests.cluster.test_joins import Cluster
from tests.cluster.test_moves import taken_in
from tests.cluster.test_moves_killed import begun, databases

__all__ = ["databases", "postgres", "servers"]

BOUNDS = b"p|m", b"p}"
STAYS, MOVES, OTHER = b"p|c|1", b"p|m|1", b"p|m|2"
#: What is behind the home that a range comes from, and behind the one that it goes to.
KINDS = [("nothing", "folder"), ("postgres", "sqlite"), ("folder", "nothing"), ("sqlite", "postgres")]


@dataclass
class Homes:
    """Two homes and a compute, with a stub of each."""

    cluster: Cluster
    servers: dict[str, PequodServer]
    stubs: dict[str, Any]
    settings: dict[str, dict[str, Any]]
    stack: AsyncExitStack

    async def start(self, name: str) -> None:
        listen = "127.0.0.1:0" if name not in self.servers else self.address(name)
        self.servers[name] = server = await self.cluster.server(name, listen, **self.settings[name])
        assert server.member is not None
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = aio.insecure_channel(server.member.entry.address, options=options)
        await self.stack.enter_async_context(channel)
        self.stubs[name] = PequodStub(channel)  # type: ignore[no-untyped-call]

    def address(self, name: str) -> str:
        member = self.servers[name].member
        assert member is not None
        return member.entry.address

    async def move(self, *, copied: bool = False, to: str = "b") -> None:
        editor = ClusterEditor(self.cluster.etcd.setting(self.cluster.name))
        try:
            await cluster_move.move_range(editor, BOUNDS, to, copied=copied)
        finally:
            # A move that was called off is over before the servers have heard of it.
            await taken_in([self.servers[group] for group in "ab"], (await editor.state()).map)
            await editor.close()


async def backing_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Make what is behind a home, and return its settings."""
    folder.mkdir()  # noqa: ASYNC240 - it takes no time
    database = {"backing_tables": "p", "backing_mode": "write-through"}
    if kind == "folder":
        return {"data": folder / "data"}
    if kind == "sqlite":
        store = SqliteStore(folder / "rows.db", (Mapping.generic([b"p"]),))
        await store.install()
        await store.close()
        return {**database, "backing": f"sqlite:{folder / 'rows.db'}"}
    if kind == "postgres":
        dsn = request.getfixturevalue("postgres").dsn("postgres")
        await clear(dsn)
        other = PostgresStore(dsn, (Mapping.generic([b"p"]),), mode="notify")
        await other.install()
        await other.close()
        return {**database, "backing": dsn, "backing_feed": "notify"}
    return {}


@pytest.fixture
async def homes(
    etcd: Etcd, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Homes]:
    # Homes and tests share a process, which may be too busy to renew leases of a few seconds.
    monkeypatch.setattr(own_entry, "LEASE_S", 60)
    async with AsyncExitStack() as stack:
        cluster = Cluster(etcd, stack)
        coordinator = EtcdCoordinator(etcd.endpoints, cluster.name)
        await coordinator.put_map(ClusterMap(cluster.name, 1, home_ranges=(HomeRange(b"p|", b"p}", "a"),)))
        await coordinator.close()
        settings: dict[str, dict[str, Any]] = {"compute": {}}
        for group, kind in zip("ab", getattr(request, "param", KINDS[0]), strict=True):
            backing = await backing_of(kind, tmp_path / group, request)
            settings[group] = {"cluster_roles": "home", "cluster_group": group, **backing}
        made = Homes(cluster, {}, {}, settings, stack)
        for name in ("a", "b", "compute"):
            await made.start(name)
        yield made


def add(key: bytes, request_id: bytes) -> pb.AddRequest:
    return pb.AddRequest(key=key, delta=b"1", request_id=request_id)


def batch(batch_id: bytes, *keys: bytes) -> pb.ExecuteRequest:
    arguments = [one for key in keys for one in (key, b"1")]
    return pb.ExecuteRequest(kinds=bytes([ADD]) * len(keys), arguments=arguments, batch_id=batch_id)


async def sums(stub: Any, request: pb.ExecuteRequest) -> list[bytes]:
    call = stub.Execute()
    await call.write(request)
    reply: pb.ExecuteReply = await call.read()
    await call.done_writing()
    return list(reply.values)


async def put_once(stub: Any, request_id: bytes) -> tuple[bool, bytes]:
    number, _ = coded(IF_ABSENT)
    request = pb.WriteIfRequest(key=b"p|m|if", value=b"mine", condition=number, request_id=request_id)
    reply = await stub.WriteIf(request)
    return reply.met, reply.present


def before(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, write: Callable[[], Awaitable[object]]) -> None:
    """Have something written before the first call of a method."""
    whole, left = getattr(kind, name), [write]

    async def called(*args: Any) -> Any:
        if left:
            await left.pop()()
        return await whole(*args)

    monkeypatch.setattr(kind, name, called)


def after_it_came_near(monkeypatch: pytest.MonkeyPatch, write: Callable[[], Awaitable[object]]) -> None:
    """Have something written when nothing but the last changes is left to copy."""
    come_near = copying.RangeCopy.come_near

    async def near(copy: copying.RangeCopy) -> None:
        await come_near(copy)
        await write()

    monkeypatch.setattr(copying.RangeCopy, "come_near", near)


@pytest.mark.parametrize("homes", KINDS, indirect=True, ids="-".join)
async def test_what_was_done_before_or_while_its_range_moved_is_not_done_again_at_the_new_home(
    homes: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, compute = (homes.stubs[name] for name in ("a", "b", "compute"))
    one, while_copied, at_the_end, other = (secrets.token_bytes(16) for _ in range(4))
    of_two_ranges = batch(secrets.token_bytes(12), STAYS, MOVES, OTHER)
    assert (await old.Add(add(MOVES, one))).value == b"1"
    assert await sums(compute, of_two_ranges) == [b"1", b"2", b"1"]
    assert await put_once(old, other) == (True, b"")
    # Right before the first row is copied; and when writes are about to be refused: all other ids are there by then.
    before(monkeypatch, GrpcPeerChannel, "write", lambda: old.Add(add(MOVES, while_copied)))
    after_it_came_near(monkeypatch, lambda: old.Add(add(MOVES, at_the_end)))
    await homes.move()
    assert await sums(compute, of_two_ranges) == [b"1", b"2", b"1"], "those of the range that stayed are there"
    await homes.servers["a"].stop()
    for stub in (new, compute):
        known = [await stub.Add(add(MOVES, request_id)) for request_id in (one, while_copied, at_the_end)]
        assert [reply.value for reply in known] == [b"1", b"3", b"4"]
        assert await put_once(stub, other) == (True, b"")
    again = batch(of_two_ranges.batch_id, MOVES, OTHER)
    again.batch_positions.extend([1, 2])
    assert await sums(new, again) == [b"2", b"1"]
    assert (await new.Get(pb.GetRequest(key=MOVES))).value == b"4"
    assert (await new.Add(add(MOVES, secrets.token_bytes(16)))).value == b"5"
    if homes.settings["b"].keys() & {"data", "backing"}:
        await homes.servers["b"].stop()
        await homes.start("b")
        assert (await homes.stubs["b"].Add(add(MOVES, at_the_end))).value == b"4", "it outlives the new home"


async def test_ids_that_a_move_has_brought_which_was_undone_do_no_harm(
    homes: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = homes.stubs["a"], homes.stubs["b"]
    one, other = secrets.token_bytes(16), secrets.token_bytes(16)
    assert (await old.Add(add(MOVES, one))).value == b"1"
    with monkeypatch.context() as patched:

        async def fail(_: object) -> None:
            raise BackingUnavailableError("a", "it is gone")

        patched.setattr(copying.RangeCopy, "come_to_end", fail)
        with pytest.raises(BackingUnavailableError):
            await homes.move()
    assert (await old.Add(add(MOVES, one))).value == b"1"
    assert (await old.Add(add(MOVES, other))).value == b"2"
    await homes.move()
    await homes.move(to="a")
    await homes.move()
    assert [(await new.Add(add(MOVES, request_id))).value for request_id in (one, other)] == [b"1", b"2"]
    homes.servers["b"].service.served.executor.ids._check()


async def test_ids_go_with_rows_that_were_copied_by_other_means(homes: Homes) -> None:
    one = secrets.token_bytes(16)
    assert (await homes.stubs["a"].Add(add(MOVES, one))).value == b"1"
    with pytest.raises(ClusterMapError, match="is not the same"):
        await homes.move(copied=True)
    home = cluster_move.OpenHome(homes.servers["b"].member.entry)  # type: ignore[union-attr]
    (move,) = {one.move for one in homes.servers["b"].member.map.home_ranges if one.coming_to}  # type: ignore[union-attr]
    await home.channel.write(copies_request([(MOVES, b"1")], move))
    await home.close()
    await homes.move(copied=True)
    assert (await homes.stubs["b"].Add(add(MOVES, one))).value == b"1"


async def test_ids_that_no_move_brings_are_refused(homes: Homes) -> None:
    async with aio.insecure_channel(homes.address("b")) as channel:
        from pequod_proto.pequod_pb2_grpc import PequodPeerStub

        stub: Any = PequodPeerStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(aio.AioRpcError) as refused:
            await stub.TakeIds(pb.PeerTakeIdsRequest(move=1))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        for parts in (
            pb.PeerIdParts(ids=[bytes(16)]),
            pb.PeerIdParts(ids=[b"short"], outcomes=[bytes(8)], ages_ms=[0]),
            pb.PeerIdParts(ids=[bytes(16)], outcomes=[bytes(7)], ages_ms=[0]),
            pb.PeerIdParts(ids=[b"x" * 16], outcomes=[bytes(8)], ages_ms=[0]),
        ):
            with pytest.raises(aio.AioRpcError, match="part"):
                await stub.TakeIds(pb.PeerTakeIdsRequest(parts=parts, move=1))


async def test_pages_of_a_table_tell_each_id_and_then_those_of_transactions_that_were_under_way(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pequod_server.backing.postgres import request_table
    from pequod_server.once.parts import IdPart

    monkeypatch.setattr(request_table, "_PAGE", request_table._PAGE.replace("LIMIT 5000", "LIMIT 10"))
    monkeypatch.setattr(request_table, "_PAGE_SINCE", request_table._PAGE_SINCE.replace("LIMIT 5000", "LIMIT 10"))
    monkeypatch.setattr(request_table, "PAGE_ROWS", 10)
    settings = await backing_of("postgres", tmp_path / "a", request)
    dsn = settings["backing"]
    store = PostgresStore(dsn, (Mapping.generic([b"p"]),), mode="notify")
    insert = "INSERT INTO pequod_requests (id, outcome) VALUES ($1, $2)"
    late, line = await asyncpg.connect(dsn), await asyncpg.connect(dsn)

    async def told(since: bytes) -> tuple[list[IdPart], bytes]:
        found: list[IdPart] = []
        while True:
            page = await store.request_ids.page(since)
            found, since = [*found, *page.parts], page.next
            if not page.has_more:
                return found, since

    try:
        async with late.transaction():
            await late.execute(insert, bytes(16), b"late")
            await line.executemany(insert, [(bytes(15) + bytes([at]), b"%d" % at) for at in range(1, 30)])
            parts, since = await told(b"")
            assert [part.id[-1] for part in parts] == list(range(1, 30))
        parts, since = await told(since)
        assert bytes(16) in {part.id for part in parts}, "its transaction is older than the first page"
        await store.request_ids.take([IdPart(b"t" * 16, b"tttt" + (3).to_bytes(4) + b"new", 1000)])
        await store.request_ids.take([IdPart(b"o" * 16, b"oooo" + bytes(4), 10**9)])
        parts, since = await told(since)
        assert [(part.id, part.outcomes[8:]) for part in parts] == [(b"t" * 16, b"new")], "one is too old"
        assert (await told(since))[0] == []
    finally:
        await store.close()
        await late.close()
        await line.close()


def test_a_home_is_killed_right_after_the_move_and_what_it_has_done_stays_done_once(
    servers: Servers, databases: dict[str, list[str]]
) -> None:
    place = servers.place
    compute = begun(servers, databases)

    async def added(address: str, request_id: bytes) -> bytes:
        async with aio.insecure_channel(address) as channel:
            stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
            reply = await stub.Add(add(MOVES, request_id))
            value: bytes = reply.value
            return value

    ids = [secrets.token_bytes(16) for _ in range(3)]
    assert [asyncio.run(added(compute, one)) for one in ids] == [b"1", b"2", b"3"]
    servers.run("move", place, "p|m", "p}", "--to", "b")
    servers.signal("h1", signal.SIGKILL)
    servers.wait("h1")
    for address in (servers.addresses["h2"], compute):
        assert [asyncio.run(added(address, one)) for one in ids] == [b"1", b"2", b"3"]
    with Client(compute) as client:
        assert client.get(MOVES) == b"3"
