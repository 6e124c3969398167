"""The live view shows tables, joins and rates, and leaves the terminal as it was."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import signal
import termios
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pequod_grammar import parse
from pequod_server import PequodServer, ServerConfig

from pequod.cli.tables import print_table
from pequod.cli.top import Sample, _title, view
from pequod.client import Client
from pequod.engine import Engine
from tests.cli.conftest import Pequod
from tests.cli.terminal import on_a_terminal

KARMA = "karma|<author> = count vote|<author>|<voter>"


@pytest.fixture(autouse=True)
def client(target: str) -> Iterator[Client]:
    with Client(target) as client:
        client.add_join(KARMA)
        client.put("vote|ann|bob", "")
        client.put("größe|世界", "12345")
        assert client.get("karma|ann") == b"1"
        yield client


def test_once_prints_one_table_with_rates(pequod: Pequod) -> None:
    outcome = pequod("top", "--once", "--interval", "0.05")
    assert outcome.code == 0, outcome.err
    title, head, karma, *tables = [line for line in outcome.out.splitlines() if not line.startswith("hot ")]
    assert re.fullmatch(r"127\.0\.0\.1:\d+: revision \d+, 0 keys without a table", title), "whose figures they are"
    assert head.split("  ")[0] == "kind"
    assert karma.split()[:3] == ["join", "karma", "1"]
    assert karma.split()[-5:] == ["0.0", "0.0", "0", "0.0", "1"]
    assert [line.split() for line in tables] == [
        ["table", "größe", "1", "19", *"------"],
        ["table", "vote", "1", "12", *"------"],
    ]


def test_rates_are_differences_over_time() -> None:
    engine = Engine()
    engine.add_joins(parse(KARMA))
    engine.put(b"vote|ann|bob", b"")
    first = Sample(10.0, 1, engine.statistics())
    for _ in range(9):
        engine.get(b"karma|ann")
    second = Sample(12.0, 1, engine.statistics())

    def rates(before: Sample | None, now: Sample) -> tuple[float | None, ...]:
        karma, _ = view(before, now)
        return karma.figures[2:5]

    assert rates(first, second) == (4.0, 0.5, 0.0)
    none = (None, None, None)
    assert rates(None, second) == none
    assert rates(replace(first, server_id=2), second) == none
    assert rates(replace(second, at_s=1.0), replace(first, at_s=2.0)) == none


def test_without_a_terminal_it_says_what_to_do(pequod: Pequod) -> None:
    outcome = pequod("top")
    assert (outcome.code, outcome.out, "--once" in outcome.err) == (2, "", True)


@pytest.mark.parametrize("way", ["q", "ctrl-c"])
def test_it_draws_until_q_or_ctrl_c_and_restores_the_terminal(client: Client, target: str, way: str) -> None:
    with on_a_terminal("top", "--interval", "0.05", target=target) as terminal:
        before = termios.tcgetattr(terminal.inside)
        terminal.wait_for("karma")
        client.put("neu|1", "")
        terminal.wait_for("neu")
        if way == "q":
            os.write(terminal.outside, b"q")
        else:
            terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0
        assert termios.tcgetattr(terminal.inside) == before
    assert b"Traceback" not in terminal.seen
    client.remove("neu|1")


def test_wide_characters_take_two_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [("世界", "1"), ("zoë", "2"), ("e\N{COMBINING ACUTE ACCENT}x", "3")])
    assert capsys.readouterr().out == "name  n\n世界  1\nzoë   2\ne\N{COMBINING ACUTE ACCENT}x    3\n"


class Beside:
    """A server of a cluster of its own, whose time goes to one group."""

    def __init__(self, place: Path) -> None:
        self._place = place

    async def run(self, told: queue.Queue[str], over: threading.Event) -> None:
        server = PequodServer(ServerConfig(listen="127.0.0.1:0", cluster=f"static:{self._place}", cluster_id="a"))
        port = await server.start()
        for _ in range(100):
            server.instruments.heat.note(b"t|ann|1", False, 0.005)
        server.instruments.heat.tick()
        told.put(f"127.0.0.1:{port}")
        await asyncio.to_thread(over.wait)
        await server.stop()


def test_hot_groups_stand_above_with_where_they_are_read(tmp_path: Path, pequod: Pequod) -> None:
    place = tmp_path / "map.toml"
    place.write_text(
        'cluster = "shop"\nversion = 3\n[[placements]]\nprefix = "t|ann|"\nread_spread = 2\n'
        + "".join(
            f'[[servers]]\nid = "{name}"\naddress = "127.0.0.1:{port}"\nroles = ["compute"]\n'
            for port, name in enumerate("ab", 1)
        )
    )
    told: queue.Queue[str] = queue.Queue()
    over = threading.Event()
    thread = threading.Thread(target=asyncio.run, args=(Beside(place).run(told, over),))
    thread.start()
    try:
        address = told.get(timeout=60)
        plain = pequod("top", "--once", "--interval", "0.05", "--target", address)
        in_json = pequod("top", "--once", "--json", "--interval", "0.05", "--target", address)
    finally:
        over.set()
        thread.join()
    title, line = plain.out.splitlines()[:2]
    assert title.startswith(f"{address}: ")
    assert line.startswith("hot t|ann|: ") and "(100%)" in line, plain.out + plain.err
    assert len(json.loads(in_json.out)["server_id"]) == 16
    (hot,) = json.loads(in_json.out)["hot"]
    assert (hot["group"], set(hot["read_at"])) == ("t|ann|", {"a", "b"})
    assert hot["share"] == pytest.approx(1.0)
    assert line.endswith(f"read at {', '.join(hot['read_at'])}")


def test_figures_of_a_cluster_are_those_of_one_server() -> None:
    sample = Sample(1.0, 0xAB, Engine().statistics())
    title = _title("pequod+cluster://h1:7744", sample)
    assert title.startswith(
        "one server of pequod+cluster://h1:7744 (?server=ID names one), 00000000000000ab: revision "
    )
    assert _title("pequod+cluster://h1:7744?server=c2", sample).startswith("pequod+cluster://h1:7744?server=c2: ")
