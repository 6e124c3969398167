"""One run of chaos: a server before a database, both tormented; at the end what is served equals a recomputation.

    writers    transactions straight into the database        readers    scans of rows and timelines
    putters    puts through the server (write-through)        faults     kill -9, cut cables, restarts, one by one
    commits    of one row or of 500, and of 200,000 that no mapping reads
    memory     short now and then, in half of the runs: what is loaded and computed goes at random times

What is checked: a counter that only grows never goes back for a reader; rows that are always written together look the
same to a reader, also where a part of them was evicted and loaded again; all that the server serves at the end, rows
and computed keys, is what the naive model makes of the database's rows; every acknowledged put is in the database.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pequod_grammar import parse

from pequod.client import AsyncClient
from pequod.engine.testing import NaiveModel
from pequod.errors import LimitExceededError, PequodError
from tests.backing.chaos import evicting, slicing
from tests.backing.chaos.server import Program, ServerProcess
from tests.backing.chaos.sites import Site, SiteAwayError, Statement

JOINS: Final = (
    "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>; n|<poster> = count p|<poster>|<time>"
)
USERS: Final = [f"u{number}" for number in range(8)]
#: Whose posts go through the server; nobody else writes them.
PUTTERS: Final = ["w0", "w1"]
#: A post whose body counts upwards.
COUNTER: Final = "p|counter|0000000000"
_POST: Final = (
    "INSERT INTO posts (poster, at, body, hidden) VALUES ($1, $2, $3, $4) "
    "ON CONFLICT (poster, at) DO UPDATE SET body = excluded.body, hidden = excluded.hidden"
)
#: Posts whose bodies are always one and the same, in a range that is read as a whole.
_BLOCK: Final = (
    "INSERT INTO posts (poster, at, body, hidden) WITH RECURSIVE n (at) AS "
    "(SELECT 0 UNION ALL SELECT at + 1 FROM n WHERE at < 999) SELECT 'block', at, $1, false FROM n WHERE true "
    "ON CONFLICT (poster, at) DO UPDATE SET body = excluded.body"
)
#: More rows than a feed holds, where it is told to hold little.
_MANY: Final = (
    "INSERT INTO posts (poster, at, body, hidden) WITH RECURSIVE n (at) AS "
    "(SELECT 1000 UNION ALL SELECT at + 1 FROM n WHERE at < 1500) SELECT $1, at, $2, at % 7 = 0 FROM n WHERE true "
    "ON CONFLICT (poster, at) DO UPDATE SET body = excluded.body, hidden = excluded.hidden"
)
#: Only tells a hang from a machine that is busy.
_SETTLE_S: Final = 300.0
#: Before anything goes wrong, so that there is something to spoil.
_FIRST_READS: Final = 20
#: How many transactions the writers may be ahead of the last answered read: a server of slow turns never catches up
#: with writers that know no bound.
_AHEAD: Final = 40

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass
class Report:
    """What a run did, and what was wrong."""

    seed: int
    mode: str
    faults: list[str] = field(default_factory=list)
    transactions: int = 0
    reads: int = 0
    puts: int = 0
    wrongs: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.mode}, {', '.join(self.faults)}; {self.transactions} transactions, "
            f"{self.reads} reads, {self.puts} acknowledged puts"
        )


class Run:
    """A run with all its tasks."""

    def __init__(self, site: Site, folder: Path, seed: int) -> None:
        self._draw = random.Random(seed)
        self._site = site
        # An acknowledged put that is gone with its primary would be no defect of the server.
        self._is_written_through = self._draw.random() < 0.5 and not site.loses_commits
        mode = "write-through" if self._is_written_through else "write-around"
        flags = [*site.flags, "--backing-mode", mode, "--joins", JOINS]
        if self._draw.random() < 0.5:
            flags += ["--snapshot-file", str(folder / f"snapshot-{seed}")]
            mode += " with snapshots"
        program: Program = slicing.main
        if self._draw.random() < 0.5:
            program = evicting.main
            mode += ", evicting"
        self.report = Report(seed, mode)
        self.server = ServerProcess(program, flags, folder / f"server-{seed}.log")
        self._count = 0
        #: How many transactions there were at the last answered read.
        self._answered = 0
        #: What acknowledged puts left, and what puts may have left of which nobody heard again.
        self._acknowledged: dict[str, str | None] = {}
        self._unknown: dict[str, str | None] = {}
        #: Keys that were put in one call of which nobody heard again; they are left alone since.
        self._together: list[tuple[list[str], str]] = []
        #: What was there before those.
        self._before: dict[str, str | None] = {}

    async def carry_out(self) -> Report:
        """Do it all."""
        await self._site.reset()
        await self._write(30)
        await self.server.start()
        tasks = [asyncio.create_task(work()) for work in self._works()]
        try:
            await self._torment(tasks)
            await self._compare("after the faults")
            await self._write(10)
            await self._compare("after some more writes")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.server.stop()
        return self.report

    def _works(self) -> list[Work]:
        putters = [self._putter(name) for name in PUTTERS] if self._is_written_through else []
        return [self._writer, self._writer, self._reader, self._reader, *putters]

    async def _torment(self, tasks: list[asyncio.Task[None]]) -> None:
        draw = self._draw
        faults = self._site.faults(draw, is_written_through=self._is_written_through)
        faults["killed"] = self.server.kill
        faults["stopped"] = lambda: self.server.kill(signal.SIGTERM)
        async with asyncio.timeout(_SETTLE_S):
            while self.report.reads < _FIRST_READS and not any(task.done() for task in tasks):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        for _ in range(draw.randint(2, 4)):
            await asyncio.sleep(draw.uniform(0.05, 0.6))
            name = draw.choice(sorted(faults))
            self.report.faults.append(name)
            await faults[name]()
        await asyncio.sleep(draw.uniform(0.05, 0.4))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    # Those who use it.

    async def _write(self, count: int) -> None:
        for _ in range(count):
            await self._site.run([self._statement() for _ in range(self._draw.choice([1, 1, 3]))])

    async def _writer(self) -> None:
        while True:
            while self.report.transactions - self._answered >= _AHEAD:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            with suppress(SiteAwayError):
                statements = [self._statement() for _ in range(self._draw.choice([1, 1, 1, 4]))]
                self._count += 1
                counted = "INSERT INTO posts (poster, at, body) VALUES ('counter', 0, $1) "
                counted += "ON CONFLICT (poster, at) DO UPDATE SET body = excluded.body"
                if self._draw.random() < 0.3:
                    # Two writers, so the greater number may be committed first; only then is it written.
                    counted += " WHERE length(posts.body) < length(excluded.body) OR posts.body < excluded.body"
                    statements.append((counted, (f"{self._count:08}",)))
                if self._draw.random() < 0.1:
                    statements.append((_BLOCK, (f"{self._count}",)))
                await self._site.run(statements)
                self.report.transactions += 1
            await asyncio.sleep(self._draw.uniform(0, 0.02))

    def _statement(self) -> Statement:
        draw = self._draw
        chance, user, other = draw.random(), draw.choice([*USERS, *PUTTERS]), draw.choice([*USERS, *PUTTERS])
        poster, time = draw.choice(USERS), draw.randrange(20)
        if chance < 0.45:
            return _POST, (poster, time, f"{chance}", draw.random() < 0.1)
        if chance < 0.6:
            return "DELETE FROM posts WHERE poster = $1 AND at = $2", (poster, time)
        if chance < 0.62:
            return "UPDATE posts SET at = at + $2 WHERE poster = $1 AND at < 100", (
                poster,
                100 * draw.randrange(1, 10**6),
            )
        if chance < 0.63:
            return "DELETE FROM posts WHERE poster = $1", (poster,)
        if chance < 0.64:
            return "TRUNCATE subscriptions", ()
        if chance < 0.65:
            return _MANY, (poster, f"{chance}")
        if chance < 0.8:
            return 'DELETE FROM subscriptions WHERE "user" = $1 AND poster = $2', (user, other)
        return 'INSERT INTO subscriptions ("user", poster) VALUES ($1, $2) ON CONFLICT DO NOTHING', (user, other)

    async def _reader(self) -> None:
        draw = random.Random(self._draw.random())
        seen = b""
        async with AsyncClient(self.server.target, timeout_s=5.0) as client:
            while True:
                try:
                    user = draw.choice([*USERS, *PUTTERS])
                    prefix = draw.choice(["t|{}|", "t|{}|", "s|{}|", "p|{}|", "n|{}"]).format(user)
                    await client.scan(prefix=prefix)
                    found = await client.get(COUNTER) or b""
                    self.report.reads += 2
                    self._answered = self.report.transactions
                    if found < seen and not self._site.loses_commits:
                        self.report.wrongs.append(f"the counter went back from {seen!r} to {found!r}")
                    seen = found
                    bodies = {body for _, body in await client.scan(prefix="p|block|")}
                    if len(bodies) > 1:
                        self.report.wrongs.append(f"a transaction was half there: {sorted(bodies)}")
                except PequodError:
                    await asyncio.sleep(0.02)

    def _putter(self, poster: str) -> Work:
        async def work() -> None:
            draw = random.Random(f"{self._draw.random()} {poster}")
            async with AsyncClient(self.server.target, timeout_s=5.0) as client:
                for number in range(10**6):
                    # A key of which nobody knows what became of it is left alone: it could still be written.
                    known = [key for key in self._acknowledged if key.startswith(f"p|{poster}|")]
                    key = draw.choice(known) if known and draw.random() < 0.4 else f"p|{poster}|{number:010}"
                    keys = [key, f"{key[:-10]}{number + 500_000:010}"] if draw.random() < 0.2 else [key]
                    await self._put(client, keys, None if draw.random() < 0.2 else f"put {number}")
                    await asyncio.sleep(draw.uniform(0, 0.01))

        return work

    async def _put(self, client: AsyncClient, keys: list[str], value: str | None) -> None:
        """Put one key or remove it, or put several, all or none."""
        for key in keys:
            self._unknown[key], self._before[key] = value, self._acknowledged.pop(key, None)
        if value is not None:
            self._together.append((keys, value))
        try:
            if value is None:
                await asyncio.gather(*map(client.remove, keys))
            elif len(keys) == 1:
                await client.put(keys[0], value)
            else:
                await client.multi_put(dict.fromkeys(keys, value))
        except PequodError:
            # It may or may not be there: either is right.
            await asyncio.sleep(0.02)
        else:
            if value is not None:
                self._together.remove((keys, value))
            for key in keys:
                del self._unknown[key]
                self._acknowledged[key] = value
            self.report.puts += 1

    # The judge.

    async def _compare(self, moment: str) -> None:
        async with AsyncClient(self.server.target, timeout_s=_SETTLE_S) as client:
            while True:
                await self._caught_up(client)
                rows = await self._site.rows()
                wrongs = await self._differences(client, rows)
                # A put that waited for a lock may come through while we compare.
                if rows == await self._site.rows():
                    break
        self.report.wrongs += [f"{moment}, {wrong}" for wrong in wrongs]
        self._compare_puts(rows)

    async def _differences(self, client: AsyncClient, rows: dict[bytes, bytes]) -> list[str]:
        model = NaiveModel()
        for spec in parse(JOINS):
            model.add(spec)
        model.base = rows
        expected = model.evaluate()
        names = [*USERS, *PUTTERS, "counter", "block"]
        wrongs = []
        for prefix in [f"{table}|{name}|" for table in "tps" for name in names] + ["n|", "p|", "s|"]:
            served = dict(await self._served(client, prefix))
            wanted = {key: value for key, value in expected.items() if key.startswith(prefix.encode())}
            if served != wanted:
                missing, extra = wanted.items() - served.items(), served.items() - wanted.items()
                wrongs.append(f"{prefix}: missing {sorted(missing)[:5]}, extra {sorted(extra)[:5]}")
        return wrongs

    async def _served(self, client: AsyncClient, prefix: str) -> list[tuple[bytes, bytes]]:
        while True:
            try:
                return await client.scan(prefix=prefix)
            except LimitExceededError:
                # Only a server whose memory is short now and then says so.
                await asyncio.sleep(0.02)

    def _compare_puts(self, rows: dict[bytes, bytes]) -> None:
        for keys, put in self._together:
            if len({rows.get(key.encode()) == put.encode() for key in keys}) > 1:
                self.report.wrongs.append(f"{keys} were put together, and only some are there")
        for key, value in self._acknowledged.items():
            found = rows.get(key.encode())
            if found != (None if value is None else value.encode()):
                self.report.wrongs.append(f"{key} was acknowledged as {value!r} and is {found!r}")
        for key, value in self._unknown.items():
            found = rows.get(key.encode())
            allowed = [None if one is None else one.encode() for one in (value, self._before[key])]
            if found not in allowed:
                self.report.wrongs.append(
                    f"{key} was put once more as {value!r} and is {found!r}, not one of {allowed}"
                )

    async def _caught_up(self, client: AsyncClient) -> None:
        position = await self._site.position()
        try:
            async with asyncio.timeout(_SETTLE_S):
                while True:
                    with suppress(PequodError):
                        backing = (await client.statistics()).backing
                        assert backing is not None
                        if backing.state == "ok" and (backing.position or 0) >= position:
                            return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{self.report}: the feed is not back after {_SETTLE_S:g} s") from None
