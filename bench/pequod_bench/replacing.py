"""What reads feel of it when a join takes the place of another: their times before, meanwhile and afterwards.

    old   t|<user>|<time>|<poster> = check s|.. copy p|..                    three rows of each user
    new   t|<user>|<time>|<poster> = check s|.. unless mute|.. copy p|..     two of them

All timelines have been read, so all of them are built. Some callers read timelines at random, one after the other. Each
answer has to be the old rows or the new ones, and none that was asked for after a new one the old ones.

Server and callers are one thread, and times are its CPU time: from the call to the answer, with all that the thread
does in between, such as building. What else runs on the machine does not count, nor do pauses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from pequod_server import PequodServer, ServerConfig
from pequod_workloads import twip as keys
from rich.console import Console

from pequod.client import AsyncClient
from pequod_bench.collector import kept
from pequod_bench.report.printed import Printed, WrongAnswerError, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ReplaceSettings
from pequod_bench.systems.server import loop_factory

_NEW: Final = keys.PUSH_JOIN.replace(" copy", " unless mute|<user>|<poster> copy")
_POSTERS: Final = 1_000
#: Posters whom each user follows, one post of each; the first one is muted.
_FOLLOWS: Final = 3
_TWEET: Final = b"v" * 66
#: The thread's CPU time.
clock: Final = time.thread_time
#: Keys that are written, and timelines that are read, in one batch.
_BATCH: Final = 1_000
_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """How long the reads of one phase took."""

    phase: str
    reads: int
    seconds: float
    median_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class ReplaceReport(Printed):
    """The phases, and the p99 while the join was replaced by that before."""

    ranges_built: int
    phases: list[ReadTimes]
    p99_times: float

    def print_table(self, console: Console) -> None:
        columns = {"reads": "{0.phase}", "number": "{0.reads:,}", "CPU seconds": "{0.seconds:.1f}"}
        columns |= {"median": "{0.median_ms:.2f} ms", "p99": "{0.p99_ms:.2f} ms", "longest": "{0.max_ms:.1f} ms"}
        print_rows(console, self.phases, columns)
        console.print(
            f"ms of CPU; {self.ranges_built:,} ranges built; p99 meanwhile {self.p99_times:.2f} times that before, "
            "at most 2 is wanted; each answer had the old rows or the new ones"
        )


def run(settings: ReplaceSettings, bars: ProgressBars) -> ReplaceReport:
    """Measure a replacement at a server in this thread."""
    with kept("tamed"), asyncio.Runner(loop_factory=loop_factory(settings.client_loop)) as runner:
        return runner.run(_measured(settings, bars))


async def _measured(settings: ReplaceSettings, bars: ProgressBars) -> ReplaceReport:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    try:
        return await _replaced(settings, f"127.0.0.1:{port}", bars)
    finally:
        await server.stop()


async def _replaced(settings: ReplaceSettings, target: str, bars: ProgressBars) -> ReplaceReport:
    async with AsyncClient(target, timeout_s=_TIMEOUT_S) as client:
        await _fill(client, settings.ranges, bars)
        reading = _Reading(client, settings.ranges)
        before = await reading.phase("before", settings, lambda: False)
        replacing = asyncio.create_task(client.replace_join("t", _NEW))
        during = await reading.phase("meanwhile", settings, lambda: not replacing.done())
        status = await replacing
        after = await reading.phase("afterwards", settings, lambda: False)
        if not reading.is_new:
            raise WrongAnswerError("no read has seen the new rows")
    return ReplaceReport(status.ranges_built, [before, during, after], during.p99_ms / before.p99_ms)


async def _fill(client: AsyncClient, users: int, bars: ProgressBars) -> None:
    """Write what is read, and read all of it once."""
    await client.add_join(keys.PUSH_JOIN)
    await client.multi_put({keys.post_key(poster, poster): _TWEET for poster in range(_POSTERS)})
    with bars.bar("preparing", users) as advance:
        for start in range(0, users, _BATCH):
            some = range(start, min(users, start + _BATCH))
            rows: dict[bytes, bytes] = {}
            for user in some:
                rows |= {keys.subscription_key(user, poster): keys.FOLLOWS for poster in _followed(user)}
                rows[b"mute|%08d|%08d" % (user, _followed(user)[0])] = b""
            await client.multi_put(rows)
            await asyncio.gather(*(client.scan(*keys.timeline(user)) for user in some))
            advance(len(some))


def _followed(user: int) -> list[int]:
    return sorted((user * 7 + number) % _POSTERS for number in range(_FOLLOWS))


@dataclass(slots=True)
class _Reading:
    """Callers that read timelines."""

    client: AsyncClient
    users: int
    #: When the first answer with new rows came.
    new_at_s: float = float("inf")
    random: Random = field(default_factory=lambda: Random(1))

    @property
    def is_new(self) -> bool:
        """Whether an answer had the new rows."""
        return self.new_at_s < float("inf")

    async def phase(self, name: str, settings: ReplaceSettings, goes_on: Callable[[], bool]) -> ReadTimes:
        """Read a number of times, and then as long as something goes on; return how long reads took."""
        took: list[float] = []
        left = iter(range(settings.reads))
        begun_s = clock()
        await asyncio.gather(*(self._read(left, goes_on, took) for _ in range(settings.callers)))
        took.sort()
        median, p99 = (took[min(len(took) - 1, int(len(took) * share))] * 1e3 for share in (0.5, 0.99))
        return ReadTimes(name, len(took), clock() - begun_s, median, p99, took[-1] * 1e3)

    async def _read(self, left: Iterator[int], goes_on: Callable[[], bool], took: list[float]) -> None:
        while next(left, None) is not None or goes_on():
            user = self.random.randrange(self.users)
            begun_s = clock()
            rows = await self.client.scan(*keys.timeline(user))
            now_s = clock()
            took.append(now_s - begun_s)
            self._judge(user, [key for key, _ in rows], begun_s, now_s)

    def _judge(self, user: int, found: list[bytes], begun_s: float, now_s: float) -> None:
        old = [keys.timeline_key(user, poster, poster) for poster in _followed(user)]
        if found == old[1:]:
            self.new_at_s = min(self.new_at_s, now_s)
        elif found != old:
            raise WrongAnswerError(f"the timeline of user {user} has neither the old rows nor the new ones: {found}")
        elif begun_s > self.new_at_s:
            raise WrongAnswerError(f"the timeline of user {user} has the old rows after another one had the new ones")
