"""The live view shows tables, joins and rates, and leaves the terminal as it was."""

from __future__ import annotations

import os
import signal
import termios
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pequod_grammar import parse

from pequod.cli.tables import print_table
from pequod.cli.top import Sample, view
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
    head, karma, *tables = outcome.out.splitlines()
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
