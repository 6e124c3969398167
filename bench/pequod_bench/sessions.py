"""Sessions over two servers beside one PostgreSQL: how long until one's own update is visible at the other server?

    put p|...  -> server 0 -> PostgreSQL -> slot -> server 0 -> answer            update
    scan t|... -> server 1, after the token of the answer -> rows                  visible
                  server 1 <- slot 1 <- PostgreSQL                                 lag: answer to the watch's event

Every fourth write is read without a token instead: what such a read costs, and how many of them miss the write.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import asyncpg
from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres.store import PostgresStore
from rich.console import Console
from rich.table import Table

from pequod.client import AsyncClient
from pequod_bench.backed_twip import CATCH_UP_S, MAPPING, SETTINGS, TABLES, watching
from pequod_bench.process import started_server
from pequod_bench.report.latency import LatencyHistogram
from pequod_bench.report.printed import Printed, print_figures
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import SessionSettings
from pequod_bench.systems.postgres_cluster import started_cluster
from pequod_bench.workloads.keys import (
    PUSH_JOIN,
    post_key,
    subscription_key,
    timeline_first,
    timeline_key,
    timeline_last,
    tweet,
)

_FEED_NAMES: Final = ("pequod", "pequod_1")
#: One write of this many is read without a token.
_PLAIN_EVERY: Final = 4
_TWEET_BYTES: Final = 140


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of some times, in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class SessionReport(Printed):
    """A whole run."""

    indent: ClassVar[int | None] = 2
    settings: SessionSettings
    writes_per_s: float
    #: From the call of a put to its answer, which the writer's own server gives once it has the write.
    put: Percentiles
    #: From the answer to the rows of a read after its token at the other server.
    visible: Percentiles
    #: From the answer to the event of a watch at the other server, which came by its slot.
    lag: Percentiles
    #: From the answer to the rows of a read without a token at the other server, with the write or without it.
    plain: Percentiles
    session_reads: int
    session_misses: int
    plain_reads: int
    plain_misses: int

    @property
    def is_correct(self) -> bool:
        """Whether each session saw its own writes."""
        return not self.session_misses

    def print_table(self, console: Console) -> None:
        """Print it for a person."""
        ways: list[tuple[str, Percentiles, tuple[int, ...]]] = [
            ("put", self.put, ()),
            ("answer to read after token", self.visible, (self.session_reads, self.session_misses)),
            ("answer to watch (lag of the replication slot)", self.lag, ()),
            ("answer to read without token", self.plain, (self.plain_reads, self.plain_misses)),
        ]
        rows = [
            (name, f"{found.p50_ms:.1f}", f"{found.p99_ms:.1f}", f"{found.max_ms:.1f}", *map(str, counts))
            for name, found, counts in ways
        ]
        console.print(f"{self.writes_per_s:.0f} writes/s")
        print_figures(console, Table("", box=None), ("p50 ms", "p99 ms", "max ms", "reads", "misses"), rows)


class _Times:
    """What the writers measured."""

    def __init__(self) -> None:
        self.put = LatencyHistogram()
        self.visible = LatencyHistogram()
        self.plain = LatencyHistogram()
        #: By key: when its put was answered.
        self.answered_s: dict[bytes, float] = {}
        self.session_misses = 0
        self.plain_misses = 0


def run(settings: SessionSettings, bars: ProgressBars) -> SessionReport:
    """Run everything on a fresh cluster.

    Raises:
        ServerStartError: PostgreSQL or a server does not start.
    """
    with (
        tempfile.TemporaryDirectory(prefix="pequod-bench-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryDirectory(prefix="pequod-bench-") as own,
        started_cluster(Path(folder), SETTINGS) as server,
        ExitStack() as stack,
        bars.bar("running", 1) as advance,
    ):
        dsn = f"postgresql://bench@127.0.0.1:{server.port}/postgres?sslmode=disable"
        mapping = Path(own) / "twip.toml"
        mapping.write_text(MAPPING)
        asyncio.run(_install(dsn))
        targets = []
        for name in _FEED_NAMES:
            backing = ("--backing", dsn, "--backing-mapping", str(mapping), "--backing-feed-name", name)
            flags = (*backing, "--backing-mode", "write-through", "--joins", PUSH_JOIN)
            targets.append(stack.enter_context(started_server(*flags))[0])
        report = asyncio.run(_measure(settings, targets))
        advance(1)
    return report


async def _install(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES)
    await connection.close()
    for name in _FEED_NAMES:
        store = PostgresStore(dsn, parse_mappings(MAPPING), feed_name=name)
        await store.install()
        await store.close()


async def _measure(settings: SessionSettings, targets: Sequence[str]) -> SessionReport:
    times = _Times()
    async with AsyncClient(targets[0]) as near, AsyncClient(targets[1]) as far, watching(far) as seen_s:
        for writer in range(settings.writers):
            await near.put(subscription_key(writer, writer), b"1")
            # So that the timeline is there before the clock starts.
            await far.session(token=near.last_token).scan(timeline_first(writer, 0), timeline_last(writer))
        began_s = time.monotonic()
        writers = [_write(near, far, number, settings, times, began_s) for number in range(settings.writers)]
        await asyncio.gather(*writers)
        elapsed_s = time.monotonic() - began_s
        async with asyncio.timeout(CATCH_UP_S):
            while len(seen_s) < len(times.answered_s):  # noqa: ASYNC110 - a dictionary has no event
                await asyncio.sleep(0.005)
    # The watch may hear of a write before its writer has the answer.
    lag = LatencyHistogram(max(0.0, seen_s[key] - at_s) for key, at_s in times.answered_s.items())
    return SessionReport(
        settings=settings,
        writes_per_s=len(times.answered_s) / elapsed_s,
        put=_percentiles(times.put),
        visible=_percentiles(times.visible),
        lag=_percentiles(lag),
        plain=_percentiles(times.plain),
        session_reads=times.visible.count,
        session_misses=times.session_misses,
        plain_reads=times.plain.count,
        plain_misses=times.plain_misses,
    )


async def _write(
    near: AsyncClient, far: AsyncClient, number: int, settings: SessionSettings, times: _Times, began_s: float
) -> None:
    """Write posts by the clock, and read each at the other server: the writer follows herself."""
    pause_s = settings.writers / settings.rate
    due_s = began_s + pause_s * random.Random(f"{settings.seed} {number}").random()
    session, tick = near.session(), 0
    while due_s < began_s + settings.seconds:
        await asyncio.sleep(due_s - time.monotonic())
        due_s += pause_s
        tick += 1
        key = post_key(number, tick)
        begun_s = time.monotonic()
        await session.put(key, tweet(tick, _TWEET_BYTES))
        answered_s = times.answered_s[key] = time.monotonic()
        times.put.record(answered_s - begun_s)
        is_plain = tick % _PLAIN_EVERY == 0
        reader = far if is_plain else far.session(token=session.token)
        rows = await reader.scan(timeline_first(number, tick), timeline_last(number))
        (times.plain if is_plain else times.visible).record(time.monotonic() - answered_s)
        is_missing = timeline_key(number, tick, number) not in dict(rows)
        times.plain_misses += is_plain and is_missing
        times.session_misses += is_missing and not is_plain


def _percentiles(times: LatencyHistogram) -> Percentiles:
    return Percentiles(*(times.percentile_ms(percent) for percent in (50, 99, 100)))
