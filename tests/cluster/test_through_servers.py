"""Computes that follow other servers in place of watching etcd: real processes, and what goes wrong between them."""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest
from pequod_bench.systems.server import free_port
from pequod_server.cluster.confirming import asking
from pequod_server.cluster.membership import coordinator_of
from pequod_server.homes.compute.channel import PeerCredentials
from typer.testing import CliRunner

from pequod import Client
from pequod.cli.app import app
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import PequodError
from pequod.freshness import Latest
from tests.backing.chaos.proxy import TcpProxy
from tests.cluster.conftest import Etcd, Losing
from tests.cluster.test_commands import Servers

JOIN = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
HOME = ("--cluster-roles", "home", "--cluster-group")
SOON = Latest(wait_s=20.0)


@pytest.fixture
def servers(etcd: Etcd) -> Iterator[Servers]:
    servers = Servers(etcd.setting(f"twip-{secrets.token_hex(4)}"))
    servers.run("init", servers.place)
    servers.run("add-home", servers.place, "a", "p", "s")
    servers.start("h1", *HOME, "a")
    yield servers
    servers.stop()


def followed(servers: Servers, *names: str) -> str:
    """Start servers that others follow; return their addresses."""
    return ",".join(servers.start(name, listen=f"127.0.0.1:{free_port()}") for name in names)


def change(servers: Servers, number: int) -> int:
    """Change the map, whether all servers have it soon or not; return its version."""
    done = CliRunner().invoke(app, ["cluster", "placement", servers.place, "q|", "--level", str(number)])
    found = re.match(r"version (\d+)\n", done.output)
    assert found is not None, done.output
    return int(found[1])


async def goes_by(address: str, version: int) -> None:
    """Wait until a server tells a map of a version."""
    ask, entry = asking(PeerCredentials()), ServerEntry("asked", address, frozenset({ServerRole.COMPUTE}))
    known = 0
    while known < version:
        try:
            told = (await ask(entry)).version
        except PequodError:
            told = known
        assert told >= known, "a version never goes back"
        known = told
        await asyncio.sleep(0.05)


async def shows(servers: Servers, name: str, version: int) -> str:
    """Wait until etcd has it that a server goes by a version of the map; return its state."""
    coordinator = coordinator_of(servers.place)
    try:
        while True:
            with suppress(PequodError):
                found = [one for one in (await coordinator.remains()).servers if one.id == name]
                if found and found[0].map_version == version:
                    return found[0].state
            await asyncio.sleep(0.1)
    finally:
        await coordinator.close()


def watches(etcd: Etcd) -> int:
    told = [node.get("/metrics") for node in etcd.nodes]
    found = [re.search(r"^etcd_debugging_mvcc_watcher_total (\d+)", one, re.MULTILINE) for one in told]
    return sum(int(one[1]) for one in found if one)


async def test_a_compute_follows_servers_through_their_stops_and_ends(etcd: Etcd, servers: Servers) -> None:
    addresses = await asyncio.to_thread(followed, servers, "s1", "s2")
    before = await asyncio.to_thread(watches, etcd)
    c1 = await asyncio.to_thread(servers.start, "c1", "--cluster-follow", addresses)
    with Client(c1) as client:
        client.add_join(JOIN)
        client.multi_put({"s|ann|bob": "1", "p|bob|0001": "Hi"})
        assert client.count("t|ann|", "t|ann}", freshness=SOON) == 1
    await goes_by(c1, await asyncio.to_thread(change, servers, 2))
    assert await asyncio.to_thread(watches, etcd) == before, "it watches nothing in etcd"
    for name in ("s1", "s2"):
        servers.signal(name, signal.SIGSTOP)
        await goes_by(c1, await asyncio.to_thread(change, servers, 0 if name == "s1" else 1))
        servers.signal(name, signal.SIGCONT)
    for name, level in (("s1", 3), ("s2", 4)):
        await asyncio.to_thread(servers.kill, name)
        await goes_by(c1, await asyncio.to_thread(change, servers, level))
    # With both away, it watches etcd, until one is there again.
    first = addresses.split(",")[0]
    await asyncio.to_thread(servers.start, "s1", listen=first)
    while await asyncio.to_thread(watches, etcd) >= before:  # noqa: ASYNC110 - etcd is asked
        await asyncio.sleep(0.2)
    version = await asyncio.to_thread(change, servers, 2)
    await goes_by(c1, version)
    assert (await asyncio.to_thread(servers.status))["c1"]["map_version"] == version


async def test_a_server_that_is_cut_off_from_etcd_is_left_and_a_follower_that_is_goes_on(
    etcd: Etcd, servers: Servers
) -> None:
    to_etcd, of_follower = TcpProxy(etcd.endpoints[0]), TcpProxy(etcd.endpoints[0])
    await to_etcd.start()
    await of_follower.start()
    name = servers.place.rpartition("/")[2]
    cut = ("--cluster", f"etcd:{to_etcd.address}/{name}")
    s1 = await asyncio.to_thread(servers.start, "s1", *cut, listen=f"127.0.0.1:{free_port()}")
    c1 = await asyncio.to_thread(servers.start, "c1", "--cluster-follow", s1)
    own = ("--cluster", f"etcd:{of_follower.address}/{name}")
    s2 = await asyncio.to_thread(followed, servers, "s2")
    c2 = await asyncio.to_thread(servers.start, "c2", *own, "--cluster-follow", s2)
    to_etcd.take_away()
    of_follower.take_away()
    version = await asyncio.to_thread(change, servers, 2)
    # The one has no other server, and watches etcd; the other one hears of it all the same.
    await goes_by(c1, version)
    await goes_by(c2, version)
    of_follower.let_go()
    await shows(servers, "c2", version)
    to_etcd.let_go()
    await to_etcd.stop()
    await of_follower.stop()


async def test_followers_of_followers_and_circles_watch_etcd(servers: Servers) -> None:
    ports = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    for name, own, other in (("c1", *ports), ("c2", *reversed(ports))):
        await asyncio.to_thread(servers.begin, name, "--cluster-follow", other, listen=own)
    for name in ("c1", "c2"):
        await asyncio.to_thread(servers.line, name, "follows others itself")
        await asyncio.to_thread(servers.line, name, "this one watches etcd")
    version = await asyncio.to_thread(change, servers, 2)
    for address in ports:
        await goes_by(address, version)


async def test_what_an_operator_asks_of_a_follower_stands_through_changes(servers: Servers) -> None:
    addresses = await asyncio.to_thread(followed, servers, "s1", "s2")
    c1 = await asyncio.to_thread(servers.start, "c1", "--cluster-follow", addresses)
    await asyncio.to_thread(servers.run, "drain", servers.place, "c1")
    for name, level in (("s1", 2), ("s2", 3)):
        await asyncio.to_thread(servers.kill, name)
        version = await asyncio.to_thread(change, servers, level)
        await goes_by(c1, version)
        assert await shows(servers, "c1", version) == "draining"


def test_a_range_that_moves_is_exact_at_a_follower(servers: Servers) -> None:
    servers.start("h2", *HOME, "b")
    addresses = followed(servers, "s1")
    c1 = servers.start("c1", "--cluster-follow", addresses)
    with Client(c1) as client:
        client.add_join(JOIN)
        client.multi_put({f"s|ann|{poster}": "1" for poster in ("bob", "zoe")})
        for moved, group in enumerate("baba"):
            for poster in ("bob", "zoe"):
                client.put(f"p|{poster}|{moved:04}", str(moved))
            servers.run("move", servers.place, "p|m", "p}", "--to", group)
            client.put(f"p|zoe|{moved + 5000:04}", "after")
            assert client.count("t|ann|", "t|ann}", freshness=SOON) == 3 * (moved + 1)
            assert client.count("p|", "p}", freshness=SOON) == 3 * (moved + 1)


async def test_an_etcd_that_is_lost_is_put_right_by_a_follower_too(losing: Losing) -> None:
    servers = Servers(losing.etcd.setting("twip"))
    try:
        await asyncio.to_thread(servers.run, "init", servers.place)
        addresses = await asyncio.to_thread(followed, servers, "s1")
        c1 = await asyncio.to_thread(servers.start, "c1", "--cluster-follow", addresses)
        await asyncio.to_thread(losing.back_up)
        version = await asyncio.to_thread(change, servers, 2)
        await goes_by(c1, version)
        await asyncio.to_thread(losing.restore)
        await shows(servers, "c1", version)
        with Client(c1) as client, pytest.raises(PequodError, match="servers go by version"):
            client.add_join(JOIN)
    finally:
        await asyncio.to_thread(servers.stop)


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (("--cluster-follow", "127.0.0.1:9", *HOME, "a"), "a home watches etcd itself"),
        (("--cluster-follow", "127.0.0.1:9", "--cluster", ""), "it needs a cluster"),
        (("--cluster-follow", "nowhere"), "must be addresses of servers"),
        (("--cluster-follow", "127.0.0.1:7999", "--cluster-address", "127.0.0.1:7999"), "is this server itself"),
    ],
)
def test_settings_that_cannot_be_are_refused(flags: tuple[str, ...], fault: str) -> None:
    servers = Servers("etcd:127.0.0.1:9/twip")
    servers.begin("c1", *flags)
    try:
        assert fault in servers.line("c1", fault)
    finally:
        servers.stop()
