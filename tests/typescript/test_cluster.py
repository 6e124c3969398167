"""The TypeScript client of a cluster: calls go where the map says, and on to another server when one goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import product

import pytest
from pequod_server import PequodServer
from pequod_server.cluster import own_entry
from pequod_server.cluster.etcd import EtcdCoordinator

from pequod.cluster.map import ClusterMap, HomeRange, Placement
from pequod.cluster.owners import Owners
from tests.cluster.conftest import Etcd
from tests.cluster.test_joins import Cluster
from tests.cluster.waiting import eventually
from tests.typescript.node import TypeScriptClient, TypeScriptError

JOINS = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>;"
RANGES = (HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "b"))
PLACEMENTS = (Placement(b"top|", level=0), Placement(b"t|u1|", level=2))


@dataclass(frozen=True, slots=True)
class Site:
    """Two homes, of a group each, and two computes."""

    coordinator: EtcdCoordinator
    known: ClusterMap
    homes: dict[str, PequodServer]
    computes: dict[str, PequodServer]

    @property
    def owners(self) -> Owners:
        """The owners of keys by the map that the computes know."""
        member = self.computes["c1"].member
        assert member is not None
        return Owners(member.state)

    def target(self) -> str:
        return "pequod+cluster://" + ",".join(map(address, self.computes.values()))


def address(server: PequodServer) -> str:
    assert server.member is not None
    return server.member.entry.address


@pytest.fixture
async def site(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    # Servers and tests share a process, which may be too busy to renew leases of a few seconds.
    monkeypatch.setattr(own_entry, "LEASE_S", 60)
    async with AsyncExitStack() as stack:
        cluster = Cluster(etcd, stack)
        coordinator = EtcdCoordinator(etcd.endpoints, cluster.name)
        stack.push_async_callback(coordinator.close)
        known = ClusterMap(cluster.name, 1, JOINS, PLACEMENTS, RANGES)
        await coordinator.put_map(known)
        homes = {
            f"h{group}": await cluster.server(f"h{group}", cluster_roles="home", cluster_group=group) for group in "ab"
        }
        computes = {
            name: await cluster.server(name, cluster_weight=weight) for name, weight in (("c1", "1"), ("c2", "3"))
        }
        for server in computes.values():
            member = server.member
            assert member is not None
            await eventually(lambda: len(member.state.servers) == 4)  # noqa: B023
        yield Site(coordinator, known, homes, computes)


async def tell(site: Site, known: ClusterMap) -> None:
    """Have all servers go by a map."""
    await site.coordinator.put_map(known)
    members = [server.member for server in (*site.homes.values(), *site.computes.values())]
    await eventually(lambda: all(one is not None and one.map.version == known.version for one in members))


async def fill(client: TypeScriptClient) -> None:
    for user in range(4):
        await client.call("put", f"s|u{user}|bob", "1")
    await client.call("multiPut", [[f"p|bob|{time:04}", f"post {time}"] for time in range(3)])


async def test_a_client_finds_the_servers_that_others_find(site: Site) -> None:
    owners = site.owners
    keys = [f"{table}|u{user}|{rest}" for table, user, rest in product(("t", "p", "s", "top"), range(30), ("", "x|y"))]
    async with TypeScriptClient(site.target()) as client:
        for key in ["", "loose", "t|", "p}", *keys]:
            readers = [server.address for server in owners.readers(key.encode())]
            homes = [server.address for server in owners.writers(key.encode())]
            assert await client.call("servers", "read", key) == readers, key
            assert await client.call("servers", "write", key) == homes + readers, key


async def test_reads_of_a_hot_group_are_spread_over_its_first_computes(site: Site) -> None:
    spread = (*PLACEMENTS, Placement(b"t|u2|", read_spread=2))
    async with TypeScriptClient(site.target()) as client:
        await fill(client)
        await tell(site, replace(site.known, version=2, placements=spread))
        asked: dict[str, set[str]] = {key: set() for key in ("t|u2|", "t|u3|")}
        # The client hears of the map a moment later.
        async with asyncio.timeout(60):
            while len(asked["t|u2|"]) < 2:
                asked["t|u2|"].add((await client.call("servers", "read", "t|u2|"))[0])
        for _ in range(50):
            asked["t|u3|"].add((await client.call("servers", "read", "t|u3|"))[0])
            assert len(await client.call("scan", {"prefix": "t|u2|"})) == 3
        assert [len(found) for found in asked.values()] == [2, 1]


async def test_calls_give_in_a_cluster_what_they_give_at_one_server(site: Site) -> None:
    async with TypeScriptClient(site.target()) as client:
        await fill(client)
        assert site.homes["ha"].engine.count(b"p|", b"p}") == 3
        assert site.homes["hb"].engine.count(b"s|", b"s}") == 4
        for user in range(4):
            rows = [[f"t|u{user}|{time:04}|bob", f"post {time}"] for time in range(3)]
            assert await client.call("scan", {"prefix": f"t|u{user}|"}, session=True) is not None
            assert await client.call("scan", {"prefix": f"t|u{user}|", "freshness": {"latest": True}}) == rows
        commands = [
            ("add", "p|n|0001", 1),
            ("put", "s|liz|n", ""),
            ("count", {"prefix": "t|u1|"}),
            ("get", "p|bob|0001"),
        ]
        assert await client.call("batch", *commands) == ["1", None, 3, "post 1"]
        latest = {"freshness": {"latest": True}}
        assert await client.call("multiGet", ["p|bob|0000", "s|u1|bob", "p|bob|9"], latest) == ["post 0", "1", None]
        assert await client.call("keys", {"prefix": "t|liz|", **latest}) == ["t|liz|0001|n"]
        assert await client.call("removeRange", {"prefix": "s|u"}) == 4
        assert await client.call("count", {"prefix": "t|", **latest}) == 1
        assert await client.call("removeRange", {"first": "a", "last": "t"}) == 5, "of both home groups"
        assert site.homes["ha"].engine.count(b"p|", b"p}") == site.homes["hb"].engine.count(b"s|", b"s}") == 0


async def test_a_batch_of_a_session_shows_the_writes_before_each_read(site: Site) -> None:
    async with TypeScriptClient(site.target()) as client:
        for number in range(10):
            commands = [
                ("put", f"s|u{number}|bob", "1"),
                ("put", f"p|bob|{number:04}", "x"),
                ("count", {"prefix": f"t|u{number}|"}),
            ]
            assert await client.call("batch", *commands, session=True) == [None, None, number + 1]


async def test_writes_go_to_the_new_home_when_a_range_has_another_one(site: Site) -> None:
    async with TypeScriptClient(site.target(), timeoutMs=60_000, retries=20) as client:
        await client.call("put", "p|bob|0001", "1")
        swapped = (replace(RANGES[0], group="b"), replace(RANGES[1], group="a"))
        await tell(site, replace(site.known, version=2, home_ranges=swapped))
        await client.call("put", "p|bob|0002", "2")
        assert await client.call("batch", ("add", "s|bob|n", 1), ("add", "p|bob|n", 2)) == ["1", "2"]
    assert site.homes["hb"].engine.count(b"p|", b"p}") == 2
    assert site.homes["ha"].engine.count(b"s|", b"s}") == 1


async def test_keys_of_several_home_groups_are_not_written_at_once(site: Site) -> None:
    async with TypeScriptClient(site.target()) as client:
        with pytest.raises(TypeScriptError) as caught:
            await client.call("multiPut", [["p|bob|0001", "1"], ["s|ann|bob", "1"]])
        assert caught.value.reason == "MixedWriteError"


async def test_a_join_is_there_for_reads_that_follow(site: Site) -> None:
    async with TypeScriptClient(site.target()) as client:
        await fill(client)
        await client.call("addJoin", "fans|<poster> = count s|<user>|<poster>")
        assert await client.call("get", "fans|bob", {"freshness": {"latest": True}}) == "4"


async def test_reads_and_writes_go_on_when_a_compute_goes(site: Site) -> None:
    async with TypeScriptClient(site.target(), timeoutMs=60_000) as client:
        await fill(client)
        gone = next(iter(site.computes.values()))
        await gone.stop()
        for user in range(4):
            assert await client.call("count", {"prefix": f"t|u{user}|", "freshness": {"latest": True}}) == 3
        await client.call("put", "s|zoe|bob", "1")
        assert await client.call("keys", {"prefix": "t|zoe|", "limit": 1}, session=True) is not None
