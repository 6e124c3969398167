"""Versioned views over a store without a master: reads, writes, sessions and stale rows, as the paper measures them.

    base       record "r17": by = "v42", body = ...          read by key
    index      of `by` on each node, asked on all nodes       read by value, scattered
    view       by -> body                                     read by value, at the nodes of the value

Latencies are those of one client that calls after call, in the paper and here. Here nodes are threads of this process,
so requests to nodes, which cost nothing here and a network elsewhere, are counted beside.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from pequod_views.versioned import (
    RowLocks,
    StoredCell,
    StoreSession,
    Update,
    VersionedView,
    ViewCoordinator,
    ViewSweeper,
)
from pequod_views.versioned.rows import swept_rows
from rich.console import Console
from rich.table import Table

from pequod_bench.placed_store import PlacedStore
from pequod_bench.report.printed import Printed, print_figures
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import VersionedSettings

T = TypeVar("T")

_TABLE: Final = "base"
_BY: Final = VersionedView("by", _TABLE, "by", ("body",))
_OTHER: Final = VersionedView("other", _TABLE, "by", ())
_QUORUM: Final = 2
_PAUSES_MS: Final = (0, 1, 5, 20, 80)
_WIDTHS: Final = (1, 10, 100)
#: Parts of a run, for the bar.
_PARTS: Final = 4
#: The paper's figures 3, 5 and 7, as ratios.
_PAPER_READS: Final = {"base": 1.0, "view": 1.0, "index": 3.5}
_PAPER_WRITES: Final = {"no view": 1.0, "index": 1.0, "1 view": 2.5}


@dataclass(frozen=True, slots=True)
class Cost:
    """What calls of a kind cost, on average."""

    kind: str
    #: Until the answer.
    latency_ms: float
    #: CPU of client, coordinator and nodes a call; of writes until they are propagated.
    cpu_ms: float
    #: Requests to nodes a call; for writes until they are propagated.
    requests: float
    #: Latency against that of the first kind.
    ratio: float
    paper_ratio: float | None


@dataclass(frozen=True, slots=True)
class SessionCost:
    """A put and a read of the view that shows it, with a pause between, which is left out."""

    pause_ms: int
    with_session_ms: float
    without_session_ms: float
    #: Reads without a session that did not show the put.
    missed: int


@dataclass(frozen=True, slots=True)
class Staleness:
    """Updates of the view key of some records."""

    #: Over how many records the updates are spread.
    width: int
    updates: int
    writes_per_s: float
    stale_rows: int
    sweep_s: float
    stale_rows_swept: int
    #: After the sweep.
    writes_per_s_swept: float


@dataclass(frozen=True, slots=True)
class VersionedReport(Printed):
    """A whole run."""

    indent: ClassVar[int | None] = 2
    settings: VersionedSettings
    reads: list[Cost]
    writes: list[Cost]
    sessions: list[SessionCost]
    staleness: list[Staleness]
    #: Reads of a session that did not show its own write.
    session_misses: int

    def print_table(self, console: Console) -> None:
        """Print the tables for a person."""
        for title, costs in (("read", self.reads), ("write", self.writes)):
            rows = [
                (cost.kind, f"{cost.latency_ms:.2f}", f"{cost.cpu_ms:.2f}", f"{cost.requests:.1f}", f"{cost.ratio:.1f}",
                 "" if cost.paper_ratio is None else f"{cost.paper_ratio:.1f}")
                for cost in costs
            ]  # fmt: skip
            print_figures(console, Table(title, box=None), ("mean ms", "CPU ms", "requests", "ratio", "paper"), rows)
        pauses = [
            (f"{one.pause_ms} ms", f"{one.with_session_ms:.2f}", f"{one.without_session_ms:.2f}", str(one.missed))
            for one in self.sessions
        ]
        print_figures(
            console, Table("put, pause, read", box=None), ("session ms", "without ms", "missed without"), pauses
        )
        stale = [
            (str(one.width), str(one.updates), f"{one.writes_per_s:.0f}", str(one.stale_rows), f"{one.sweep_s:.2f}",
             str(one.stale_rows_swept), f"{one.writes_per_s_swept:.0f}")
            for one in self.staleness
        ]  # fmt: skip
        heads = ("updates", "writes/s", "stale rows", "sweep s", "left", "writes/s after")
        print_figures(console, Table("records", box=None), heads, stale)


def run(settings: VersionedSettings, bars: ProgressBars) -> VersionedReport:
    """Run everything on stores in a temporary directory."""
    with bars.bar("running", _PARTS) as advance:
        reads = asyncio.run(_with_store(settings, _reads))
        advance(1)
        writes = asyncio.run(_writes(settings))
        advance(1)
        sessions, misses = asyncio.run(_with_store(settings, _sessions))
        advance(1)
        staleness = [asyncio.run(_with_store(settings, _stale_by(width))) for width in _WIDTHS]
        advance(1)
    return VersionedReport(settings, reads, writes, sessions, staleness, misses)


class _Bench:
    """A filled store and who writes it."""

    def __init__(self, settings: VersionedSettings, store: PlacedStore, views: tuple[VersionedView, ...]) -> None:
        self.settings = settings
        self.store = store
        self.locks = RowLocks()
        self.rng = random.Random(settings.seed)
        self.coordinator = ViewCoordinator(store, views, self.locks)
        self._clock = 0

    def update(self, row: int, column: str, value: str) -> Update:
        """Return an update that is newer than all before."""
        self._clock += 1
        return Update(_TABLE, f"r{row}", column, StoredCell(value, self._clock))

    async def fill(self) -> None:
        for row in range(self.settings.rows):
            await self.coordinator.put(self.update(row, "by", f"v{row}"), _QUORUM)
            await self.coordinator.put(self.update(row, "body", "x" * 100), _QUORUM)
        await self.coordinator.settle()

    async def mean_ms(self, call: Callable[[int], Awaitable[object]]) -> float:
        """Call after call for random rows; return the mean latency."""
        rows = [self.rng.randrange(self.settings.rows) for _ in range(self.settings.calls)]
        begun = time.perf_counter()
        for row in rows:
            await call(row)
        return (time.perf_counter() - begun) / len(rows) * 1000


async def _with_store(
    settings: VersionedSettings, work: Callable[[_Bench], Awaitable[T]], views: tuple[VersionedView, ...] = (_BY,)
) -> T:
    with tempfile.TemporaryDirectory(prefix="pequod-bench-") as folder:
        store = PlacedStore(Path(folder), settings.nodes, settings.replicas)
        try:
            bench = _Bench(settings, store, views)
            await bench.fill()
            return await work(bench)
        finally:
            store.close()


async def _cost(
    bench: _Bench, kind: str, first_ms: float | None, paper: dict[str, float], call: Callable[[int], Awaitable[object]]
) -> Cost:
    requests, cpu_s = bench.store.requests, time.process_time()
    latency_ms = await bench.mean_ms(call)
    await bench.coordinator.settle()
    calls = bench.settings.calls
    cpu_ms = (time.process_time() - cpu_s) / calls * 1000
    ratio = 1.0 if first_ms is None else latency_ms / first_ms
    return Cost(kind, latency_ms, cpu_ms, (bench.store.requests - requests) / calls, ratio, paper.get(kind))


async def _reads(bench: _Bench) -> list[Cost]:
    await bench.store.make_index()
    store, coordinator = bench.store, bench.coordinator
    base = await _cost(bench, "base", None, _PAPER_READS, lambda row: coordinator.get(_TABLE, f"r{row}", _QUORUM))
    first = base.latency_ms
    view = await _cost(bench, "view", first, _PAPER_READS, lambda row: coordinator.get_view(_BY, f"v{row}"))
    index = await _cost(bench, "index", first, _PAPER_READS, lambda row: store.scatter(_TABLE, "by", f"v{row}"))
    return [base, view, index]


async def _writes(settings: VersionedSettings) -> list[Cost]:
    costs: list[Cost] = []
    kinds: dict[str, tuple[VersionedView, ...]] = {
        "no view": (),
        "index": (),
        "1 view": (_BY,),
        "2 views": (_BY, _OTHER),
    }
    for kind, views in kinds.items():

        async def measure(bench: _Bench, kind: str = kind) -> Cost:
            if kind == "index":
                await bench.store.make_index()

            async def put(row: int) -> None:
                value = f"v{bench.rng.randrange(bench.settings.rows)}"
                await bench.coordinator.put(bench.update(row, "by", value), _QUORUM)

            return await _cost(bench, kind, costs[0].latency_ms if costs else None, _PAPER_WRITES, put)

        costs.append(await _with_store(settings, measure, views))
    return costs


async def _sessions(bench: _Bench) -> tuple[list[SessionCost], int]:
    coordinator, found, session_misses = bench.coordinator, [], 0
    for pause_ms in _PAUSES_MS:
        means: list[float] = []
        misses: list[int] = []
        for session in (StoreSession(), None):
            spent, missed, calls = 0.0, 0, max(1, bench.settings.calls // 10)
            for _ in range(calls):
                row = bench.rng.randrange(bench.settings.rows)
                update = bench.update(row, "body", f"{bench.rng.random()}")
                begun = time.perf_counter()
                await coordinator.put(update, _QUORUM, session)
                spent += time.perf_counter() - begun
                await asyncio.sleep(pause_ms / 1000)
                begun = time.perf_counter()
                rows = await coordinator.get_view(_BY, f"v{row}", session)
                spent += time.perf_counter() - begun
                missed += rows[f"r{row}"]["body"] != update.cell
            means.append(spent / calls * 1000)
            misses.append(missed)
        session_misses += misses[0]
        found.append(SessionCost(pause_ms, means[0], means[1], misses[1]))
    return found, session_misses


def _stale_by(width: int) -> Callable[[_Bench], Awaitable[Staleness]]:
    async def measure(bench: _Bench) -> Staleness:
        updates = bench.settings.calls

        async def write() -> float:
            begun = time.perf_counter()
            for at in range(updates):
                row = bench.rng.randrange(min(width, bench.settings.rows))
                await bench.coordinator.put(bench.update(row, "by", f"w{bench.rng.randrange(10 * updates)}"), _QUORUM)
                if at % 10 == 9:
                    # Ten writers, as in the paper.
                    await bench.coordinator.settle()
            await bench.coordinator.settle()
            return updates / (time.perf_counter() - begun)

        before = await write()
        stale = await _stale_rows(bench)
        begun = time.perf_counter()
        await ViewSweeper(bench.store, [_BY], bench.locks).sweep()
        sweep_s = time.perf_counter() - begun
        left = await _stale_rows(bench)
        return Staleness(width, updates, before, stale, sweep_s, left, await write())

    return measure


async def _stale_rows(bench: _Bench) -> int:
    count, after = 0, ""
    while keys := await bench.store.keys(_BY.name, after, 1000):
        for key in keys:
            count += len(swept_rows(key, await bench.store.get(_BY.name, key, None, _QUORUM)).stale)
        after = keys[-1]
    return count
