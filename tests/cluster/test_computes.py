"""Computes have base data from the homes that the map names, and go where the map goes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from aiohttp import ClientSession
from pequod_bench.systems.server import free_port
from pequod_server import PequodServer
from pequod_server.backing import SqliteStore, parse_mappings
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.cluster.member import Member
from pequod_server.homes.compute.store import PequodStore

from pequod.client import AsyncClient
from pequod.cluster.edits import disowned, moved, moving, opened, owned
from pequod.cluster.map import ClusterMap, HomeRange
from pequod.errors import BackingUnavailableError, BadRequestError, ClusterMapError, NotHomeError, UnassignedKeyError
from pequod.freshness import Latest
from tests.cluster.conftest import Etcd
from tests.cluster.copies import copied
from tests.cluster.test_joins import TIMELINE, Cluster
from tests.cluster.waiting import eventually
from tests.peer.homes import MAPPING, TABLES, running

LATEST = Latest(wait_s=9.0)
P, S = HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "b")
TIMELINE_4 = TIMELINE.replace("time:10", "time:4")
ROW = (b"t|ann|0001|bob", b"Hi")


class Mapped(Cluster):
    """A cluster whose map the test changes."""

    async def begin(self, *homes: HomeRange) -> None:
        self.coordinator = EtcdCoordinator(self.etcd.endpoints, self.name)
        self._stack.push_async_callback(self.coordinator.close)
        await self.coordinator.put_map(ClusterMap(self.name, 1, TIMELINE_4, home_ranges=homes))

    async def put(self, changed: ClusterMap, *servers: PequodServer) -> None:
        """Change the map, and wait for servers."""
        await self.coordinator.put_map(changed)
        for server in servers:
            member = server.member
            assert member is not None
            await eventually(partial(_goes_by, member, changed.version))

    async def home(self, name: str, group: str, **settings: str) -> PequodServer:
        return await self.server(name, cluster_roles="home", cluster_group=group, **settings)


@pytest.fixture
async def cluster(etcd: Etcd) -> AsyncIterator[Mapped]:
    async with AsyncExitStack() as stack:
        yield Mapped(etcd, stack)


async def sqlite_settings(folder: Path) -> dict[str, str]:
    """Return the settings of a home before one database."""
    path, mapping = folder / "twip.db", folder / "mapping.toml"
    database = sqlite3.connect(path)
    database.executescript(TABLES)
    database.close()
    mapping.write_text(MAPPING)
    store = SqliteStore(path, parse_mappings(MAPPING))
    await store.install()
    await store.close()
    return {"backing": f"sqlite:{path}", "backing_mapping": str(mapping), "backing_mode": "write-through"}


def _goes_by(member: Member, version: int) -> bool:
    return member.entry.map_version == version


def _stands(server: PequodServer) -> bool:
    return all(loader.status.state == "ok" for loader in server.databases.all)


async def timeline(client: AsyncClient) -> list[tuple[bytes, bytes]]:
    return list(await client.scan("t|ann|", "t|ann}", freshness=LATEST))


async def test_a_compute_loads_from_the_homes_of_each_group_and_passes_writes_on(cluster: Mapped) -> None:
    await cluster.begin(P, S)
    posts, subscriptions = await cluster.home("h1", "a"), await cluster.home("h2", "b")
    one, other = await cluster.server("c1"), await cluster.server("c2")
    client, second = await cluster.client(one), await cluster.client(other)
    await client.put("s|ann|bob", "1")
    await client.put("p|bob|0001", "Hi")
    assert await timeline(client) == [ROW]
    assert await timeline(second) == [ROW]
    await second.put("p|bob|0002", "Ho")
    assert len(await timeline(client)) == 2
    assert posts.engine.get(b"p|bob|0001") == b"Hi"
    assert subscriptions.engine.get(b"s|ann|bob") == b"1"
    assert posts.engine.joins() == []
    for wrong in ("q|1", "t|ann|0003|bob"):
        with pytest.raises(NotHomeError):
            await client.put(wrong, "")


async def test_a_compute_asks_its_relays_before_the_homes_of_the_map(cluster: Mapped) -> None:
    await cluster.begin(P, S)
    posts, subscriptions = await cluster.home("h1", "a"), await cluster.home("h2", "b")
    async with AsyncExitStack() as stack:
        assert posts.member is not None
        home = [posts.member.entry.address]
        store = PequodStore(home, [b"p"])
        relay = await stack.enter_async_context(running(store, backing_mode="write-through"))
        client = await cluster.client(await cluster.server("c1", cluster_relays=f"a={relay.address}"))
        await client.put("s|ann|bob", "1")
        await client.put("p|bob|0001", "Hi")
        assert await timeline(client) == [ROW]
        (feed,) = relay.server.peers.feeds.values()
        assert feed.id == "c1"
        assert relay.server.engine.get(b"p|bob|0001") == b"Hi"
        assert [one.id for one in posts.peers.feeds.values()] == [""]
        assert [one.id for one in subscriptions.peers.feeds.values()] == ["c1"]
        await relay.server.close()
        await client.put("p|bob|0002", "Ho")
        assert len(await timeline(client)) == 2
        assert "c1" in [one.id for one in posts.peers.feeds.values()]


async def test_a_compute_goes_on_with_another_home_of_the_group(cluster: Mapped, tmp_path: Path) -> None:
    await cluster.begin(HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "a"))
    settings = await sqlite_settings(tmp_path)
    homes = [await cluster.home(f"h{number}", "a", **settings) for number in range(2)]
    compute = await cluster.server("c1")
    client = await cluster.client(compute)
    await client.put("s|ann|bob", "1")
    await client.put("p|bob|0001", "Hi")
    assert await timeline(client) == [ROW]
    used = compute.databases.named("a").store.home  # type: ignore[attr-defined]
    for home in homes:
        assert home.member is not None
        if home.member.entry.address == used:
            await home.close()
    assert await client.scan("t|ann|", "t|ann}") == [ROW]
    await client.put("p|bob|0002", "Ho")
    assert len(await timeline(client)) == 2


async def test_what_a_group_owns_since_the_start_of_a_compute_is_read_again_with_the_rest(
    cluster: Mapped, tmp_path: Path
) -> None:
    await cluster.begin(HomeRange(b"s|", b"s}", "a"))
    settings = await sqlite_settings(tmp_path)
    address = f"127.0.0.1:{free_port()}"
    home = await cluster.server("h1", address, cluster_roles="home", cluster_group="a", **settings)
    compute = await cluster.server("c1")
    client = await cluster.client(compute)
    known = await cluster.coordinator.read()
    await cluster.put(owned(known.map, [HomeRange(b"p|", b"p}", "a")]), home, compute)
    await client.put("p|bob|0001", "Hi")
    assert await client.count(prefix="p|bob|", freshness=LATEST) == 1
    await home.stop()
    # The next one does not have the changes of its database since then.
    database = sqlite3.connect(tmp_path / "twip.db")
    with database:
        database.execute("INSERT INTO posts VALUES ('bob', '0002', 'Ha')")
    database.close()
    await cluster.server("h1", address, cluster_roles="home", cluster_group="a", **settings)
    assert await client.count(prefix="p|bob|", freshness=LATEST) == 2
    await client.put("p|bob|0003", "Ho")
    assert await client.count(prefix="p|bob|", freshness=LATEST) == 3


async def test_a_table_that_the_homes_of_a_group_lack_is_missing_alone(cluster: Mapped, tmp_path: Path) -> None:
    await cluster.begin(HomeRange(b"p|", b"p}", "a"), HomeRange(b"q|", b"q}", "a"))
    await cluster.home("h1", "a", **await sqlite_settings(tmp_path))
    client = await cluster.client(await cluster.server("c1"))
    await client.put("p|bob|0001", "Hi")
    assert await client.get("p|bob|0001", freshness=LATEST) == b"Hi"
    with pytest.raises(BadRequestError, match="are not of a table of the home's database"):
        await client.get("q|1")
    with pytest.raises(NotHomeError):
        await client.put("q|1", "")


async def test_a_home_before_a_database_keeps_nothing_in_its_memory_alone(cluster: Mapped, tmp_path: Path) -> None:
    await cluster.begin(S, HomeRange(b"v|", b"v}", "b"))
    home = await cluster.home("h1", "a", **await sqlite_settings(tmp_path))
    await cluster.put(moving((await cluster.coordinator.read()).map, b"v|", b"v}", "a"), home)
    with pytest.raises(NotHomeError):
        await (await cluster.client(home)).put("v|1", "")


ROLES = """
[roles.compute]
{rights} = ["p|"]
[tokens.compute]
role = "compute"
sha256 = "{digest}"
"""


async def test_a_compute_that_its_home_refuses_says_why_and_follows_it_once_it_may(
    cluster: Mapped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pequod_server.cluster.sources._STAND_S", 0.1)
    await cluster.begin(P)
    access, token = tmp_path / "access.toml", tmp_path / "token"
    token.write_text("pqd_word")
    digest = sha256(b"pqd_word").hexdigest()
    access.write_text(ROLES.format(rights="read", digest=digest))
    await cluster.home("h1", "a", access_file=str(access))
    compute = await cluster.server("c1", backing_token=str(token))
    client = await cluster.client(compute)
    await eventually(lambda: any("lacks the right 'feed'" in str(one.__dict__) for one in caplog.records))
    with pytest.raises(BackingUnavailableError):
        await client.get("p|bob|0001")
    access.write_text(ROLES.format(rights="feed", digest=digest))
    await eventually(lambda: _stands(compute))
    assert await client.get("p|bob|0001") is None


async def test_a_compute_that_starts_before_its_homes_waits_for_them(cluster: Mapped) -> None:
    await cluster.begin(P)
    starting = asyncio.create_task(cluster.server("c1"))
    await asyncio.sleep(0.3)
    assert not starting.done()
    await cluster.home("h1", "a")
    client = await cluster.client(await starting)
    await client.put("p|bob|0001", "Hi")
    assert await client.get("p|bob|0001") == b"Hi"


async def test_a_group_without_homes_is_unavailable_and_the_others_are_served(cluster: Mapped) -> None:
    await cluster.begin(P, S)
    posts, _ = await cluster.home("h1", "a"), await cluster.home("h2", "b")
    compute = await cluster.server("c1")
    client = await cluster.client(compute)
    await client.put("p|bob|0001", "Hi")
    await client.put("s|ann|bob", "1")
    assert await timeline(client) == [ROW]
    await posts.close()
    assert await client.scan("t|ann|", "t|ann}") == [ROW]
    assert await client.get("s|liz|bob") is None
    async with AsyncClient(client.target, retries=0) as impatient:
        with pytest.raises(BackingUnavailableError, match="the home group a is not available: its homes do not answer"):
            await impatient.get("p|liz|0001")


async def test_a_range_that_is_taken_out_is_refused_everywhere_and_its_homes_may_end(cluster: Mapped) -> None:
    await cluster.begin(HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "b"))
    home, other = await cluster.home("h1", "a"), await cluster.home("h2", "b")
    compute = await cluster.server("c1")
    client = await cluster.client(compute)
    await client.put("p|bob|0001", "Hi")
    await client.put("s|ann|bob", "1")
    assert await timeline(client) == [ROW]
    names = [compute.service.levels._of(one).name for one in compute.databases.all]
    assert names == ["the home group a", "the home group b"]
    assert compute.member is not None
    await cluster.put(disowned(compute.member.map, [(b"s|", b"s}")]), home, compute)
    await other.stop()
    for server in (home, compute):
        with pytest.raises(NotHomeError):
            await (await cluster.client(server)).put("s|ann|zoe", "1")
    with pytest.raises(UnassignedKeyError, match="`pequod cluster add-home PLACE GROUP 's'`"):
        await timeline(client)
    assert await client.get("p|bob|0001") == b"Hi"
    # Nothing waits for homes of a group that owns nothing.
    late = await cluster.client(await cluster.server("c2"))
    assert await late.get("p|bob|0001") == b"Hi"


async def test_a_compute_is_not_ready_while_none_of_its_homes_answers(cluster: Mapped) -> None:
    await cluster.begin(P, S)
    homes = [await cluster.home("h1", "a"), await cluster.home("h2", "b")]
    compute = await cluster.server("c1", metrics="127.0.0.1:0")
    async with ClientSession() as session:

        async def ready() -> tuple[int, str]:
            async with session.get(f"{compute.instruments.url}/readyz") as reply:
                return reply.status, await reply.text()

        assert await ready() == (200, "ready\n")
        await homes[0].close()
        assert (await ready())[0] == 200
        await homes[1].close()
        while (found := await ready())[0] == 200:  # noqa: ASYNC110 - it is asked as a balancer asks
            await asyncio.sleep(0.02)
        assert found == (503, "not ready: no home group answers: a, b\n")


async def test_a_range_moves_to_another_group_without_a_lost_write(cluster: Mapped) -> None:
    await cluster.begin(P, S)
    old, new = await cluster.home("h1", "a"), await cluster.home("h2", "b")
    compute = await cluster.server("c1")
    client = await cluster.client(compute)
    await client.put("s|ann|bob", "1")
    await client.put("s|ann|zoe", "1")
    await client.put("p|bob|0001", "Hi")
    await client.put("p|zoe|0001", "Oh")
    assert len(await timeline(client)) == 2

    known = moving((await cluster.coordinator.read()).map, b"p|m", b"p}", "b")
    await cluster.put(known, old, new, compute)
    for one in (client, await cluster.client(old)):
        with pytest.raises(NotHomeError) as raised:
            await one.put("p|zoe|0002", "")
        assert raised.value.map_version == 2
    await client.put("p|bob|0002", "Ha")
    assert len(await timeline(client)) == 3
    with pytest.raises(NotHomeError):
        await (await cluster.client(new)).put("p|zoe|0001", "by a client")
    await copied(new, {"p|zoe|0001": "Oh"})
    come = moved(known, known.version)
    await cluster.put(come, old, new, compute)
    for one in (client, await cluster.client(new)):
        with pytest.raises(NotHomeError):
            await one.put("p|zoe|0002", "")
    assert len(await timeline(client)) == 3
    await cluster.put(opened(come, b"p|m", b"p}"), old, new, compute)

    await client.put("p|zoe|0002", "Eh")
    assert [value for _, value in await timeline(client)] == [b"Hi", b"Oh", b"Ha", b"Eh"]
    assert new.engine.get(b"p|zoe|0002") == b"Eh"
    assert old.engine.get(b"p|zoe|0002") is None
    compute.databases._check()


async def test_ranges_that_a_compute_cannot_have_are_refused_with_the_reason(cluster: Mapped) -> None:
    await cluster.begin(HomeRange(b"", None, "a"))
    await cluster.home("h1", "a")
    with pytest.raises(ClusterMapError, match="is not within one table"):
        await cluster.server("c1")


async def test_homes_that_are_read_themselves_compute_over_the_keys_of_all(cluster: Mapped) -> None:
    await cluster.begin(P, S)
    one, other = (f"127.0.0.1:{free_port()}" for _ in range(2))
    servers = await asyncio.gather(
        cluster.server("s1", one, cluster_roles="home compute", cluster_group="a"),
        cluster.server("s2", other, cluster_roles="home compute", cluster_group="b"),
    )
    # Each began before the other one answered.
    for server in servers:
        await eventually(partial(_stands, server))
    clients = [await cluster.client(server) for server in servers]
    await clients[0].put("s|ann|bob", "1")
    await clients[1].put("p|bob|0001", "Hi")
    for client in clients:
        assert await timeline(client) == [ROW]
    assert servers[0].engine.get(b"p|bob|0001") == b"Hi"


async def test_a_home_whose_group_owns_nothing_yet_computes_over_the_keys_of_others(
    cluster: Mapped, tmp_path: Path
) -> None:
    await cluster.begin(P, replace(S, group="a"))
    await cluster.home("h1", "a")
    settings = await sqlite_settings(tmp_path)
    server = await cluster.server("s2", cluster_roles="home compute", cluster_group="b", **settings)
    client = await cluster.client(server)
    await client.put("s|ann|bob", "1")
    await client.put("p|bob|0001", "Hi")
    assert await timeline(client) == [ROW]
    server.databases._check()
