"""All commands of bench but compare: what each runs, with the options of its settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from pequod_bench import settings as sizes

from pequod.cli.bench import Json, progress_bars, show
from pequod.cli.bench_options import of_settings
from pequod.cli.connection import ConnectionSettings, connection_settings
from pequod.cli.exits import ExitCode, fail
from pequod.cli.spark import Conf, Master, session
from pequod.cli.teaching import examples

app: Final = typer.Typer()

Target = Annotated[str | None, typer.Option("--target", metavar="HOST:PORT", help="Use the server that runs there.")]
JoinFile = Annotated[
    Path | None, typer.Option("--join-file", metavar="FILE", help="Install the joins of this file instead.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the report and its drawing there.")]


@app.command(
    "twip",
    short_help="Twip: a server and a client, or the engine alone.",
    epilog=examples(
        "pequod bench twip                                          (some seconds)",
        "pequod bench twip --users 20000 --ticks 1000000            (the reference run)",
        "pequod bench twip --graph follows.tsv.gz --json",
        "pequod bench twip --in-process                             (the engine alone)",
    ),
)
@of_settings(sizes.TwipSettings)
def twip(
    settings: sizes.TwipSettings,
    join_file: JoinFile = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="HOST:PORT",
            help="Use the empty server that runs there (options like --ca stand before `bench`); without it, one is "
            "started for the run.",
        ),
    ] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="On the engine in this process, without a server and a wire.")
    ] = False,
    json: Json = False,
) -> None:
    """Run Twip, a service like Twitter, against a server: one server process, one client process.

    Users follow, post and check their timelines (by weight 10, 1 and 100), which one cache join keeps.
    Afterwards every check and every final timeline is compared with a computation in the client.
    """
    if in_process and target is not None:
        fail(ExitCode.USAGE, "--in-process has no server: leave out --target")
    from pequod_bench.twip import TIMEOUT_S, run, run_in_process

    from pequod.client import AsyncClient

    settings, bars = replace(settings, join_text=_read(join_file)), progress_bars(json)
    if in_process:
        found = run_in_process(settings, bars)
    else:
        security: ConnectionSettings = {"timeout_s": TIMEOUT_S, **connection_settings()}
        found = run(settings, target, bars, lambda address: AsyncClient(address, **security))
    show(found, json, found.difference)


def _read(path: Path | None) -> str | None:
    try:
        return None if path is None else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, f"cannot read the joins: {error}")


@app.command(
    "micro",
    short_help="Single operations of engine and wire.",
    epilog=examples(
        "pequod bench micro                  (a minute)",
        "pequod bench micro --only check     (only the rows whose names hold it)",
        "pequod bench micro --only records, --records 1000000",
    ),
)
@of_settings(sizes.MicroSettings, {"small": True})
def micro(settings: sizes.MicroSettings, json: Json = False) -> None:
    """Measure single operations: µs of CPU for each, least, median and 99th percentile."""
    from pequod_bench.micro.run import run

    show(run(settings), json)


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
@of_settings(sizes.ScaleSettings, {"users": (100, 200), "entries": (8_000,)})
def scale(settings: sizes.ScaleSettings, out: Out = None, json: Json = False) -> None:
    """Measure whether costs stay flat as users and timelines grow: checks, fan-out, memory, collector pauses.

    Each number of users with each number of entries is a point, measured in its own process. A point takes some 3 µs
    and 120 bytes an entry, and 250 µs and 4 KiB a user. --out writes scale.json and scale.svg.
    """
    from pequod_bench.report.plots import require_plotter
    from pequod_bench.scale import WrongTimelineError, draw, measure_all

    if out is not None:
        require_plotter()
        _make(out)
    try:
        report = measure_all(settings, progress_bars(json))
    except WrongTimelineError as error:
        fail(ExitCode.WRONG, f"the answers are wrong: {error}")
    if out is not None:
        (out / "scale.json").write_text(report.to_json() + "\n", "utf-8")
        draw(report.points, out / "scale.svg")
    show(report, json)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(ExitCode.USAGE, f"cannot write there: {error}")


@app.command(
    "clients",
    short_help="The clients: calls, batches, threads.",
    epilog=examples(
        "pequod bench clients                             (about a minute)",
        "pequod bench clients --only 'AsyncClient.get' --operations 100000",
        "pequod bench clients --client-loop asyncio --json",
    ),
)
@of_settings(sizes.ClientsSettings, {"operations": 20, "samples": 1})
def clients(settings: sizes.ClientsSettings, target: Target = None, json: Json = False) -> None:
    """Measure the clients: operations a second and µs of client CPU, by form of use.

    Callers under asyncio.gather, threads, call after call, batches, and unary calls of gRPC alone. The users of
    a server that --target names are overwritten.
    """
    from pequod_bench.clients import run

    show(run(settings, target, progress_bars(json)), json)


@app.command(
    "wire",
    short_help="The transports: what a call takes of the server.",
    epilog=examples(
        "pequod bench wire                                (half a minute)",
        "pequod bench wire --calls 10000 --json",
    ),
)
@of_settings(sizes.WireSettings, {"calls": 64, "rounds": 1})
def wire(settings: sizes.WireSettings, json: Json = False) -> None:
    """Measure the server's CPU for each Get, Put and scan of 10 rows, by each transport.

    One call after the other, and 32 in flight on one connection.
    """
    from pequod_bench.wire import run

    show(run(settings), json)


@app.command(
    "sessions",
    short_help="Sessions over two servers beside PostgreSQL.",
    epilog=examples(
        "pequod bench sessions                                  (half a minute)",
        "pequod bench sessions --rate 500 --seconds 60 --json",
    ),
)
@of_settings(sizes.SessionSettings, {"seconds": 0.5, "rate": 40.0, "writers": 2})
def sessions(settings: sizes.SessionSettings, json: Json = False) -> None:
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
    "cluster",
    short_help="Twip on homes and computes; what 12 to 48 computes would do.",
    epilog=examples(
        "pequod bench cluster                                       (two to four minutes)",
        "pequod bench cluster --graph follows.tsv.gz --computes 1,2,4 --homes 2",
        "pequod bench cluster --users 1000 --ticks 100000           (one minute)",
    ),
)
@of_settings(
    sizes.ClusterSettings,
    {"users": 100, "ticks": 2_000, "computes": (1, 2), "large": (12, 48), "large_users": 500, "rounds": 1},
    without=("verify", "server_loop"),
)
def cluster(settings: sizes.ClusterSettings, json: Json = False) -> None:
    """Run Twip on clusters of several sizes: homes have the base data, computes the timelines.

    Each role's CPU follows from the accounts of its processes, so that they mean something also where there are fewer
    cores than servers. Of large clusters, such as the 12 to 48 computes in figure 10 of the paper, the busiest compute
    runs by itself, with all that it is asked beside the others: with a core for each, it limits the cluster.

    Afterwards every timeline is compared with a computation in the client.
    """
    from pequod_bench.cluster import run

    report = run(settings, progress_bars(json))
    show(report, json, report.difference)


@app.command(
    "lake",
    epilog=examples(
        "pequod bench lake                                          (half a minute)",
        "pequod bench lake --workload complex --postgres postgresql://postgres@localhost/postgres",
        "pequod bench lake --scus 4 --postgres own                  (a minute: beside PostgreSQL)",
    ),
)
@of_settings(sizes.LakeSettings, {"scu_rows": 1_000, "scus": 2})
def lake(
    settings: sizes.LakeSettings,
    postgres: Annotated[
        str | None,
        typer.Option("--postgres", metavar="DSN|own", help="Beside this database, or one that is started for it."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where the lake is made; it is removed afterwards.")
    ] = None,
    json: Json = False,
) -> None:
    """Take rows into a new lake, sort and merge them, and print what each stage took, and all with workers beside.

    PostgreSQL copies the same rows into tables with an index for each sort order; its tables `posts`, `test_one` and
    `test_two` are dropped. `pequod lake demo` has queries beside.
    """
    from pequod_bench.lake import run

    show(run(settings, postgres, folder, progress_bars(json)), json)


@app.command(
    "backfill",
    short_help="First checks after a backfill by Spark.",
    epilog=examples(
        "pequod bench backfill                                             (two minutes)",
        "pequod bench backfill --users 20000 --follows 111 --posts 270000 --master 'local[2]' \\\n"
        "    --conf spark.driver.memory=6g                                 (the reference: 30 million rows, 16 GiB)",
    ),
)
@of_settings(sizes.BackfillSettings, {"users": 40, "follows": 8, "posts": 400, "writes_per_s": 200, "behind": False})
def backfill(
    settings: sizes.BackfillSettings, master: Master = "local[2]", conf: Conf = None, json: Json = False
) -> None:
    """Fill a server with rows that Spark computes: how fast, and how much faster are first checks afterwards?

    Spark materialises and sorts all timelines from a Parquet file. Then the server is filled while a client writes, and
    first checks are timed beside those of a server that was not filled. Every timeline must be what the server computes
    itself: exit code 1 if one is not.
    """
    with session(master, conf, "starting Spark") as spark:
        from pequod_bench.backfill import WrongBackfillError, measure

        try:
            found = measure(spark, settings)
        except WrongBackfillError as error:
            fail(ExitCode.WRONG, f"the answers are wrong: {error}")
    show(found, json)


@app.command(
    "versioned",
    short_help="Views over a store without a master.",
    epilog=examples(
        "pequod bench versioned                          (a minute or two)", "pequod bench versioned --nodes 12 --json"
    ),
)
@of_settings(sizes.VersionedSettings, {"rows": 20, "calls": 20})
def versioned(settings: sizes.VersionedSettings, json: Json = False) -> None:
    """Read and write a store without a master, with and without views, as the paper of versioned views does.

    Reads by key, by a view and by an index that all nodes are asked for; writes with no view, with an index, with one
    view and with two; what a session's read of its own write costs; stale rows by the number of records that are
    updated, and their collection. The paper's ratios are beside. A session that misses its own write gives exit code 1.
    """
    from pequod_bench.versioned import run

    report = run(settings, progress_bars(json))
    show(report, json, "a session did not see its own write" if report.session_misses else "")
