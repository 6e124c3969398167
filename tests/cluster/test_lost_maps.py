"""etcd that was restored from an older backup, or lost: what operators are told, and how the map comes back."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pequod_server.cluster.member import Member, laggards
from pequod_server.homes.rules import HomeRules
from typer.testing import CliRunner

from pequod import Client
from pequod.cli.app import app
from pequod.cluster.document import read
from pequod.cluster.map import VERSION_MAX, ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import ClusterMapError
from tests.cluster.conftest import Losing
from tests.cluster.test_commands import COMMAND, Servers
from tests.cluster.waiting import eventually
from tests.simulation.registry import Registry, SimulatedCoordinator

_JOIN = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
_COMPUTE = frozenset({ServerRole.COMPUTE})


@pytest.fixture
def servers(losing: Losing) -> Iterator[Servers]:
    servers = Servers(losing.etcd.setting("twip"))
    yield servers
    servers.stop()


def when_shown(servers: Servers, version: int, *ids: str) -> str:
    """Wait until etcd has servers that go by a version; return what status says of the map that is lost."""
    while True:
        done = CliRunner().invoke(app, ["cluster", "status", servers.place])
        if re.search(rf"go by version {version} \({', '.join(ids)}\)", done.output):
            # It neither passes for good nor hides which servers are there.
            assert done.exit_code in (1, 3), done.output
            return done.output


def _told(output: str) -> str:
    return next(line for line in output.splitlines() if line.startswith("pequod: "))


def test_an_older_backup_of_etcd_is_told_and_the_servers_map_is_put_back(
    losing: Losing, servers: Servers, tmp_path: Path
) -> None:
    place, kept, early = servers.place, str(tmp_path / "map.toml"), str(tmp_path / "early.toml")
    servers.run("init", place)
    servers.run("add-home", place, "a", "p", "s")
    home = servers.start("h1", "--cluster-roles", "home", "--cluster-group", "a")
    compute = servers.start("c1")
    servers.run("map", "save", early, "--target", home)
    losing.back_up()
    with Client(compute) as client:
        client.add_join(_JOIN)
        client.multi_put({"s|ann|bob": "1", "p|bob|0001": "Hi"})
    servers.run("placement", place, "t|", "--level", "0")
    assert "version 4" in servers.run("map", "save", kept, "--target", compute)
    losing.restore()

    shown = when_shown(servers, 4, "c1", "h1")
    # Who is there is shown all the same.
    assert "cluster twip, map version 2, 2 servers" in shown
    told = _told(shown)
    assert "version 2 of the map is there, and servers go by version 4 (c1, h1)" in told
    assert re.search(r"`pequod cluster map save FILE --target 127\.0\.0\.1:\d+`", told)
    assert "`pequod cluster map restore PLACE FILE`" in told
    for command in (("placement", place, "t|", "--remove"), ("init", place), ("move", place, "p|", "p}", "--to", "b")):
        refused = servers.run(*command, code=3)
        assert "servers go by version 4 (c1, h1)" in refused
        assert "writes of the range" not in refused
    with Client(compute) as client:
        with pytest.raises(ClusterMapError, match=r"servers go by version 4 .* `pequod cluster map restore"):
            client.add_join("u|<user> = count p|<user>|<time>")
        client.put("p|bob|0002", "Ho")
        assert client.count("t|ann|", "t|ann}") == 2
        assert [join.name for join in client.joins()] == ["t"]
    # It would have no join, and would answer that nothing is there.
    servers.begin("c2")
    assert "servers go by version 4" in servers.line("c2", "pequod: ")
    assert servers.wait("c2") == 3

    assert "the file has version 2, without what was changed since" in servers.run(
        "map", "restore", place, early, code=3
    )
    servers.run("map", "save", early, "--target", home)
    assert read(Path(early).read_text()) == read(Path(kept).read_text())
    assert servers.run("map", "restore", place, kept).startswith("version 5\n")
    assert {name: one["map_version"] for name, one in servers.status().items()} == {"c1": 5, "h1": 5}
    with Client(servers.start("c2")) as client:
        assert client.count("t|ann|", "t|ann}") == 2

    losing.lose()
    assert "there is no map, and servers go by version 5 (c1, c2, h1)" in when_shown(servers, 5, "c1", "c2", "h1")
    assert "servers go by version 5 (c1, c2, h1)" in servers.run("init", place, code=3)
    assert f"{kept} cannot be read" not in servers.run("map", "save", kept, "--target", compute)
    assert servers.run("map", "restore", place, kept).startswith("version 6\n")
    assert {one["map_version"] for one in servers.status().values()} == {6}


def test_a_map_is_not_saved_over_a_later_one_nor_over_that_of_another_cluster(servers: Servers, tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    servers.run("init", servers.place)
    target = servers.start("c1")
    for text, why in (
        ("cluster = 'twip'\nversion = 9\n", f"{path} has version 9 of the map, and {target} goes by version 1"),
        ("cluster = 'newp'\nversion = 1\n", f"{path} has the map of the cluster newp"),
        ("cluster = 1\n", f"{path}: the map, cluster"),
    ):
        path.write_text(text)
        assert why in servers.run("map", "save", str(path), "--target", target, code=3)
        assert path.read_text() == text
    path.write_text(f"cluster = 'twip'\nversion = {VERSION_MAX}\n")
    told = servers.run("map", "restore", servers.place, str(path), code=3)
    assert f"{VERSION_MAX} is the greatest one, so no map can follow: save the map" in told
    assert json.loads(servers.run("status", servers.place, "--json"))["map_version"] == 1


async def test_a_server_that_began_by_a_map_from_before_the_latest_ends() -> None:
    registry = Registry(ClusterMap("twip", 1))
    entry = ServerEntry("c1", "127.0.0.1:7744", _COMPUTE)

    async def take_in(_state: ClusterState) -> None:
        pass

    member = Member(SimulatedCoordinator(registry, Random(1), "c1"), entry, take_in, rules=HomeRules(entry))
    await member.start()
    assert member.failed is not None
    registry.register(ServerEntry("c2", "127.0.0.1:7745", _COMPUTE, map_version=1))
    await eventually(lambda: len(member.state.servers) == 2)
    assert not member.failed.done()
    # It lives, and has come back to a coordinator that was made anew.
    registry.register(ServerEntry("c2", "127.0.0.1:7745", _COMPUTE, map_version=5))
    with pytest.raises(ClusterMapError, match=r"servers go by version 5 \(c2\)"):
        await member.failed
    await member.stop()


async def test_no_server_starts_by_a_map_from_before_the_latest() -> None:
    registry, taken = Registry(ClusterMap("twip", 1)), list[ClusterState]()
    registry.register(ServerEntry("c2", "127.0.0.1:7745", _COMPUTE, map_version=5))
    entry = ServerEntry("h1", "127.0.0.1:7744", frozenset({ServerRole.HOME}), "a")

    async def take_in(state: ClusterState) -> None:
        taken.append(state)

    member = Member(SimulatedCoordinator(registry, Random(1), "h1"), entry, take_in, rules=HomeRules(entry))
    with pytest.raises(ClusterMapError, match=r"servers go by version 5 \(c2\)"):
        await member.start()
    # A home without the map's ranges would take the keys of all groups.
    assert not taken
    assert [server.id for server in registry.state.servers] == ["c2"]
    await member.stop()


async def test_a_server_that_goes_by_the_latest_map_stays(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry(ClusterMap("twip", 1))
    entry = ServerEntry("c1", "127.0.0.1:7744", _COMPUTE)

    async def take_in(_state: ClusterState) -> None:
        pass

    member = Member(SimulatedCoordinator(registry, Random(1), "c1"), entry, take_in, rules=HomeRules(entry))
    await member.start()
    registry.put_map(ClusterMap("twip", 2))
    await member.show(7744)
    await eventually(lambda: member.entry.map_version == 2)
    registry._map = ClusterMap("twip", 1)
    registry.register(ServerEntry("c2", "127.0.0.1:7745", _COMPUTE, map_version=2))
    await eventually(lambda: "the coordinator has lost the latest map" in caplog.text)
    await asyncio.sleep(0)
    assert member.failed is not None
    assert not member.failed.done()
    assert member.map.version == 2
    await member.stop()


def test_a_version_that_the_coordinator_does_not_have_is_none_that_includes_a_map() -> None:
    servers = [
        ServerEntry(f"c{version}", f"10.0.0.{version}:1", _COMPUTE, map_version=version) for version in (2, 3, 4, 9)
    ]
    assert laggards(ClusterState.of(ClusterMap("twip", 4), servers), 3) == ["c2", "c9"]


def test_a_map_is_saved_again_and_again_and_the_newest_versions_are_kept(servers: Servers, tmp_path: Path) -> None:
    place, path = servers.place, tmp_path / "twip.toml"
    servers.run("init", place)
    target = servers.start("c1")
    command = [*COMMAND, "cluster", "map", "save", str(path), "--every", "0.1", "--keep", "2", "--target"]
    saving = subprocess.Popen(
        [*command, f"pequod+cluster://127.0.0.1:1,{target}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert saving.stdout is not None
    assert saving.stderr is not None
    try:
        assert saving.stdout.readline() == "version 1\n"
        for version in (2, 3, 4):
            servers.run("placement", place, "t|", "--level", str(version))
            # One version may come right after another.
            while saving.stdout.readline() != f"version {version}\n":
                pass
        kept = {one.name: read(one.read_text()).map.version for one in tmp_path.glob("*.toml")}
        assert kept == {"twip.toml": 4, "twip.3.toml": 3, "twip.4.toml": 4}
        servers.kill("c1")
        assert "the map is not saved, which is tried again every 0.1 s: no server at" in saving.stderr.readline()
        servers.start("c1", listen=target)
        # A server that is killed in the middle of a call gives another reason than one that is gone.
        while "the map is saved again" not in (line := saving.stderr.readline()):
            assert "the map is not saved, which is tried again every 0.1 s: no server at" in line
        # A later map in the file is not replaced.
        path.write_text("cluster = 'twip'\nversion = 9\n")
        assert f"{path} has version 9 of the map" in saving.stderr.readline()
        saving.terminate()
        assert saving.wait(20) == 0
        assert saving.stderr.read() == ""
        assert read(path.read_text()).map.version == 9
        assert {one.name for one in tmp_path.iterdir() if one.is_file()} == {*kept, "n0.log"}
    finally:
        saving.kill()
        saving.wait(20)
        saving.stdout.close()
        saving.stderr.close()
