"""What durable views cost: the CPU of a put at the server, and the rows that managers write, by type and by number.

    server   joins, read once          puts, rows: what the joins take alone
             joins and their views     the same again, until the tables have all of it

Server, database and managers are processes; CPU is that of their accounts, so a busy machine says little wrong. In each
point every put changes one row of each view. In the end each table is compared with a scan.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pequod_views import DurableView, Target
from pequod_views.install import install
from pequod_views.reading import status
from rich.console import Console

from pequod.client import AsyncClient
from pequod_bench.report.printed import Printed, WrongAnswerError, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ViewsSettings
from pequod_bench.systems.server import loop_factory, started_server, usage
from pequod_bench.views.stage import (
    WAIT_S,
    Level,
    are_shared,
    compare,
    database_of,
    document,
    managers,
    opened,
    read_all,
)

#: The join of a view by its type, and the pattern of its keys; `{0}` is the number of the view.
_TYPES: Final = {
    "range": ("", "b|<group>|<id>"),
    "index": ("i{0}|<id>|<group> = copy b|<group>|<id>", "i{0}|<id>|<group>"),
    "count": ("c{0}|<group> = count b|<group>|<id>", "c{0}|<group>"),
    "sum": ("s{0}|<group> = sum b|<group>|<id>", "s{0}|<group>"),
    "max": ("m{0}|<group> = max b|<group>|<id>", "m{0}|<group>"),
    "join": ("j{0}|<user>|<group>|<id> = check f|<user>|<group> copy b|<group>|<id>", "j{0}|<user>|<group>|<id>"),
}
TYPES: Final = tuple(_TYPES)
#: The type of which there are several numbers of views, and of managers.
_MAIN: Final = "index"
_GROUPS: Final = 20
_WINDOW: Final = 16
_BATCH: Final = 250
#: What the accounts of processes are exact to: ten times their hundredth of a second.
_ACCOUNT_S: Final = 0.1
_TIMEOUT_S: Final = 120.0
#: Where an account says zero, so that nothing is divided by it.
_CPU_S_MIN: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured with some views of one type."""

    type: str
    views: int
    managers: int
    #: Of the server for a put, in µs: with the joins alone, and with their views.
    put_cpu_us: float
    put_views_cpu_us: float
    times: float
    #: The rows that managers wrote for each of their CPU seconds, and for each second until all tables had all of them.
    rows_per_cpu_s: float
    rows_per_s: float
    #: Of the database, for the same rows; None where it took less than its account shows.
    database_rows_per_cpu_s: float | None


@dataclass(frozen=True, slots=True)
class ViewsReport(Printed):
    """All points."""

    database: str
    points: list[Point]

    def unmeasured(self) -> str:
        return "" if self.points else f"there is no such type of views; there are {', '.join(TYPES)}"

    def print_table(self, console: Console) -> None:
        columns = {"views": "{0.type}", "number": "{0.views}", "managers": "{0.managers}"}
        columns |= {"µs a put, joins alone": "{0.put_cpu_us:.0f}", "with views": "{0.put_views_cpu_us:.0f}"}
        columns |= {"times": "{0.times:.2f}", "rows/CPU s of managers": "{0.rows_per_cpu_s:,.0f}"}
        columns |= {"rows/s": "{0.rows_per_s:,.0f}", "rows/CPU s of the database": "{0.database_rows_per_cpu_s:,.0f}"}
        print_rows(console, self.points, columns)
        console.print(f"CPU of the server for a put; {self.database}; each table was equal to a scan in the end")


def run(settings: ViewsSettings, bars: ProgressBars) -> ViewsReport:
    """Measure all points."""
    places = [(_MAIN, number, settings.managers[0]) for number in settings.views]
    places += [(_MAIN, settings.views[-1], managers) for managers in settings.managers[1:]]
    places += [(name, settings.of_types, settings.managers[0]) for name in TYPES if name != _MAIN]
    places = [place for place in places if settings.only in place[0]]
    points = list[Point]()
    with bars.bar("points", len(places)) as advance, asyncio.Runner(loop_factory=loop_factory()) as runner:
        for kind, views, managers in places:
            points.append(runner.run(_Measured(settings, kind, views, managers).point()))
            advance(1)
    return ViewsReport(settings.database, points)


class _Measured:
    """A server, a database and managers for one point."""

    def __init__(self, settings: ViewsSettings, kind: str, view_count: int, manager_count: int) -> None:
        self._settings = settings
        self._kind = kind
        self._view_count = view_count
        self._manager_count = manager_count
        self._rows = new_rows()
        join, pattern = _TYPES[kind]
        numbers = range(view_count)
        self._joins = ";".join(join.format(number) for number in numbers) if join else ""
        self._tables = [(f"v{number}", pattern.format(number)) for number in numbers]

    async def point(self) -> Point:
        """Measure."""
        with TemporaryDirectory() as folder, started_server() as (server, pid):
            async with AsyncClient(server, timeout_s=_TIMEOUT_S) as client:
                return await self._measure(client, Path(folder), server, lambda: usage(pid).cpu_s)

    async def _measure(self, client: AsyncClient, folder: Path, server: str, server_cpu: Callable[[], float]) -> Point:
        with database_of(self._settings.database, folder) as (database, database_cpu):
            file, views = document(folder, server, database, self._tables)
            await self._fill(client, views)
            alone_s = await self._puts(client, server_cpu, lambda: read_all(client, views))
            async with opened(database) as target, self._managing(file, target, client, views) as managers_cpu:
                level = Level(target, client)
                with_views_s = await self._puts(client, server_cpu, level.reached)
                before = level.changes, managers_cpu(), database_cpu(), time.monotonic()
                for start in range(0, self._settings.rows, _BATCH):
                    some = islice(self._rows, min(_BATCH, self._settings.rows - start))
                    await client.multi_put(dict(some))
                await level.reached()
                took_s = time.monotonic() - before[3]
                rows, manager_s, database_s = (
                    level.changes - before[0],
                    managers_cpu() - before[1],
                    database_cpu() - before[2],
                )
                await compare(target, client, views)
        puts = self._settings.puts / 1e6
        return Point(
            *(self._kind, self._view_count, self._manager_count),
            *(alone_s / puts, with_views_s / puts, with_views_s / max(alone_s, _CPU_S_MIN)),
            *(
                rows / max(manager_s, _CPU_S_MIN),
                rows / took_s,
                rows / database_s if database_s >= _ACCOUNT_S else None,
            ),
        )

    async def _fill(self, client: AsyncClient, views: tuple[DurableView, ...]) -> None:
        """Install the joins, write rows, and read all of them once."""
        if self._joins:
            await client.add_join(self._joins)
        await client.multi_put({f"f|u{group:02}|g{group:02}".encode(): b"1" for group in range(_GROUPS)})
        await client.multi_put(dict(islice(self._rows, 10 * _GROUPS)))
        await read_all(client, views)

    async def _puts(self, client: AsyncClient, cpu: Callable[[], float], end: Callable[[], object]) -> float:
        """Write rows call by call until they are everywhere; return the server's CPU seconds."""
        left = iter(list(islice(self._rows, self._settings.puts)))

        async def put() -> None:
            for key, value in left:
                await client.put(key, value)

        before_s = cpu()
        await asyncio.gather(*(put() for _ in range(_WINDOW)))
        ended = end()
        if asyncio.iscoroutine(ended):
            await ended
        return cpu() - before_s

    @asynccontextmanager
    async def _managing(
        self, file: Path, target: Target, client: AsyncClient, views: tuple[DurableView, ...]
    ) -> AsyncIterator[Callable[[], float]]:
        """Run managers that have shared the views out; yield their CPU seconds."""
        await install(target, client, views)
        with managers(file, self._manager_count) as processes:
            end_s = time.monotonic() + WAIT_S
            while not are_shared(await status(target), self._manager_count):
                if time.monotonic() > end_s:
                    raise WrongAnswerError(f"{self._manager_count} managers have not taken {len(views)} views")
                await asyncio.sleep(0.1)
            yield lambda: sum(usage(process.pid).cpu_s for process in processes)


def new_rows() -> Iterator[tuple[bytes, bytes]]:
    """Yield rows of the base, each with a larger value than the one before, so that each changes a maximum."""
    number = 0
    while True:
        number += 1
        yield b"b|g%02d|%07d" % (number % _GROUPS, number), b"%d" % number
