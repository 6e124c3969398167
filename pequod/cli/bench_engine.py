"""bench factors, scale and backfill: the engine's structures, the engine at many sizes, and filled by Spark."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from pequod.cli.bench import Json, Seed, Ticks, Users, progress_bars
from pequod.cli.exits import ExitCode, fail
from pequod.cli.spark import Conf, Master, session
from pequod.cli.teaching import examples

app: Final = typer.Typer()


class Collector(StrEnum):
    """How the garbage collector is set."""

    TAMED = "tamed"
    DEFAULT = "default"


@app.command(
    "factors",
    epilog=examples(
        "pequod bench factors                                      (half a minute of CPU time)",
        "pequod bench factors --only kernel --rounds 3             (one part, ten seconds)",
        "pequod bench factors --users 5000 --ticks 200000 --json   (some minutes)",
    ),
)
def factors(
    users: Users = 1_000,
    ticks: Ticks = 20_000,
    seed: Seed = 1,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Pairs of runs for each part.")] = 5,
    only: Annotated[str, typer.Option("--only", help="Only the parts whose names hold this.")] = "",
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Tiny sizes, one round: shows that all run, figures mean nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Switch off parts of the engine, one at a time: how many times more does Twip cost without each?

    Runs with and without a part alternate, in this process and without a wire; ratios are of CPU time. All runs must
    give the same answers, and the first run those of a computation from scratch. A run takes some 20 µs a tick and
    2 µs a subscription (users follow 110 others).
    """
    from pequod_bench.factors import analyse
    from pequod_bench.twip import Settings
    from rich.console import Console

    settings = Settings(users=60 if smoke else users, ticks=1_500 if smoke else ticks, seed=seed)
    found = analyse(settings, 1 if smoke else rounds, only, progress_bars(json))
    if json:
        print(found.to_json())
    else:
        found.print_table(Console(highlight=False))
    if found.difference:
        fail(ExitCode.WRONG, f"the answers are wrong: {found.difference}")


@app.command(
    "scale",
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
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Two tiny sizes: shows that all runs, figures mean nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure whether costs stay flat as users and timelines grow: checks, fan-out, memory, collector pauses.

    Each number of users with each number of entries is a point, measured in its own process. A point takes some 3 µs
    and 120 bytes an entry, and 250 µs and 4 KiB a user.
    """
    from pequod_bench.scale import measure_all, print_points, to_json
    from pequod_bench.scale_plot import draw, require_plotter
    from pequod_bench.scale_point import Size, WrongTimelineError
    from rich.console import Console

    if smoke:
        users, entries = "100,200", "8000"
    if out is not None:
        require_plotter()
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fail(ExitCode.USAGE, f"cannot write there: {error}")
    sizes = [Size(n, m, collector.value) for m in _numbers("--entries", entries) for n in _numbers("--users", users)]
    try:
        points = measure_all(sizes, progress_bars(json))
    except WrongTimelineError as error:
        fail(ExitCode.WRONG, f"the answers are wrong: {error}")
    if out is not None:
        (out / "scale.json").write_text(to_json(points) + "\n", "utf-8")
        draw(points, out / "scale.svg")
    if json:
        print(to_json(points))
    else:
        print_points(points, Console(highlight=False))


@app.command(
    "backfill",
    epilog=examples(
        "pequod bench backfill                                             (two minutes)",
        "pequod bench backfill --users 20000 --follows 111 --posts 270000 --master 'local[2]' \\\n"
        "    --conf spark.driver.memory=6g                                 (the reference: 30 million rows, 16 GiB)",
    ),
)
def backfill(
    users: Users = 2_000,
    follows: Annotated[int, typer.Option("--follows", min=1, help="Users whom each user follows.")] = 50,
    posts: Annotated[int, typer.Option("--posts", min=20, help="Posts; all followers get them.")] = 20_000,
    writes: Annotated[int, typer.Option("--writes-per-s", min=0, help="Writes a second during the backfill.")] = 2_000,
    seed: Seed = 1,
    master: Master = "local[2]",
    conf: Conf = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="A tiny size: shows that all runs.")] = False,
    json: Json = False,
) -> None:
    """Fill a server with rows that Spark computes: how fast, and how much faster are first checks afterwards?

    Spark materialises and sorts all timelines from a Parquet file. Then the server is filled while a client writes, and
    first checks are timed beside those of a server that was not filled. Every timeline must be what the server computes
    itself: exit code 1 if one is not.

    Elsewhere Spark runs on other machines. Here it runs with a lower priority (nice 15) than the server and the
    writers.
    """
    from rich.console import Console
    from rich.table import Table

    with session(master, conf, "starting Spark") as spark:
        from pequod_bench.backfill import Size, WrongBackfillError, measure, spark_pid
        from pequod_bench.process import stand_back

        if not smoke:
            stand_back(spark_pid(spark))
        size = Size(40, 8, 400, 200, seed) if smoke else Size(users, follows, posts, writes, seed)
        try:
            found = measure(spark, size)
        except WrongBackfillError as error:
            fail(ExitCode.WRONG, f"the answers are wrong: {error}")
    if json:
        print(found.to_json())
        return
    table = Table("what", "figure")
    for what, figure in (
        ("timeline rows", f"{found.rows:,}"),
        ("Spark alone: computed and sorted", f"{found.materialise_s:.1f} s, {found.rows_per_s:,.0f} rows/s"),
        ("backfill of a server, in all", f"{found.backfill_s:.1f} s"),
        ("  of it sorting and loading", f"{found.load_s:.1f} s, {found.loaded_rows_per_s:,.0f} rows/s"),
        ("writes meanwhile", f"{found.writes_per_s:,.0f} a second, the slowest {found.slowest_write_s * 1e3:.1f} ms"),
        ("first check, cold", f"{found.cold_check_us:,.1f} us"),
        ("first check, filled", f"{found.warm_check_us:,.1f} us, {found.speedup:.1f} times faster"),
    ):
        table.add_row(what, figure)
    Console(highlight=False).print(table)


def _numbers(option: str, text: str) -> list[int]:
    """Return the numbers of a list such as ``1000,10000``."""
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        fail(ExitCode.USAGE, f"{option} takes numbers such as 1000,10000, not {text!r}")
