"""bench twip, engine-twip, micro, stall, clients and compare."""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import ConnectionSettings, connection_settings
from pequod.cli.exits import ExitCode, fail
from pequod.cli.group import BenchCommands
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_bench.compare.comparison import Comparison
    from pequod_bench.progress import ProgressBars
    from pequod_bench.report import Report

_HELP: Final = """Measure Pequod, and check that what it answers is right.

Exit code 1 if an answer is wrong.
"""

app: Final = typer.Typer(cls=BenchCommands, help=_HELP, no_args_is_help=True, rich_markup_mode=None)


class Mode(StrEnum):
    """How timelines are kept."""

    PUSH = "push"
    PULL = "pull"


class Loop(StrEnum):
    """An event loop."""

    UVLOOP = "uvloop"
    ASYNCIO = "asyncio"


class Delivery(StrEnum):
    """The users to whom the client delivers posts, where no join keeps timelines."""

    FOLLOWERS = "followers"
    ACTIVE = "active"


class Shape(StrEnum):
    """What a client scans while others check."""

    TABLE = "table"
    GROUPS = "groups"
    TIMELINES = "timelines"


class Verify(StrEnum):
    """What is compared after the run."""

    ALL = "all"
    FINAL = "final"


Graph = Annotated[
    str,
    typer.Option(
        "--graph",
        metavar="synthetic|power-law|FILE",
        help="Who follows whom; a file has a line user<TAB>poster for each subscription (also .gz, .parquet) "
        "and tells the number of users.",
    ),
]
Users = Annotated[int, typer.Option("--users", min=2, help="Users of a graph that is made.")]
Ticks = Annotated[int, typer.Option("--ticks", min=1, help="Operations to time.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="One seed, one run: graph and operations follow from it.")]
TweetBytes = Annotated[int, typer.Option("--tweet-bytes", min=0, help="Size of a post.")]
InitialPosts = Annotated[int, typer.Option("--initial-posts", min=0, help="Posts there before the clock starts.")]
JoinMode = Annotated[Mode, typer.Option("--mode", help="The maintenance of the timeline join.")]
JoinFile = Annotated[
    str | None, typer.Option("--join-file", metavar="FILE", help="Install the joins of this file instead.")
]
VerifyWhat = Annotated[
    Verify, typer.Option("--verify", help="Compare every check and the final timelines, or these alone.")
]
ClientLoop = Annotated[
    Loop, typer.Option("--client-loop", help="Event loop of the client; asyncio's where uvloop is not installed.")
]
Smoke = Annotated[bool, typer.Option("--smoke", help="Tiny sizes: shows that all run, figures mean nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and no progress bar.")]


@app.command(
    "twip",
    epilog=examples(
        "pequod bench twip                                          (some seconds)",
        "pequod bench twip --users 20000 --ticks 1000000            (the reference run)",
        "pequod bench twip --graph follows.tsv.gz --json",
    ),
)
def twip(
    graph: Graph = "synthetic",
    users: Users = 2_000,
    ticks: Ticks = 200_000,
    seed: Seed = 1,
    tweet_bytes: TweetBytes = 140,
    initial_posts: InitialPosts = 0,
    mode: JoinMode = Mode.PUSH,
    join_file: JoinFile = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="HOST:PORT",
            help="Use the empty server that runs there (options like --ca stand before `bench`); without it, "
            "one is started for the run.",
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Commands a message.")] = 256,
    window: Annotated[int, typer.Option("--window", min=1, help="Messages under way at once.")] = 4,
    verify: VerifyWhat = Verify.ALL,
    client_loop: ClientLoop = Loop.UVLOOP,
    server_loop: Annotated[Loop, typer.Option("--server-loop", help="Event loop of a server that is started.")] = (
        Loop.UVLOOP
    ),
    json: Json = False,
) -> None:
    """Run Twip, a service like Twitter, against a server: one server process, one client process.

    Users follow, post and check their timelines (by weight 10, 1 and 100), which one cache join keeps.
    Afterwards every check and every final timeline is compared with a computation in the client.
    """
    from pequod_bench.twip import Settings
    from pequod_bench.wire_twip import TIMEOUT_S, run

    from pequod.client import AsyncClient

    security: ConnectionSettings = {"timeout_s": TIMEOUT_S, **connection_settings()}

    settings = Settings(
        graph=graph,
        users=users,
        ticks=ticks,
        seed=seed,
        tweet_bytes=tweet_bytes,
        initial_posts=initial_posts,
        mode=mode.value,
        join_text=_read(join_file),
        verify=verify.value,
        batch=batch,
        window=window,
        client_loop=client_loop.value,
        server_loop=server_loop.value,
    )
    report = run(
        settings,
        target,
        progress_bars(json),
        lambda address: AsyncClient(address, **security),
    )
    _finish(report, json)


@app.command(
    "engine-twip",
    epilog=examples(
        "pequod bench engine-twip --users 20000 --ticks 1000000",
        "pequod bench engine-twip --ticks 50000 --profile",
        "pequod bench engine-twip --phases",
    ),
)
def engine_twip(
    graph: Graph = "synthetic",
    users: Users = 2_000,
    ticks: Ticks = 200_000,
    seed: Seed = 1,
    tweet_bytes: TweetBytes = 140,
    initial_posts: InitialPosts = 0,
    mode: JoinMode = Mode.PUSH,
    join_file: JoinFile = None,
    verify: VerifyWhat = Verify.ALL,
    profile: Annotated[bool, typer.Option("--profile", help="Print where the time goes (this slows it down).")] = False,
    phases: Annotated[
        bool,
        typer.Option(
            "--phases",
            help="Time each operation by itself: first checks, checks, posts ... (ticks/s goes down by a third).",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Run the same Twip on the engine inside this process, without a server or a wire."""
    import cProfile

    from pequod_bench.engine_twip import profile_text, run
    from pequod_bench.phases import Phases
    from pequod_bench.twip import Settings

    settings = Settings(
        graph=graph,
        users=users,
        ticks=ticks,
        seed=seed,
        tweet_bytes=tweet_bytes,
        initial_posts=initial_posts,
        mode=mode.value,
        join_text=_read(join_file),
        verify=verify.value,
        window=0,
    )
    watch = cProfile.Profile() if profile else None
    found = run(settings, progress_bars(json), watch, Phases() if phases else None)
    if watch is not None:
        print(profile_text(watch), file=sys.stderr if json else sys.stdout)
    _finish(found, json)


@app.command(
    "micro",
    epilog=examples(
        "pequod bench micro                  (two or three minutes)",
        "pequod bench micro --only updaters",
    ),
)
def micro(
    only: Annotated[str, typer.Option("--only", help="Only the workloads whose names hold this.")] = "",
    smoke: Smoke = False,
    json: Json = False,
) -> None:
    """Measure single operations: µs an operation, least, median and 99th percentile."""
    from pequod_bench.micro import FULL, SMOKE, measure, print_results, to_json
    from pequod_bench.micro_engine import ENGINE, SIZES
    from pequod_bench.micro_wire import HALVES, Wire
    from pequod_bench.process import started_server
    from rich.console import Console

    scale = SMOKE if smoke else FULL
    workloads = (*ENGINE, *HALVES)
    if find_spec("asyncpg") is not None and find_spec("psycopg2") is not None:
        from pequod_bench.micro_feed import FEED

        workloads += FEED
    results = [measure(workload, scale) for workload in workloads if only in workload.name]
    with started_server() as (target, _), closing(Wire(target)) as wire:
        results += [measure(workload, scale) for workload in wire.workloads() if only in workload.name]
    sizes = [size(scale) for name, size in SIZES.items() if only in name]
    if json:
        print(to_json(results, sizes))
    else:
        print_results(results, sizes, Console())


@app.command(
    "stall",
    epilog=examples(
        "pequod bench stall                               (about a minute)",
        "pequod bench stall --shape timelines --rows 200000",
        "pequod bench stall --rate 1000 --round-s 10 --json",
    ),
)
def stall(
    shape: Annotated[
        Shape, typer.Option("--shape", help="Scan a plain table, a table in groups, or computed timelines.")
    ] = Shape.TABLE,
    rows: Annotated[int, typer.Option("--rows", min=100, help="Rows of a scan.")] = 1_000_000,
    value_bytes: Annotated[int, typer.Option("--value-bytes", min=0, help="Size of a scanned value.")] = 100,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Checks a second.")] = 200.0,
    round_s: Annotated[float, typer.Option("--round-s", min=0.1, help="Seconds of checks in a round.")] = 5.0,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds of each kind; they alternate.")] = 3,
    smoke: Smoke = False,
    json: Json = False,
) -> None:
    """Measure checks of timelines while another client scans a large range all the time, and the server's memory.

    Latencies count from the time at which a check was due.
    """
    from pequod_bench.stall import Settings, run
    from rich.console import Console

    settings = Settings(shape.value, rows, value_bytes, rate, round_s, rounds)
    if smoke:
        settings = Settings(shape.value, rows=5_000, value_bytes=value_bytes, rate=rate, round_s=0.2, rounds=1)
    report = run(settings, progress_bars(json))
    if json:
        print(report.to_json())
    else:
        report.print_table(Console(highlight=False))


@app.command(
    "clients",
    epilog=examples(
        "pequod bench clients                             (about a minute)",
        "pequod bench clients --only 'AsyncClient.get' --operations 100000",
        "pequod bench clients --client-loop asyncio --json",
    ),
)
def clients(
    operations: Annotated[int, typer.Option("--operations", min=1, help="Operations of a sample.")] = 10_000,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Samples of each form; their medians count.")] = 5,
    only: Annotated[str, typer.Option("--only", help="Only the forms whose names hold this.")] = "",
    client_loop: ClientLoop = Loop.UVLOOP,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="HOST:PORT", help="Use the server that runs there, whose users are overwritten."
        ),
    ] = None,
    smoke: Smoke = False,
    json: Json = False,
) -> None:
    """Measure the clients: operations a second and µs of client CPU, by form of use.

    Callers under asyncio.gather, threads, call after call, and batches.
    """
    from pequod_bench.clients import Settings, print_results, run, to_json
    from rich.console import Console

    settings = Settings(20 if smoke else operations, 1 if smoke else samples, only, client_loop.value)
    figures = run(settings, target, progress_bars(json))
    if json:
        print(to_json(figures))
    else:
        print_results(figures, Console(highlight=False))


@app.command(
    "compare",
    epilog=examples(
        "pequod bench compare --quick --out report                   (two or three minutes)",
        "pequod bench compare --reference --out report               (twenty minutes, on a quiet machine)",
        "pequod bench compare --systems pequod,redis --figures 7",
        "pequod bench compare --figures latency,ycsb",
        "pequod bench compare --from report/compare.json --readme bench/README.md",
        "pequod bench compare --reference --users 20000 --ticks 1000000 --figures 7 --out report   (an hour)",
    ),
)
def compare(
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: one to three minutes in all.")] = False,
    reference: Annotated[
        bool, typer.Option("--reference", help="The sizes that bench/README.md shows: twenty minutes.")
    ] = False,
    users: Annotated[
        int | None,
        typer.Option("--users", min=2, help="Users of figure 7 (2,000; 500; 5,000).", show_default=False),
    ] = None,
    ticks: Annotated[
        int | None,
        typer.Option("--ticks", min=1, help="Operations of figure 7 (100,000; 20,000; 200,000).", show_default=False),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option("--repeat", min=1, help="Repetitions: figure 7 (3; 2; 5), others (1; 1; 3).", show_default=False),
    ] = None,
    systems: Annotated[
        str,
        typer.Option(
            "--systems",
            metavar="NAME,...",
            help="Of pequod, redis, client-pequod, memcached, postgres, postgres-calls, postgres-query; ratios are to "
            "the first.",
        ),
    ] = "pequod,redis,client-pequod,memcached,postgres,postgres-calls,postgres-query",
    figures: Annotated[
        str,
        typer.Option("--figures", metavar="NAME,...", help="Of 7, 8, 9, maintenance, celebrity, latency, ycsb."),
    ] = "7,8,9,maintenance,celebrity,latency,ycsb",
    graph: Graph = "synthetic",
    seed: Seed = 1,
    tweet_bytes: TweetBytes = 140,
    delivery: Annotated[
        Delivery,
        typer.Option(
            "--delivery",
            help="Where clients or triggers keep timelines: every follower gets posts, as in the paper, or those who "
            "are known to check.",
        ),
    ] = Delivery.FOLLOWERS,
    pin: Annotated[
        bool, typer.Option("--pin", help="Keep the client on the first core, servers of one thread on the others.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write compare.html, compare.md and compare.json there."),
    ] = None,
    again: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Measure nothing: report on a compare.json of an earlier run."),
    ] = None,
    readme: Annotated[
        Path | None,
        typer.Option(
            "--readme",
            metavar="FILE",
            help="Put the figures into a Markdown file, between the two lines <!-- compare: figures --> and "
            "<!-- compare: end -->.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Repeat the Pequod paper's evaluation beside real peers: Redis, memcached and PostgreSQL.

    Figure 7, Twip on all systems; 8, ways to materialise; 9, Newp with separate and interleaved joins. Then push, pull
    and snapshots; celebrities kept apart; latencies at fixed rates and how late posts show; YCSB; and the worth of each
    structure of the engine. Each server that is installed is started for its run, in its own directory; all get the
    same operations, and their final contents must be equal. If one fails, it is reported and the others run. Sizes in
    brackets: plain, --quick, --reference.
    """
    from dataclasses import replace

    from pequod_bench.compare.comparison import from_json
    from pequod_bench.compare.markdown import to_markdown
    from pequod_bench.compare.readme import refuse_unmarked, rewrite
    from pequod_bench.compare.report import write_report
    from pequod_bench.compare.scale import FEW_MINUTES, QUICK, REFERENCE
    from pequod_bench.compare.study import SECTIONS, Settings, chosen, run

    from pequod.errors import PequodError

    if quick and reference:
        fail(ExitCode.USAGE, "--quick and --reference are two sizes: take one")
    sections = {part.strip() for part in figures.split(",")}
    if not sections <= set(SECTIONS):
        fail(ExitCode.USAGE, f"--figures takes {', '.join(SECTIONS)}, with commas between them, not {figures!r}")
    names = [name.strip() for name in systems.split(",") if name.strip()]
    scale = QUICK if quick else REFERENCE if reference else FEW_MINUTES
    scale = replace(
        scale,
        users=users or scale.users,
        ticks=ticks or scale.ticks,
        repetitions=repeat or scale.repetitions,
        curve_repetitions=repeat or scale.curve_repetitions,
    )
    try:
        _, skipped = chosen(names)
        earlier = None if again is None else from_json(again.read_text("utf-8"))
        if readme is not None:
            refuse_unmarked(readme)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
    except (PequodError, OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, str(error))

    def keep(some: Comparison) -> None:
        if out is not None:
            write_report(some, out)
        if readme is not None:
            rewrite(readme, some)

    if earlier is not None:
        keep(earlier)
        print(earlier.to_json() if json else to_markdown(earlier))
        return
    for name, reason in skipped.items():
        print(f"pequod: {name} is left out: {reason}", file=sys.stderr)
    settings = Settings(scale, names, frozenset(sections), graph, tweet_bytes, delivery.value, seed, pin)
    # SIGTERM is treated as Ctrl-C: the running server is stopped, and its directory removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = run(settings, progress_bars(json), keep)
    finally:
        signal.signal(signal.SIGTERM, before)
    if out is not None:
        print(f"pequod: the report is in {out / 'compare.html'}", file=sys.stderr)
    print(found.to_json() if json else to_markdown(found))
    for failure in found.failures:
        print(f"pequod: {failure.section}: {failure.title} failed: {failure.reason}", file=sys.stderr)
    if differences := found.differences():
        fail(ExitCode.WRONG, f"the answers are wrong: {differences[0]}")
    if found.failures:
        fail(ExitCode.WRONG, "not everything could be measured; the report says what")


def _read(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, f"cannot read the joins: {error}")


def progress_bars(json: bool) -> ProgressBars:
    """Return bars on standard error, or none with JSON output."""
    from pequod_bench.progress import ProgressBars
    from rich.console import Console

    return ProgressBars(Console(stderr=True, quiet=json))


def _finish(report: Report, json: bool) -> None:
    from rich.console import Console

    if json:
        print(report.to_json())
    else:
        report.print_table(Console(highlight=False))
    if not report.correct:
        fail(ExitCode.WRONG, f"the answers are wrong: {report.difference}")
