"""Where a tick's time goes, by what the engine had to do for it.

    check, first            the user's first: the timeline is computed
    check after subscribe   the user's subscriptions changed since the last check: a log is applied
    check                   everything is there and fresh
    post                    and its fan-out
    subscribe               noted in the log

The commands alone tell the kinds, so they are the same however an engine does its work. What is read is the thread's
CPU time, since a single pause by the operating system is longer than a thousand checks; a reading takes 1 to 2 µs,
which is measured and taken off.
"""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from pequod.client import Result
from pequod.commands.kinds import PUT
from pequod.engine import Engine
from pequod_bench.report.printed import print_figures
from pequod_bench.workloads import keys
from pequod_bench.workloads.commands import CommandBatch
from pequod_bench.workloads.verify import Reply

CHECK_FIRST: Final = 0
CHECK_AFTER_SUBSCRIBE: Final = 1
CHECK: Final = 2
POST: Final = 3
SUBSCRIBE: Final = 4
#: Their names, by the numbers above.
NAMES: Final = ("check, first", "check after subscribe", "check", "post", "subscribe")

clock: Final = time.thread_time_ns


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """What one kind of operation took."""

    name: str
    count: int
    #: µs of CPU for one such operation; mean, median and 99th percentile.
    mean_us: float
    median_us: float
    p99_us: float
    #: Its share of a tick: µs of all such operations by the ticks of the run.
    us_per_tick: float


def reading_ns() -> int:
    """Return what the clock shows between two readings of it with nothing between them."""
    return round(statistics.median(-(clock() - clock()) for _ in range(15)))


class Phases:
    """A stand-in for `engine_twip.execute` that notes what each command was and what it took.

    Invariants:
        1. ``kinds`` and ``nanos`` are of one length, an entry for each command carried out.
    """

    def __init__(self) -> None:
        #: Kind of each command, and the CPU time that it took.
        self.kinds = bytearray()
        self.nanos = array("q")
        #: Users who have checked, and those of them whose subscriptions changed since their last check.
        self._checked: set[bytes] = set()
        self._changed: set[bytes] = set()

    def execute(self, engine: Engine, batch: CommandBatch) -> Reply:
        """Carry out a batch, command by command.

        Cost:
            About 5 µs a command beside the engine's; none of it is in the figures.
        """
        reading = reading_ns()
        put, scan = engine.put, engine.scan
        results: list[Result] = []
        arguments = batch.arguments
        for kind, key, argument in zip(batch.kinds, arguments[::2], arguments[1::2], strict=True):
            if kind == PUT:
                revision = engine.revision
                begun = clock()
                put(key, argument)
                spent = clock() - begun - reading
                results.append(None)
                self.kinds.append(self._kind_of_put(key, is_change=engine.revision > revision))
            else:
                begun = clock()
                rows = scan(key, argument)
                spent = clock() - begun - reading
                results.append(rows)
                self.kinds.append(self._kind_of_check(key))
            self.nanos.append(spent)
        return results

    def _kind_of_put(self, key: bytes, *, is_change: bool) -> int:
        if key.startswith(b"p|"):
            return POST
        if is_change:
            self._changed.add(keys.user_of(key))
        return SUBSCRIBE

    def _kind_of_check(self, first: bytes) -> int:
        user = keys.user_of(first)
        is_after_subscribe = user in self._changed
        self._changed.discard(user)
        if user not in self._checked:
            self._checked.add(user)
            return CHECK_FIRST
        return CHECK_AFTER_SUBSCRIBE if is_after_subscribe else CHECK

    def costs(self, tick_count: int) -> tuple[PhaseCost, ...]:
        """Return what each kind of operation took, those that did not occur left out."""
        kinds = np.frombuffer(self.kinds, dtype=np.uint8)
        nanos: NDArray[np.int64] = np.frombuffer(self.nanos, dtype=np.int64)
        costs = []
        for number, name in enumerate(NAMES):
            spent = nanos[kinds == number] / 1000
            if len(spent):
                median, p99 = np.percentile(spent, (50, 99)).tolist()
                costs.append(
                    PhaseCost(name, len(spent), float(spent.mean()), median, p99, float(spent.sum()) / tick_count)
                )
        return tuple(costs)


def print_phases(costs: Sequence[PhaseCost], console: Console) -> None:
    """Print where a tick's time went, for a person."""
    table = Table("operation", title="where a tick's time goes", title_justify="left", box=None)
    rows = []
    for cost in costs:
        figures = (cost.mean_us, cost.median_us, cost.p99_us, cost.us_per_tick)
        rows.append((cost.name, f"{cost.count:,}", *(f"{us:.2f}" for us in figures)))
    rows.append(("together", "", "", "", "", f"{sum(cost.us_per_tick for cost in costs):.2f}"))
    print_figures(console, table, ("count", "µs mean", "median", "p99", "µs a tick"), rows)
