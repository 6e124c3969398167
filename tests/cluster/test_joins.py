"""Joins of the map, changed through any compute: all have them, or none; and what stands in the way is said."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from pequod_server import PequodServer, ServerConfig
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.cluster.member import laggards

from pequod.client import AsyncClient
from pequod.cluster.map import ClusterMap
from pequod.errors import CoordinatorUnavailableError, JoinError, UnknownJoinError
from tests.cluster.conftest import Etcd
from tests.cluster.waiting import eventually

TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:10>"
KARMA = "karma|<author> = count vote|<author>|<id>"


class Cluster:
    """Servers of one cluster, in this process."""

    def __init__(self, etcd: Etcd, stack: AsyncExitStack) -> None:
        self.name = f"twip-{secrets.token_hex(4)}"
        self.etcd = etcd
        self._stack = stack

    async def init(self, joins: str = "") -> None:
        coordinator = EtcdCoordinator(self.etcd.endpoints, self.name)
        await coordinator.put_map(ClusterMap(self.name, 1, joins))
        await coordinator.close()

    async def server(self, name: str, listen: str = "127.0.0.1:0", **settings: str) -> PequodServer:
        config = ServerConfig(
            listen=listen,
            cluster=self.etcd.setting(self.name),
            cluster_id=name,
            drain_s=0.5,
            **settings,  # type: ignore[arg-type]
        )
        server = PequodServer(config)
        await server.start()
        self._stack.push_async_callback(server.stop)
        return server

    async def client(self, server: PequodServer) -> AsyncClient:
        assert server.member is not None
        return await self._stack.enter_async_context(AsyncClient(server.member.entry.address))


@pytest.fixture
async def cluster(etcd: Etcd) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        cluster = Cluster(etcd, stack)
        await cluster.init()
        yield cluster


def names(server: PequodServer) -> list[str]:
    return sorted(join.name for join in server.engine.joins())


async def test_a_join_added_through_one_server_is_at_all_of_them_when_the_call_returns(cluster: Cluster) -> None:
    one, other = await cluster.server("c1"), await cluster.server("c2")
    assert one.member is not None
    member = one.member
    await eventually(lambda: len(member.state.servers) == 2)
    added = await (await cluster.client(one)).add_join(TIMELINE)
    assert [(join.name, join.warnings) for join in added] == [("t", ())]
    assert names(one) == names(other) == ["t"]
    late = await cluster.server("c3")
    assert names(late) == ["t"]
    await (await cluster.client(late)).drop_join("t")
    assert names(one) == names(other) == names(late) == []


async def test_joins_added_at_once_through_different_servers_are_all_there(cluster: Cluster) -> None:
    servers = [await cluster.server(f"c{number}") for number in range(3)]
    clients = [await cluster.client(server) for server in servers]
    texts = [f"v{number}|<a> = count w{number}|<a>|<i>" for number in range(6)]
    await asyncio.gather(*(clients[number % 3].add_join(text) for number, text in enumerate(texts)))
    for server in servers:
        assert names(server) == [f"v{number}" for number in range(6)]
        server.engine._check()


async def test_a_join_that_is_there_is_added_again_without_a_new_map(cluster: Cluster) -> None:
    server = await cluster.server("c1")
    client = await cluster.client(server)
    await client.add_join(TIMELINE)
    assert server.member is not None
    version = server.member.map.version
    await client.add_join(TIMELINE)
    assert server.member.map.version == version


async def test_a_join_that_cannot_be_is_refused_and_the_map_stays(cluster: Cluster) -> None:
    server = await cluster.server("c1")
    client = await cluster.client(server)
    await client.add_join(KARMA)
    for text in ("karma|<author> = coutn vote|<author>|<id>", "vote|<a>|<i> = check karma|<a> copy x|<a>|<i>"):
        with pytest.raises(JoinError):
            await client.add_join(text)
    with pytest.raises(UnknownJoinError):
        await client.drop_join("t")
    assert server.member is not None
    assert server.member.map.version == 2
    assert names(server) == ["karma"]


async def test_a_server_that_cannot_have_a_join_is_named_and_catches_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pequod_server.cluster.member._SPREAD_S", 0.5)
    one, other = await cluster.server("c1"), await cluster.server("c2")
    await (await cluster.client(other)).put("karma|ann", "7")
    added = await (await cluster.client(one)).add_join(KARMA)
    assert added[0].warnings == ("these servers do not have it yet: c2",)
    assert one.member is not None
    assert other.member is not None
    assert "karma|ann" in other.member.fault
    member = one.member
    assert laggards(member.state, 2) == ["c2"]
    await (await cluster.client(other)).remove("karma|ann")
    await eventually(lambda: not laggards(member.state, 2))
    assert names(other) == ["karma"]


async def test_a_home_takes_joins_into_the_map_and_computes_nothing(cluster: Cluster) -> None:
    home = await cluster.server("h1", cluster_roles="home", cluster_group="a")
    compute = await cluster.server("c1")
    assert home.member is not None
    member = home.member
    await eventually(lambda: len(member.state.servers) == 2)
    added = await (await cluster.client(home)).add_join(KARMA)
    assert [join.name for join in added] == ["karma"]
    assert names(home) == []
    assert names(compute) == ["karma"]
    with pytest.raises(JoinError):
        await (await cluster.client(home)).add_join("vote|<a>|<i> = check karma|<a> copy x|<a>|<i>")


async def test_without_a_quorum_joins_are_refused_and_everything_else_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await cluster.server("c1")
    client = await cluster.client(server)
    await client.add_join(KARMA)
    await client.put("vote|ann|1", "")
    for node in cluster.etcd.nodes[1:]:
        node.kill()
    with pytest.raises(CoordinatorUnavailableError, match="the map cannot be changed until it does"):
        await client.add_join(TIMELINE)
    assert names(server) == ["karma"]
    assert await client.get("karma|ann") == b"1"
    await client.put("vote|ann|2", "")
    assert await client.get("karma|ann") == b"2"
    cluster.etcd.start()
    assert [join.name for join in await client.add_join(TIMELINE)] == ["t"]
