"""bench micro and scale: single operations, and how their costs grow."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from pequod.cli.bench import Json, Only, Smoke, progress_bars, show
from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples

app: Final = typer.Typer()


class Collector(StrEnum):
    """How the garbage collector is set."""

    TAMED = "tamed"
    DEFAULT = "default"


@app.command(
    "micro",
    short_help="Single operations of engine and wire.",
    epilog=examples(
        "pequod bench micro                  (a minute)",
        "pequod bench micro --only check     (only the rows whose names hold it)",
        "pequod bench micro --only records, --records 1000000",
    ),
)
def micro(
    only: Only = "",
    records: Annotated[int, typer.Option("--records", min=100, help="Records of an index that is built.")] = 20_000,
    smoke: Smoke = False,
    json: Json = False,
) -> None:
    """Measure single operations: µs of CPU for each, least, median and 99th percentile."""
    from pequod_bench.micro.frame import FULL, SMOKE
    from pequod_bench.micro.run import run

    show(run(only, replace(SMOKE if smoke else FULL, record_count=records)), json)


@app.command(
    "scale",
    short_help="Single operations in ever larger engines.",
    epilog=examples(
        "pequod bench scale                                     (20 s of CPU time)",
        "pequod bench scale --users 1000,10000,100000 --entries 1000000,10000000 --out bench/figures",
        "                                                       (the reference: five minutes, 2 GiB)",
        "pequod bench scale --users 10000 --entries 1000000 --collector default --json",
    ),
)
def scale(
    users: Annotated[str, typer.Option("--users", metavar="N,N,...", help="Users; each follows ten others.")] = (
        "1000,10000"
    ),
    entries: Annotated[str, typer.Option("--entries", metavar="N,N,...", help="Timeline entries of all users.")] = (
        "1000000"
    ),
    collector: Annotated[
        Collector,
        typer.Option("--collector", help="The garbage collector as the server keeps it, or as CPython starts."),
    ] = Collector.TAMED,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", file_okay=False, help="Write scale.json and scale.svg there.")
    ] = None,
    smoke: Smoke = False,
    json: Json = False,
) -> None:
    """Measure whether costs stay flat as users and timelines grow: checks, fan-out, memory, collector pauses.

    Each number of users with each number of entries is a point, measured in its own process. A point takes some 3 µs
    and 120 bytes an entry, and 250 µs and 4 KiB a user.
    """
    from pequod_bench.scale import draw, measure_all, require_plotter
    from pequod_bench.scale_point import ScaleSize, WrongTimelineError

    if smoke:
        users, entries = "100,200", "8000"
    if out is not None:
        require_plotter()
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(ExitCode.USAGE, f"cannot write there: {error}")
    sizes = [
        ScaleSize(n, m, collector.value) for m in _numbers("--entries", entries) for n in _numbers("--users", users)
    ]
    try:
        report = measure_all(sizes, progress_bars(json))
    except WrongTimelineError as error:
        fail(ExitCode.WRONG, f"the answers are wrong: {error}")
    if out is not None:
        (out / "scale.json").write_text(report.to_json() + "\n", "utf-8")
        draw(report.points, out / "scale.svg")
    show(report, json)


def _numbers(option: str, text: str) -> list[int]:
    """Return the numbers of a list such as ``1000,10000``."""
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        fail(ExitCode.USAGE, f"{option} takes numbers such as 1000,10000, not {text!r}")
