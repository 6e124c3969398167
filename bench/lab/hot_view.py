"""One hot view of Zipf's writes: what managers take in before it is split, afterwards, and after one was killed.

    one part      one manager writes all, and the others nothing
    split         the same writes, once the part is split where what changes is halved or cut in three, and each has one
    killed        the same again, after one of two was killed: the other takes its half when the lease has ended

How much is taken in at most is a matter of the busiest manager, so rows are counted by its CPU, as if each manager had
a core of its own. Where all of the writes wait for the managers, transactions are as long as they can be, before the
split as after it; where they come one after the other, more managers have more and shorter transactions.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from bisect import bisect
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated, Final

from pequod_bench.report.printed import Printed, WrongAnswerError, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import Database
from pequod_bench.systems.server import ServerProcess, loop_factory, started_server, usage
from pequod_bench.views.stage import WAIT_S, Level, compare, database_of, document, managers, opened
from pequod_views import DurableView, Target
from pequod_views.install import install
from pequod_views.moving import PartMover
from pequod_views.reading import status
from pequod_views.sampling import split_key
from rich.console import Console
from typer import Option

from pequod.client import AsyncClient

_KEYS: Final = 2_000
_BATCH: Final = 100
#: Rows that wait at once: the server keeps fewer than 10,000 changes for a watch.
_WAITING_ROWS: Final = 8_000
_LEASE_S: Final = 2.0
#: Longer than managers are stopped.
_LONG_LEASE_S: Final = 120.0
_SAMPLE_S: Final = 1.0
_TIMEOUT_S: Final = 120.0
_CPU_S_MIN: Final = 1e-6
#: Numbers of managers, and of parts after the split, where all writes wait for them.
_MANAGERS: Final = (2, 3)


@dataclass(frozen=True, slots=True)
class HotViewSettings:
    """What is written to the view, and where its table is."""

    rows: Annotated[int, Option(min=1, help="A tenth of the batches of 100 writes of a state.")] = 1_000
    database: Database = "postgres"


@dataclass(frozen=True, slots=True)
class HotPoint:
    """What managers took in of one hot view."""

    state: str
    #: Whether all writes were there before the managers went on.
    are_waiting: bool
    managers: int
    parts: int
    rows: int
    #: For each CPU second of the manager that was busiest, and its share of the CPU of all.
    rows_per_busiest_cpu_s: float
    busiest_share: float
    #: How old a part was at most meanwhile, by the clock.
    oldest_s: float


@dataclass(frozen=True, slots=True)
class HotViewReport(Printed):
    """The view before it is split, and afterwards."""

    points: list[HotPoint]

    def print_table(self, console: Console) -> None:
        columns = {"zipf": "{0.state}", "all waiting": "{0.are_waiting}", "managers": "{0.managers}"}
        columns |= {"parts": "{0.parts}", "rows": "{0.rows:,}"}
        columns |= {"rows/CPU s of the busiest manager": "{0.rows_per_busiest_cpu_s:,.0f}"}
        columns |= {"its share of the CPU": "{0.busiest_share:.2f}", "oldest, s": "{0.oldest_s:.1f}"}
        print_rows(console, self.points, columns)


def run(settings: HotViewSettings, bars: ProgressBars) -> HotViewReport:
    """Measure what managers take in of one hot view before it is split, afterwards, and after one was killed."""
    with bars.working("measuring"), asyncio.Runner(loop_factory=loop_factory()) as runner:
        return HotViewReport(runner.run(_HotView(settings).points()))


class _HotView:
    """A server, a database, a view and some managers."""

    def __init__(self, settings: HotViewSettings) -> None:
        self._settings = settings
        self._random = Random(1)
        self._weights = list(accumulate(1 / rank for rank in range(1, _KEYS + 1)))
        self._number = 0

    async def points(self) -> list[HotPoint]:
        """Measure before the split and after it, for each number of managers, and after a kill."""
        waiting = [point for count in _MANAGERS for point in await self._points_of(count, are_waiting=True)]
        return [*waiting, *await self._points_of(_MANAGERS[0], are_waiting=False)]

    async def _points_of(self, count: int, *, are_waiting: bool) -> list[HotPoint]:
        with TemporaryDirectory() as folder, started_server() as (server, _), ExitStack() as ending:
            database, _ = ending.enter_context(database_of(self._settings.database, Path(folder)))
            file, views = document(Path(folder), server, database, [("hot", "h|<id:7>")])
            (hot,) = views
            lease_s = _LONG_LEASE_S if are_waiting else _LEASE_S
            async with AsyncClient(server, timeout_s=_TIMEOUT_S) as client, opened(database) as target:
                await install(target, client, views)
                running = ending.enter_context(managers(file, count, "--lease", str(lease_s)))
                await self._holding(target, 1)
                measured = partial(self._measured, client=client, target=target, are_waiting=are_waiting)
                points = [await measured("one part", running)]
                await self._split(client, target, hot, count)
                await self._holding(target, count)
                points.append(await measured("split", running))
                if not are_waiting:
                    running[0].kill()
                    points.append(await measured("one was killed", running[1:]))
                await compare(target, client, views)
        return points

    async def _split(self, client: AsyncClient, target: Target, hot: DurableView, count: int) -> None:
        """Split the view into as many parts, each with as many changes."""
        mover = PartMover(target)
        if count > 2:
            # A key is changed once in a batch, however often it is drawn.
            total = self._weights[-1]
            changes = list(accumulate(1 - (1 - 1 / rank / total) ** _BATCH for rank in range(1, _KEYS + 1)))
            for number in range(1, count):
                rank = bisect(changes, changes[-1] * number / count)
                await mover.split(hot.name, b"h|%07d" % rank)
            return
        # As `pequod views split` does.
        writing = asyncio.create_task(self._write(client, sys.maxsize))
        await mover.split(hot.name, await split_key(client, mover, hot, _SAMPLE_S))
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing

    async def _holding(self, target: Target, owners: int) -> None:
        """Wait until as many managers have a part that they follow."""
        end_s = time.monotonic() + WAIT_S
        while True:
            parts = await status(target)
            if {part.state for part in parts} == {"follows"} and len({part.owner for part in parts}) == owners:
                return
            if time.monotonic() > end_s:
                raise WrongAnswerError(f"{owners} managers have not taken the parts of the view")
            await asyncio.sleep(0.1)

    async def _write(self, client: AsyncClient, rows: int) -> None:
        for _ in range(0, rows, _BATCH):
            keys = self._random.choices(range(_KEYS), cum_weights=self._weights, k=_BATCH)
            self._number += 1
            await client.multi_put({f"h|{key:07}": b"%d" % self._number for key in keys})

    async def _measured(
        self, state: str, running: list[ServerProcess], client: AsyncClient, target: Target, *, are_waiting: bool
    ) -> HotPoint:
        befores, level, oldest_s = [usage(one.pid).cpu_s for one in running], Level(target, client), 0.0
        changes, count = sum(part.changes for part in await status(target)), self._settings.rows * _BATCH // 10
        if are_waiting:
            for _ in range(0, count, _WAITING_ROWS):
                _tell(running, signal.SIGSTOP)
                await self._write(client, min(count, _WAITING_ROWS))
                _tell(running, signal.SIGCONT)
                await level.reached()
        working = asyncio.gather(self._write(client, 0 if are_waiting else count))
        while not working.done():
            oldest_s = max(oldest_s, *(part.age_s or 0.0 for part in await status(target)))
            await asyncio.sleep(0.05)
        await working
        reached = asyncio.create_task(level.reached())
        while not reached.done():
            oldest_s = max(oldest_s, *(part.age_s or 0.0 for part in await status(target)))
            await asyncio.sleep(0.05)
        await reached
        spent = [usage(one.pid).cpu_s - before for one, before in zip(running, befores, strict=True)]
        rows, parts = level.changes - changes, len(await status(target))
        busiest = max(spent)
        rate, share = rows / max(busiest, _CPU_S_MIN), busiest / max(sum(spent), _CPU_S_MIN)
        return HotPoint(state, are_waiting, len(running), parts, rows, rate, share, oldest_s)


def _tell(running: list[ServerProcess], what: signal.Signals) -> None:
    for one in running:
        os.kill(one.pid, what)
