"""bench twip, engine-twip and factors: Twip over the wire, in the engine, and with parts of the engine off."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from pequod.cli.bench import (
    ClientLoop,
    Graph,
    Json,
    Loop,
    Only,
    Seed,
    Smoke,
    Ticks,
    TweetBytes,
    Users,
    progress_bars,
    show,
)
from pequod.cli.connection import ConnectionSettings, connection_settings
from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples

app: Final = typer.Typer()


class Mode(StrEnum):
    """How timelines are kept."""

    PUSH = "push"
    PULL = "pull"


class Verify(StrEnum):
    """What is compared after the run."""

    ALL = "all"
    FINAL = "final"


InitialPosts = Annotated[int, typer.Option("--initial-posts", min=0, help="Posts there before the clock starts.")]
JoinMode = Annotated[Mode, typer.Option("--mode", help="The maintenance of the timeline join.")]
JoinFile = Annotated[
    str | None, typer.Option("--join-file", metavar="FILE", help="Install the joins of this file instead.")
]
VerifyWhat = Annotated[
    Verify, typer.Option("--verify", help="Compare every check and the final timelines, or these alone.")
]


@app.command(
    "twip",
    short_help="Twip over the wire: one server, one client.",
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
    from pequod_bench.twip import TwipSettings
    from pequod_bench.wire_twip import TIMEOUT_S, run

    from pequod.client import AsyncClient

    security: ConnectionSettings = {"timeout_s": TIMEOUT_S, **connection_settings()}

    settings = TwipSettings(
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
    report = run(settings, target, progress_bars(json), lambda address: AsyncClient(address, **security))
    show(report, json, report.difference)


@app.command(
    "engine-twip",
    short_help="Twip on the engine alone, in this process.",
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
    from pequod_bench.report.phases import Phases
    from pequod_bench.twip import TwipSettings

    settings = TwipSettings(
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
    show(found, json, found.difference)


@app.command(
    "factors",
    short_help="Twip with parts of the engine switched off.",
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
    only: Only = "",
    smoke: Smoke = False,
    json: Json = False,
) -> None:
    """Switch off parts of the engine, one at a time: how many times more does Twip cost without each?

    Runs with and without a part alternate, in this process and without a wire; ratios are of CPU time. All runs must
    give the same answers, and the first run those of a computation from scratch. A run takes some 20 µs a tick and
    2 µs a subscription (users follow 110 others).
    """
    from pequod_bench.factors import analyse
    from pequod_bench.twip import TwipSettings

    settings = TwipSettings(users=60 if smoke else users, ticks=1_500 if smoke else ticks, seed=seed)
    found = analyse(settings, 1 if smoke else rounds, only, progress_bars(json))
    show(found, json, found.difference)


def _read(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, f"cannot read the joins: {error}")
