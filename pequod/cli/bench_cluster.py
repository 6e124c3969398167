"""bench cluster, cluster-latency: Twip on homes and computes, what larger clusters would do, and how quick they are."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from pequod_bench.settings import ClusterLatencySettings

from pequod.cli.bench import ClientLoop, Graph, Json, Loop, Seed, Smoke, Ticks, TweetBytes, Users, progress_bars, show
from pequod.cli.bench_options import of_settings
from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples

app: Final = typer.Typer()


@app.command(
    "cluster",
    short_help="Twip on homes and computes; what 12 to 48 computes would do.",
    epilog=examples(
        "pequod bench cluster                                       (two to four minutes)",
        "pequod bench cluster --graph follows.tsv.gz --computes 1,2,4 --homes 2",
        "pequod bench cluster --users 1000 --ticks 100000           (one minute)",
    ),
)
def cluster(
    graph: Graph = "synthetic",
    users: Users = 2_000,
    ticks: Ticks = 200_000,
    seed: Seed = 1,
    tweet_bytes: TweetBytes = 140,
    computes: Annotated[
        str, typer.Option("--computes", metavar="N,N,...", help="The sizes of the clusters, one after another.")
    ] = "1,2,3,4",
    homes: Annotated[
        int, typer.Option("--homes", min=1, max=2, help="One home for all base data, or one a table.")
    ] = 1,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Commands a message, for each compute.")] = 256,
    window: Annotated[int, typer.Option("--window", min=1, help="Messages under way at once.")] = 4,
    large: Annotated[
        str, typer.Option("--large", metavar="N,N,...", help="The sizes of clusters of which one compute runs.")
    ] = "12,48",
    large_users: Annotated[
        int, typer.Option("--large-users", min=100, help="Users of the made-up graph of large clusters.")
    ] = 40_000,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each of these runs, in turns.")] = 3,
    client_loop: ClientLoop = Loop.UVLOOP,
    smoke: Smoke = False,
    json: Json = False,
) -> None:
    """Run Twip on clusters of several sizes: homes have the base data, computes the timelines.

    Each role's CPU follows from the accounts of its processes, so that they mean something also where there are fewer
    cores than servers. Of large clusters, such as the 12 to 48 computes in figure 10 of the paper, the busiest compute
    runs by itself, with all that it is asked beside the others: with a core for each, it limits the cluster.

    Afterwards every timeline is compared with a computation in the client.
    """
    from pequod_bench.cluster_twip import LargeClusters, run
    from pequod_bench.twip import TwipSettings

    sizes, large_sizes = _sizes("--computes", computes), _sizes("--large", large)
    if smoke:
        users, ticks, sizes, large_sizes, large_users, rounds = 100, 2_000, (1, 2), (12, 48), 500, 1
    settings = TwipSettings(
        graph=graph,
        users=users,
        ticks=ticks,
        seed=seed,
        tweet_bytes=tweet_bytes,
        batch=batch,
        window=window,
        client_loop=client_loop.value,
    )
    report = run(settings, sizes, homes, LargeClusters(large_users, large_sizes, rounds), progress_bars(json))
    show(report, json, report.difference)


def _sizes(option: str, text: str) -> tuple[int, ...]:
    """Return the numbers of an option; end with an error if they are none."""
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        fail(ExitCode.USAGE, f"{option} {text!r}: write numbers with commas between, such as 1,2,4")
    return sizes


@app.command(
    "cluster-latency",
    short_help="A small cluster: first reads, later reads, put to visible, a burst.",
    epilog=examples(
        "pequod bench cluster-latency                               (half a minute)",
        "pequod bench cluster-latency --timelines 1000 --burst 200000",
    ),
)
@of_settings(ClusterLatencySettings, {"timelines": 5, "later_reads": 10, "puts": 5, "burst": 500})
def cluster_latency(settings: ClusterLatencySettings, json: Json = False) -> None:
    """Start a home, two computes and a server alone on this machine, and take the times of single calls.

    Times mean something where each of these processes, and this one, has a core.
    """
    from pequod_bench.cluster_latency import run

    report = run(settings, progress_bars(json))
    show(report, json, report.difference)
