"""What each failure does to readers and writers of a cluster, and what is there afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pequod import LATEST as AT_ONCE
from pequod import AsyncClient
from pequod.client.cluster.connection import ClusterConnection
from pequod.cluster.map import HomeRange
from pequod.cluster.servers import ServerEntry
from pequod.errors import (
    BackingUnavailableError,
    CoordinatorUnavailableError,
    PequodError,
    StaleError,
    UnavailableError,
)
from tests.backing.chaos.proxy import Proxy, TcpProxy
from tests.backing.conftest import Postgres
from tests.cluster.conftest import Etcd
from tests.cluster_client.site import MapServer, until
from tests.cluster_faults.network import cut_network
from tests.cluster_faults.site import LATEST, FaultSite, owner, put
from tests.peer.homes import expected

USERS = [f"u{number}" for number in range(4)]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FaultSite]:
    async with FaultSite(tmp_path) as site:
        yield site


@pytest.fixture
async def client(site: FaultSite) -> AsyncIterator[AsyncClient]:
    async with site.client() as client:
        await fill(client)
        yield client


async def fill(client: AsyncClient) -> None:
    for number, user in enumerate(USERS):
        await client.put(f"s|{user}|bob", "1")
        await client.put(f"s|{user}|{USERS[(number + 1) % len(USERS)]}", "1")
    await client.multi_put({f"p|bob|{time:04}": f"b{time}" for time in range(5)})
    await client.multi_put({f"p|{user}|{time:04}": user for user in USERS for time in range(5, 8)})


async def check(site: FaultSite, client: AsyncClient) -> None:
    """Compare all timelines with what the database has."""
    rows = site.rows().items()
    for user in USERS:
        assert await client.scan(prefix=f"t|{user}|", freshness=LATEST) == expected(rows, user.encode())


async def test_compute_killed(site: FaultSite, client: AsyncClient) -> None:
    """Readers go to the next in rendezvous order, which has what their session has seen; writers notice nothing."""
    await check(site, client)
    session = client.session()
    await session.put("p|bob|0100", "new")
    name = owner(client, b"t|u1|").id
    site.kill(name)
    assert (b"t|u1|0100|bob", b"new") in await session.scan(prefix="t|u1|")
    assert owner(client, b"t|u1|").id != name
    await client.put("p|bob|0101", "newer")
    await check(site, client)
    await asyncio.to_thread(site.start, name)
    await until(lambda: owner(client, b"t|u1|").id == name)
    await check(site, client)


@pytest.mark.parametrize("home", ["h1", "h2"])
async def test_a_home_killed(site: FaultSite, client: AsyncClient, home: str) -> None:
    """Readers notice nothing; writes are retried at the other home, and those of unknown outcome are said to be so."""
    await check(site, client)
    writing = asyncio.gather(*[put(client, f"p|bob|{time:04}") for time in range(200, 240)])
    await asyncio.sleep(0)
    site.kill(home)
    for _ in range(20):
        for user in USERS:
            assert await client.scan(prefix=f"t|{user}|")
    await writing
    await check(site, client)


async def test_all_homes_of_a_group_killed(site: FaultSite, client: AsyncClient) -> None:
    """Loaded ranges are served; cold ones and writes are UNAVAILABLE; afterwards all goes on."""
    await check(site, client)
    before = await client.scan(prefix="t|u1|")
    site.kill("h1", "h2")
    for _ in range(10):
        assert await client.scan(prefix="t|u1|") == before
    async with site.client(timeout_s=5) as impatient:
        with pytest.raises(PequodError) as failed:
            await impatient.scan(prefix="t|cold|")
        assert isinstance(failed.value, BackingUnavailableError)
        with pytest.raises(PequodError):
            await impatient.put("p|bob|0300", "lost")
    await asyncio.to_thread(site.start, "h2")
    await put(client, "p|bob|0301", "back")
    await check(site, client)


async def test_the_primary_killed(tmp_path: Path, dsn: str, postgres: Postgres) -> None:
    """Loaded ranges are served; writes fail, and none that was answered is lost; afterwards the feeds go on."""
    async with FaultSite(tmp_path, computes=2, dsn=dsn) as site, site.client() as client:
        await fill(client)
        await check(site, client)
        before = await client.scan(prefix="t|u1|")
        certain = []
        await asyncio.to_thread(postgres.stop, kill=True)
        try:
            assert await client.scan(prefix="t|u1|") == before
            with pytest.raises((BackingUnavailableError, UnavailableError)):
                await client.put("p|bob|0700", "lost?")
        finally:
            await asyncio.to_thread(postgres.start)
        for time in range(701, 720):
            await put(client, f"p|bob|{time:04}", "back")
            certain.append(b"p|bob|%04d" % time)
        await check(site, client)
        assert site.rows().keys() >= set(certain)


@pytest.mark.parametrize("how", [Proxy.take_away, Proxy.hold_on], ids=["broken", "silent"])
async def test_compute_cut_off_from_its_homes(tmp_path: Path, how: Callable[[TcpProxy], None]) -> None:
    """Any state is served; levels are refused once they cannot be had; afterwards the feed goes on."""
    async with FaultSite(tmp_path, computes=2, behind_proxies="c1") as site, site.client() as client:
        await fill(client)
        async with AsyncClient(site.entries["c1"].address, timeout_s=60) as cut_off:
            for user in USERS:
                before = await cut_off.scan(prefix=f"t|{user}|")
            for proxy in site.proxies.values():
                how(proxy)
            await put(client, "p|bob|0400", "meanwhile")
            await put(client, f"p|{USERS[0]}|0400", "meanwhile")
            assert await cut_off.scan(prefix=f"t|{USERS[-1]}|") == before
            with pytest.raises((StaleError, BackingUnavailableError)):
                await cut_off.scan(prefix="t|u1|", freshness=AT_ONCE)
            for proxy in site.proxies.values():
                proxy.let_go()
            await put(client, "p|bob|0401", "later")
            await check(site, cut_off)


async def test_compute_whose_network_is_cut(tmp_path: Path) -> None:
    """Clients read elsewhere meanwhile; afterwards it goes on, and nothing is older than asked for."""
    with cut_network() as network:
        async with FaultSite(tmp_path, computes=2, network=network) as site, site.client() as client:
            await fill(client)
            await check(site, client)
            network.cut()
            await put(client, "p|bob|0400", "meanwhile")
            await check(site, client)
            network.mend()
            await put(client, "p|bob|0401", "later")
            async with AsyncClient(site.entries["c1"].address, timeout_s=60) as cut_off:
                await check(site, cut_off)
            await check(site, client)


@pytest.mark.parametrize("second", ["compute", "home"])
async def test_two_failures_while_one_key_is_written(site: FaultSite, client: AsyncClient, second: str) -> None:
    """Certain writes of the key are not lost, nor do readers ever go back to an earlier one."""
    await check(site, client)
    key, last = b"p|bob|0900", 150
    seen: list[int] = []
    is_done = asyncio.Event()

    async def write() -> None:
        for value in range(last + 1):
            await put(client, key.decode(), str(value))
        is_done.set()

    async def read() -> None:
        session = client.session()
        while not is_done.is_set():
            try:
                rows = dict(await session.scan(prefix="t|u1|"))
            except (UnavailableError, BackingUnavailableError, StaleError):
                continue
            if b"t|u1|0900|bob" in rows:
                seen.append(int(rows[b"t|u1|0900|bob"]))
            await asyncio.sleep(0)

    async def fail() -> None:
        await until(lambda: len(seen) > 5)
        site.kill("h1")
        if second == "compute":
            site.kill(owner(client, b"t|u1|").id)
        else:
            site.kill("h2")
            await asyncio.to_thread(site.start, "h2")

    await asyncio.gather(write(), read(), fail())
    assert seen == sorted(seen)
    assert site.rows()[key] == str(last).encode()
    await check(site, client)


async def test_client_with_an_old_map(tmp_path: Path) -> None:
    """Homes refuse keys that are not theirs, with the version of their map; the client learns it, and writes there."""
    async with FaultSite(tmp_path, computes=2, has_group_b=True) as site:
        old = replace(site.map, version=1, home_ranges=(HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "a")))
        teller = MapServer()
        await teller.start()
        await teller.set(replace(site.state, map=old))
        async with AsyncClient(f"pequod+cluster://{teller.target}", timeout_s=60) as client:
            await client.put("p|bob|0001", "a")
            batch = client.batch()
            batch.put("p|bob|0002", "a")
            batch.put("p|zoe|0001", "b")
            assert list(await batch.send()) == [None, None]
            await client.multi_put({"p|zoe|0002": "b", "p|zoe|0003": "b"})
        await teller.stop()
        assert site.rows("a").keys() == {b"p|bob|0001", b"p|bob|0002"}
        assert site.rows("b").keys() == {b"p|zoe|0001", b"p|zoe|0002", b"p|zoe|0003"}


async def test_etcd_without_quorum(tmp_path: Path, etcd: Etcd) -> None:
    """Readers and writers notice nothing; no join is added."""
    async with FaultSite(tmp_path, etcd.setting("").rstrip("/"), computes=2) as site, site.client() as client:
        await fill(client)
        await check(site, client)
        for node in etcd.nodes[1:]:
            node.kill()
        try:
            await put(client, "p|bob|0500", "still")
            await check(site, client)
            async with site.client(timeout_s=60) as late:
                assert await late.get("p|bob|0500", freshness=LATEST) == b"still"
                with pytest.raises(CoordinatorUnavailableError):
                    await late.add_join("karma|<author> = count s|<user>|<author>")
        finally:
            await asyncio.to_thread(etcd.start)


async def test_process_paused_for_longer_than_its_lease(tmp_path: Path, etcd: Etcd) -> None:
    """Its lease is gone, so that nobody reads there; afterwards it is back, and never older than asked for."""
    async with FaultSite(tmp_path, etcd.setting("").rstrip("/"), computes=2) as site, site.client() as client:
        await fill(client)
        await check(site, client)
        name = owner(client, b"t|u1|").id
        site.pause(name)
        await put(client, "p|bob|0600", "meanwhile")
        await check(site, client)
        await until(lambda: name not in {one.id for one in servers(client)})
        site.go_on(name)
        await until(lambda: name in {one.id for one in servers(client)})
        await check(site, client)


def servers(client: AsyncClient) -> tuple[ServerEntry, ...]:
    link = client._link
    assert isinstance(link, ClusterConnection)
    assert link.routes is not None
    return link.routes.state.servers
