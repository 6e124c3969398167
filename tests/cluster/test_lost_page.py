"""The page about etcd that is lost shows what is printed, by a cluster to which all of it happens."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pequod_bench.systems.server import free_port
from typer.testing import CliRunner

from pequod import Client
from pequod.cli.app import app
from tests.cli.test_readme import BLOCK, ROOT, commands
from tests.cluster.conftest import Losing
from tests.cluster.test_commands import Servers
from tests.cluster.test_lost_maps import when_shown
from tests.cluster.test_operators_days import HOME, JOIN

PAGE = (ROOT / "docs/when-etcd-is-lost.md").read_text("utf-8")


@pytest.fixture
def servers(losing: Losing) -> Iterator[Servers]:
    servers = Servers(losing.etcd.setting("twip"))
    yield servers
    servers.stop()


def test_the_sessions_are_as_the_page_shows_them(
    losing: Losing, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    addresses = {"10.0.0.1:7744": f"127.0.0.1:{free_port()}", "10.0.0.2:7744": f"127.0.0.1:{free_port()}"}
    places = addresses | {"10.0.0.7:2379": losing.etcd.endpoints[0]}
    home, compute = addresses.values()
    sections = {
        heading: text
        for heading, text in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
        if "```console" in text
    }

    def play(heading: str) -> int:
        """Type what a section shows, and compare."""
        played = 0
        for _, text in BLOCK.findall(sections.pop(heading)):
            for command, output in commands(text):
                printed = _run(command, servers.place, compute)
                for shown_as, address in places.items():
                    printed = printed.replace(address, shown_as)
                # The two outputs of a command come in no certain order.
                assert sorted(printed.splitlines()) == sorted(output.strip().splitlines()), command
                played += 1
        return played

    def start() -> None:
        servers.start("h1", *HOME, listen=home)
        servers.start("c1", listen=compute)

    servers.run("init", servers.place)
    servers.run("add-home", servers.place, "a", "p", "s")
    start()
    servers.run("map", "save", str(tmp_path / "early.toml"), "--target", compute)
    losing.back_up()
    with Client(compute) as client:
        client.add_join(JOIN)
    servers.run("placement", servers.place, "t|", "--level", "0")
    assert play("Before it happens") == 1
    losing.restore()
    when_shown(servers, 4, "c1", "h1")
    assert play("An older backup is restored") == 4
    losing.lose()
    when_shown(servers, 5, "c1", "h1")
    assert play("Etcd has lost everything") == 3
    for name in ("c1", "h1"):
        servers.kill(name)
    # What was saved is of the version before.
    losing.lose()
    assert play("All servers have stopped as well") == 2
    losing.restore()
    start()
    assert play("An older backup is restored while all servers stand still") == 2
    assert play("The file is older") == 1
    assert not sections


def _run(command: str, place: str, target: str) -> str:
    program, *words = shlex.split(command)
    assert program == "pequod"
    return CliRunner().invoke(app, words, env={"PEQUOD_CLUSTER": place, "PEQUOD_TARGET": target}).output
