"""What happens to a whole cluster: cuts of power, coordinators that are lost, links that lead nowhere, groups that go.

Each ends right, or in one line that says what to do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pequod_bench.systems.server import free_port
from pequod_server.cluster.etcd import EtcdCoordinator
from typer.testing import CliRunner

from pequod import Client, after
from pequod.cli.app import app
from pequod.cluster.map import VERSION_MAX, ClusterMap, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import ClusterMapError, NotHomeError, TokenLostError, UnassignedKeyError
from pequod.freshness import Latest
from tests.backing.chaos.proxy import TcpProxy
from tests.cluster.conftest import Losing
from tests.cluster.test_commands import Servers

JOIN = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
ROWS = {"s|ann|bob": "1", "p|bob|0001": "Hi"}
RANGES = (HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "a"))
HOME = ("--cluster-roles", "home", "--cluster-group", "a")
SOON = Latest(wait_s=20.0)


@pytest.fixture
def servers(losing: Losing) -> Iterator[Servers]:
    servers = Servers(losing.etcd.setting("twip"))
    yield servers
    servers.stop()


def begun(servers: Servers, *home: str) -> str:
    """Begin a cluster of one home and one compute, with a join and its rows; return the compute's address."""
    servers.run("init", servers.place)
    servers.run("add-home", servers.place, "a", "p", "s")
    servers.start("h1", *HOME, *home)
    compute = servers.start("c1")
    with Client(compute) as client:
        client.add_join(JOIN)
        client.multi_put(ROWS)
        assert client.count("t|ann|", "t|ann}", freshness=SOON) == 1
    return compute


def test_after_a_cut_of_power_servers_start_in_any_order_and_answer_as_before(
    losing: Losing, servers: Servers, tmp_path: Path
) -> None:
    data = ("--data", str(tmp_path / "data"))
    begun(servers, *data)
    losing.etcd.stop()
    for name in ("c1", "h1"):
        servers.kill(name)
    # Where each has an address of its own, it is that of before.
    addresses = dict(servers.addresses)
    servers.begin("c1", listen=addresses["c1"])
    servers.line("c1", "the start waits for the map")
    losing.etcd.start()
    servers.begin("h1", *HOME, *data, listen=addresses["h1"])
    for name in ("h1", "c1"):
        servers.line(name, "serving on")
    with Client(addresses["c1"]) as client:
        assert client.count("t|ann|", "t|ann}") == 1
        client.put("p|bob|0002", "Ho")
        assert client.count("t|ann|", "t|ann}", freshness=SOON) == 2
    assert {name: one["map_version"] for name, one in servers.status().items()} == {"c1": 3, "h1": 3}


async def test_a_compute_does_not_start_by_a_map_from_before_that_of_its_home(losing: Losing, servers: Servers) -> None:
    proxy = TcpProxy(losing.etcd.endpoints[0])
    await proxy.start()
    await asyncio.to_thread(begun, servers, "--cluster", f"etcd:{proxy.address}/twip")
    # The home is cut off from etcd, which has an older map, and an entry of the home from then.
    proxy.take_away()
    await asyncio.to_thread(servers.kill, "c1")
    await asyncio.to_thread(losing.lose)
    coordinator = EtcdCoordinator(losing.etcd.endpoints, "twip")
    home = ServerEntry("h1", servers.addresses["h1"], frozenset({ServerRole.HOME}), "a", map_version=1)
    await coordinator.put_map(ClusterMap("twip", 1, home_ranges=RANGES))
    await coordinator.register(home)
    await asyncio.to_thread(servers.begin, "c1")
    waits = await asyncio.to_thread(servers.line, "c1", "the start waits for the homes")
    assert "version 1 of the map is there, and servers go by version 3 (h1)" in waits
    # Once the home shows itself, nothing is waited for.
    proxy.let_go()
    ends = await asyncio.to_thread(servers.line, "c1", "pequod: ")
    assert "servers go by version 3 (h1)" in ends
    assert "`pequod cluster map restore PLACE FILE`" in ends
    assert await asyncio.to_thread(servers.wait, "c1") == 3
    assert "serving on" not in servers.said["c1"]
    await coordinator.close()
    await proxy.stop()


def test_no_map_is_made_where_servers_live_that_have_one(losing: Losing, servers: Servers) -> None:
    begun(servers)
    losing.lose()
    # None has shown itself yet.
    done = CliRunner().invoke(app, ["cluster", "init", servers.place])
    assert done.exit_code == 3
    assert "there is no map, and servers go by version 3" in done.output


async def test_servers_that_start_over_links_that_lead_nowhere_say_so_and_go_on_by_themselves(
    losing: Losing, servers: Servers
) -> None:
    await asyncio.to_thread(servers.run, "init", servers.place)
    await asyncio.to_thread(servers.run, "add-home", servers.place, "a", "p", "s")
    to_etcd, to_home = TcpProxy(losing.etcd.endpoints[0]), TcpProxy(home := f"127.0.0.1:{free_port()}")
    await to_etcd.start()
    await to_home.start()
    # One takes connections and says nothing, behind the other one there is nobody.
    to_etcd.hold_on()
    place = ("--cluster", f"etcd:{to_etcd.address}/twip")
    await asyncio.to_thread(servers.begin, "h1", *HOME, *place, "--cluster-address", to_home.address, listen=home)
    assert to_etcd.address in await asyncio.to_thread(servers.line, "h1", "the start waits for the map")
    to_etcd.let_go()
    await asyncio.to_thread(servers.line, "h1", "serving on")
    to_home.take_away()
    await asyncio.to_thread(servers.begin, "c1")
    waits = await asyncio.to_thread(servers.line, "c1", "the start waits for the homes")
    assert f"no home says which map it goes by: h1 at {to_home.address}" in waits
    assert "start the homes first" in waits
    to_home.let_go()
    compute = (await asyncio.to_thread(servers.line, "c1", "serving on")).split()[-1]

    def use() -> None:
        with Client(compute) as client:
            client.add_join(JOIN)
            client.multi_put(ROWS)
            assert client.count("t|ann|", "t|ann}", freshness=SOON) == 1

    await asyncio.to_thread(use)
    for proxy in (to_etcd, to_home):
        await proxy.stop()


def test_a_group_goes_with_its_last_range_and_its_tokens_are_lost(servers: Servers) -> None:
    place = servers.place
    servers.run("init", place)
    servers.run("add-home", place, "a", "p")
    servers.run("add-home", place, "b", "s", "v")
    servers.start("h1", *HOME)
    servers.start("h2", "--cluster-roles", "home", "--cluster-group", "b")
    compute = servers.start("c1")
    with Client(compute) as client:
        client.add_join(JOIN)
        session = client.session()
        for key, value in {**ROWS, "v|bob|1": "1"}.items():
            session.put(key, value)
        token = session.token
        assert client.count("t|ann|", "t|ann}", freshness=after(token)) == 1
        servers.run("move", place, "s|", "s}", "--to", "a")
        # The group is there, and its token stays good.
        assert client.count("t|ann|", "t|ann}", freshness=after(token)) == 1
        assert "group b" not in servers.run("remove-home", place, "v")
        with pytest.raises(UnassignedKeyError, match=re.escape("v|bob|1")):
            client.get("v|bob|1")
        with pytest.raises(NotHomeError):
            client.put("v|bob|2", "1")
        with pytest.raises(TokenLostError, match="go on without the token"):
            client.count("t|ann|", "t|ann}", freshness=after(token))
        assert client.count("t|ann|", "t|ann}", freshness=SOON) == 1
        servers.kill("h2")
        client.put("p|bob|0002", "Ho")
        assert client.count("t|ann|", "t|ann}", freshness=SOON) == 2
    # A compute that starts needs nothing of the group.
    with Client(servers.start("c2")) as client:
        assert client.count("t|ann|", "t|ann}", freshness=SOON) == 2
    assert "none would be left" in servers.run("remove-home", place, "p", "s", code=3)


def test_a_map_of_the_greatest_version_serves_and_says_what_a_change_takes(servers: Servers) -> None:
    place = servers.place

    async def put_greatest() -> None:
        coordinator = EtcdCoordinator(servers.place.removeprefix("etcd:").partition("/")[0].split(","), "twip")
        known = ClusterMap("twip", VERSION_MAX, JOIN + ";\n", home_ranges=RANGES)
        await coordinator.restore_map(known)
        await coordinator.close()

    asyncio.run(put_greatest())
    servers.start("h1", *HOME)
    servers.start("h2", "--cluster-roles", "home", "--cluster-group", "b")
    with Client(servers.start("c1")) as client:
        client.multi_put(ROWS)
        assert client.count("t|ann|", "t|ann}", freshness=SOON) == 1
        with pytest.raises(ClusterMapError, match="is the greatest one, so no map can follow"):
            client.add_join("u|<user> = count p|<user>|<time>")
        assert [join.name for join in client.joins()] == ["t"]
    assert {one["map_version"] for one in servers.status().values()} == {VERSION_MAX}
    for command in (
        ("placement", place, "t|", "--level", "0"),
        ("add-home", place, "a", "v"),
        ("remove-home", place, "s"),
        ("move", place, "p|", "p}", "--to", "b"),
    ):
        assert "`pequod cluster init --from`" in servers.run(*command, code=3)


def test_a_map_is_put_back_only_by_one_who_has_seen_what_servers_go_by(
    losing: Losing, servers: Servers, tmp_path: Path
) -> None:
    place, kept, early = servers.place, str(tmp_path / "map.toml"), str(tmp_path / "early.toml")
    compute = begun(servers)
    servers.run("map", "save", early, "--target", compute)
    servers.run("placement", place, "t|", "--level", "0")
    servers.run("map", "save", kept, "--target", compute)
    losing.lose()
    told = servers.run("map", "restore", place, kept, "--dry-run")
    assert "there is no map\nthe file: version 4\nservers that go by version 4: c1, h1\n" in told
    assert "version 5 would be there:\n  + join t|<user>|<time:4>|<poster> = check" in told
    assert "  + placement t|: level 0, read_spread 1\n" in told
    assert "nothing is changed" in told
    assert "there is no map" in servers.run("status", place, code=3)
    # Asked at once, also before they have shown themselves: by the addresses of the file.
    older = servers.run("map", "restore", place, early, "--dry-run", code=3)
    assert "servers go by version 4 of the map (c1, h1), and the file has version 3" in older
    assert "give --older" in older
    servers.kill("h1")
    silent = servers.run("map", "restore", place, kept, code=3)
    assert f"these do not say which map they go by: h1 at {servers.addresses['h1']}; start them" in silent
    assert servers.run("map", "restore", place, kept, "--anyway").startswith("version 5\n")
    same = servers.run("map", "restore", place, kept, "--dry-run", "--anyway", "--older")
    assert "version 6 would be there:\n  the same, but for the version\n" in same
