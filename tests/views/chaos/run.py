"""One run: writes, and kills of managers, the server and the database; then tables must be equal to scans.

While it runs a reader looks at the tables by SQL: what is written at one moment must be seen at one moment.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pequod_views import DurableView, TargetAwayError, TargetRefusedError, ViewFile, open_target, parse_views
from pequod_views.moving import PartMover

from pequod import AsyncClient
from pequod.errors import PequodError
from tests.views.chaos.behind import Behind
from tests.views.chaos.processes import KilledServer, ManagerProcess
from tests.views.sites import ServerSite, Site, check_log, equal, installed

JOINS = """
    karma|<author> = count vote|<author>|<id>|<voter>;
    t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>
"""
FILE = """
server = "{server}"
database = "{database}"
joins = '''{joins}'''
[[view]]
name = "karma"
keys = "karma|<author>"
value = {{ column = "votes", type = "integer" }}
parts = 2
log = true
[[view]]
name = "timelines"
keys = "t|<user>|<time:4>|<poster>"
slots.time = {{ type = "integer" }}
value = "body"
parts = 3
log = true
[[view]]
name = "pairs"
keys = "pair|<side>|<number>"
value = "body"
log = true
"""
LEASE_S = 1.0
_USERS = "abcdefgh"
#: After this share of the writes a part is split.
_SPLITS = 0.1
#: Views are installed again within this time, whatever is killed meanwhile.
_ADOPT_S = 120.0


@dataclass
class Report:
    """What a run did, and what was wrong."""

    seed: int
    done: Counter[str] = field(default_factory=Counter)
    wrongs: list[str] = field(default_factory=list)
    steps: int = 0
    looks: int = 0

    def __str__(self) -> str:
        done = ", ".join(f"{count} {what}" for what, count in sorted(self.done.items()))
        return f"seed {self.seed}: {done}; {self.steps} transactions logged, {self.looks} looks by SQL"


class Stage:
    """A server, two managers and a database, for run after run.

    Args:
        behind: The database behind the server; without one the server is filled again when it was killed.
        flags: With which the server has that database.
    """

    def __init__(self, site: Site, folder: Path, behind: Behind | None = None, flags: Sequence[str] = ()) -> None:
        self.site = site
        self.behind = behind
        self.server = KilledServer(*flags)
        self.file = folder / "views.toml"
        self.file.write_text(FILE.format(server=self.server.target, database=site.database, joins=JOINS))
        self.views: ViewFile = parse_views(self.file.read_text())
        self.client = AsyncClient(self.server.target, timeout_s=20)
        self.log = folder / "managers.log"
        self.managers: list[ManagerProcess] = []

    async def start(self) -> None:
        await self.fill(random.Random(0))
        await installed(self.site, self.client, *self.views.views)
        flags = ["--lease", str(LEASE_S)]
        self.managers = [ManagerProcess(self.file, [*flags, "--name", name], self.log) for name in "ab"]

    async def fill(self, rng: random.Random) -> None:
        """Install the joins and write some base data."""
        await self.client.add_join(JOINS)
        rows = {f"vote|{rng.choice(_USERS)}|{rng.randrange(9)}|{rng.choice(_USERS)}": b"" for _ in range(40)}
        rows |= {f"s|{rng.choice(_USERS)}|{rng.choice(_USERS)}": b"1" for _ in range(20)}
        rows |= {f"p|{rng.choice(_USERS)}|{rng.randrange(10_000):04}": b"post" for _ in range(60)}
        await self.client.multi_put(rows)

    async def stop(self) -> None:
        for manager in self.managers:
            manager.kill()
        await self.client.close()
        self.server.kill()


class Run:
    """Carries out one seed."""

    def __init__(self, stage: Stage, seed: int, steps: int = 30) -> None:
        self._stage = stage
        self._rng = random.Random(seed)
        #: Of its own, so that a seed kills at the same steps as it did without splits.
        self._split_rng = random.Random(seed)
        self._steps = steps
        self.report = Report(seed)
        self._background: set[asyncio.Task[None]] = set()
        #: Ends the reader between two looks: a client may take a cancellation for its own while it closes.
        self._is_over = False

    async def carry_out(self) -> Report:
        reader = asyncio.create_task(self._look())
        try:
            for _ in range(self._steps):
                await self._step()
        finally:
            await asyncio.gather(*self._background)
            self._is_over = True
            await reader
        await self._judge()
        return self.report

    async def _step(self) -> None:
        self._start_refused()
        roll = self._rng.random()
        if roll < 0.80:
            await self._write()
            if self._split_rng.random() < _SPLITS:
                self._later("parts split", self._split())
        elif roll < 0.87:
            self._count("managers killed")
            self._rng.choice(self._stage.managers).restart()
        elif roll < 0.90:
            self._later("managers paused", self._rng.choice(self._stage.managers).pause(1.5 * LEASE_S))
        elif roll < 0.93:
            await self._end_server()
        elif isinstance(self._stage.site, ServerSite):
            if roll < 0.96 and not any(task.get_name() == "database" for task in self._background):
                self._later("databases killed", self._restart_database(self._stage.site), "database")
            else:
                self._later("connections cut", self._cut(self._stage.site))
        await asyncio.sleep(self._rng.choice([0, 0, 0.01, 0.1]))

    async def _end_server(self) -> None:
        """Kill the server, or the database behind it."""
        behind = self._stage.behind
        if behind is not None and self._rng.random() < 0.5 and await behind.restart():
            self._count("databases behind killed")
            return
        self._count("servers killed")
        await self._stage.server.restart()
        if behind is None:
            await self._stage.fill(self._rng)
            # Its data were in memory: it is another server now.
            await self._adopt()

    async def _adopt(self) -> None:
        """Have the views show the server that was started anew."""
        stage = self._stage
        end_s = time.monotonic() + _ADOPT_S
        while True:
            try:
                await installed(stage.site, stage.client, *stage.views.views, adopt=True)
                break
            except TargetAwayError as error:
                assert time.monotonic() < end_s, f"the views cannot be installed anew within {_ADOPT_S:g} s: {error}"
                await asyncio.sleep(0.05)
        self._start_refused()

    def _start_refused(self) -> None:
        """Start managers again that had looked at the server before it was adopted; each ends a moment later."""
        for manager in self._stage.managers:
            if manager.was_refused:
                self._count("managers refused")
                manager.restart()

    def _count(self, what: str) -> None:
        self.report.done[what] += 1

    def _later(self, what: str, work: object, name: str = "") -> None:
        assert asyncio.iscoroutine(work)
        self._count(what)
        task = asyncio.create_task(work, name=name or what)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _split(self) -> None:
        """Split a view whose parts need not be of one moment; who is killed meanwhile has not done it."""
        letter = self._split_rng.choice(_USERS)
        view, key = self._split_rng.choice([("karma", f"karma|{letter}"), ("timelines", f"t|{letter}|0500")])
        target = open_target(self._stage.site.database)
        with suppress(TargetAwayError, TargetRefusedError):
            await PartMover(target).split(view, key.encode())
        await target.close()

    async def _restart_database(self, site: ServerSite) -> None:
        await asyncio.to_thread(site.stop)
        await asyncio.sleep(self._rng.choice([0.0, 0.5]))
        await asyncio.to_thread(site.start)

    async def _cut(self, site: ServerSite) -> None:
        try:
            await site.cut()
        except Exception:
            self._count("cuts missed")

    async def _write(self) -> None:
        rng = self._rng
        self._count("writes")
        user, other, number = rng.choice(_USERS), rng.choice(_USERS), rng.randrange(10_000)
        try:
            batch = self._stage.client.batch()
            for key in (f"vote|{user}|{number % 9}|{other}", f"p|{user}|{number:04}", f"s|{user}|{other}"):
                if rng.random() < 0.3:
                    batch.remove(key)
                else:
                    batch.put(key, f"{number}")
            await batch.send()
            # Both sides at one moment.
            await self._stage.client.multi_put({f"pair|{side}|{number % 50}": f"{number}" for side in "lr"})
        except PequodError:
            # The server was killed while it had the write; what came of it shows in the scan.
            self._count("writes failed")

    async def _look(self) -> None:
        """Compare both sides of the pairs, again and again."""
        while not self._is_over:
            await asyncio.sleep(0.02)
            try:
                rows = await self._stage.site.fetch("SELECT side, number, body FROM pairs")
            except Exception:
                continue
            self.report.looks += 1
            sides = [{(number, body) for side, number, body in rows if side == one} for one in "lr"]
            if sides[0] != sides[1]:
                self.report.wrongs.append(f"half of a moment: {sides[0] ^ sides[1]}")

    async def _judge(self) -> None:
        stage = self._stage
        await stage.client.add_join(JOINS)
        views: tuple[DurableView, ...] = stage.views.views
        try:
            await asyncio.sleep(LEASE_S)
            self._start_refused()
            await equal(stage.site, stage.client, *views, wait_s=40)
            for view in views:
                self.report.steps += await check_log(stage.site, view)
            if stage.behind is not None:
                found = await stage.site.fetch("SELECT side, number, body FROM pairs ORDER BY side, number")
                assert list(map(tuple, found)) == await stage.behind.pairs(), "the database has other rows"
        except AssertionError as error:
            self.report.wrongs.append(str(error))
        self.report.wrongs += [f"a manager has ended: {one.log}" for one in stage.managers if not one.is_running]
