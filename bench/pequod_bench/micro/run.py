"""All micro benchmarks, and the table of what they took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from rich.console import Console
from rich.table import Table

from pequod_bench.micro.backfill import BACKFILLS
from pequod_bench.micro.cluster import CLUSTER, subscription_size
from pequod_bench.micro.engine import ENGINE
from pequod_bench.micro.frame import MicroRatio, MicroRow, MicroScale, MicroSize, Result, measure
from pequod_bench.micro.records import RATIOS, RECORDS
from pequod_bench.micro.sizes import SIZES
from pequod_bench.micro.wire import HALVES
from pequod_bench.report.printed import Printed, print_figures

_SIZES: Final = {**SIZES, "subscription at a home": subscription_size}


@dataclass(frozen=True, slots=True)
class MicroReport(Printed):
    """What the rows took, and what has a size."""

    workloads: list[Result]
    sizes: list[MicroSize]
    ratios: list[MicroRatio]

    def print_table(self, console: Console) -> None:
        """Print it for a person."""
        table = Table("workload", "one operation is", box=None, title="µs of CPU an operation", title_justify="left")
        rows = [
            (row.name, row.operation, f"{row.min_us:.2f}", f"{row.median_us:.2f}", f"{row.p99_us:.2f}")
            for row in self.workloads
        ]
        print_figures(console, table, ("min", "median", "p99"), rows)
        for ratio in self.ratios:
            console.print(f"{ratio.name}: {ratio.times:.2f} times {ratio.than}; at most {ratio.times_max} is wanted")
        for size in self.sizes:
            console.print(f"{size.name}: {size.bytes_each:.0f} bytes")


def run(only: str, scale: MicroScale) -> MicroReport:
    """Measure the rows whose names hold ``only``."""
    groups = compared([workload for workload in workloads() if only in workload.name])
    results = [result for group in groups for result in measure(group, scale)]
    medians = {result.name: result.median_us for result in results}
    ratios = [
        MicroRatio(name, than, medians[name] / medians[than], times_max)
        for name, than, times_max in RATIOS
        if name in medians and than in medians
    ]
    return MicroReport(results, [size(scale) for name, size in _SIZES.items() if only in name], ratios)


def compared(rows: Iterable[MicroRow]) -> list[list[MicroRow]]:
    """Return the rows in groups: those that are compared with the same row, with it, and all others by themselves."""
    thans = {name: than for name, than, _ in RATIOS}
    groups: dict[str, list[MicroRow]] = {}
    for row in rows:
        groups.setdefault(thans.get(row.name, row.name), []).append(row)
    return list(groups.values())


def workloads() -> Iterator[MicroRow]:
    """Yield the rows of the engine, of both halves of the wire, and of the feed if its packages are installed."""
    yield from (*ENGINE, *BACKFILLS, *RECORDS, *HALVES, *CLUSTER)
    if find_spec("asyncpg") is not None and find_spec("psycopg2") is not None:
        from pequod_bench.micro.feed import FEED  # noqa: PLC0415 -- optional

        yield from FEED
