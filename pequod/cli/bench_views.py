"""The benchmarks of views, indexes and lakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pequod_bench import settings as sizes

from pequod.cli.bench_group import app
from pequod.cli.bench_options import measuring
from pequod.cli.exits import ExitCode, fail

if TYPE_CHECKING:
    from pequod_bench.report.printed import Printed
    from pequod_bench.report.progress import ProgressBars


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
)
def ranges(settings: sizes.RangesSettings, bars: ProgressBars) -> Printed:
    """Measure the CPU that it takes to bring few rows into the authority of lakes of different sizes.

    The rows follow each other in the key, or are spread over all of it; each answer is compared.
    """
    from pequod_bench.lake_ranges import run

    return run(settings, bars)


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
)
def lakes(settings: sizes.LakesSettings, bars: ProgressBars) -> Printed:
    """Load the same rows into a lake and other stores, and read and change them there; each answer is compared.

    Rows a second until they are visible and until they are in two orders, CPU, disk, and ms of a point, a range, the
    rows of an author, and a change of many rows. Stores that are not here are named, with what to install.
    """
    from pequod_bench.lakes.run import UnknownStoreError, run

    try:
        return run(settings, bars)
    except UnknownStoreError as error:
        fail(ExitCode.USAGE, str(error))


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
)
def views(settings: sizes.ViewsSettings, bars: ProgressBars) -> Printed:
    """Measure durable views by their type, their number and that of managers, beside the same joins without views.

    µs of the server's CPU for a put, and rows that managers write, by their CPU and by the clock. In each point a put
    changes a row of each view. Server, database and managers are processes; each table is compared in the end.
    """
    from pequod_bench.views import run

    return run(settings, bars)


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
)
def indexes(settings: sizes.IndexesSettings, bars: ProgressBars) -> Printed:
    """Measure reads and writes of records with indexes at the server, on a compute, and with a count over an index.

    CPU of the servers for an operation, by the number of indexes and by reads for each write; how long an index on a
    compute is behind; and what a query takes by an index, by its keys, by a scan of all, and by a join that counts.
    Each index is compared with the records in the end.
    """
    from pequod_bench.indexes import run

    return run(settings, bars)
