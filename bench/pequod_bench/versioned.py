"""Versioned views over a store without a master: reads, writes, sessions and stale rows, as the paper measures them.

    base       record "r17": by = "v42", body = ...          read by key, at the nodes of its key
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
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, TypeVar

from pequod_views.versioned import (
    RowLocks,
    SqliteReplicas,
    StoredCell,
    StoredColumn,
    StoreSession,
    Update,
    VersionedView,
    ViewCoordinator,
    ViewSweeper,
)
from pequod_views.versioned.records import Cells, merge
from pequod_views.versioned.rows import swept_rows
from rich.console import Console

from pequod_bench.report.latency import closed_loop
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import VersionedSettings

T = TypeVar("T")

_TABLE: Final = "base"
_BY: Final = VersionedView("by", _TABLE, "by", ("body",))
_OTHER: Final = VersionedView("other", _TABLE, "by", ())
_QUORUM: Final = 2
_PAUSES_MS: Final = (0, 1, 5, 20, 80)
_WIDTHS: Final = (1, 10, 100)
#: Writes at once where updates meet, as in the paper.
_WRITERS: Final = 10
#: The paper's figures 3, 5 and 7, as ratios.
_PAPER: Final = {"base": 1.0, "view": 1.0, "index": 3.5, "no view": 1.0, "1 view": 2.5}
_PAPER_INDEX_WRITE: Final = 1.0


class PlacedStore:
    """Nodes that are SQLite files, each with a thread of its own; a record is at some of them, by its key."""

    def __init__(self, folder: Path, node_count: int, replica_count: int) -> None:
        self.replica_count = replica_count
        self._nodes = [SqliteReplicas([folder / f"{number}.db"], synchronous="OFF") for number in range(node_count)]
        #: Requests to nodes, so far.
        self.requests = 0

    async def _ask(
        self, table: str, key: str, quorum: int, call: Callable[[SqliteReplicas], Awaitable[T]]
    ) -> Sequence[T]:
        """Ask the nodes of a key. All nodes answer, always."""
        assert quorum <= self.replica_count
        first = zlib.crc32(f"{table} {key}".encode()) % len(self._nodes)
        self.requests += self.replica_count
        nodes = [self._nodes[(first + number) % len(self._nodes)] for number in range(self.replica_count)]
        return await asyncio.gather(*map(call, nodes))

    async def _ask_all(self, call: Callable[[SqliteReplicas], Awaitable[Sequence[str]]]) -> list[str]:
        """Return the keys that any node has, in order."""
        self.requests += len(self._nodes)
        return sorted({key for keys in await asyncio.gather(*map(call, self._nodes)) for key in keys})

    async def get(self, table: str, key: str, columns: Sequence[StoredColumn] | None, quorum: int) -> Cells:
        merged: dict[StoredColumn, StoredCell] = {}
        for cells in await self._ask(table, key, quorum, lambda node: node.get(table, key, columns, 1)):
            merge(merged, cells)
        return merged

    async def get_versions(self, table: str, key: str, column: StoredColumn, quorum: int) -> Sequence[StoredCell]:
        """Return the different values of a cell."""
        found = await self._ask(table, key, quorum, lambda node: node.get_versions(table, key, column, 1))
        return list(dict.fromkeys(cell for cells in found for cell in cells))

    async def put(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        await self._ask(table, key, quorum, lambda node: node.put(table, key, cells, 1))

    async def forget(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        await self._ask(table, key, quorum, lambda node: node.forget(table, key, cells, 1))

    async def keys(self, table: str, after: str | None, count: int) -> Sequence[str]:
        return (await self._ask_all(lambda node: node.keys(table, after, count)))[:count]

    async def make_index(self) -> None:
        """Index cells by value on each node."""
        await asyncio.gather(*(node.make_index() for node in self._nodes))

    async def scatter(self, table: str, column: str, value: str) -> list[Cells]:
        """Ask all nodes for the records with a value, and read these."""
        keys = await self._ask_all(lambda node: node.find(table, column, value))
        return list(await asyncio.gather(*(self.get(table, key, None, self.replica_count // 2 + 1) for key in keys)))

    def close(self) -> None:
        for node in self._nodes:
            node.close()


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
        costs = {"mean ms": "{0.latency_ms:.2f}", "CPU ms": "{0.cpu_ms:.2f}", "requests": "{0.requests:.1f}"}
        costs |= {"ratio": "{0.ratio:.1f}", "paper": "{0.paper_ratio:.1f}"}
        print_rows(console, self.reads, {"read": "{0.kind}", **costs})
        print_rows(console, self.writes, {"write": "{0.kind}", **costs})
        pauses = {"session ms": "{0.with_session_ms:.2f}", "without ms": "{0.without_session_ms:.2f}"}
        print_rows(console, self.sessions, {"put, pause, read": "{0.pause_ms} ms", **pauses, "missed": "{0.missed}"})
        stale = {"records": "{0.width}", "updates": "{0.updates}", "writes/s": "{0.writes_per_s:.0f}"}
        stale |= {"stale rows": "{0.stale_rows}", "sweep s": "{0.sweep_s:.2f}", "left": "{0.stale_rows_swept}"}
        print_rows(console, self.staleness, {**stale, "writes/s after": "{0.writes_per_s_swept:.0f}"})


def run(settings: VersionedSettings, bars: ProgressBars) -> VersionedReport:
    """Run everything on stores in a temporary directory."""
    with bars.bar("running", 4) as advance:
        reads = asyncio.run(_with_store(settings, _reads))
        advance(1)
        writes = asyncio.run(_writes(settings))
        advance(1)
        sessions, misses = asyncio.run(_with_store(settings, _sessions))
        advance(1)
        staleness = [asyncio.run(_with_store(settings, partial(_stale, width))) for width in _WIDTHS]
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

    async def cost(
        self, kind: str, first: Cost | None, call: Callable[[int], Awaitable[object]], paper: float | None = None
    ) -> Cost:
        """Call after call for random rows; return what they cost."""
        calls = self.settings.calls
        rows = [self.rng.randrange(self.settings.rows) for _ in range(calls)]
        requests, cpu_s = self.store.requests, time.process_time()
        seconds, _ = await closed_loop(call, rows)
        await self.coordinator.settle()
        cpu_ms = (time.process_time() - cpu_s) / calls * 1000
        latency_ms = sum(seconds) / calls * 1000
        ratio = 1.0 if first is None else latency_ms / first.latency_ms
        return Cost(
            kind, latency_ms, cpu_ms, (self.store.requests - requests) / calls, ratio, paper or _PAPER.get(kind)
        )


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


async def _reads(bench: _Bench) -> list[Cost]:
    await bench.store.make_index()
    coordinator = bench.coordinator
    base = await bench.cost("base", None, lambda row: coordinator.get(_TABLE, f"r{row}", _QUORUM))
    view = await bench.cost("view", base, lambda row: coordinator.get_view(_BY, f"v{row}"))
    index = await bench.cost("index", base, lambda row: bench.store.scatter(_TABLE, "by", f"v{row}"))
    return [base, view, index]


async def _writes(settings: VersionedSettings) -> list[Cost]:
    costs: list[Cost] = []

    async def measure(kind: str, bench: _Bench) -> Cost:
        async def put(row: int) -> None:
            value = f"v{bench.rng.randrange(settings.rows)}"
            await bench.coordinator.put(bench.update(row, "by", value), _QUORUM)

        if kind == "index":
            await bench.store.make_index()
        paper = _PAPER_INDEX_WRITE if kind == "index" else None
        return await bench.cost(kind, costs[0] if costs else None, put, paper)

    views = {"no view": (), "index": (), "1 view": (_BY,), "2 views": (_BY, _OTHER)}
    for kind, some in views.items():
        costs.append(await _with_store(settings, partial(measure, kind), some))
    return costs


async def _sessions(bench: _Bench) -> tuple[list[SessionCost], int]:
    calls = max(1, bench.settings.calls // 10)

    async def put_and_read(pause_ms: int, session: StoreSession | None) -> tuple[float, int]:
        """Return the ms of a put and a read, and how many of them missed the put."""
        spent, missed = 0.0, 0
        for _ in range(calls):
            row = bench.rng.randrange(bench.settings.rows)
            update = bench.update(row, "body", f"{bench.rng.random()}")
            begun = time.perf_counter()
            await bench.coordinator.put(update, _QUORUM, session)
            spent += time.perf_counter() - begun
            await asyncio.sleep(pause_ms / 1000)
            begun = time.perf_counter()
            rows = await bench.coordinator.get_view(_BY, f"v{row}", session)
            spent += time.perf_counter() - begun
            missed += rows[f"r{row}"]["body"] != update.cell
        return spent / calls * 1000, missed

    found, session_misses = list[SessionCost](), 0
    for pause_ms in _PAUSES_MS:
        with_ms, missed = await put_and_read(pause_ms, StoreSession())
        session_misses += missed
        found.append(SessionCost(pause_ms, with_ms, *await put_and_read(pause_ms, None)))
    return found, session_misses


async def _stale(width: int, bench: _Bench) -> Staleness:
    updates = bench.settings.calls

    async def write() -> float:
        begun = time.perf_counter()
        for at in range(updates):
            row = bench.rng.randrange(min(width, bench.settings.rows))
            await bench.coordinator.put(bench.update(row, "by", f"w{bench.rng.randrange(10 * updates)}"), _QUORUM)
            if at % _WRITERS == _WRITERS - 1:
                await bench.coordinator.settle()
        await bench.coordinator.settle()
        return updates / (time.perf_counter() - begun)

    before, stale = await write(), await _stale_rows(bench)
    begun = time.perf_counter()
    await ViewSweeper(bench.store, [_BY], bench.locks).sweep()
    sweep_s = time.perf_counter() - begun
    return Staleness(width, updates, before, stale, sweep_s, await _stale_rows(bench), await write())


async def _stale_rows(bench: _Bench) -> int:
    count, after = 0, ""
    while keys := await bench.store.keys(_BY.name, after, 1000):
        for key in keys:
            count += len(swept_rows(key, await bench.store.get(_BY.name, key, None, _QUORUM)).stale)
        after = keys[-1]
    return count
