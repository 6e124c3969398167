"""The figures that Pequod is held to, all in one run: what was wanted, what was found, and the command that says so.

    python -m pequod_bench.figures                 some 22 minutes on two quiet cores
    python -m pequod_bench.figures --smoke         two minutes: shows that all runs, figures mean nothing

Each command of `pequod bench` runs by itself, one after the other, and its JSON is read. What could not be measured,
as a system is not installed or a command failed, says so in its place.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final, Literal

Size = Literal["reference", "smoke"]
#: The JSON of each run of one command.
Runs = Sequence[dict[str, Any]]

#: The longest that one command may take.
_TIMEOUT_S: Final = 1800
_TWIP: Final = ["twip", "--users", "20000", "--ticks", "1000000", "--tweet-bytes", "5", "--verify", "final"]
_TWIP_SMALL: Final = ["twip", "--users", "200", "--ticks", "2000", "--tweet-bytes", "5", "--verify", "final"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command of `pequod bench`, in both sizes, and how often it runs."""

    reference: Sequence[str]
    smoke: Sequence[str]
    times: int = 1
    is_pure: bool = False

    def arguments(self, size: Size) -> Sequence[str]:
        """Return the arguments behind `pequod bench`."""
        return self.reference if size == "reference" else self.smoke

    def text(self, size: Size) -> str:
        """Return the command as one types it."""
        return ("PEQUOD_PURE=1 " if self.is_pure else "") + " ".join(["pequod bench", *self.arguments(size)])


#: By name, in the order in which they run.
COMMANDS: Final = {
    "twip": Command(_TWIP, _TWIP_SMALL, times=3),
    "pure": Command(_TWIP, _TWIP_SMALL, is_pure=True),
    "compare": Command(
        ["compare", "--reference", "--figures", "7,8,9,ycsb"],
        ["compare", "--quick", "--figures", "7,8,9,ycsb", "--users", "100", "--ticks", "1000", "--repeat", "1"],
    ),
    "scale": Command(["scale", "--users", "1000,100000", "--entries", "10000000"], ["scale", "--smoke"]),
    "clients": Command(["clients", "--only", "unary Get"], ["clients", "--only", "unary Get", "--smoke"]),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table.

    Attributes:
        found: What the runs of its command found, and whether that is what was wanted.
    """

    measure: str
    wanted: str
    command: str
    found: Callable[[Runs], tuple[str, bool]]


def _of(path: str) -> Callable[[Runs], list[float]]:
    return lambda runs: [float(run[path]) for run in runs]


def _all_values(values: Sequence[float], digits: int = 2) -> str:
    return ", ".join(f"{value:,.{digits}f}" for value in values)


def _server_cpu(runs: Runs) -> tuple[str, bool]:
    found = _of("server_cpu_us_per_tick")(runs)
    return f"{_all_values(found)} µs", statistics.median(found) <= 2.5


def _ticks(runs: Runs) -> tuple[str, bool]:
    found = _of("ticks_per_s")(runs)
    return _all_values(found, 0), statistics.median(found) >= 250_000


def _pure(runs: Runs) -> tuple[str, bool]:
    run = runs[0]
    return f"{run['ticks_per_s']:,.0f} ticks/s, {run['server_cpu_us_per_tick']:.2f} µs", bool(run["correct"])


def _ratio(system: str, least: float) -> Callable[[Runs], tuple[str, bool]]:
    def found(runs: Runs) -> tuple[str, bool]:
        by_name = {one["name"]: one["outcomes"] for one in runs[0]["twip"]}
        ours, other = by_name["pequod"], by_name[system]
        pairs = list(zip(ours, other, strict=False))
        ratios = [theirs["seconds"] / own["seconds"] for own, theirs in pairs]
        cpu = statistics.median(
            theirs["server_cpu_seconds"] / max(own["server_cpu_seconds"], 0.01) for own, theirs in pairs
        )
        ratio = statistics.median(ratios)
        text = f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}); server CPU {cpu:.2f}"
        return text, ratio >= least

    return found


def _ahead(section: str, ahead: str, rival: str, percent: int) -> Callable[[Runs], tuple[str, bool]]:
    def seconds(line: dict[str, Any]) -> dict[int, float]:
        return {one["x"]: statistics.median(run["seconds"] for run in one["outcomes"]) for one in line["points"]}

    def found(runs: Runs) -> tuple[str, bool]:
        lines = {line["title"].split()[0]: seconds(line) for line in runs[0][section]}
        lost = sorted(x for x, value in lines[ahead].items() if value >= lines[rival][x])
        below = [x for x in sorted(lines[ahead]) if not lost or x < lost[0]]
        reached = below[-1] if below else 0
        behind = f"; behind at {', '.join(f'{x} %' for x in lost)}" if lost else ""
        return f"{reached} %{behind}", reached >= percent

    return found


def _ycsb(runs: Runs) -> tuple[str, bool]:
    found: dict[str, float] = {}
    for workload in runs[0]["ycsb"]:
        ours, other = (
            statistics.median(run["seconds"] for run in one["outcomes"])
            for one in sorted(workload["stores"], key=lambda one: one["name"] == "redis")
        )
        found[workload["letter"]] = other / ours
    return ", ".join(f"{letter} {ratio:.2f}" for letter, ratio in found.items()), min(found.values()) >= 1


def _scale(field: str) -> Callable[[Runs], tuple[str, bool]]:
    def found(runs: Runs) -> tuple[str, bool]:
        points = sorted(runs[0]["points"], key=lambda point: float(point["users"]))
        few, many = float(points[0][field]), float(points[-1][field])
        return f"{many / few:.2f} ({few:.2f}, {many:.2f} µs)", many / few <= 1.5

    return found


def _pause(runs: Runs) -> tuple[str, bool]:
    longest = max(float(point["pause_ms_max"]) for point in runs[0]["points"])
    return f"{longest:.1f} ms", longest <= 5


def _timeline(runs: Runs) -> tuple[str, bool]:
    largest = max(float(point["bytes_per_twip_timeline"]) for point in runs[0]["points"])
    return f"{largest:,.0f} bytes", largest <= 2600


def _unary(runs: Runs) -> tuple[str, bool]:
    form = next(one for one in runs[0]["forms"] if "unary Get" in one["name"])
    client, server = float(form["client_cpu_us"]), float(form["server_cpu_us"])
    return f"{client + server:,.0f} µs ({client:,.0f} + {server:,.0f})", client + server <= 350


FIGURES: Final = [
    Figure("server CPU a tick, 20,000 users", "at most 2.5 µs", "twip", _server_cpu),
    Figure("ticks/s, one server and one client process", "at least 250,000", "twip", _ticks),
    Figure("the same in pure Python", "right", "pure", _pure),
    Figure("Redis's runtime by ours", "at least 3", "compare", _ratio("redis", 3)),
    Figure("memcached's", "at least 3", "compare", _ratio("memcached", 3)),
    Figure("PostgreSQL's, pipelined", "at least 3", "compare", _ratio("postgres", 3)),
    Figure("client-managed timelines'", "at least 2", "compare", _ratio("client-pequod", 2)),
    Figure(
        "dynamic ahead of full materialisation up to",
        "75 % active",
        "compare",
        _ahead("materialisation", "dynamic", "full", 75),
    ),
    Figure(
        "interleaved ahead of separate up to", "75 % votes", "compare", _ahead("newp", "interleaved", "separate", 75)
    ),
    Figure("YCSB by Redis's operations/s", "at least 1", "compare", _ycsb),
    Figure("100,000 users by 1,000, 10 M entries: a check", "at most 1.5", "scale", _scale("check_us")),
    Figure("the same: an entry of a fan-out", "at most 1.5", "scale", _scale("fan_out_entry_us")),
    Figure("longest pause of the collector there", "at most 5 ms", "scale", _pause),
    Figure("a timeline of one who follows 116", "at most 2,600 bytes", "scale", _timeline),
    Figure("one unary Get, client and server CPU", "at most 350 µs", "clients", _unary),
]


def run(name: str, size: Size, report: Path | None = None) -> Runs | str:
    """Run a command as often as it says; return the JSON of its runs, or why there is none.

    Args:
        report: The folder that keeps the report of the comparison; None: it is not kept.
    """
    command = COMMANDS[name]
    environment = {**os.environ, **({"PEQUOD_PURE": "1"} if command.is_pure else {})}
    found: list[dict[str, Any]] = []
    with TemporaryDirectory(prefix="pequod-figures-") as folder:
        out = ["--out", str(report or folder)] if name == "compare" else []
        line = [sys.executable, "-m", "pequod.cli", "bench", *command.arguments(size), *out, "--json"]
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
    lines = ["| measure | wanted | reached | | command |", "|---|---|---|---|---|"]
    numbers = {name: number for number, name in enumerate(COMMANDS, 1)}
    for figure in FIGURES:
        runs = results[figure.command]
        if isinstance(runs, str):
            text, verdict = "not measured: " + runs, ""
        else:
            try:
                text, is_met = figure.found(runs)
                verdict = "met" if is_met else "missed"
            except (KeyError, StopIteration, ValueError, IndexError, ZeroDivisionError):
                text, verdict = "not measured", ""
        number = numbers[figure.command]
        lines.append(f"| {figure.measure} | {figure.wanted} | {text} | {verdict} | {number} |")
    commands = [f"{numbers[name]}. `{command.text(size)}`" for name, command in COMMANDS.items()]
    return "\n".join([*lines, "", *commands, ""])


def main(arguments: Sequence[str] | None = None) -> None:
    """Take all figures, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m pequod_bench.figures", description=__doc__.partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: shows that all runs, figures mean nothing")
    parser.add_argument(
        "--out",
        type=Path,
        help="write the table there too, JSON and the comparison beside it",
    )
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
