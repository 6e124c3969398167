"""The coordinator etcd, over three real nodes: leases, changes of the map, and what goes wrong with nodes."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from urllib.request import Request, urlopen

import pytest
from pequod_proto import etcd_pb2 as pb
from pequod_server.cluster.coordinator import LEASE_S
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.cluster.etcd_calls import CompactedError

from pequod.cluster.map import ClusterMap, ClusterState, HomeRange, Placement
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from pequod.errors import ClusterMapError, CoordinatorUnavailableError, MapChangedError
from tests.cluster.conftest import Etcd
from tests.cluster.waiting import eventually

COMPUTE = ServerEntry("c1", "127.0.0.1:7744", frozenset({ServerRole.COMPUTE}), zone="north", map_version=3)


@pytest.fixture
def name() -> str:
    return f"twip-{secrets.token_hex(4)}"


@asynccontextmanager
async def coordinating(etcd: Etcd, name: str, endpoints: list[str] | None = None) -> AsyncIterator[EtcdCoordinator]:
    coordinator = EtcdCoordinator(endpoints or etcd.endpoints, name)
    try:
        yield coordinator
    finally:
        await coordinator.close()


class Follower:
    """Follows a coordinator, and keeps the last state."""

    def __init__(self, coordinator: EtcdCoordinator) -> None:
        self._states = coordinator.follow()
        self.state: ClusterState | None = None
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for state in self._states:
            self.state = state

    @property
    def version(self) -> int:
        return 0 if self.state is None else self.state.map.version

    @property
    def servers(self) -> dict[str, ServerState]:
        return {} if self.state is None else {server.id: server.state for server in self.state.servers}

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def following(etcd: Etcd, name: str, endpoints: list[str] | None = None) -> AsyncIterator[Follower]:
    async with coordinating(etcd, name, endpoints) as coordinator:
        follower = Follower(coordinator)
        try:
            yield follower
        finally:
            await follower.stop()


async def test_a_map_is_read_as_it_was_written(etcd: Etcd, name: str) -> None:
    first = ClusterMap(
        name,
        1,
        "t|<u>|<p> = check s|<u>|<p> copy p|<p>;\n",
        (Placement(b"\xff|", 2, 3),),
        (HomeRange(b"", b"p|\xff", "a"), HomeRange(b"p|\xff", None, "b", "a")),
    )
    async with coordinating(etcd, name) as coordinator:
        with pytest.raises(ClusterMapError, match="there is no map; `pequod cluster init` makes one"):
            await coordinator.read()
        await coordinator.put_map(first)
        assert await coordinator.read() == ClusterState(first)
        await coordinator.register(COMPUTE)
        assert await coordinator.read() == ClusterState(first, (COMPUTE,))


async def test_one_of_two_changes_at_once_is_refused(etcd: Etcd, name: str) -> None:
    async with coordinating(etcd, name) as one, coordinating(etcd, name) as other:
        await one.put_map(ClusterMap(name, 1))
        with pytest.raises(MapChangedError) as raised:
            await other.put_map(ClusterMap(name, 1))
        assert raised.value.version == 1
        for version in range(2, 12):
            outcomes = await asyncio.gather(
                one.put_map(ClusterMap(name, version, "// one")),
                other.put_map(ClusterMap(name, version, "// other")),
                return_exceptions=True,
            )
            assert {type(outcome) for outcome in outcomes} == {MapChangedError, type(None)}
            assert (await one.read()).map.joins == ("// one" if outcomes[0] is None else "// other")
        for version in (11, 13):
            with pytest.raises(MapChangedError):
                await one.put_map(ClusterMap(name, version))


async def test_followers_hear_of_servers_that_come_change_and_go(etcd: Etcd, name: str) -> None:
    async with coordinating(etcd, name) as server, following(etcd, name) as follower:
        await server.put_map(ClusterMap(name, 1))
        await server.register(COMPUTE)
        await eventually(lambda: follower.servers == {"c1": ServerState.READY})
        await server.register(replace(COMPUTE, state=ServerState.DRAINING))
        await eventually(lambda: follower.servers == {"c1": ServerState.DRAINING})
        await server.unregister()
        await eventually(lambda: follower.servers == {})


async def test_changes_of_entries_come_together_and_one_of_the_map_at_once(
    etcd: Etcd, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pequod_server.cluster.etcd._TOGETHER_S", 3600.0)
    async with coordinating(etcd, name) as server, coordinating(etcd, name) as follower:
        await server.put_map(ClusterMap(name, 1))
        states = follower.follow()
        assert isinstance(states, AsyncGenerator)
        async with aclosing(states):
            assert (await anext(states)).servers == ()
            await server.register(COMPUTE)
            first = await anext(states)
            assert [one.zone for one in first.servers] == ["north"]
            # None of these is told by itself.
            for number in range(5):
                await server.register(replace(COMPUTE, zone=f"z{number}"))
            await server.put_map(ClusterMap(name, 2))
            last = await anext(states)
            assert (last.map.version, [one.zone for one in last.servers]) == (2, ["z4"])


async def test_a_server_that_dies_goes_with_its_lease_and_one_that_lives_stays(etcd: Etcd, name: str) -> None:
    async with coordinating(etcd, name) as alive, following(etcd, name) as follower:
        await alive.put_map(ClusterMap(name, 1))
        await alive.register(COMPUTE)
        dead = EtcdCoordinator(etcd.endpoints, name)
        await dead.register(replace(COMPUTE, id="c2", address="127.0.0.1:2"))
        await eventually(lambda: len(follower.servers) == 2)
        # As if its process were killed.
        assert dead._own._keeper is not None
        dead._own._keeper.cancel()
        await dead._calls.close()
        gone = asyncio.get_running_loop().time()
        await eventually(lambda: "c2" not in follower.servers)
        assert follower.servers == {"c1": ServerState.READY}
        # It was there for most of its lease, so that a short silence harms nobody.
        assert asyncio.get_running_loop().time() - gone > LEASE_S / 3


async def test_a_server_that_was_away_for_longer_than_its_lease_registers_again(
    etcd: Etcd, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with coordinating(etcd, name) as server, following(etcd, name) as follower:
        await server.put_map(ClusterMap(name, 1))
        await server.register(COMPUTE)
        await eventually(lambda: follower.servers)
        # As if its process were paused: the lease ends without its knowledge.
        await server._calls.revoke(server._own._lease)
        await eventually(lambda: not follower.servers)
        await eventually(lambda: follower.servers)
        assert "registers again" in caplog.text


async def test_an_id_of_a_living_server_is_refused_to_another_one_and_free_after_a_restart(
    etcd: Etcd, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pequod_server.cluster.own_entry._TAKEN_S", 0.5)
    async with coordinating(etcd, name) as one, coordinating(etcd, name) as other:
        await one.put_map(ClusterMap(name, 1))
        await one.register(COMPUTE)
        with pytest.raises(ClusterMapError, match=r"the server at 127\.0\.0\.1:7744 has this id, and lives"):
            await other.register(replace(COMPUTE, address="127.0.0.1:7745"))
        # The same server, started again before its lease has ended.
        await other.register(replace(COMPUTE, weight=2.0))
        assert (await one.read()).servers[0].weight == 2.0


async def test_when_the_leader_is_killed_servers_stay_and_changes_go_on(etcd: Etcd, name: str) -> None:
    async with coordinating(etcd, name) as server, following(etcd, name) as follower:
        await server.put_map(ClusterMap(name, 1))
        await server.register(COMPUTE)
        await eventually(lambda: follower.servers)
        etcd.leader.kill()
        seen = []
        for version in range(2, 6):
            await server.put_map(ClusterMap(name, version))
            seen.append(dict(follower.servers))
        await eventually(lambda: follower.version == 5)
        assert all(servers == {"c1": ServerState.READY} for servers in seen)


async def test_a_node_that_hangs_is_left_for_another_one(etcd: Etcd, name: str) -> None:
    """All know only one node at first, and it is paused."""
    slow = etcd.leader
    endpoints = [slow.address, *(address for address in etcd.endpoints if address != slow.address)]
    async with coordinating(etcd, name, endpoints) as server, following(etcd, name, endpoints) as follower:
        await server.put_map(ClusterMap(name, 1))
        await server.register(COMPUTE)
        await eventually(lambda: follower.servers)
        slow.pause()
        await server.put_map(ClusterMap(name, 2))
        await eventually(lambda: follower.version == 2)
        assert follower.servers == {"c1": ServerState.READY}
        slow.go_on()


async def test_without_a_quorum_the_last_map_stays_and_changes_are_refused(etcd: Etcd, name: str) -> None:
    async with coordinating(etcd, name) as server, following(etcd, name) as follower:
        await server.put_map(ClusterMap(name, 1))
        await server.register(COMPUTE)
        await eventually(lambda: follower.servers)
        for node in etcd.nodes[:2]:
            node.kill()
        with pytest.raises(CoordinatorUnavailableError) as raised:
            await server.put_map(ClusterMap(name, 2))
        assert "the map cannot be changed until it does" in str(raised.value)
        # Longer than the lease: nobody can end it.
        await asyncio.sleep(LEASE_S + 1)
        assert follower.servers == {"c1": ServerState.READY}
        assert follower.version == 1
        etcd.start()
        # A leader that was not killed still has the map that it was asked to put, and puts it now.
        with suppress(MapChangedError):
            await server.put_map(ClusterMap(name, 2))
        await server.put_map(ClusterMap(name, 3))
        await eventually(lambda: follower.version == 3)
        assert follower.servers == {"c1": ServerState.READY}


async def test_what_was_compacted_meanwhile_is_read_anew(etcd: Etcd, name: str) -> None:
    """A follower that asks for changes which are gone reads everything."""
    async with coordinating(etcd, name) as server:
        await server.put_map(ClusterMap(name, 1))
        async with aclosing(server._calls.watch(server._root, server._end, 1)) as changes:
            assert (await anext(changes)).created
        for version in range(2, 5):
            await server.put_map(ClusterMap(name, version))
        revision = (await server._read_all()).header.revision
        body = json.dumps({"revision": str(revision), "physical": True}).encode()
        urlopen(Request(f"http://{etcd.endpoints[0]}/v3/kv/compaction", body), timeout=5).close()  # noqa: ASYNC210
        with pytest.raises(CompactedError):
            async with aclosing(server._calls.watch(server._root, server._end, 2)) as changes:
                async for _ in changes:
                    pass
        async with following(etcd, name) as follower:
            await eventually(lambda: follower.version == 4)


async def test_a_map_that_becomes_unreadable_is_waited_for(
    etcd: Etcd, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with coordinating(etcd, name) as server, following(etcd, name) as follower:
        await server.put_map(ClusterMap(name, 1))
        await eventually(lambda: follower.version == 1)
        await put(server, b"map", b"{")
        await eventually(lambda: "the map is not right" in caplog.text)
        assert follower.version == 1
        for asked in (server.read(), server.put_map(ClusterMap(name, 2))):
            with pytest.raises(ClusterMapError, match=f"/pequod/{name}/map at etcd .*; put a right map there"):
                await asked
        # What a newer version adds is left out.
        await put(server, b"map", json.dumps({"cluster": name, "version": "2", "colour": "red"}).encode())
        await eventually(lambda: follower.version == 2)
        await put(server, b"servers/c9", b'{"id": "c9", "address": "nowhere", "roles": ["compute"], "state": "ready"}')
        await eventually(lambda: "a server of the cluster is not known" in caplog.text)


async def put(coordinator: EtcdCoordinator, key: bytes, value: bytes) -> None:
    """Put a key beside the coordinator."""
    put = pb.Operation(put=pb.PutRequest(key=coordinator._root + key, value=value))
    await coordinator._calls.transact(pb.TransactionRequest(success=[put]))


async def test_no_node_at_all_is_told_with_its_address() -> None:
    coordinator = EtcdCoordinator(["127.0.0.1:1"], "twip")
    with pytest.raises(CoordinatorUnavailableError, match=r"127\.0\.0\.1:1"):
        await coordinator.read()
    await coordinator.close()
