"""The figures that Pequod is held to: the table says what runs found, and what could not be measured."""

import json
from itertools import starmap
from pathlib import Path

import pytest
from lab import figures
from lab.figures import COMMANDS, Command
from pequod_bench.paper.comparison import Comparison, Line, LinePoint, Machine
from pequod_bench.paper.measure import RunOutcome


def line(name: str, *points: tuple[int | str, list[float]]) -> Line:
    def outcome(seconds: float) -> RunOutcome:
        return RunOutcome(1.0, seconds, seconds / 2, seconds / 4, 50.0, 1000, 10, 500, 400, "")

    return Line(name, name, "", "", [LinePoint(x, list(map(outcome, seconds))) for x, seconds in points])


def curve(name: str, *seconds: float) -> Line:
    return line(name, *((25 * at, [value]) for at, value in enumerate(seconds)))


COMPARED = Comparison(
    command="",
    commit="",
    started_at="",
    machine=Machine("Linux", "one", 2, 16.0, "CPython 3.11", 0.5),
    seed=1,
    repetitions=2,
    sizes={},
    skipped={},
    twip=[line("pequod", (0, [1, 2])), line("redis", (0, [3, 7]))],
    materialisation=[curve("full", 1, 1, 1), curve("dynamic", 0.5, 0.9, 1.2)],
    newp=[curve("interleaved", 1, 1, 1, 1), curve("separate", 2, 2, 2, 2)],
    ycsb=[line("pequod", ("A", [2])), line("redis", ("A", [1]))],
)


def form(name: str, server_us: float) -> dict[str, str | float]:
    return {"name": name, "client_cpu_us": 100.0, "server_cpu_us": server_us}


CALLS = {
    "native, Get": 20.0,
    "native, Get, 32 at once": 2.0,
    "native, Get, 32 connections": 10.0,
    "native, Scan of 10 rows, 32 at once": 3.0,
    "native, Put, 32 at once": 2.5,
    "native, behind PostgreSQL, Get": 22.0,
    "native, behind PostgreSQL, Get, 32 at once": 2.2,
    "native, behind PostgreSQL, Get, 32 connections": 11.0,
    "native, behind PostgreSQL, Scan of 10 rows, 32 at once": 3.0,
    "AsyncClient by native, Get": 20.0,
    "AsyncClient by native, Get, 1,000 at once": 1.0,
    "Redis, Get": 20.0,
    "Redis, Get, 32 at once": 1.0,
    "Redis, Get, 32 connections": 7.0,
}
RESULTS: dict[str, figures.Runs | str] = {
    "twip": [{"server_cpu_us_per_tick": 2.0, "ticks_per_s": 200_000, "correct": True}],
    "pure": "failed: no luck",
    "compare": [json.loads(COMPARED.to_json())],
    "scale": [
        {
            "points": [
                {
                    "users": users,
                    "check_us": cost,
                    "fan_out_entry_us": 1.0,
                    "pause_ms_max": 7,
                    "bytes_per_twip_timeline": 2500.0,
                }
                for users, cost in [(1000, 1.0), (100_000, 1.2)]
            ]
        }
    ],
    "grpcio": [{"ticks_per_s": 150_000, "server_cpu_us_per_tick": 4.0, "correct": True}],
    "wire": [{"forms": list(starmap(form, CALLS.items()))}],
}


def test_the_table_says_what_is_met_and_what_is_missed() -> None:
    rows = {row.split(" | ")[0].removeprefix("| "): row for row in figures.table(RESULTS, "reference").splitlines()}
    assert rows["server CPU a tick, 20,000 users"].endswith("| 2.00 µs | met | 1 |")
    assert rows["ticks/s, one server and one client process"].endswith("| 200,000 | missed | 1 |")
    assert rows["Redis's runtime by ours"].endswith("| 3.25 (3.00 to 3.50); server CPU 3.25 | met | 4 |")
    assert rows["dynamic ahead of full materialisation up to"].endswith("| 25 %; behind at 50 % | missed | 4 |")
    assert rows["interleaved ahead of separate up to"].endswith("| 75 % | met | 4 |")
    assert rows["YCSB by Redis's operations/s"].endswith("| A 0.50 | missed | 4 |")
    assert rows["100,000 users by 1,000, 10 M entries: a check"].endswith("| 1.20 (1.00, 1.20 µs) | met | 5 |")
    assert rows["longest pause of the collector there"].endswith("| 7.0 ms | missed | 5 |")
    assert rows["a timeline of one who follows 116"].endswith("| 2,500 bytes | met | 5 |")
    gets = rows["a Get's server CPU: one at a time; 32 at once; 32 connections"]
    assert gets.endswith("| 25; 2.5; 9 µs | 20.0; 2.0; 10.0 µs | missed | 6 |")
    assert rows["Put; Scan of 10 rows, 32 at once"].endswith("| 2.5; 3.0 µs | met | 6 |")
    behind = rows["Get as above and Scan of 10 rows, behind PostgreSQL, loaded"]
    assert behind.endswith("| at most 1.5 | 22.0; 2.2; 11.0; 3.0 µs (1.10, 1.10, 1.10, 1.00) | met | 6 |")
    ours = rows["a get of AsyncClient, both sides: one at a time; gather of 1,000"]
    assert ours.endswith("| 60; 8 µs | 120.0; 101.0 µs | missed | 6 |")
    assert rows["Redis's GET as above"].endswith("|  | 20.0; 1.0; 7.0 µs |  | 6 |")


def test_what_was_not_measured_is_said_in_its_place() -> None:
    text = figures.table(RESULTS, "reference")
    assert "| the same in pure Python | right | not measured: failed: no luck |  | 2 |" in text
    assert "| memcached's | at least 3 | not measured |  | 4 |" in text
    assert "| etcd's Get as above |  | not measured |  | 6 |" in text


def test_a_command_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "twip", Command("", "twip --users none"))
    found = figures.run("twip", "smoke")
    assert isinstance(found, str)
    assert found.startswith("failed: ")


def test_the_small_size_takes_figures_of_each_command_on_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("compare", "scale", "pure", "grpcio", "wire"):
        monkeypatch.delitem(COMMANDS, name)
    monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name] for name in COMMANDS})
    out = tmp_path / "figures.md"
    figures.main(["--smoke", "--out", str(out)])
    assert capsys.readouterr().out == out.read_text()
    assert "not measured" not in out.read_text()
    assert json.loads(out.with_suffix(".json").read_text())["twip"][0]["correct"]
