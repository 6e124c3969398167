"""bench clients, stall, backing, sessions and backfill: what the users of a server see of it."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Final

import typer
from pequod_bench.settings import ClientsSettings, SessionSettings, StallSettings

from pequod.cli.bench import ClientLoop, Json, Loop, Seed, Smoke, Users, progress_bars, show
from pequod.cli.bench_options import of_settings
from pequod.cli.exits import ExitCode, fail
from pequod.cli.spark import Conf, Master, session
from pequod.cli.teaching import examples

app: Final = typer.Typer()


class FeedChoice(StrEnum):
    """How the server learns of changes."""

    BOTH = "both"
    SLOT = "slot"
    NOTIFY = "notify"


@app.command(
    "clients",
    short_help="The clients: calls, batches, threads.",
    epilog=examples(
        "pequod bench clients                             (about a minute)",
        "pequod bench clients --only 'AsyncClient.get' --operations 100000",
        "pequod bench clients --client-loop asyncio --json",
    ),
)
@of_settings(ClientsSettings, {"operations": 20, "samples": 1})
def clients(
    settings: ClientsSettings,
    client_loop: ClientLoop = Loop.UVLOOP,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="HOST:PORT", help="Use the server that runs there, whose users are overwritten."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure the clients: operations a second and µs of client CPU, by form of use.

    Callers under asyncio.gather, threads, call after call, batches, and unary calls of gRPC alone.
    """
    from pequod_bench.clients import run

    show(run(replace(settings, loop=client_loop.value), target, progress_bars(json)), json)


@app.command(
    "stall",
    short_help="Checks of timelines beside large scans.",
    epilog=examples(
        "pequod bench stall                               (about a minute)",
        "pequod bench stall --shape timelines --rows 200000",
        "pequod bench stall --rate 1000 --round-s 10 --json",
    ),
)
@of_settings(StallSettings, {"rows": 5_000, "round_s": 0.2, "rounds": 1})
def stall(settings: StallSettings, json: Json = False) -> None:
    """Measure checks of timelines while another client scans a large range all the time, and the server's memory.

    Latencies count from the time at which a check was due.
    """
    from pequod_bench.stall import run

    show(run(settings, progress_bars(json)), json)


@app.command(
    "backing",
    short_help="Twip before PostgreSQL: writes, checks, lag.",
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
    smoke: Smoke = False,
    json: Json = False,
) -> None:
    """Write posts to a PostgreSQL in a temporary directory, and check timelines at a server in front of it.

    First the writers run alone, which shows the database's own limit; then with a server, for each kind of feed: writes
    and checks a second, and the lag from the answer to a commit to the event of a watch. At the end each timeline must
    follow from the writes (exit code 1 if not). Needs the programs of PostgreSQL: apt-get install postgresql.
    """
    from pequod_bench.backed_twip import FEEDS, BackedTwipSettings, run

    feeds = tuple(one for one in FEEDS if feed in {FeedChoice.BOTH, one})
    settings = BackedTwipSettings(users, seconds, writers, checkers, seed, feeds, rate)
    if smoke:
        settings = BackedTwipSettings(30, 0.5, 2, 2, seed, feeds, rate)
    report = run(settings, progress_bars(json))
    show(report, json, "" if report.is_correct else "a timeline is not what the writes make")


@app.command(
    "sessions",
    short_help="Sessions over two servers beside PostgreSQL.",
    epilog=examples(
        "pequod bench sessions                                  (half a minute)",
        "pequod bench sessions --rate 500 --seconds 60 --json",
    ),
)
@of_settings(SessionSettings, {"seconds": 0.5, "rate": 40.0, "writers": 2})
def sessions(settings: SessionSettings, json: Json = False) -> None:
    """Write at one server and read at another one, both beside a PostgreSQL in a temporary directory.

    How long after the answer to a put does a read after its token show it at the other server, through a join? Beside
    it: when the other server's replication slot brings it, and what a read without a token costs, and how often that
    misses it. A session that misses its own write gives exit code 1. Needs the programs of PostgreSQL:
    apt-get install postgresql.
    """
    from pequod_bench.sessions import run

    report = run(settings, progress_bars(json))
    show(report, json, "" if report.is_correct else "a session did not see its own write")


@app.command(
    "backfill",
    short_help="First checks after a backfill by Spark.",
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
    smoke: Smoke = False,
    json: Json = False,
) -> None:
    """Fill a server with rows that Spark computes: how fast, and how much faster are first checks afterwards?

    Spark materialises and sorts all timelines from a Parquet file. Then the server is filled while a client writes, and
    first checks are timed beside those of a server that was not filled. Every timeline must be what the server computes
    itself: exit code 1 if one is not.

    Elsewhere Spark runs on other machines. Here it runs with a lower priority (nice 15) than the server and the
    writers.
    """
    with session(master, conf, "starting Spark") as spark:
        from pequod_bench.backfill import BackfillSize, WrongBackfillError, measure, spark_pid
        from pequod_bench.process import stand_back

        if not smoke:
            stand_back(spark_pid(spark))
        size = BackfillSize(40, 8, 400, 200, seed) if smoke else BackfillSize(users, follows, posts, writes, seed)
        try:
            found = measure(spark, size)
        except WrongBackfillError as error:
            fail(ExitCode.WRONG, f"the answers are wrong: {error}")
    show(found, json)
