"""What a write costs over a store without a master, by the number of versioned views that have it as their key.

Three replicas are files without fsync, each with a thread of this process. So a request costs CPU and no network, and
what one write has left to propagate takes the CPU of the next: the ratios are above those of machines of their own.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated, Final

from pequod_bench.report.printed import Printed, WrongAnswerError, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.systems.server import loop_factory
from pequod_views.versioned import ShareLeases, SqliteReplicas, StoredCell, Update, VersionedView, ViewCoordinator
from rich.console import Console
from typer import Option

_REPLICAS: Final = 3
_MAJORITY: Final = 2
_VIEW: Final = VersionedView("assigned_to", "ticket", "assigned", ("status", "title"))
#: View keys: a record goes from one to another with nearly each write.
_KEYS: Final = 50
_LEASE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ViewWritesSettings:
    """How much is written, and to how many views."""

    records: Annotated[int, Option(min=1, help="Base records.")] = 300
    writes: Annotated[int, Option(min=1, help="Writes of the view key that are measured, one after the other.")] = 500
    views: Annotated[int, Option(min=1, help="Views at most.")] = 2


@dataclass(frozen=True, slots=True)
class WritePoint:
    """What a write of the view key took."""

    views: int
    #: Until the write is acknowledged.
    mean_ms: float
    #: Until it is propagated.
    cpu_ms: float
    latency_ratio: float
    cpu_ratio: float


@dataclass(frozen=True, slots=True)
class ViewWritesReport(Printed):
    """Writes without a view, and with some."""

    points: list[WritePoint]

    def print_table(self, console: Console) -> None:
        columns = {"views": "{0.views}", "ms": "{0.mean_ms:.2f}", "CPU ms": "{0.cpu_ms:.2f}"}
        columns |= {"latency ratio": "{0.latency_ratio:.1f}", "CPU ratio": "{0.cpu_ratio:.1f}"}
        print_rows(console, self.points, columns)


def run(settings: ViewWritesSettings, bars: ProgressBars) -> ViewWritesReport:
    """Measure writes of a view key without a view, and with each number of views."""
    with bars.working("writing"), asyncio.Runner(loop_factory=loop_factory()) as runner:
        taken = [runner.run(_measured(settings, count)) for count in range(settings.views + 1)]
    plain_ms, plain_cpu_ms = taken[0]
    return ViewWritesReport(
        [
            WritePoint(count, mean_ms, cpu_ms, mean_ms / plain_ms, cpu_ms / plain_cpu_ms)
            for count, (mean_ms, cpu_ms) in enumerate(taken)
        ]
    )


async def _measured(settings: ViewWritesSettings, count: int) -> tuple[float, float]:
    """Return the mean time until a write is acknowledged, and its CPU until it is propagated, in ms."""
    views = [replace(_VIEW, name=f"{_VIEW.name}_{number}") for number in range(count)]
    random, held = Random(1), dict[str, str]()
    with TemporaryDirectory() as folder:
        store = SqliteReplicas([Path(folder) / f"{number}.db" for number in range(_REPLICAS)], synchronous="OFF")
        leases = ShareLeases(store, lease_s=_LEASE_S, share_count=1)
        coordinator = ViewCoordinator(store, views, leases)

        async def write(record: int, timestamp: int) -> None:
            key, name = str(record), f"key {random.randrange(_KEYS)}"
            held[key] = name
            await coordinator.put(Update("ticket", key, "assigned", StoredCell(name, timestamp)), _MAJORITY)

        for record in range(settings.records):
            await write(record, 1)
        await coordinator.settle()
        cpu_s, waited_s = time.process_time(), 0.0
        for number in range(settings.writes):
            begin_s = time.perf_counter()
            await write(random.randrange(settings.records), number + 2)
            waited_s += time.perf_counter() - begin_s
        await coordinator.settle()
        cpu_s = time.process_time() - cpu_s
        await _check(coordinator, views, held)
        await leases.close()
        store.close()
    return waited_s / settings.writes * 1e3, cpu_s / settings.writes * 1e3


async def _check(coordinator: ViewCoordinator, views: list[VersionedView], held: dict[str, str]) -> None:
    """Pass if each record is in the row of its key, in all views.

    Raises:
        WrongAnswerError: One is not.
    """
    for view in views:
        for name in sorted(set(held.values())):
            found = (await coordinator.get_view(view, name)).keys()
            if found != {key for key, one in held.items() if one == name}:
                raise WrongAnswerError(f"the row {name!r} of {view.name} has the records {sorted(found)}")
