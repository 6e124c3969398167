"""The sizes of runs, of which `pequod bench` makes its options: a field that is annotated is one, with its default.

It imports nothing large, so that `--help` stays quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pequod_workloads.twip import Mode
from typer import Option

#: Event loops.
Loop = Literal["uvloop", "asyncio"]
#: Where no join keeps timelines, who gets posts: every follower, as in the paper, or those who ever check.
Delivery = Literal["followers", "active"]
Graph = Annotated[
    str,
    Option(
        metavar="synthetic|power-law|FILE",
        help="Who follows whom; a file has a line user<TAB>poster for each subscription (also .gz, .parquet) and tells "
        "the number of users.",
    ),
]
Users = Annotated[int, Option(min=2, help="Users of a graph that is made.")]
Ticks = Annotated[int, Option(min=1, help="Operations to time.")]
Seed = Annotated[int, Option(min=0, help="One seed, one run: graph and operations follow from it.")]
TweetBytes = Annotated[int, Option(min=0, help="Size of a post.")]
Only = Annotated[str, Option(help="Only those whose names hold this.")]
Samples = Annotated[int, Option(min=1, help="Samples of each form; their medians count.")]
Batch = Annotated[int, Option(min=1, help="Commands a message.")]
ClientLoop = Annotated[Loop, Option(help="Event loop of the client; asyncio's where uvloop is not installed.")]
Target = Annotated[str | None, Option("--target", metavar="HOST:PORT", help="Use the server that runs there.")]
Out = Annotated[Path | None, Option("--out", metavar="DIR", help="Write the report and its drawing there.")]
Database = Annotated[Literal["postgres", "mariadb", "sqlite"], Option(help="Where the tables are.")]
Numbers = tuple[int, ...]

SYSTEMS: Final = ("pequod", "redis", "client-pequod", "memcached", "postgres", "postgres-calls", "postgres-query")
SECTIONS: Final = ("7", "8", "9", "latency", "ycsb")


@dataclass(frozen=True, slots=True)
class TwipSettings:
    """What Twip to run; the defaults are small enough to watch."""

    graph: Graph = "synthetic"
    users: Users = 2_000
    ticks: Ticks = 200_000
    seed: Seed = 1
    tweet_bytes: TweetBytes = 140
    initial_posts: Annotated[int, Option(min=0, help="Posts there before the clock starts.")] = 0
    mode: Annotated[Mode, Option(help="The maintenance of the timeline join.")] = "push"
    batch: Batch = 256
    window: Annotated[int, Option(min=1, help="Messages under way at once.")] = 4
    verify: Annotated[
        Literal["all", "final"], Option(help="Compare every check and the final timelines, or these alone.")
    ] = "all"
    client_loop: ClientLoop = "uvloop"
    server_loop: Annotated[Loop, Option(help="Event loop of a server that is started.")] = "uvloop"
    #: The file of the declarations to install in place of the mode's.
    join_file: Path | None = None


@dataclass(frozen=True, slots=True)
class TwipRunSettings(TwipSettings):
    """What Twip to run on one server, or without one."""

    join_file: Annotated[
        Path | None, Option("--join-file", metavar="FILE", help="Install the joins of this file instead.")
    ] = None
    target: Annotated[
        str | None,
        Option(
            "--target",
            metavar="HOST:PORT",
            help="Use the empty server that runs there (options like --ca stand before `bench`); without it, one is "
            "started for the run.",
        ),
    ] = None
    in_process: Annotated[
        bool, Option("--in-process", help="On the engine in this process, without a server and a wire.")
    ] = False


@dataclass(frozen=True, slots=True)
class ClusterSettings(TwipSettings):
    """What runs of Twip on clusters to make; ``batch`` is for each compute."""

    computes: Annotated[Numbers, Option(help="The sizes of the clusters, one after another.")] = (1, 2, 3, 4)
    homes: Annotated[int, Option(min=1, max=2, help="One home for all base data, or one a table.")] = 1
    workers: Annotated[
        Numbers, Option(help="Instead, one server with these numbers of workers, one after another.")
    ] = ()


@dataclass(frozen=True, slots=True)
class DemoSettings(TwipSettings):
    """What cluster to start, and what Twip to run on it while servers are killed."""

    users: Users = 1_000
    ticks: Annotated[int, Option(min=12, help="Operations.")] = 20_000
    batch: Batch = 64
    homes: Annotated[int, Option(min=1, help="Servers before the database.")] = 2
    computes: Annotated[int, Option(min=1, help="Servers that clients read from.")] = 3
    kill: Annotated[bool, Option(help="Kill a compute and a home on the way, where there are several.")] = True
    etcd: Annotated[bool, Option("--etcd", help="Have the map in three nodes of etcd, not in a file.")] = False
    postgres: Annotated[bool, Option("--postgres", help="Have the base data in PostgreSQL, not in SQLite.")] = False


@dataclass(frozen=True, slots=True)
class FeedSettings:
    """What home feeds to keep; the defaults take a minute or two."""

    users: Annotated[int, Option(min=10, help="Users, each with a list.")] = 1_000
    follows: Annotated[int, Option(min=1, help="Draws of others that a user follows: half to twice as many.")] = 40
    events: Annotated[int, Option(min=1, help="Things that users do, over 90 days.")] = 20_000
    pages: Annotated[float, Option(min=0, max=1, help="The chance that a user looks at a page after an event.")] = 0.1
    restarts: Annotated[int, Option(min=0, help="How often the cache is killed and starts anew.")] = 2
    failovers: Annotated[
        int, Option(min=0, help="How often it is killed after that, and one that was started beside it goes on.")
    ] = 1
    memory_limit: Annotated[str, Option(help="The limit of the cache; a small one has it evict feeds.")] = "none"
    redis: Annotated[bool, Option(help="Keep the feeds in Redis as well, if it is here.")] = True
    seed: Seed = 1


@dataclass(frozen=True, slots=True)
class MicroSettings:
    """Which rows of the engine and the wire to measure."""

    only: Only = ""
    #: A million take a minute for ten samples.
    records: Annotated[int, Option(min=100, help="Records of an index that is built.")] = 20_000
    #: A few samples of small sizes.
    small: bool = False


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Which figures of a store in its own right to measure, and at which sizes."""

    only: Only = ""
    rows: Annotated[int, Option(min=1_000, help="Rows of 100 bytes of a folder from which a server starts.")] = 500_000
    expiring: Annotated[int, Option(min=1_000, help="Keys that expire at one instant.")] = 100_000
    limit_mib: Annotated[int, Option(min=112, help="The limit of memory of a server with more data.")] = 128
    times: Annotated[float, Option(min=0.01, help="How many times more data than that limit it has.")] = 4.0
    connections: Annotated[int, Option(min=1, help="Connections that put single keys.")] = 64
    seconds: Annotated[float, Option(min=0.1, help="How long puts, and reads beyond memory, go on.")] = 10.0
    users: Users = 2_000
    ticks: Ticks = 200_000
    repeat: Annotated[int, Option(min=1, help="Runs of each of Twip and of puts; medians count.")] = 3


@dataclass(frozen=True, slots=True)
class ScaleSettings:
    """Which sizes of engines to measure: each number of users with each number of entries."""

    users: Annotated[Numbers, Option(help="Users; each follows ten others.")] = (1_000, 10_000)
    entries: Annotated[Numbers, Option(help="Timeline entries of all users.")] = (1_000_000,)
    collector: Annotated[
        Literal["tamed", "default"], Option(help="The garbage collector as the server keeps it, or as CPython starts.")
    ] = "tamed"
    out: Out = None


@dataclass(frozen=True, slots=True)
class FormsSettings:
    """How often to take which forms of use."""

    #: Forms that wait for each operation get a twentieth.
    operations: Annotated[int, Option(min=1, help="Operations of a sample.")] = 10_000
    samples: Samples = 5
    only: Only = ""
    client_loop: ClientLoop = "uvloop"


@dataclass(frozen=True, slots=True)
class ClientsSettings(FormsSettings):
    """What run of the clients to make."""

    target: Target = None


@dataclass(frozen=True, slots=True)
class WireSettings(FormsSettings):
    """What run of single calls to make."""

    operations: Annotated[int, Option(min=1, help="Calls of a sample.")] = 4_000
    samples: Samples = 3


@dataclass(frozen=True, slots=True)
class ReplaceSettings:
    """What join to replace while it is read."""

    ranges: Annotated[int, Option(min=1, help="Timelines, all of which have been read.")] = 100_000
    reads: Annotated[int, Option(min=1, help="Reads before the replacement, and at least while it goes on.")] = 20_000
    callers: Annotated[int, Option(min=1, help="Callers that read at the same time.")] = 4
    client_loop: ClientLoop = "uvloop"


@dataclass(frozen=True, slots=True)
class ViewsSettings:
    """How many durable views to keep, and what is written meanwhile."""

    views: Annotated[Numbers, Option(help="Numbers of views.")] = (1, 10, 50, 200)
    managers: Annotated[Numbers, Option(help="Numbers of managers; all but the first with the most views.")] = (1, 2)
    of_types: Annotated[int, Option(min=1, help="Views of each other type.")] = 50
    puts: Annotated[int, Option(min=1, help="Puts, call by call, whose CPU at the server is measured.")] = 1_000
    rows: Annotated[int, Option(min=1, help="Rows in batches; managers write one for each in each view.")] = 1_000
    database: Database = "postgres"
    only: Annotated[str, Option(help="Only types whose names hold this.")] = ""


@dataclass(frozen=True, slots=True)
class IndexesSettings:
    """How many records with how many indexes, and what is done with them."""

    records: Annotated[int, Option(min=100, help="Records.")] = 20_000
    record_bytes: Annotated[int, Option("--record-bytes", min=1, help="Size of a text that each record has.")] = 1_000
    operations: Annotated[int, Option(min=64, help="Reads and writes of a point.")] = 40_000
    indexes: Annotated[Numbers, Option(help="Numbers of indexes, up to 4.")] = (1, 2, 4)
    ratios: Annotated[Numbers, Option(help="Reads for each write; the first one for several indexes.")] = (8, 4, 2, 1)
    lag_writes: Annotated[int, Option("--lag-writes", min=1, help="Writes whose way to a compute is timed.")] = 1_000


@dataclass(frozen=True, slots=True)
class LakeDemoSettings:
    """What a lake takes in while queries run."""

    seconds: Annotated[float, Option("--seconds", min=1.0, help="How long rows come.")] = 20.0
    rows_per_s: Annotated[int, Option("--rows-per-s", min=1, help="At which rate.")] = 20_000
    out: Annotated[Path, Option("--out", metavar="DIR", help="Where the two figures go.")] = Path("lake-figures")


@dataclass(frozen=True, slots=True)
class RangesSettings:
    """Lakes of which sizes get how many rows each minute."""

    rows: Annotated[Numbers, Option(metavar="NUMBER,...", help="Rows of each lake.")] = (100_000, 10_000_000)
    updates: Annotated[int, Option(min=1, help="Rows of a minute.")] = 60
    rounds: Annotated[int, Option(min=1, help="Minutes of each kind; their medians count.")] = 5
    range_rows: Annotated[int, Option("--range-rows", min=1, help="The most rows of a file of the authority.")] = (
        1_000_000
    )
    delta_ratio: Annotated[
        float, Option("--delta-ratio", min=0.0, help="Share of the authority that its deltas may have; 0: no deltas.")
    ] = 0.125


@dataclass(frozen=True, slots=True)
class LakesSettings:
    """Which stores get how many rows."""

    rows: Annotated[Numbers, Option(metavar="NUMBER,...", help="Rows of each store.")] = (1_000_000,)
    systems: Annotated[str, Option(metavar="NAME,...", help="Of lake, postgres, ducklake, delta, clickhouse.")] = (
        "lake,postgres,ducklake,delta,clickhouse"
    )
    reads: Annotated[int, Option(min=1, help="Points that are read; a tenth of it ranges and authors.")] = 200
    upserts: Annotated[int, Option(min=1, help="Rows that are changed at once.")] = 10_000


@dataclass(frozen=True, slots=True)
class CompareScale:
    """Sizes of everything that is compared; these are a good five minutes on a quiet machine."""

    #: Figure 7.
    users: int = 2_000
    ticks: int = 100_000
    repetitions: int = 3
    #: Figures 8 and 9, which start a server for every point of every line.
    materialisation_users: int = 500
    articles: int = 500
    sessions: int = 5_000
    curve_repetitions: int = 1
    active_percents: Numbers = (1, 10, 25, 50, 75, 90, 100)
    vote_percents: Numbers = (0, 10, 25, 50, 75, 90, 100)
    #: Operations a second, and for how long each.
    latency_users: int = 500
    rates: Numbers = (500, 1_000, 2_000)
    rate_s: float = 2.0
    #: YCSB.
    records: int = 10_000
    operations: int = 20_000


FEW_MINUTES: Final = CompareScale()
#: A laptop minute or two.
QUICK: Final = CompareScale(
    500, 20_000, 2, 150, 150, 1_500, 1, (1, 50, 90, 100), (0, 50, 90, 100), 150, (250, 1_000), 1.0, 1_000,
    2_000,
)  # fmt: skip
#: Twenty minutes on two quiet cores; what the figures in bench/README.md come from. 40 sessions an article; the paper
#: has 200, and the fewer there are, the more the first vote of each counts.
REFERENCE: Final = CompareScale(
    5_000, 200_000, 5, 600, 500, 20_000, 3, latency_users=1_000, rates=(500, 1_000, 2_000, 4_000), rate_s=3.0,
    records=20_000, operations=50_000,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """What comparison to make; a number of None is that of the scale."""

    quick: Annotated[bool, Option("--quick", help="Small sizes: one to three minutes in all.")] = False
    reference: Annotated[bool, Option("--reference", help="The sizes that bench/README.md shows: twenty minutes.")] = (
        False
    )
    users: Annotated[int | None, Option(min=2, help="Users of figure 7 (2,000; 500; 5,000).", show_default=False)] = (
        None
    )
    ticks: Annotated[
        int | None, Option(min=1, help="Operations of figure 7 (100,000; 20,000; 200,000).", show_default=False)
    ] = None
    repeat: Annotated[
        int | None, Option(min=1, help="Repetitions: figure 7 (3; 2; 5), others (1; 1; 3).", show_default=False)
    ] = None
    systems: Annotated[str, Option(metavar="NAME,...", help=f"Of {', '.join(SYSTEMS)}; ratios are to the first.")] = (
        ",".join(SYSTEMS)
    )
    figures: Annotated[str, Option(metavar="NAME,...", help=f"Of {', '.join(SECTIONS)}.")] = ",".join(SECTIONS)
    graph: Graph = "synthetic"
    seed: Seed = 1
    tweet_bytes: TweetBytes = 140
    delivery: Annotated[
        Delivery,
        Option(
            help="Where clients or triggers keep timelines: every follower gets posts, as in the paper, or those who "
            "are known to check."
        ),
    ] = "followers"
    out: Annotated[
        Path | None, Option("--out", metavar="DIR", help="Write compare.html, compare.md and compare.json there.")
    ] = None
    again: Annotated[
        Path | None,
        Option("--from", metavar="FILE", help="Measure nothing: report on a compare.json of an earlier run."),
    ] = None
    readme: Annotated[
        Path | None,
        Option(
            "--readme",
            metavar="FILE",
            help="Put the figures into a Markdown file, between the two lines <!-- compare: figures --> and "
            "<!-- compare: end -->.",
        ),
    ] = None
