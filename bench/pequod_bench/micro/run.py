"""All micro benchmarks, and the table of what they took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console

from pequod_bench.micro import cluster, engine, expiry, feed, keep, members, records, watched, wire
from pequod_bench.micro.frame import FULL, SMOKE, MicroRatio, MicroRow, Result, measure
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import MicroSettings

RATIOS: Final = (*keep.RATIOS, *records.RATIOS, *watched.RATIOS, *wire.RATIOS)


@dataclass(frozen=True, slots=True)
class MicroReport(Printed):
    """What the rows took."""

    workloads: list[Result]
    ratios: list[MicroRatio]

    def print_table(self, console: Console) -> None:
        columns = {"workload": "{0.name}", "one operation is": "{0.operation}", "min": "{0.min_us:.2f}"}
        columns |= {"median": "{0.median_us:.2f}", "p99": "{0.p99_us:.2f}"}
        print_rows(console, self.workloads, columns, title="µs of CPU an operation", left=2)
        for ratio in self.ratios:
            console.print(f"{ratio.name}: {ratio.times:.2f} times {ratio.than}; at most {ratio.times_max} is wanted")


def run(settings: MicroSettings, _bars: ProgressBars) -> MicroReport:
    """Measure the rows whose names hold the wanted words."""
    scale = replace(SMOKE if settings.small else FULL, record_count=settings.records)
    groups = compared([workload for workload in workloads() if settings.only in workload.name])
    results = [result for group in groups for result in measure(group, scale)]
    medians = {result.name: result.median_us for result in results}
    ratios = [
        MicroRatio(name, than, medians[name] / medians[than], times_max)
        for name, than, times_max in RATIOS
        if name in medians and than in medians
    ]
    return MicroReport(results, ratios)


def compared(rows: Iterable[MicroRow]) -> list[list[MicroRow]]:
    """Return the rows in groups: those that are compared with the same row, with it, and all others by themselves."""
    thans = {name: than for name, than, _ in RATIOS}
    groups: dict[str, list[MicroRow]] = {}
    for row in rows:
        groups.setdefault(thans.get(row.name, row.name), []).append(row)
    return list(groups.values())


def workloads() -> Iterator[MicroRow]:
    """Yield the rows of the engine, of both halves of the wire, of both feeds, and of watched puts."""
    yield from (
        *engine.ENGINE,
        *expiry.EXPIRY,
        *keep.KEEP,
        *records.RECORDS,
        *wire.HALVES,
        *cluster.CLUSTER,
        *members.MEMBERS,
        *feed.FEED,
        *watched.WATCHED,
    )
