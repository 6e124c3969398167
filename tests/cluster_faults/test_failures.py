"""What each failure does to readers and writers of a cluster, and what is there afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pequod import LATEST as AT_ONCE
from pequod import AsyncClient
from pequod.client.cluster import node
from pequod.cluster.map import HomeRange
from pequod.cluster.servers import ServerEntry
from pequod.errors import (
    BackingUnavailableError,
    CoordinatorUnavailableError,
    PequodError,
    StaleError,
    UnavailableError,
)
from pequod.freshness import Latest
from tests.backing.chaos.proxy import Proxy, TcpProxy
from tests.backing.conftest import Postgres
from tests.cluster.conftest import Etcd
from tests.cluster_client.site import MapServer, until
from tests.cluster_faults.network import cut_network
from tests.cluster_faults.site import LATEST, FaultSite, owner, put, routes
from tests.peer.homes import expected

USERS = [f"u{number}" for number in range(4)]
#: For reads that are to be refused.
SOON = Latest(wait_s=0.1)

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


async def test_a_killed_compute_s_readers_go_to_the_next(site: FaultSite, client: AsyncClient) -> None:
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
        before = {user: await client.scan(prefix=f"t|{user}|") for user in USERS}
        certain = []
        await asyncio.to_thread(postgres.stop, kill=True)
        try:
            with pytest.raises((BackingUnavailableError, UnavailableError)):
                await client.put("p|bob|0700", "lost?")
            for user in USERS:
                assert await client.scan(prefix=f"t|{user}|") == before[user]
                with pytest.raises((StaleError, BackingUnavailableError)):
                    await client.scan(prefix=f"t|{user}|", freshness=SOON)
            with pytest.raises(BackingUnavailableError):
                await client.scan(prefix="t|cold|")
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


async def test_compute_whose_network_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients read elsewhere meanwhile; afterwards it goes on, and nothing is older than asked for."""
    # Reads are to leave a silent server long before its streams are given up.
    monkeypatch.setattr(node, "STALLED_S", 1000.0)
    with cut_network() as network:
        async with FaultSite(tmp_path, computes=2, network=network) as site, site.client() as client:
            await fill(client)
            await check(site, client)
            assert owner(client, b"t|u1|").id == "c1"
            network.cut()
            await put(client, "p|bob|0400", "meanwhile")
            await check(site, client)
            assert owner(client, b"t|u1|").id == "c2"
            await put(client, "p|bob|0401", "later")
            # It hears clients again, but not the homes yet.
            site.pause("h1", "h2")
            network.mend()
            async with AsyncClient(site.entries["c1"].address, timeout_s=60) as cut_off:
                with pytest.raises((StaleError, BackingUnavailableError)):
                    await cut_off.scan(prefix="t|u1|", freshness=SOON)
                site.go_on("h1", "h2")
                await check(site, cut_off)
            await until(lambda: owner(client, b"t|u1|").id == "c1")
            await check(site, client)


@pytest.mark.parametrize("second", ["compute", "home"])
async def test_two_failures_while_one_key_is_written(tmp_path: Path, second: str) -> None:
    """Certain writes of the key are not lost, nor do readers ever go back to an earlier one, or miss what came with it.

    The readers' compute follows a home that falls behind before it dies: the next home has more to tell.
    """
    async with FaultSite(tmp_path, behind_proxies="c1") as site, site.client() as client:
        await fill(client)
        await check(site, client)
        reading, spare = [one.id for one in routes(client).readers(b"t|u1|")][:2]
        assert (reading, spare) == ("c3", "c1"), "c3 follows h1 first, the others h2, which is written to"
        async with AsyncClient(site.entries[spare].address, timeout_s=60) as early:
            assert await early.scan(prefix="t|u1|")
        told = ToldInPairs()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(told.write(client))
            tasks.create_task(told.read(client))
            await until(lambda: told.seen > 5)
            site.pause("h1")
            await told.goes_on(lambda: told.certain)
            site.kill("h1")
            await told.goes_on(lambda: told.seen)
            if second == "compute":
                for proxy in site.proxies.values():
                    proxy.hold_on()
                await told.goes_on(lambda: told.seen)
                site.kill(reading)
                # The spare has not seen what the readers have: it refuses them until it has.
                await until(lambda: told.refused)
                for proxy in site.proxies.values():
                    proxy.let_go()
            else:
                async with told.writing:
                    site.pause("h2")
                # The next write comes to nobody; its sender cannot know that.
                await asyncio.sleep(0.05)
                site.kill("h2")
                await asyncio.to_thread(site.start, "h2")
            await told.goes_on(lambda: told.seen)
            told.is_done = True
        rows = site.rows()
        assert rows[b"p|bob|0900"] == str(told.certain).encode()
        assert all(f"p|bob|{1000 + value}".encode() in rows for value in range(told.certain + 1))
        await check(site, client)


class ToldInPairs:
    """A key that is written again and again, each time with a new one; and a session that reads both."""

    def __init__(self) -> None:
        #: The last value that is certain, and the last that was read; no value is below 0.
        self.certain = -1
        self.seen = -1
        #: Reads that were refused since their server had not seen what the session had.
        self.refused = 0
        self.is_done = False
        #: Held while a write is under way.
        self.writing = asyncio.Lock()

    async def write(self, client: AsyncClient) -> None:
        """Write one value after another, each until it is certain that it is there."""
        while not self.is_done:
            value = self.certain + 1
            batch = client.batch()
            batch.put("p|bob|0900", str(value))
            batch.put(f"p|bob|{1000 + value}", str(value))
            async with self.writing:
                try:
                    outcomes = list(await batch.send())
                except (UnavailableError, BackingUnavailableError) as error:
                    outcomes = [error]
            if any(isinstance(outcome, PequodError) for outcome in outcomes):
                await asyncio.sleep(0.01)
            else:
                self.certain = value

    async def read(self, client: AsyncClient) -> None:
        """Read in one session: values never go back, and each comes with all before it."""
        session = client.session(wait_s=0.2)
        while not self.is_done:
            try:
                rows = dict(await session.scan(prefix="t|u1|"))
            except StaleError:
                self.refused += 1
                continue
            except (UnavailableError, BackingUnavailableError):
                continue
            value = int(rows.get(b"t|u1|0900|bob", -1))
            assert value >= self.seen, "the session goes back"
            missing = [at for at in range(value + 1) if f"t|u1|{1000 + at}|bob".encode() not in rows]
            assert not missing, f"what was written before {value} is not there"
            self.seen = value
            await asyncio.sleep(0)

    async def goes_on(self, where: Callable[[], int]) -> None:
        """Wait until something is five values beyond what is certain now."""
        begun = self.certain
        await until(lambda: where() > begun + 5)


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
        async with AsyncClient(f"pequod+cluster://{teller.target}", timeout_s=60) as client:
            await client.multi_put({"p|zoe|0002": "b", "p|zoe|0003": "b"})
        await teller.stop()
        assert site.rows("a").keys() == {b"p|bob|0001", b"p|bob|0002"}
        assert site.rows("b").keys() == {b"p|zoe|0001", b"p|zoe|0002", b"p|zoe|0003"}


async def test_etcd_without_quorum(tmp_path: Path, etcd: Etcd) -> None:
    """Readers and writers notice nothing; no join is added."""
    async with FaultSite(tmp_path, etcd.setting("").rstrip("/"), computes=2) as site, site.client() as client:
        await fill(client)
        await check(site, client)
        # Those that the servers ask first.
        for member in etcd.nodes[:-1]:
            member.kill()
        try:
            await put(client, "p|bob|0500", "still")
            await check(site, client)
            async with site.client(timeout_s=60) as late:
                assert await late.get("p|bob|0500", freshness=LATEST) == b"still"
                with pytest.raises(CoordinatorUnavailableError):
                    await late.add_join("karma|<author> = count s|<user>|<author>")
            # By now all of them know that it does not answer.
            await put(client, "p|bob|0501", "still")
            await check(site, client)
            assert {one.id for one in servers(client)} == site.entries.keys()
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
        # It goes on before the homes do, so that it cannot know what it has missed.
        site.pause("h1", "h2")
        site.go_on(name)
        async with AsyncClient(site.entries[name].address, timeout_s=60) as late:
            with pytest.raises((StaleError, BackingUnavailableError)):
                await late.scan(prefix="t|u1|", freshness=SOON)
        site.go_on("h1", "h2")
        await until(lambda: name in {one.id for one in servers(client)})
        await check(site, client)


def servers(client: AsyncClient) -> tuple[ServerEntry, ...]:
    return routes(client).state.servers


async def test_a_compute_that_restarted_empty_while_all_homes_are_away(site: FaultSite, client: AsyncClient) -> None:
    """What another compute has loaded is read there, whatever the call."""
    await check(site, client)
    before = await client.scan(prefix="t|u1|")
    name = owner(client, b"t|u1|").id
    site.kill(name)
    # The spare computes it.
    assert await client.scan(prefix="t|u1|") == before
    site.kill("h1", "h2")
    await asyncio.to_thread(site.start, name)
    await until(lambda: owner(client, b"t|u1|").id == name)
    key, value = before[0]
    session = client.session()
    assert await client.scan(prefix="t|u1|") == before
    assert await client.get(key) == value
    assert await client.multi_get([key]) == [value]
    assert [one async for rows in client.scan_chunks(prefix="t|u1|") for one in rows.keys] == [one for one, _ in before]
    assert await session.get(key) == value
    batch = client.batch()
    batch.get(key)
    batch.scan("t|cold|", "t|cold}")
    batch.get(key)
    found, cold, again = await batch.send()
    assert found == again == value
    assert isinstance(cold, BackingUnavailableError)
    for call in (
        client.get("t|cold|0001|bob"),
        client.multi_get(["t|cold|0001|bob"]),
        client.scan_page(prefix="t|cold|"),
    ):
        with pytest.raises(BackingUnavailableError):
            await call
