"""All commands of bench but compare: what each runs, with the options of its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer
from pequod_bench import settings as sizes

from pequod.cli.bench_options import measuring
from pequod.cli.connection import ConnectionSettings, connection_settings

if TYPE_CHECKING:
    from pequod_bench.report.printed import Printed
    from pequod_bench.report.progress import ProgressBars

app: Final = typer.Typer()


@measuring(
    app,
    "twip",
    sizes.TwipRunSettings,
    short_help="Twip: a server and a client, or the engine alone.",
    shown=(
        "pequod bench twip                                          (some seconds)",
        "pequod bench twip --users 20000 --ticks 1000000            (the reference run)",
        "pequod bench twip --graph follows.tsv.gz --json",
        "pequod bench twip --in-process                             (the engine alone)",
    ),
)
def twip(settings: sizes.TwipRunSettings, bars: ProgressBars) -> Printed:
    """Run Twip, a service like Twitter, against a server: one server process, one client process.

    Users follow, post and check their timelines (by weight 10, 1 and 100), which one cache join keeps.
    Afterwards every check and every final timeline is compared with a computation in the client.
    """
    from pequod_bench.twip import TIMEOUT_S, run

    from pequod.client import AsyncClient

    security: ConnectionSettings = {"timeout_s": TIMEOUT_S, **connection_settings()}
    return run(settings, bars, lambda address: AsyncClient(address, **security))


@measuring(
    app,
    "micro",
    sizes.MicroSettings,
    {"small": True},
    short_help="Single operations of engine and wire.",
    shown=(
        "pequod bench micro                  (a minute)",
        "pequod bench micro --only check     (only the rows whose names hold it)",
        "pequod bench micro --only records, --records 1000000",
    ),
)
def micro(settings: sizes.MicroSettings, _bars: ProgressBars) -> Printed:
    """Measure single operations: µs of CPU for each, least, median and 99th percentile."""
    from pequod_bench.micro.run import run

    return run(settings)


@measuring(
    app,
    "scale",
    sizes.ScaleSettings,
    {"users": (100, 200), "entries": (8_000,)},
    short_help="Single operations in ever larger engines.",
    shown=(
        "pequod bench scale                                     (20 s of CPU time)",
        "pequod bench scale --users 1000,10000,100000 --entries 1000000,10000000 --out bench/figures",
        "                                                       (the reference: five minutes, 2 GiB)",
        "pequod bench scale --users 10000 --entries 1000000 --collector default --json",
    ),
)
def scale(settings: sizes.ScaleSettings, bars: ProgressBars) -> Printed:
    """Measure whether costs stay flat as users and timelines grow: checks, fan-out, memory, collector pauses.

    Each number of users with each number of entries is a point, measured in its own process. A point takes some 3 µs
    and 120 bytes an entry, and 250 µs and 4 KiB a user. --out writes scale.json and scale.svg.
    """
    from pequod_bench.scale import run

    return run(settings, bars)


@measuring(
    app,
    "clients",
    sizes.ClientsSettings,
    {"operations": 20, "samples": 1},
    short_help="The clients and the transports: calls, batches, threads.",
    shown=(
        "pequod bench clients                             (about a minute)",
        "pequod bench clients --only 'AsyncClient.get' --operations 100000",
        "pequod bench clients --only unary                (what a call takes of the server, by each transport)",
        "pequod bench clients --client-loop asyncio --json",
    ),
)
def clients(settings: sizes.ClientsSettings, bars: ProgressBars) -> Printed:
    """Measure the clients: operations a second and µs of client CPU, by form of use.

    Callers under asyncio.gather, threads, call after call, batches, and unary calls of gRPC alone, on the transport
    `grpcio` and on `native`. The users of a server that --target names are overwritten.
    """
    from pequod_bench.clients import run

    return run(settings, bars)


@measuring(
    app,
    "sessions",
    sizes.SessionSettings,
    {"seconds": 0.5, "rate": 40.0, "writers": 2},
    short_help="Sessions over two servers beside PostgreSQL.",
    shown=(
        "pequod bench sessions                                  (half a minute)",
        "pequod bench sessions --rate 500 --seconds 60 --json",
    ),
)
def sessions(settings: sizes.SessionSettings, bars: ProgressBars) -> Printed:
    """Write at one server and read at another one, both beside a PostgreSQL in a temporary directory.

    How long after the answer to a put does a read after its token show it at the other server, through a join? Beside
    it: when the other server's replication slot brings it, and what a read without a token costs, and how often that
    misses it. A session that misses its own write gives exit code 1. Needs the programs of PostgreSQL:
    apt-get install postgresql.
    """
    from pequod_bench.sessions import run

    return run(settings, bars)


@measuring(
    app,
    "cluster",
    sizes.ClusterSettings,
    {"users": 100, "ticks": 2_000, "computes": (1, 2), "large": (12, 48), "large_users": 500, "rounds": 1},
    without=("verify", "server_loop"),
    short_help="Twip on homes and computes; what 12 to 48 computes would do.",
    shown=(
        "pequod bench cluster                                       (two to four minutes)",
        "pequod bench cluster --graph follows.tsv.gz --computes 1,2,4 --homes 2",
        "pequod bench cluster --users 1000 --ticks 100000           (one minute)",
    ),
)
def cluster(settings: sizes.ClusterSettings, bars: ProgressBars) -> Printed:
    """Run Twip on clusters of several sizes: homes have the base data, computes the timelines.

    Each role's CPU follows from the accounts of its processes, so that they mean something also where there are fewer
    cores than servers. Of large clusters, such as the 12 to 48 computes in figure 10 of the paper, the busiest compute
    runs by itself, with all that it is asked beside the others: with a core for each, it limits the cluster.

    Afterwards every timeline is compared with a computation in the client.
    """
    from pequod_bench.cluster import run

    return run(settings, bars)
