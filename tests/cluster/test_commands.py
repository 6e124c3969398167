"""`pequod cluster`: what operators type, and what they are told; servers as processes, over a file and over etcd."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pequod_bench.systems.server import free_port
from typer.testing import CliRunner

from pequod import Client
from pequod.cli.app import app
from pequod.cluster.document import TEMPLATE, read
from pequod.errors import NotHomeError
from pequod.freshness import Latest
from tests.cluster.conftest import Etcd
from tests.forked import ForkedServer

#: Two home groups and two computes.
_MAP = """
cluster = "twip"
version = 1
joins = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
home_ranges = [{{ first = "p|", last = "p}}", group = "a" }}, {{ first = "s|", last = "s}}", group = "b" }}]
servers = [
    {{ id = "h1", address = "{h1}", roles = ["home"], group = "a" }},
    {{ id = "h2", address = "{h2}", roles = ["home"], group = "b" }},
    {{ id = "c1", address = "{c1}", roles = ["compute"] }},
    {{ id = "c2", address = "{c2}", roles = ["compute"] }},
]
"""
COMMAND = [sys.executable, "-m", "pequod.cli"]


class Servers:
    """Servers of a cluster as processes, and the commands of its operator."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._started: dict[str, ForkedServer] = {}
        self._begun: dict[str, subprocess.Popen[str]] = {}
        self.addresses: dict[str, str] = {}
        #: The lines that were read of servers that were begun.
        self.said: dict[str, str] = {}

    def begin(self, name: str, *options: str, listen: str = "127.0.0.1:0") -> None:
        """Start a server as a shell does, whether it will listen or not: `line` reads what it says."""
        command = [*COMMAND, "serve", *self._flags(name, options, listen)]
        self._begun[name] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said[name] = ""

    def start(self, name: str, *options: str, listen: str = "127.0.0.1:0") -> str:
        """Start a server, and return its address once it listens."""
        self._started[name] = ForkedServer(*self._flags(name, options, listen))
        self.addresses[name] = self._started[name].target
        return self.addresses[name]

    def _flags(self, name: str, options: tuple[str, ...], listen: str) -> list[str]:
        named = () if "--cluster-id" in options else ("--cluster-id", name)
        return ["--listen", listen, "--cluster", self.place, *named, *options]

    def line(self, name: str, part: str) -> str:
        """Return the next line of a server that was begun that has a text."""
        stream = self._begun[name].stderr
        assert stream is not None
        for line in stream:
            self.said[name] += line
            if part in line:
                return line
        raise AssertionError(f"{name} ended: {self.said[name]}")

    def signal(self, name: str, number: signal.Signals) -> None:
        self._started[name].send_signal(number)

    def kill(self, name: str) -> None:
        """End a server without a word."""
        if name in self._begun:
            self._begun[name].kill()
        else:
            self.signal(name, signal.SIGKILL)
        self.wait(name)

    def wait(self, name: str) -> int:
        """Wait until a server has ended, and return its exit code."""
        if name in self._begun:
            return _closed(self._begun.pop(name))
        server = self._started.pop(name)
        code = server.wait(20)
        server.kill()
        return code

    def stop(self) -> None:
        for server in self._started.values():
            server.kill()
        for process in self._begun.values():
            process.kill()
            _closed(process)

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command of `pequod cluster`; return what it prints, with its messages."""
        # The clusters of tests are new: no server of an earlier one is waited for.
        at_once = ["--at-once"] if arguments[0] == "init" else []
        done = CliRunner().invoke(app, ["cluster", *arguments, *at_once])
        assert done.exit_code == code, done.output
        return done.output

    def status(self, code: int = 0) -> dict[str, dict[str, Any]]:
        lines = self.run("status", self.place, "--json", code=code).splitlines()
        return {one["id"]: one for one in map(json.loads, (line for line in lines if line.startswith("{")))}


def _closed(process: subprocess.Popen[str]) -> int:
    code = process.wait(20)
    assert process.stderr is not None
    process.stderr.close()
    return code


@pytest.fixture
def servers(etcd: Etcd) -> Iterator[Servers]:
    servers = Servers(etcd.setting(f"twip-{secrets.token_hex(4)}"))
    yield servers
    servers.stop()


def test_a_file_is_written_with_comments_once_and_starts_a_server(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    servers = Servers(f"static:{path}")
    try:
        assert servers.run("init", servers.place).startswith(f"made {path}\n")
        assert path.read_text() == TEMPLATE
        assert "the file is there already" in servers.run("init", servers.place, code=3)
        port = free_port()
        path.write_text(TEMPLATE.replace("7744", str(port)))
        servers.begin("s1", listen=f"127.0.0.1:{port}")
        address = servers.line("s1", "serving on").split()[-1]
        shown = servers.run("status", servers.place)
        assert "cluster pequod, map version 1, 1 servers" in shown
        assert "s1  home+compute  a" in shown
        assert servers.run("status", "--target", address).splitlines()[0] == shown.splitlines()[0]
        assert "level 0, read_spread 2" in servers.run(
            "placement", servers.place, "top|", "--level", "0", "--read-spread", "2"
        )
        assert read(path.read_text()).map.version == 2
        assert "a move needs a map in etcd" in servers.run("move", servers.place, "p|", "p}", "--to", "b", code=3)
        servers.run("drain", servers.place, "s1")
        assert 'state = "draining"' in path.read_text()
        assert "none has the id s9" in servers.run("drain", servers.place, "s9", code=3)
    finally:
        servers.stop()


def test_what_is_wrong_with_a_place_is_said_with_a_hint(tmp_path: Path) -> None:
    servers = Servers("")
    assert "write static:FILE or etcd:HOST:PORT,HOST:PORT/NAME" in servers.run("status", "cluster.toml", code=2)
    assert "`pequod cluster init` writes one" in servers.run("status", f"static:{tmp_path}/none", code=3)
    assert "127.0.0.1:1" in servers.run("status", "etcd:127.0.0.1:1/twip", code=4)
    assert "no server at 127.0.0.1:1" in servers.run("status", "--target", "127.0.0.1:1", code=4)
    path = tmp_path / "cluster.toml"
    path.write_text("cluster = 'twip'\nversion = 1\ncolour = 'red'")
    assert f"{path}: the map, colour: there is no such member" in servers.run("status", f"static:{path}", code=3)


def test_the_variable_stands_for_the_place_where_other_arguments_follow(tmp_path: Path) -> None:
    path, other = tmp_path / "cluster.toml", tmp_path / "other.toml"

    def run(*command: str) -> str:
        done = CliRunner().invoke(app, ["cluster", *command], env={"PEQUOD_CLUSTER": f"static:{path}"})
        assert done.exit_code == 0, done.output
        return done.output

    run("init")
    path.write_text(TEMPLATE.replace('first = ""', 'first = "v|"'))
    run("placement", "--level", "0", "top|")
    run("add-home", "a", "p", "s")
    run("drain", "s1")
    state = read(path.read_text())
    assert [one.prefix for one in state.map.placements] == [b"top|"]
    assert [one.group for one in state.map.home_ranges] == ["a", "a", "a"]
    assert state.servers[0].state == "draining"
    run("init", f"static:{other}")
    run("placement", f"static:{other}", "top|")
    assert read(other.read_text()).map.version == 2
    moved = CliRunner().invoke(app, ["cluster", "move", "p|", "p}"], env={"PEQUOD_CLUSTER": "etcd:127.0.0.1:1/twip"})
    assert "give --to GROUP, or --undo without --to" in moved.output


def test_keys_are_not_given_to_a_group_of_which_the_file_has_no_home(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(before := TEMPLATE.replace('first = ""', 'first = "v|"'))
    done = CliRunner().invoke(app, ["cluster", "add-home", f"static:{path}", "b", "p"])
    assert done.exit_code == 3
    assert "no server is a home of its group 'b'; put one into the file first" in done.output
    assert path.read_text() == before


def test_a_cluster_in_etcd_from_its_first_map_to_its_last_server(servers: Servers) -> None:
    place = servers.place
    assert "there is no map; `pequod cluster init` makes one" in servers.run("status", place, code=3)
    servers.run("init", place)
    assert "there is a map already, of version 1" in servers.run("init", place, code=3)
    servers.start("s1")
    servers.start("s2", "--cluster-zone", "north")
    status = servers.status()
    assert {name: (one["state"], one["zone"], one["map_version"]) for name, one in status.items()} == {
        "s1": ("ready", "", 1),
        "s2": ("ready", "north", 1),
    }
    assert (
        servers.run("placement", place, "top|", "--level", "0")
        == "version 2\n  placement top|: level 0, read_spread 1\n"
    )
    assert [one["map_version"] for one in servers.status().values()] == [2, 2]

    servers.run("drain", place, "s2")
    assert servers.status()["s2"]["state"] == "draining"
    servers.run("drain", place, "s2", "--undo")
    assert servers.status()["s2"]["state"] == "ready"
    assert "it is not there; there is s1, s2" in servers.run("drain", place, "s9", code=3)

    servers.signal("s2", signal.SIGTERM)
    assert servers.wait("s2") == 0
    # At once: it has taken itself out, no lease had to end.
    assert list(servers.status()) == ["s1"]


def test_status_tells_what_each_compute_holds_at_each_home_and_how_far_behind_it_is(tmp_path: Path) -> None:
    addresses = {name: f"127.0.0.1:{free_port()}" for name in ("h1", "h2", "c1", "c2")}
    path = tmp_path / "cluster.toml"
    path.write_text(_MAP.format(**addresses))
    servers = Servers(f"static:{path}")
    try:
        for name, address in addresses.items():
            servers.start(name, listen=address)
        with Client(addresses["c1"]) as one, Client(addresses["c2"]) as two:
            one.multi_put({"s|ann|bob": "1", "s|ann|zoe": "1", "s|cat|bob": "1"})
            one.multi_put({"p|bob|0001": "Hi", "p|zoe|0002": "Ho"})
            for client, user, rows in ((one, "ann", 2), (one, "cat", 1), (two, "cat", 1)):
                assert len(client.scan(prefix=f"t|{user}|", freshness=Latest(wait_s=9.0))) == rows
            one.put("p|bob|0003", "He")
            for client in (one, two):
                assert client.count("t|cat|", "t|cat}", freshness=Latest(wait_s=9.0)) == 2
        shown = servers.run("status", servers.place)
        assert max(map(len, shown.splitlines())) <= 100
        table = [line.split() for line in shown[shown.index("home  compute") :].splitlines()]
        assert table[0] == ["home", "compute", "subscriptions", "events", "behind", "changes", "bytes", "reloads"]
        # Ranges that touch are one, so what a compute holds of the posts of bob and zoe at their home is two ranges.
        assert sorted(table[1:]) == [
            ["h1", "c1", "2", "0", "1", "12", "0"],
            ["h1", "c2", "1", "0", "1", "12", "0"],
            ["h2", "c1", "2", "0", "0", "0", "0"],
            ["h2", "c2", "1", "0", "0", "0", "0"],
        ]
        # One of the groups is silent, and the other one is not: the compute is as far behind as the silent one.
        servers.signal("h2", signal.SIGSTOP)
        while (behind_s := servers.status(code=1)["c1"]["behind_s"]) is not None and behind_s < 3:
            pass
        assert behind_s is not None
    finally:
        servers.stop()


def test_a_server_waits_for_the_first_map_of_its_cluster_only_where_there_is_none_to_tell(servers: Servers) -> None:
    servers.begin("s1")
    assert "there is no map; `pequod cluster init` makes one" in servers.line("s1", "pequod: ")
    assert servers.wait("s1") == 3


def test_a_second_server_with_an_id_that_is_taken_does_not_start(servers: Servers) -> None:
    servers.run("init", servers.place)
    address = servers.start("s1")
    servers.begin("second", "--cluster-id", "s1")
    assert f"the server at {address} has this id, and lives" in servers.line("second", "pequod: ")
    assert servers.wait("second") == 3


def test_a_paused_server_is_gone_for_the_others_and_comes_back(servers: Servers) -> None:
    servers.run("init", servers.place)
    servers.start("s1")
    servers.start("s2")
    servers.signal("s2", signal.SIGSTOP)
    while _has(servers, "s2"):
        pass
    servers.signal("s2", signal.SIGCONT)
    while not _has(servers, "s2"):
        pass
    assert servers.status()["s2"]["state"] == "ready"


def test_a_range_moves_to_another_group_with_all_its_rows(servers: Servers) -> None:
    place = servers.place
    servers.run("init", place)
    assert servers.run("add-home", place, "a", "p") == "version 2\n  home range ['p|', 'p}'): group a\n"
    assert "each key has one home group" in servers.run("add-home", place, "b", "p", code=3)
    new = servers.start("h2", "--cluster-roles", "home", "--cluster-group", "b")
    assert "home group a: it has no home that is ready" in servers.run("move", place, "p|m", "p}", "--to", "b", code=3)
    old = servers.start("h1", "--cluster-roles", "home", "--cluster-group", "a")
    assert "home group c: it has no home that is ready" in servers.run("move", place, "p|m", "p}", "--to", "c", code=3)
    assert "map version 2" in servers.run("status", place), "a move that cannot begin changes nothing"
    compute = servers.start("c1")
    rows = {f"p|{letter}|{number:04}": str(number) for letter in "lmz" for number in range(700)}
    with Client(compute) as client:
        client.multi_put(rows)
        assert client.count("p|", "p}") == 2100
    printed = servers.run("move", place, "p|m", "p}", "--to", "b")
    assert "1,400 rows copied and compared, a to b" in printed
    assert "the range belongs to b" in printed
    with Client(compute) as client, Client(old) as before, Client(new) as after:
        assert dict(client.scan("p|", "p}")) == {key.encode(): value.encode() for key, value in rows.items()}
        client.put("p|z|9999", "new")
        assert after.get("p|z|9999") == b"new"
        assert client.get("p|z|9999") == b"new"
        with pytest.raises(NotHomeError):
            before.put("p|z|0001", "")
    assert "it is in b already" in servers.run("move", place, "p|m", "p}", "--to", "b", code=3)
    followers = {name: [one["id"] for one in line["followers"]] for name, line in servers.status().items()}
    assert followers == {"c1": [], "h1": ["c1"], "h2": ["c1"]}
    assert "events behind" in servers.run("status", place)
    assert {name: one["state"] for name, one in servers.status().items()} == dict.fromkeys(["c1", "h1", "h2"], "ready")


def _has(servers: Servers, name: str) -> bool:
    """Tell whether the coordinator has a server; one that is paused does not answer, which status says by its code."""
    done = CliRunner().invoke(app, ["cluster", "status", servers.place, "--json"])
    return any(json.loads(line)["id"] == name for line in done.stdout.splitlines())
