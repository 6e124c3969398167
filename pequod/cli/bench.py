"""bench twip, bench engine-twip and bench micro."""

from __future__ import annotations

import sys
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_bench.progress import ProgressBars
    from pequod_bench.report import Report

_HELP: Final = """Measure Pequod, and check that what it answers is right.

Exit code 1 if an answer is wrong.
"""

app: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)


class Mode(StrEnum):
    """How timelines are kept."""

    PUSH = "push"
    PULL = "pull"


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
            help="Use the empty server that runs there; without it, one is started for the run.",
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Commands a message.")] = 256,
    window: Annotated[int, typer.Option("--window", min=1, help="Messages under way at once.")] = 4,
    verify: VerifyWhat = Verify.ALL,
    json: Json = False,
) -> None:
    """Run Twip, a service like Twitter, against a server: one server process, one client process.

    Users follow, post and check their timelines (by weight 10, 1 and 100), which one cache join keeps.
    Afterwards every check and every final timeline is compared with a computation in the client.
    """
    from pequod_bench.twip import Settings
    from pequod_bench.wire_twip import run

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
    )
    _finish(run(settings, target, _bars(json)), json)


@app.command(
    "engine-twip",
    epilog=examples(
        "pequod bench engine-twip --users 20000 --ticks 1000000",
        "pequod bench engine-twip --ticks 50000 --profile",
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
    json: Json = False,
) -> None:
    """Run the same Twip on the engine inside this process, without a server or a wire."""
    import cProfile

    from pequod_bench.engine_twip import profile_text, run
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
    found = run(settings, _bars(json), watch)
    if watch is not None:
        print(profile_text(watch), file=sys.stderr if json else sys.stdout)
    _finish(found, json)


@app.command("micro")
def micro(
    only: Annotated[str, typer.Option("--only", help="Only the workloads whose names hold this.")] = "",
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Tiny sizes: shows that all run, figures mean nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure single operations: µs an operation, least, median and 99th percentile."""
    from pequod_bench.micro import FULL, SMOKE, measure, print_results, to_json
    from pequod_bench.micro_engine import SIZES, WORKLOADS
    from pequod_bench.micro_wire import HALVES, Wire
    from pequod_bench.process import started_server
    from rich.console import Console

    scale = SMOKE if smoke else FULL
    results = [measure(workload, scale) for workload in (*WORKLOADS, *HALVES) if only in workload.name]
    with started_server() as (target, _), closing(Wire(target)) as wire:
        results += [measure(workload, scale) for workload in wire.workloads() if only in workload.name]
    sizes = [size(scale) for name, size in SIZES.items() if only in name]
    if json:
        print(to_json(results, sizes))
    else:
        print_results(results, sizes, Console())


def _read(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, f"cannot read the joins: {error}")


def _bars(json: bool) -> ProgressBars:
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
