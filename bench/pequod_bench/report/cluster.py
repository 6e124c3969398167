"""What `pequod bench cluster` reports: what clusters took, and what one compute of larger ones takes."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from pequod_bench.report.printed import Printed, print_figures

#: The sizes of the paper's figure, and the throughput of the larger by that of the smaller, where 4 would be perfect.
PAPER_SIZES: Final = (12, 48)
PAPER_SPEEDUP: Final = 3.0


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """What one cluster took for the run."""

    computes: int
    seconds: float
    ticks_per_s: float
    home_cpu_us_per_tick: float
    compute_cpu_us_per_tick: float
    #: CPU of the busiest compute by the mean of all.
    imbalance: float
    client_cpu_us_per_tick: float
    home_mib: float
    compute_mib: float
    correct: bool
    difference: str


@dataclass(frozen=True, slots=True)
class MemberRun:
    """What one compute of a cluster took for all that it was asked, beside a home and nobody else."""

    #: The size of the cluster.
    computes: int
    compute_cpu_s: float
    #: For all writes that it hears of, and for what is delivered to it.
    home_cpu_s: float
    checks: int
    changes: int
    loads: int
    loaded_ranges: int
    difference: str


@dataclass(frozen=True, slots=True)
class LargeCluster:
    """What the busiest compute of a cluster took, in several rounds; its core limits the cluster."""

    computes: int
    #: Operations of the whole cluster.
    ticks: int
    copies_of_posts: float
    runs: tuple[MemberRun, ...]

    @property
    def compute_cpu_s(self) -> float:
        """The median of the rounds."""
        return median(run.compute_cpu_s for run in self.runs)

    @property
    def ticks_per_s(self) -> float:
        """With a core for each compute, and homes enough."""
        return self.ticks / self.compute_cpu_s


@dataclass(frozen=True, slots=True)
class ClusterTwipReport(Printed):
    """The runs of whole clusters, and those of one compute of larger ones."""

    graph: str
    users: int
    ticks: int
    homes: int
    runs: tuple[ClusterRun, ...]
    #: Each compute of the largest of these by itself.
    alone: tuple[MemberRun, ...]
    #: Users of the graph of the large clusters.
    large_users: int
    large: tuple[LargeCluster, ...]

    @property
    def difference(self) -> str:
        """The first answer that was not what it must be; empty if all were."""
        members = [*self.alone, *(run for one in self.large for run in one.runs)]
        told = [(run.computes, run.difference) for run in self.runs] + [
            (run.computes, run.difference) for run in members
        ]
        return next((f"{computes} computes: {difference}" for computes, difference in told if difference), "")

    @property
    def sharing(self) -> float:
        """What the computes of the largest whole cluster took together, by what each took by itself."""
        whole = next(run for run in self.runs if run.computes == self.alone[0].computes)
        alone_us = sum(run.compute_cpu_s for run in self.alone) / self.ticks * 1e6
        return whole.compute_cpu_us_per_tick / alone_us

    def growth(self) -> list[float]:
        """Return the throughput of 48 computes by that of 12 in each round; empty if one of these was left out."""
        found = {one.computes: one for one in self.large}
        if not all(size in found for size in PAPER_SIZES):
            return []
        small, large = (found[size].runs for size in PAPER_SIZES)
        return [few.compute_cpu_s / many.compute_cpu_s for few, many in zip(small, large, strict=True)]

    def print_table(self, console: Console) -> None:
        """Print the tables for a person."""
        table = Table(
            title=f"Twip on {self.graph}: {self.ticks:,} ticks, {self.homes} homes", title_justify="left", box=None
        )
        columns = ("size", "ticks/s", "µs a tick", "busiest", "home µs", "client µs", "MiB", "exact")
        rows = [
            (
                f"{run.computes}",
                f"{run.ticks_per_s:,.0f}",
                f"{run.compute_cpu_us_per_tick:.2f}",
                f"{run.imbalance:.2f}x",
                f"{run.home_cpu_us_per_tick:.2f}",
                f"{run.client_cpu_us_per_tick:.2f}",
                f"{run.home_mib:,.0f} + {run.compute_mib:,.0f}",
                "yes" if run.correct else "NO",
            )
            for run in self.runs
        ]
        print_figures(console, table, columns, rows)
        size = self.alone[0].computes
        console.print(f"the {size} computes of the largest took {self.sharing:.2f} times what each takes by itself")
        self._print_large(console)

    def _print_large(self, console: Console) -> None:
        title = f"The busiest compute, by itself, of larger clusters for {self.large_users:,} users"
        table = Table(title=title, title_justify="left", box=None)
        rows = []
        for one in self.large:
            run = one.runs[0]
            counts = (run.checks, run.changes, run.loads, run.loaded_ranges)
            figures = (*(f"{count:,}" for count in counts), f"{one.copies_of_posts:.1f}", f"{one.ticks_per_s:,.0f}")
            rows.append((f"{one.computes}", f"{one.compute_cpu_s:.2f}", *figures))
        columns = ("computes", "CPU s", "checks", "changes", "loads", "ranges", "copies of posts", "ticks/s")
        print_figures(console, table, columns, rows)
        if growth := self.growth():
            few, many = PAPER_SIZES
            console.print(
                f"from {few} to {many} computes: {median(growth):.2f}x ({min(growth):.2f}x to {max(growth):.2f}x);"
                f" the paper's figure 10: {PAPER_SPEEDUP:.1f}x; perfect: {many / few:.1f}x"
            )
