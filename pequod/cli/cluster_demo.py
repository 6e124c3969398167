"""cluster demo: a whole cluster on this machine, Twip on it, and servers that are killed on the way."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from pequod_installed.names import how_to_install

from pequod.cli.bench import Graph, Json, Seed, TweetBytes, Users, progress_bars, show
from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples

app: Final = typer.Typer()


@app.command(
    "demo",
    epilog=examples(
        "pequod cluster demo                                       (half a minute)",
        "pequod cluster demo --homes 2 --computes 3 --graph follows.tsv.gz",
        "pequod cluster demo --etcd --postgres",
    ),
)
def demo(
    homes: Annotated[int, typer.Option("--homes", min=1, help="Servers before the database.")] = 2,
    computes: Annotated[int, typer.Option("--computes", min=1, help="Servers that clients read from.")] = 3,
    graph: Graph = "synthetic",
    users: Users = 1_000,
    ticks: Annotated[int, typer.Option("--ticks", min=12, help="Operations.")] = 20_000,
    seed: Seed = 1,
    tweet_bytes: TweetBytes = 140,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Commands a message.")] = 64,
    kill: Annotated[
        bool, typer.Option("--kill/--no-kill", help="Kill a compute and a home on the way, where there are several.")
    ] = True,
    etcd: Annotated[bool, typer.Option("--etcd", help="Have the map in three nodes of etcd, not in a file.")] = False,
    postgres: Annotated[
        bool, typer.Option("--postgres", help="Have the base data in PostgreSQL, not in SQLite.")
    ] = False,
    json: Json = False,
) -> None:
    """Start a cluster on this machine, run Twip on it, kill a compute and a home, and compare all timelines.

    Everything is in a folder that is removed at the end. Exit code 1 if a timeline is wrong or a read failed.
    """
    try:
        from pequod_bench.cluster_demo import run
        from pequod_bench.cluster_site import ClusterShape
        from pequod_bench.process import ServerStartError
        from pequod_bench.twip import TwipSettings
    except ImportError as error:
        fail(ExitCode.REFUSED, f"the demo needs more packages ({error.name}): {how_to_install('bench', 'server')}")
    settings = TwipSettings(
        graph=graph, users=users, ticks=ticks, seed=seed, tweet_bytes=tweet_bytes, batch=batch, verify="final"
    )
    shape = ClusterShape(homes, computes, is_on_etcd=etcd)
    if kill and min(homes, computes) < 2:
        fail(ExitCode.USAGE, "a cluster that loses a server needs two of its kind: say --no-kill")
    try:
        report = run(settings, shape, progress_bars(json), is_on_postgres=postgres, kills=kill)
    except ServerStartError as error:
        fail(ExitCode.REFUSED, str(error))
    show(report, json, report.difference)
