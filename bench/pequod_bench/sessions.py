"""Sessions over two servers beside one PostgreSQL: how long until one's own update is visible at the other server?

    put p|...  -> server 0 -> PostgreSQL -> slot -> server 0 -> answer            update
    scan t|... -> server 1, after the token of the answer -> rows                  visible
                  server 1 <- slot 1 <- PostgreSQL                                 lag: answer to the watch's event

Every fourth write is read without a token instead: what such a read costs, and how many of them miss the write.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Final

import asyncpg
from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres.store import PostgresStore
from pequod_workloads.twip import PUSH_JOIN, post_key, subscription_key, timeline, timeline_key, tweet
from rich.console import Console

from pequod.client import AsyncClient
from pequod_bench.report.latency import Latencies, LatencyHistogram, latencies, open_loop
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import SessionSettings
from pequod_bench.systems.pequod_results import watched
from pequod_bench.systems.postgres_cluster import BACKING_SETTINGS, started_cluster
from pequod_bench.systems.server import started_server

TABLES: Final = """
CREATE TABLE p (poster int, "time" bigint, tweet text, PRIMARY KEY (poster, "time"));
CREATE TABLE s ("user" int, poster int, active text, PRIMARY KEY ("user", poster));
"""
MAPPING: Final = """
[[mapping]]
keys = "p|<poster:8>|<time:10>"
table = "p"
slots.poster = { column = "poster", type = "integer" }
slots.time = { column = "time", type = "integer" }
value = "tweet"

[[mapping]]
keys = "s|<user:8>|<poster:8>"
table = "s"
slots.user = { column = "user", type = "integer" }
slots.poster = { column = "poster", type = "integer" }
value = "active"
"""
_FEED_NAMES: Final = ("pequod", "pequod_1")
#: One write of this many is read without a token.
_PLAIN_EVERY: Final = 4
_CATCH_UP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class SessionReport(Printed):
    """A whole run."""

    indent: ClassVar[int | None] = 2
    settings: SessionSettings
    writes_per_s: float
    #: From the call of a put to its answer, which the writer's own server gives once it has the write.
    put: Latencies
    #: From the answer to the rows of a read after its token at the other server.
    visible: Latencies
    #: From the answer to the event of a watch at the other server, which came by its slot.
    lag: Latencies
    #: From the answer to the rows of a read without a token at the other server, with the write or without it.
    plain: Latencies
    session_reads: int
    session_misses: int
    plain_reads: int
    plain_misses: int

    def fault(self) -> str:
        return "a session did not see its own write" if self.session_misses else ""

    def print_table(self, console: Console) -> None:
        rows = (
            ("put", self.put, None, None),
            ("answer to read after token", self.visible, self.session_reads, self.session_misses),
            ("answer to watch (lag of the replication slot)", self.lag, None, None),
            ("answer to read without token", self.plain, self.plain_reads, self.plain_misses),
        )
        columns = {"": "{0[0]}", "p50 ms": "{0[1].p50_ms:.1f}", "p99 ms": "{0[1].p99_ms:.1f}"}
        columns |= {"max ms": "{0[1].max_ms:.1f}", "reads": "{0[2]:,}", "misses": "{0[3]:,}"}
        print_rows(console, rows, columns, title=f"{self.writes_per_s:.0f} writes/s")


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
    """Run everything on a fresh database.

    Raises:
        ServerStartError: PostgreSQL or a server does not start.
    """
    with (
        TemporaryDirectory(prefix="pequod-bench-", ignore_cleanup_errors=True) as folder,
        TemporaryDirectory(prefix="pequod-bench-") as own,
        started_cluster(Path(folder), BACKING_SETTINGS) as database,
        ExitStack() as stack,
        bars.working("running"),
    ):
        mapping = Path(own) / "twip.toml"
        mapping.write_text(MAPPING)
        asyncio.run(_install(database.dsn))
        targets = []
        for name in _FEED_NAMES:
            backing = ("--backing", database.dsn, "--backing-mapping", str(mapping), "--backing-feed-name", name)
            flags = (*backing, "--backing-mode", "write-through", "--joins", PUSH_JOIN)
            targets.append(stack.enter_context(started_server(*flags))[0])
        return asyncio.run(_measure(settings, targets))


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
    async with AsyncClient(targets[0]) as near, AsyncClient(targets[1]) as far, watched(far, [(b"p|", b"p}")]) as told:
        for writer in range(settings.writers):
            await near.put(subscription_key(writer, writer), b"1")
            # So that the timeline is there before the clock starts.
            await far.session(token=near.last_token).scan(*timeline(writer))
        sessions = [near.session() for _ in range(settings.writers)]

        async def write(number: int) -> None:
            """Write a post, and read it at the other server: the writer follows herself."""
            tick, writer = divmod(number, settings.writers)
            session, key = sessions[writer], post_key(writer, tick)
            begun_s = time.perf_counter()
            await session.put(key, tweet(tick))
            answered_s = times.answered_s[key] = time.perf_counter()
            times.put.record(answered_s - begun_s)
            is_plain = tick % _PLAIN_EVERY == 0
            reader = far if is_plain else far.session(token=session.token)
            rows = await reader.scan(*timeline(writer, tick))
            (times.plain if is_plain else times.visible).record(time.perf_counter() - answered_s)
            is_missing = timeline_key(writer, tick, writer) not in dict(rows)
            times.plain_misses += is_plain and is_missing
            times.session_misses += is_missing and not is_plain

        began_s = time.perf_counter()
        await open_loop(write, settings.rate, round(settings.rate * settings.seconds))
        elapsed_s = time.perf_counter() - began_s
        async with asyncio.timeout(_CATCH_UP_S):
            # The watch may hear of a write before its writer has the answer.
            lags = [max(0.0, await told[key] - at_s) for key, at_s in times.answered_s.items()]
    return SessionReport(
        settings=settings,
        writes_per_s=len(times.answered_s) / elapsed_s,
        put=times.put.summary(),
        visible=times.visible.summary(),
        lag=latencies(lags),
        plain=times.plain.summary(),
        session_reads=times.visible.count,
        session_misses=times.session_misses,
        plain_reads=times.plain.count,
        plain_misses=times.plain_misses,
    )
