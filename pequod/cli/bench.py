"""The commands of the benchmarks, each with the options of its settings."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from pequod_bench import settings as sizes

from pequod.cli.bench_group import app
from pequod.cli.bench_options import measuring
from pequod.cli.connection import ConnectionSettings, connection_settings
from pequod.cli.exits import ExitCode, fail, say

if TYPE_CHECKING:
    from pequod_bench.paper.comparison import Comparison
    from pequod_bench.report.printed import Printed
    from pequod_bench.report.progress import ProgressBars


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
    from pequod_bench.twip.run import run
    from pequod_bench.twip.sending import TIMEOUT_S

    from pequod.client import AsyncClient

    security: ConnectionSettings = {"timeout_s": TIMEOUT_S, **connection_settings()}
    return run(settings, bars, lambda address: AsyncClient(address, **security))


@measuring(
    app,
    "feed",
    sizes.FeedSettings,
    {"users": 40, "follows": 8, "events": 1_500, "restarts": 1},
    short_help="A home feed with Mastodon's rules, before PostgreSQL and beside Redis.",
    shown=(
        "pequod bench feed                                          (a minute or two)",
        "pequod bench feed --events 1000000 --pages 0.001 --no-redis    (half an hour)",
        "pequod bench feed --memory-limit 200MiB --restarts 5",
    ),
    by="pequod_bench.feed.run",
)
def feed() -> None:
    """Keep home feeds by joins, with all of Mastodon's rules that joins can say, and compare each page with SQL.

    Users post, answer, boost, edit and delete; follow, mute and block each other and servers; hide boosts, and have
    lists. Some look at their feeds often, some after a month. PostgreSQL has the tables; the cache is killed on the
    way. Beside it, an application in Python pushes the same feeds into Redis.
    """


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
    by="pequod_bench.micro.run",
)
def micro() -> None:
    """Measure single operations: µs of CPU for each, least, median and 99th percentile."""


@measuring(
    app,
    "store",
    sizes.StoreSettings,
    {"rows": 2_000, "expiring": 2_000, "times": 0.02, "seconds": 0.3, "users": 100, "ticks": 2_000, "repeat": 1},
    short_help="Data on disk, durable puts, more data than memory, expiry.",
    shown=(
        "pequod bench store                                         (three minutes)",
        "pequod bench store --rows 5000000 --expiring 1000000 --users 20000 --ticks 1000000",
        "                                                           (the reference: a quarter of an hour)",
        "pequod bench store --only expire",
    ),
    by="pequod_bench.store.run",
)
def store() -> None:
    """Measure what Pequod is as a store: the figures that it is held to, each beside what is wanted.

    Twip on servers with --data by one without; single puts of many connections, each on disk before its answer, by
    etcd's where it is installed; a start from a folder; reads of four times more data than the limit of memory, each
    compared; keys that all expire at one instant.
    """


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
    by="pequod_bench.scale",
)
def scale() -> None:
    """Measure whether costs stay flat as users and timelines grow: checks, fan-out, memory, collector pauses.

    Each number of users with each number of entries is a point, measured in its own process. A point takes some 3 µs
    and 120 bytes an entry, and 250 µs and 4 KiB a user. --out writes scale.json and scale.svg.
    """


@measuring(
    app,
    "clients",
    sizes.ClientsSettings,
    {"operations": 20, "samples": 1},
    short_help="The clients: calls, batches, threads.",
    shown=(
        "pequod bench clients                             (about a minute)",
        "pequod bench clients --only 'AsyncClient.get' --operations 100000",
        "pequod bench clients --client-loop asyncio --json",
    ),
    by="pequod_bench.wire.clients",
)
def clients() -> None:
    """Measure the clients: operations a second and µs of client CPU, by form of use.

    Callers under asyncio.gather, threads, call after call, and batches. The users of a server that --target names are
    overwritten.
    """


@measuring(
    app,
    "wire",
    sizes.WireSettings,
    {"operations": 32, "samples": 1},
    without=("client_loop",),
    short_help="What a plain call takes of the server, beside etcd and Redis.",
    shown=(
        "pequod bench wire                                   (some five minutes)",
        "pequod bench wire --only 'native, Get' --json",
        "pequod bench wire --only 'TLS and access file'",
        "pequod bench wire --only 'behind PostgreSQL'        (all rows are loaded)",
        "pequod bench wire --only 'in a cluster'             (a compute, and its home)",
        "pequod bench wire --only AsyncClient                (our client by each of its transports)",
        "pequod bench wire --only etcd",
        "pequod bench wire --only Redis",
    ),
    by="pequod_bench.wire.run",
)
def wire() -> None:
    """Measure Get, Put, MultiPut and Scan, one at a time and 32 at once: µs of CPU of server and client.

    By each transport of servers and of clients, with TLS and an access file, behind PostgreSQL, in a cluster, and of
    etcd and Redis. What cannot be started on this machine is named, with the reason.
    """


@measuring(
    app,
    "replace",
    sizes.ReplaceSettings,
    {"ranges": 200, "reads": 200},
    short_help="Reads while a join takes the place of another.",
    shown=(
        "pequod bench replace                     (a minute or two)",
        "pequod bench replace --ranges 20000 --json",
    ),
    by="pequod_bench.replacing",
)
def replace() -> None:
    """Measure how long reads take before, while and after a join that is read everywhere is replaced.

    Each answer is compared: it has the old rows or the new ones, and old ones no more once new ones were seen.
    """


@measuring(
    app,
    "cluster",
    sizes.ClusterSettings,
    {"users": 100, "ticks": 2_000, "computes": (1, 2)},
    without=("verify", "server_loop"),
    short_help="Twip on homes and computes.",
    shown=(
        "pequod bench cluster                                       (a minute or two)",
        "pequod bench cluster --graph follows.tsv.gz --computes 1,2,4 --homes 2",
    ),
    by="pequod_bench.twip.cluster",
)
def cluster() -> None:
    """Run Twip on clusters of several sizes: homes have the base data, computes the timelines.

    Each role's CPU follows from the accounts of its processes, so that they mean something also where there are fewer
    cores than servers. With a core for each server the busiest compute limits the cluster.

    Afterwards every timeline is compared with a computation in the client.
    """


@measuring(
    app,
    "compare",
    sizes.CompareSettings,
    short_help="The paper's figures, beside other systems.",
    shown=(
        "pequod bench compare --quick --out report                   (two or three minutes)",
        "pequod bench compare --reference --out report               (twenty minutes, on a quiet machine)",
        "pequod bench compare --systems pequod,redis --figures 7",
        "pequod bench compare --figures latency,ycsb",
        "pequod bench compare --from report/compare.json --readme bench/README.md",
        "pequod bench compare --reference --users 20000 --ticks 1000000 --figures 7 --out report   (an hour)",
    ),
)
def compare(settings: sizes.CompareSettings, bars: ProgressBars) -> Printed:
    """Repeat the Pequod paper's evaluation beside real peers: Redis, memcached and PostgreSQL.

    Figure 7, Twip on all systems; 8, ways to materialise; 9, Newp with separate and interleaved joins. Then latencies
    at fixed rates, and YCSB. Each server that is installed is started for its run, in its own directory; all get the
    same operations, and their final contents must be equal. If one fails, it is reported and the others run. Sizes in
    brackets: plain, --quick, --reference.
    """
    from pequod_bench.paper.comparison import from_json
    from pequod_bench.paper.report import Compared, refuse_unmarked, rewrite, write_report
    from pequod_bench.paper.study import plan, run

    from pequod.errors import PequodError

    def keep(found: Comparison) -> None:
        """Write what there is after each section."""
        if settings.out is not None:
            write_report(found, settings.out)
        if settings.readme is not None:
            rewrite(settings.readme, found)

    try:
        study = plan(settings)
        if settings.readme is not None:
            refuse_unmarked(settings.readme)
        if settings.out is not None:
            settings.out.mkdir(parents=True, exist_ok=True)
        if settings.again is not None:
            found = from_json(settings.again.read_text("utf-8"))
            keep(found)
            return Compared(found)
    except (PequodError, OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, str(error))
    for name, reason in study.skipped.items():
        say(f"{name} is left out: {reason}")
    # SIGTERM is treated as Ctrl-C: the running server is stopped, and its directory removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = run(study, bars, keep)
    finally:
        signal.signal(signal.SIGTERM, before)
    if settings.out is not None:
        say(f"the report is in {settings.out / 'compare.html'}")
    for failure in found.failures:
        say(f"{failure.section}: {failure.title} failed: {failure.reason}")
    return Compared(found)


@measuring(
    app,
    "ranges",
    sizes.RangesSettings,
    {"rows": (400, 2_000), "updates": 20, "rounds": 1, "range_rows": 100},
    short_help="What a minute of a lake costs, by its size.",
    shown=(
        "pequod bench ranges                      (a minute or two)",
        "pequod bench ranges --rows 100000,1000000 --rounds 3 --json",
    ),
    by="pequod_bench.lakes.ranges",
)
def ranges() -> None:
    """Measure the CPU that it takes to bring few rows into the authority of lakes of different sizes.

    The rows follow each other in the key, or are spread over all of it; each answer is compared.
    """


@measuring(
    app,
    "lakes",
    sizes.LakesSettings,
    {"rows": (2_000,), "reads": 5, "upserts": 50},
    short_help="A lake beside PostgreSQL, DuckLake, Delta and ClickHouse.",
    shown=(
        "pequod bench lakes                              (a minute)",
        "pequod bench lakes --rows 1000000,10000000 --systems lake,postgres",
    ),
    by="pequod_bench.lakes.run",
)
def lakes() -> None:
    """Load the same rows into a lake and other stores, and read and change them there; each answer is compared.

    Rows a second until they are visible and until they are in two orders, CPU, disk, and ms of a point, a range, the
    rows of an author, and a change of many rows. Stores that are not here are named, with what to install.
    """


@measuring(
    app,
    "views",
    sizes.ViewsSettings,
    {"views": (2,), "managers": (1, 2), "of_types": 1, "puts": 20, "rows": 40, "database": "sqlite"},
    short_help="Durable views: the CPU of a put beside them, and the rows that managers write.",
    shown=(
        "pequod bench views                              (some five minutes)",
        "pequod bench views --only index --views 200 --managers 1,2,4",
        "pequod bench views --only count --of-types 200 --database sqlite --json",
    ),
    by="pequod_bench.views.run",
)
def views() -> None:
    """Measure durable views by their type, their number and that of managers, beside the same joins without views.

    µs of the server's CPU for a put, and rows that managers write, by their CPU and by the clock. In each point a put
    changes a row of each view. Server, database and managers are processes; each table is compared in the end.
    """


@measuring(
    app,
    "indexes",
    sizes.IndexesSettings,
    {"records": 200, "record_bytes": 20, "operations": 128, "indexes": (1, 2), "ratios": (8,), "lag_writes": 5},
    short_help="What indexes cost reads and writes of records, and what they save.",
    shown=(
        "pequod bench indexes                            (some three minutes)",
        "pequod bench indexes --records 125000 --record-bytes 4096",
    ),
    by="pequod_bench.indexes",
)
def indexes() -> None:
    """Measure reads and writes of records with indexes at the server, on a compute, and with a count over an index.

    CPU of the servers for an operation, by the number of indexes and by reads for each write; how long an index on a
    compute is behind; and what a query takes by an index, by its keys, by a scan of all, and by a join that counts.
    Each index is compared with the records in the end.
    """
