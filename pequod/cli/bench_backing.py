"""bench backing: Twip in write-around mode in front of its own PostgreSQL."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from pequod.cli.bench import Json, Seed, progress_bars
from pequod.cli.exits import ExitCode, fail
from pequod.cli.tables import print_table
from pequod.cli.teaching import examples

app: Final = typer.Typer()


class FeedChoice(StrEnum):
    """How the server learns of changes."""

    BOTH = "both"
    SLOT = "slot"
    NOTIFY = "notify"


@app.command(
    "backing",
    epilog=examples(
        "pequod bench backing                                   (a minute and a half)",
        "pequod bench backing --feed slot --rate 500            (lag at 500 writes a second)",
        "pequod bench backing --users 5000 --seconds 30 --json",
    ),
)
def backing(
    users: Annotated[int, typer.Option("--users", min=2, help="Users, each with a timeline.")] = 1000,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Seconds of each part.")] = 15.0,
    writers: Annotated[int, typer.Option("--writers", min=1, help="Connections that write to the database.")] = 4,
    checkers: Annotated[int, typer.Option("--checkers", min=1, help="Clients that check timelines.")] = 4,
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="Writes a second with a server; 0 for as many as the database takes.")
    ] = 0.0,
    feed: Annotated[FeedChoice, typer.Option("--feed", help="How changes come.")] = FeedChoice.BOTH,
    seed: Seed = 1,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Tiny sizes: shows that it runs, figures mean nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Write posts to a PostgreSQL in a temporary directory, and check timelines at a server in front of it.

    First the writers run alone, which shows the database's own limit; then with a server, for each kind of feed: writes
    and checks a second, and the lag from the answer to a commit to the event of a watch. At the end each timeline must
    follow from the writes (exit code 1 if not). Needs the programs of PostgreSQL: apt-get install postgresql.
    """
    try:
        from pequod_bench.backed_twip import FEEDS, Settings, run
        from pequod_bench.process import ServerStartError
    except ImportError as error:
        fail(ExitCode.REFUSED, f"the benchmark needs {error.name}: pip install 'pequod[bench]'")
    feeds = tuple(one for one in FEEDS if feed in {FeedChoice.BOTH, one})
    settings = Settings(users, seconds, writers, checkers, seed, feeds, rate)
    if smoke:
        settings = Settings(30, 0.5, 2, 2, seed, feeds, rate)
    try:
        report = run(settings, progress_bars(json))
    except ServerStartError as error:
        fail(ExitCode.REFUSED, str(error))
    if json:
        print(report.to_json())
    else:
        columns = ("", "posts/s", "writes/s", "checks/s", "lag p50 ms", "p99 ms", "max ms", "catch-up s", "correct")
        alone = ("database alone", f"{report.alone_posts_per_s:.0f}", f"{report.alone_writes_per_s:.0f}", *"------")
        rows = [
            (
                found.feed,
                f"{found.posts_per_s:.0f}",
                f"{found.writes_per_s:.0f}",
                f"{found.checks_per_s:.0f}",
                f"{found.lag_p50_ms:.1f}",
                f"{found.lag_p99_ms:.1f}",
                f"{found.lag_max_ms:.1f}",
                f"{found.catch_up_s:.2f}",
                "yes" if found.correct else "NO",
            )
            for found in report.feeds
        ]
        print_table(columns, [alone, *rows])
    if not report.is_correct:
        raise typer.Exit(1)
