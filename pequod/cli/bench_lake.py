"""bench lake: the stages of a lake, timed, beside PostgreSQL's COPY."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from pequod.cli.bench import Json, Smoke, show
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.progress import progress_bar
from pequod.cli.teaching import examples

app: Final = typer.Typer()


@app.command(
    "lake",
    epilog=examples(
        "pequod bench lake",
        "pequod bench lake --workload complex --postgres postgresql://postgres@localhost/postgres",
    ),
)
def lake(
    workload: Annotated[
        str,
        typer.Option("--workload", metavar="simple|complex", help="Posts; or two tables with ids, two orders each."),
    ] = "simple",
    scu_rows: Annotated[int, typer.Option("--scu-rows", min=10, help="Rows of an SCU.")] = 1_000_000,
    scus: Annotated[int, typer.Option("--scus", min=2, help="SCUs; eight are one merge.")] = 8,
    postgres: Annotated[
        str | None, typer.Option("--postgres", metavar="DSN", help="Copy the same rows into this database, too.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where the lake is made; it is removed afterwards.")
    ] = None,
    smoke: Smoke = False,
    json: Json = False,
) -> None:
    """Take rows into a new lake, sort and merge them, and print what each stage took; half a minute.

    PostgreSQL's tables have an index for each sort order. Its tables `posts`, `test_one` and `test_two` are dropped.
    """
    if workload not in {"simple", "complex"}:
        fail(ExitCode.USAGE, f"{workload!r} is no workload; there are simple and complex")
    from pequod_bench.lake import measure_lake

    if smoke:
        scu_rows, scus = 1000, 2
    with TemporaryDirectory(dir=folder) as place, progress_bar("ingest", None) as advance:
        done = 0

        def more(rows: int) -> None:
            nonlocal done
            done += rows
            advance(0, done)

        report = measure_lake(Path(place) / "lake", workload, scu_rows, scus, postgres, more)
    show(report, json)


@app.command("lake-figures", epilog=examples("pequod bench lake-figures --out build/lake"))
def lake_figures(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where report.md and the plots go.")] = Path(
        "lake-figures"
    ),
    smoke: Smoke = False,
) -> None:
    """Take all figures of the lake, beside a PostgreSQL of its own if that is installed; five minutes.

    Rows through all stages and COPY of the same rows; single puts; queries by freshness with batches under way; latency
    and age over time, as plots.
    """
    from pequod_bench.lake_figures import SMOKE, FiguresSize, take_figures

    say(f"the report is {take_figures(out, SMOKE if smoke else FiguresSize(), say)}")
