"""`pequod cluster advise` on real servers: what is hot is found, moved and spread, and then there is nothing to do."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pequod import Client
from pequod.cluster.rendezvous import owners
from tests.cluster.conftest import Etcd
from tests.cluster.test_commands import COMMAND, Servers

#: What makes a busy group of these tests hot: machines differ in how long a read takes.
HOT = ("--hot", "0.001")


@pytest.fixture
def servers(etcd: Etcd) -> Iterator[Servers]:
    servers = Servers(etcd.setting(f"twip-{secrets.token_hex(4)}"))
    yield servers
    servers.stop()


def advised(servers: Servers, *options: str, code: int = 0) -> list[dict[str, Any]]:
    printed = servers.run("advise", servers.place, "--json", *options, code=code)
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def test_half_of_the_rows_move_to_the_homes_that_have_none(servers: Servers) -> None:
    place = servers.place
    servers.run("init", place)
    servers.run("add-home", place, "a", "p")
    first = servers.start("h1", "--cluster-roles", "home", "--cluster-group", "a")
    assert "nothing to do" in servers.run("advise", place, code=1)
    rows = {f"p|u{user:02}|{number:03}": "x" * 400 for user in range(40) for number in range(100)}
    with Client(first) as client:
        client.multi_put(rows)
    only = ("--only", "move")
    assert "start homes of another one to share" in servers.run("advise", place, *only, code=1)
    second = servers.start("h2", "--cluster-roles", "home", "--cluster-group", "b")
    move = advised(servers, *only)[0]
    assert (move["advice"], move["from"], move["to"]) == ("move", "a", "b")
    assert move["command"] == f"pequod cluster move {place} '{move['first']}' '{move['last']}' --to b"
    assert not advised(servers, *only, "--max-bytes", "64KiB", code=1)[0].get("advice")
    printed = servers.run("advise", place, *only, "--apply", "--max-moves", "1")
    assert "the range belongs to b" in printed
    with Client(first) as client, Client(second) as other:
        moved = len(other.scan(move["first"], move["last"]))
        assert 1200 <= moved <= 2800
        assert len(client.scan("p|", "p}")) == 4000, "old rows stay until they are removed"
    servers.run("clean", place, move["first"], move["last"])
    assert "nothing to do" in servers.run("advise", place, *only, code=1)
    servers.run("split", place, "p|u03|")
    assert "it starts at this key already" in servers.run("split", place, "p|u03|", code=3)


def test_a_hot_timeline_is_found_shown_and_spread(servers: Servers) -> None:
    place = servers.place
    servers.run("init", place)
    servers.run("add-home", place, "a", "p", "s")
    servers.start("h1", "--cluster-roles", "home", "--cluster-group", "a")
    computes = [servers.start(name, "--cluster-roles", "compute") for name in ("c1", "c2")]
    with Client(computes[0]) as client:
        client.add_join("t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
        client.multi_put({f"s|{user}|bob": "1" for user in ("ann", "liz")})
        client.multi_put({f"p|bob|{number:04}": "x" * 40 for number in range(500)})
    with Client(f"pequod+cluster://{computes[0]}") as client:
        client.scan(prefix="t|liz|")
        # Of all servers: one that has nothing else to do lays its time on what was written there.
        hottest = ""
        while hottest != "t|ann|":
            for _ in range(200):
                assert len(client.scan(prefix="t|ann|")) == 500
            told = [one for line in servers.status().values() for one in line["hottest"]]
            hottest = max(told, key=lambda one: one["cores"])["group"] if told else ""
        assert "t|ann|" in servers.run("status", place).partition("hot group")[2]
        spread = next(one for one in advised(servers, "--only", "spread", *HOT) if one.get("group") == "t|ann|")
        assert (spread["over"], spread["before"]) == (2, 1)
        assert spread["command"] == f"pequod cluster spread {place} 't|ann|' --over 2"
        servers.run("advise", place, "--only", "spread", *HOT, "--apply")
        assert "read_spread 2" in servers.run("placement", place, "other|")
        # Both compute it now, and clients that have heard of it go to both.
        while [line["computed"] for name, line in servers.status().items() if name != "h1"].count(0):
            for _ in range(20):
                assert len(client.scan(prefix="t|ann|")) == 500
    assert "it is no group of this map" in servers.run("spread", place, "t|", "--over", "2", code=3)
    servers.run("spread", place, "t|ann|", "--over", "1")


def test_a_compute_that_comes_has_its_hot_timelines_before_they_are_read(servers: Servers) -> None:
    place = servers.place
    servers.run("init", place)
    servers.run("add-home", place, "a", "p", "s")
    servers.start("h1", "--cluster-roles", "home", "--cluster-group", "a")
    first = servers.start("c1", "--cluster-roles", "compute")
    users = [f"u{number}" for number in range(8)]
    with Client(first) as client:
        client.add_join("t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
        client.multi_put({f"s|{user}|bob": "1" for user in users})
        client.multi_put({f"p|bob|{number:04}": "x" * 40 for number in range(500)})
        while not {f"t|{user}|".encode() for user in users} <= {one.group for one in client.statistics().heat.groups}:
            for user in users:
                assert len(client.scan(prefix=f"t|{user}|")) == 500
    second = servers.start("c2", "--cluster-roles", "compute")
    weights = [("c1", 1.0), ("c2", 1.0)]
    own = [user for user in users if owners(f"t|{user}|".encode(), weights)[0] == "c2"]
    assert 0 < len(own) < 8
    with Client(second) as client:
        (before,) = client.statistics().joins.values()
        assert (before.contexts, before.rows) == (len(own), 500 * len(own)), "those of its own, and no others"
    with Client(f"pequod+cluster://{first}") as client:
        for user in own:
            assert len(client.scan(prefix=f"t|{user}|")) == 500
    with Client(second) as client:
        (after,) = client.statistics().joins.values()
    assert after.hits >= before.hits + len(own), "it was read there"
    assert after.rows_computed == before.rows_computed, "it had all rows"


def test_a_weight_is_told_to_all_and_bounded(servers: Servers) -> None:
    place = servers.place
    servers.run("init", place)
    servers.start("c1")
    servers.start("c2")
    assert servers.run("weigh", place, "c2", "0.5") == "c2 has the weight 0.5\n"
    while {name: line["weight"] for name, line in servers.status().items()} != {"c1": 1.0, "c2": 0.5}:
        pass
    # It stays when the server says something else of itself.
    servers.run("placement", place, "top|", "--level", "0")
    assert servers.status()["c2"]["weight"] == 0.5
    assert "is not above 0" in servers.run("weigh", place, "c2", "0", code=3)
    assert "it is not there" in servers.run("weigh", place, "c9", "1", code=3)


def test_it_looks_again_and_again_while_the_map_comes_and_goes(tmp_path: Path) -> None:
    file = tmp_path / "map.toml"
    file.write_text('cluster = "shop"\nversion = 1\n')
    command = [*COMMAND, "cluster", "advise", f"static:{file}", "--every", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as looking:
        assert looking.stdout is not None
        assert looking.stderr is not None
        try:
            assert looking.stdout.readline() == "nothing to do\n"
            file.unlink()
            while "it looks again in 1 s" not in looking.stderr.readline():
                assert looking.poll() is None
            server = '[[servers]]\nid = "mill"\naddress = "127.0.0.1:1"\nroles = ["compute"]\n'
            beside = tmp_path / "beside.toml"
            beside.write_text(f'cluster = "shop"\nversion = 2\n{server}')
            beside.rename(file)
            while "mill does not answer" not in looking.stderr.readline():
                assert looking.poll() is None
        finally:
            looking.kill()


def test_a_map_that_is_not_there_ends_it_at_once(tmp_path: Path) -> None:
    command = [*COMMAND, "cluster", "advise", f"static:{tmp_path / 'none.toml'}", "--every", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode not in (0, 1)
    assert "looks again" not in done.stderr


def test_a_group_without_a_home_is_told_and_is_no_success(servers: Servers) -> None:
    place = servers.place
    servers.run("init", place)
    servers.run("add-home", place, "a", "p")
    servers.run("add-home", place, "b", "s")
    told = "no home of groups a, b answers: writes of their keys fail"
    assert told in servers.run("status", place, code=1)
    printed = servers.run("advise", place, code=4)
    assert told in printed
    assert "nothing to do" not in printed
    servers.start("h1", "--cluster-roles", "home", "--cluster-group", "a")
    assert "no home of group b answers: writes of its keys fail" in servers.run("status", place, code=1)
    servers.start("h2", "--cluster-roles", "home", "--cluster-group", "b")
    servers.run("status", place)
    assert "nothing to do" in servers.run("advise", place, code=1)
    for over, there in ((1, "no compute is there"), (2, "2 computes are there")):
        refused = servers.run("spread", place, "t|ann|", "--over", "9", code=3)
        assert f"it cannot be read at 9 computes: {there}; start more, or name fewer" in refused
        if over == 1:
            for name in ("c1", "c2"):
                servers.start(name, "--cluster-roles", "compute")
    assert "read_spread 2" in servers.run("spread", place, "t|ann|", "--over", "2")
