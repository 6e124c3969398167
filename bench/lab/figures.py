"""The figures that Pequod is held to, all in one run: what was wanted, what was found, and the command that says so.

    python -m lab.figures                 some 22 minutes on two quiet cores
    python -m lab.figures --smoke         two minutes: shows that all runs, figures mean nothing

Each command of `pequod bench` runs by itself, one after the other, and its JSON is read. What could not be measured,
as a system is not installed or a command failed, says so in its place.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final, Literal

from pequod_bench.paper.comparison import Comparison, from_json, lost, ratios, server_ratios
from pequod_bench.report.printed import table_text

Size = Literal["reference", "smoke"]
#: The JSON of each run of one command.
Runs = Sequence[dict[str, Any]]
#: What the runs of a command found, and whether that is what was wanted.
Found = tuple[str, bool]

#: The longest that one command may take.
_TIMEOUT_S: Final = 1800
_TWIP: Final = "twip --users 20000 --ticks 1000000 --tweet-bytes 5 --verify final"
_TWIP_SMALL: Final = "twip --users 200 --ticks 2000 --tweet-bytes 5 --verify final"


@dataclass(frozen=True, slots=True)
class Command:
    """One command of `pequod bench`, in both sizes, and how often it runs."""

    reference: str
    smoke: str
    times: int = 1
    #: Variables that it runs with, such as ``PEQUOD_PURE=1``.
    variables: tuple[str, ...] = ()

    def text(self, size: Size) -> str:
        return " ".join([*self.variables, "pequod bench", getattr(self, size)])


#: By name, in the order in which they run.
COMMANDS: Final = {
    "twip": Command(_TWIP, _TWIP_SMALL, times=3),
    "pure": Command(_TWIP, _TWIP_SMALL, variables=("PEQUOD_PURE=1",)),
    "grpcio": Command(_TWIP, _TWIP_SMALL, variables=("PEQUOD_TRANSPORT=grpcio", "PEQUOD_CLIENT_TRANSPORT=grpcio")),
    "compare": Command(
        "compare --reference --figures 7,8,9,ycsb",
        "compare --quick --figures 7,8,9,ycsb --users 100 --ticks 1000 --repeat 1",
    ),
    "scale": Command("scale --users 1000,100000 --entries 10000000", "scale --smoke"),
    "wire": Command("wire", "wire --smoke"),
}


def _value(field: str, unit: str, digits: int, *, least: float = 0, most: float = inf) -> Callable[[Runs], Found]:
    def found(runs: Runs) -> Found:
        values = [float(run[field]) for run in runs]
        return ", ".join(f"{value:,.{digits}f}" for value in values) + unit, least <= median(values) <= most

    return found


def _right(runs: Runs) -> Found:
    run = runs[0]
    return f"{run['ticks_per_s']:,.0f} ticks/s, {run['server_cpu_us_per_tick']:.2f} µs", bool(run["correct"])


def _ratio(system: str, least: float) -> Callable[[Runs], Found]:
    def found(runs: Runs) -> Found:
        lines = {line.name: line for line in _compared(runs).twip}
        times = ratios(lines[system], lines["pequod"])
        cpu = server_ratios(lines[system], lines["pequod"]).median
        return f"{times}; server CPU {cpu:.2f}", times.median >= least

    return found


def _ahead(section: str, ahead: str, rival: str, percent: int) -> Callable[[Runs], Found]:
    def found(runs: Runs) -> Found:
        lines = {line.name: line for line in getattr(_compared(runs), section)}
        behind = lost(lines[ahead], lines[rival], 100)
        xs = [point.x for point in lines[ahead].points]
        reached = max((x for x in xs if not behind or x < behind[0]), default=0)
        where = f"; behind at {', '.join(f'{x} %' for x in behind)}" if behind else ""
        return f"{reached} %{where}", reached >= percent

    return found


def _ycsb(runs: Runs) -> Found:
    lines = {line.name: line for line in _compared(runs).ycsb}
    pairs = zip(lines["pequod"].points, lines["redis"].points, strict=True)
    found = {ours.x: theirs.seconds.median / ours.seconds.median for ours, theirs in pairs}
    return ", ".join(f"{letter} {ratio:.2f}" for letter, ratio in found.items()), min(found.values()) >= 1.3


def _compared(runs: Runs) -> Comparison:
    return from_json(json.dumps(runs[0]))


def _scale(field: str) -> Callable[[Runs], Found]:
    def found(runs: Runs) -> Found:
        few, many = (float(runs[0]["points"][at][field]) for at in (0, -1))
        return f"{many / few:.2f} ({few:.2f}, {many:.2f} µs)", many / few <= 1.5

    return found


def _greatest(field: str, most: float, unit: str, digits: int = 0) -> Callable[[Runs], Found]:
    def found(runs: Runs) -> Found:
        value = max(float(point[field]) for point in runs[0]["points"])
        return f"{value:,.{digits}f} {unit}", value <= most

    return found


def _calls(*names: str, most: tuple[float, ...], has_client: bool = False) -> Callable[[Runs], Found]:
    """Return what tells the server's CPU for calls of these names, with the client's where it is counted too."""

    def found(runs: Runs) -> Found:
        values = [_call_us(runs, name, has_client=has_client) for name in names]
        return _shown(values), all(value <= limit for value, limit in zip(values, most, strict=True))

    return found


def _calls_within(*pairs: tuple[str, str], most: float) -> Callable[[Runs], Found]:
    """Return what tells the server's CPU for the first call of each pair, by that for the second one."""

    def found(runs: Runs) -> Found:
        values = [_call_us(runs, name) for name, _ in pairs]
        ratios_of = [value / _call_us(runs, beside) for value, (_, beside) in zip(values, pairs, strict=True)]
        return f"{_shown(values)} ({', '.join(f'{ratio:.2f}' for ratio in ratios_of)})", max(ratios_of) <= most

    return found


def _call_us(runs: Runs, name: str, *, has_client: bool = False) -> float:
    form = next(one for one in runs[0]["forms"] if one["name"] == name)
    return float(form["server_cpu_us"]) + (float(form["client_cpu_us"]) if has_client else 0)


def _shown(values: Sequence[float]) -> str:
    return "; ".join(f"{value:.1f}" for value in values) + " µs"


_GETS: Final = ("Get", "Get, 32 at once", "Get, 32 connections")
_PUTS: Final = ("Put", "Put, 32 at once")
_READS: Final = (*_GETS, "Scan of 10 rows, 32 at once")


def _of(place: str, *calls: str) -> tuple[str, ...]:
    return tuple(f"{place}, {call}" for call in calls)


#: By the command that measures it: what is measured, what is wanted, and what its runs say of it.
FIGURES: Final[dict[str, list[tuple[str, str, Callable[[Runs], Found]]]]] = {
    "twip": [
        ("server CPU a tick, 20,000 users", "at most 2.5 µs", _value("server_cpu_us_per_tick", " µs", 2, most=2.5)),
        ("ticks/s, one server and one client process", "at least 250,000", _value("ticks_per_s", "", 0, least=250_000)),
    ],
    "pure": [("the same in pure Python", "right", _right)],
    "compare": [
        ("Redis's runtime by ours", "at least 3", _ratio("redis", 3)),
        ("memcached's", "at least 3", _ratio("memcached", 3)),
        ("PostgreSQL's, pipelined", "at least 3", _ratio("postgres", 3)),
        ("client-managed timelines'", "at least 2", _ratio("client-pequod", 2)),
        (
            "dynamic ahead of full materialisation up to",
            "75 % active",
            _ahead("materialisation", "dynamic", "full", 75),
        ),
        ("interleaved ahead of separate up to", "75 % votes", _ahead("newp", "interleaved", "separate", 75)),
        ("YCSB by Redis's operations/s", "at least 1.3", _ycsb),
    ],
    "scale": [
        ("100,000 users by 1,000, 10 M entries: a check", "at most 1.5", _scale("check_us")),
        ("the same: an entry of a fan-out", "at most 1.5", _scale("fan_out_entry_us")),
        ("longest pause of the collector there", "at most 5 ms", _greatest("pause_ms_max", 5, "ms", 1)),
        (
            "a timeline of one who follows 116",
            "at most 2,600 bytes",
            _greatest("bytes_per_twip_timeline", 2600, "bytes"),
        ),
    ],
    "grpcio": [("ticks/s, one run by gRPC's own transport on both sides", "a 1.3th of command 1's", _right)],
    "wire": [
        (
            "a Get's server CPU: one at a time; 32 at once; 32 connections",
            "25; 2.5; 9 µs",
            _calls(*_of("native", *_GETS), most=(25, 2.5, 9)),
        ),
        ("the same by gRPC's own transport", "", _calls(*_of("gRPC", *_GETS), most=(inf, inf, inf))),
        (
            "Put; Scan of 10 rows, 32 at once",
            "2.5; 3 µs",
            _calls(*_of("native", "Put, 32 at once", "Scan of 10 rows, 32 at once"), most=(2.5, 3)),
        ),
        ("a Get with TLS and an access file", "80 µs", _calls("native, TLS and access file, Get", most=(80,))),
        (
            "Get as above and Scan of 10 rows, behind PostgreSQL, loaded",
            "at most 1.5",
            _calls_within(
                *zip(_of("native, behind PostgreSQL", *_READS), _of("native", *_READS), strict=True), most=1.5
            ),
        ),
        (
            "the same at a compute of a cluster",
            "at most 1.5",
            _calls_within(
                *zip(_of("native, in a cluster, compute", *_READS), _of("native", *_READS), strict=True), most=1.5
            ),
        ),
        (
            "Put at the home of a cluster: one at a time; 32 at once",
            "at most 1.5",
            _calls_within(
                *zip(_of("native, in a cluster, home", *_PUTS), _of("native", *_PUTS), strict=True), most=1.5
            ),
        ),
        (
            "a get of AsyncClient, both sides: one at a time; gather of 1,000",
            "60; 8 µs",
            _calls(*_of("AsyncClient by native", "Get", "Get, 1,000 at once"), most=(60, 8), has_client=True),
        ),
        ("etcd's Get as above", "", _calls(*_of("etcd", *_GETS), most=(inf, inf, inf))),
        ("Redis's GET as above", "", _calls(*_of("Redis", *_GETS), most=(inf, inf, inf))),
    ],
}


def run(name: str, size: Size, report: Path | None = None) -> Runs | str:
    """Run a command as often as it says; return the JSON of its runs, or why there is none.

    The folder ``report`` keeps the report of the comparison, if it is given.
    """
    command = COMMANDS[name]
    environment = os.environ | dict(variable.split("=", 1) for variable in command.variables)
    found: list[dict[str, Any]] = []
    with TemporaryDirectory(prefix="pequod-figures-") as folder:
        out = ["--out", str(report or folder)] if name == "compare" else []
        line = [sys.executable, "-m", "pequod.cli", "bench", *shlex.split(getattr(command, size)), *out, "--json"]
        for _ in range(command.times if size == "reference" else 1):
            try:
                done = subprocess.run(
                    line, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
                )
            except subprocess.TimeoutExpired:
                return f"took longer than {_TIMEOUT_S} s"
            except subprocess.CalledProcessError as error:
                return f"failed: {(error.stderr.strip().splitlines() or ['without a word'])[-1]}"
            found.append(json.loads(done.stdout))
    return found


def table(results: dict[str, Runs | str], size: Size) -> str:
    """Return the figures as a table in Markdown, and the commands by their numbers."""
    rows = []
    numbers = {name: number for number, name in enumerate(COMMANDS, 1)}
    for command, measure, wanted, found in ((command, *one) for command, some in FIGURES.items() for one in some):
        runs, verdict = results[command], ""
        if isinstance(runs, str):
            text = "not measured: " + runs
        else:
            try:
                text, is_met = found(runs)
                verdict = ("met" if is_met else "missed") if wanted else ""
            except (KeyError, StopIteration, ValueError, IndexError, ZeroDivisionError):
                text = "not measured"
        rows.append([measure, wanted, text, verdict, str(numbers[command])])
    commands = [f"{numbers[name]}. `{command.text(size)}`" for name, command in COMMANDS.items()]
    return "\n".join([table_text(["measure", "wanted", "reached", "", "command"], rows), "", *commands, ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Take all figures, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m lab.figures", description=__doc__.partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: shows that all runs, figures mean nothing")
    parser.add_argument("--out", type=Path, help="write the table there too, JSON and the comparison beside it")
    options = parser.parse_args(arguments)
    size: Size = "smoke" if options.smoke else "reference"
    results: dict[str, Runs | str] = {}
    for name, command in COMMANDS.items():
        started_s = monotonic()
        print(command.text(size), file=sys.stderr, flush=True)
        results[name] = run(name, size, None if options.out is None else options.out.with_name("compare"))
        print(f"  {monotonic() - started_s:.0f} s", file=sys.stderr, flush=True)
    text = table(results, size)
    print(text, end="")
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
        options.out.with_suffix(".json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
