"""What `pequod bench cluster` reports: the runs, the prices that follow, and what larger clusters would do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from pequod_bench.cluster_model import Account, ClusterCounts, Prediction, Prices

#: The sizes of the paper's figure from 12 on; below that, processes on one machine behind one list of addresses.
PREDICTED: Final = (1, 2, 4, 8, 12, 24, 36, 48)
_PAPER: Final = (12, 48)
#: Throughput of 48 computes by that of 12 in the paper, where 4 would be perfect.
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
    #: What the prices of the other sizes say of `compute_cpu_us_per_tick`; None if there are too few.
    predicted_cpu_us_per_tick: float | None
    correct: bool
    difference: str


@dataclass(frozen=True, slots=True)
class ClusterTwipReport:
    """The runs, the prices that follow, and what larger clusters would do."""

    graph: str
    users: int
    ticks: int
    homes: int
    runs: tuple[ClusterRun, ...]
    #: Of each run: warming in large and in small messages, Twip in large and in small messages, checks alone.
    accounts: tuple[Account, ...]
    #: None after a run with one size.
    prices: Prices | None
    #: Users of the graph of the predictions.
    predict_users: int
    predictions: tuple[Prediction, ...]

    @property
    def difference(self) -> str:
        """The first answer that was not what it must be; empty if all were."""
        return next((f"{run.computes} computes: {run.difference}" for run in self.runs if not run.correct), "")

    def to_json(self) -> str:
        """Return everything as one JSON object."""
        return json.dumps(asdict(self))

    def print_table(self, console: Console) -> None:
        """Print the tables for a person."""
        table = Table(
            title=f"Twip on {self.graph}: {self.ticks:,} ticks, {self.homes} homes", title_justify="left", box=None
        )
        columns = ("size", "ticks/s", "µs a tick", "foretold", "busiest", "home µs", "client µs", "MiB", "exact")
        for column in columns:
            table.add_column(column, justify="right")
        for run in self.runs:
            guess = "" if run.predicted_cpu_us_per_tick is None else f"{run.predicted_cpu_us_per_tick:.2f}"
            table.add_row(
                f"{run.computes}",
                f"{run.ticks_per_s:,.0f}",
                f"{run.compute_cpu_us_per_tick:.2f}",
                guess,
                f"{run.imbalance:.2f}x",
                f"{run.home_cpu_us_per_tick:.2f}",
                f"{run.client_cpu_us_per_tick:.2f}",
                f"{run.home_mib:,.0f} + {run.compute_mib:,.0f}",
                "yes" if run.correct else "NO",
            )
        console.print(table)
        if self.prices is None:
            return
        self._print_prices(console, self.prices)
        base = self.predictions[0]
        table = Table(
            title=f"By these prices, with a core for each compute, {self.predict_users:,} users",
            title_justify="left",
            box=None,
        )
        for column in ("computes", "ticks/s", "speed-up", "cores of homes", "ticks/s a core", "copies of posts"):
            table.add_column(column, justify="right")
        for one in self.predictions:
            table.add_row(
                f"{one.computes}",
                f"{one.ticks_per_s:,.0f}",
                f"{one.ticks_per_s / base.ticks_per_s:.2f}x",
                f"{one.home_cores:.1f}",
                f"{one.ticks_per_s / (one.computes + one.home_cores):,.0f}",
                f"{one.duplication:.1f}",
            )
        console.print(table)
        low, high = (next(one for one in self.predictions if one.computes == size) for size in _PAPER)
        console.print(
            f"from {low.computes} to {high.computes} computes: {high.ticks_per_s / low.ticks_per_s:.2f}x; "
            f"the paper's figure 10: {PAPER_SPEEDUP:.1f}x; perfect: {high.computes / low.computes:.1f}x"
        )

    def _print_prices(self, console: Console, prices: Prices) -> None:
        table = Table(title="Prices, in µs of CPU", title_justify="left", box=None)
        table.add_column("")
        for name in ClusterCounts._fields:
            table.add_column(name.replace("_", " ").removesuffix("s"), justify="right")
        for role, found in (("compute", prices.compute), ("home", prices.home)):
            table.add_row(role, *(f"{price:.2f}" for price in found))
        console.print(table)
        errors = [
            f"{run.predicted_cpu_us_per_tick / run.compute_cpu_us_per_tick - 1:+.0%}"
            for run in self.runs
            if run.predicted_cpu_us_per_tick is not None and run.compute_cpu_us_per_tick
        ]
        if errors:
            console.print(f"errors of what was foretold of each size by the others: {', '.join(errors)}")
