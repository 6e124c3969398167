"""Twip in write-around mode: applications write to PostgreSQL, readers read from a server before it.

    writers  INSERT p, INSERT or DELETE s  -> PostgreSQL -> feed -> server -> watch of p|   lag: commit to visible
    checkers                                               scan t|user|  <- server

The same writers run first without a server: that is the database's own limit. Writers, checkers and the watch are
one process, so its core is shared by all; what the database and the server take, they take from others.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import ClassVar, Final, Literal

import asyncpg
import numpy as np
from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres.store import PostgresStore
from rich.console import Console
from rich.table import Table

from pequod.client import AsyncClient
from pequod_bench.process import started_server
from pequod_bench.report.latency import LatencyHistogram
from pequod_bench.report.printed import Printed, print_figures
from pequod_bench.report.progress import ProgressBars
from pequod_bench.systems.postgres_cluster import started_cluster
from pequod_bench.workloads.graph import Graph, make_graph
from pequod_bench.workloads.keys import PUSH_JOIN, post_key, timeline_first, timeline_key, timeline_last, tweet

Feed = Literal["slot", "notify"]
FEEDS: Final[tuple[Feed, ...]] = ("slot", "notify")

#: A database as it is installed, but for what a replication slot needs.
SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_slot_wal_keep_size": "1GB",
    "shared_buffers": "256MB",
}
TABLES: Final = """
DROP TABLE IF EXISTS p, s;
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
_POST: Final = 'INSERT INTO p (poster, "time", tweet) VALUES ($1, $2, $3)'
_FOLLOW: Final = "INSERT INTO s (\"user\", poster, active) VALUES ($1, $2, '1')"
_UNFOLLOW: Final = 'DELETE FROM s WHERE "user" = $1 AND poster = $2'
#: One write of these many is a subscription that comes or goes.
_SUBSCRIBE_EVERY: Final = 10
_TWEET_BYTES: Final = 140
CATCH_UP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class BackedTwipSettings:
    """How large a run is."""

    users: int = 1000
    seconds: float = 15.0
    writers: int = 4
    checkers: int = 4
    seed: int = 1
    feeds: tuple[Feed, ...] = FEEDS
    #: Writes a second of all writers together; 0 for as many as the database takes.
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class FeedReport:
    """What one way of changes gave."""

    feed: Feed
    posts_per_s: float
    writes_per_s: float
    checks_per_s: float
    #: From the answer to a commit to the watch's event, by the same clock.
    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    #: How long the last writes took to be visible after the writers had stopped.
    catch_up_s: float
    timelines: int
    timeline_rows: int
    correct: bool


@dataclass(frozen=True, slots=True)
class BackedTwipReport(Printed):
    """A whole run."""

    indent: ClassVar[int | None] = 2
    settings: BackedTwipSettings
    #: What the same writers reach without a server.
    alone_posts_per_s: float
    alone_writes_per_s: float
    feeds: tuple[FeedReport, ...]

    @property
    def is_correct(self) -> bool:
        """Whether all timelines were right at the end."""
        return all(found.correct for found in self.feeds)

    def print_table(self, console: Console) -> None:
        """Print it for a person."""
        rows: list[tuple[str, ...]] = [
            ("database alone", f"{self.alone_posts_per_s:.0f}", f"{self.alone_writes_per_s:.0f}")
        ]
        for found in self.feeds:
            rates = (found.posts_per_s, found.writes_per_s, found.checks_per_s)
            lags = (found.lag_p50_ms, found.lag_p99_ms, found.lag_max_ms)
            figures = (*(f"{rate:.0f}" for rate in rates), *(f"{lag:.1f}" for lag in lags), f"{found.catch_up_s:.2f}")
            rows.append((found.feed, *figures, "yes" if found.correct else "NO"))
        heads = ("posts/s", "writes/s", "checks/s", "lag p50 ms", "p99 ms", "max ms", "catch-up s", "correct")
        print_figures(console, Table("", box=None), heads, rows)


class _Database:
    """The tables, and what is in them by the answers that writers got."""

    def __init__(self, dsn: str, graph: Graph) -> None:
        self.dsn = dsn
        self._graph = graph
        self.follows: dict[int, set[int]] = defaultdict(set)
        #: By poster: ticks of posts.
        self.posts: dict[int, list[int]] = defaultdict(list)
        #: By key: when its commit was answered.
        self.committed_s: dict[bytes, float] = {}
        self.write_count = 0
        self._ticks = count(1)

    @property
    def post_count(self) -> int:
        """How many posts were written."""
        return len(self.committed_s)

    async def reset(self) -> None:
        """Make the tables anew, with the subscriptions of the graph."""
        connection = await asyncpg.connect(self.dsn)
        await connection.execute(TABLES)
        edges = zip(self._graph.users.tolist(), self._graph.posters.tolist(), strict=True)
        await connection.copy_records_to_table("s", records=[(*edge, "1") for edge in edges])
        await connection.execute("ANALYZE s; ANALYZE p; CHECKPOINT")
        await connection.close()
        for user, poster in zip(self._graph.users.tolist(), self._graph.posters.tolist(), strict=True):
            self.follows[user].add(poster)

    async def write(self, number: int, settings: BackedTwipSettings, until_s: float) -> None:
        """Write, one transaction after another, until the time is up; subscriptions are those of one writer's users."""
        draw = random.Random(f"{settings.seed} {number}")
        connection = await asyncpg.connect(self.dsn)
        pause_s = settings.writers / settings.rate if settings.rate else 0.0
        due_s = time.monotonic()
        while time.monotonic() < until_s:
            if pause_s:
                due_s += pause_s
                await asyncio.sleep(due_s - time.monotonic())
            if draw.randrange(_SUBSCRIBE_EVERY) == 0:
                user = draw.randrange(number, settings.users, settings.writers)
                poster = draw.randrange(settings.users)
                known = self.follows[user]
                await connection.execute(_UNFOLLOW if poster in known else _FOLLOW, user, poster)
                known.symmetric_difference_update((poster,))
            else:
                poster, tick = draw.randrange(settings.users), next(self._ticks)
                await connection.execute(_POST, poster, tick, tweet(tick, _TWEET_BYTES).decode())
                self.committed_s[post_key(poster, tick)] = time.monotonic()
                self.posts[poster].append(tick)
            self.write_count += 1
        await connection.close()

    def timeline(self, user: int) -> list[tuple[bytes, bytes]]:
        """Return what a timeline has to be."""
        return sorted(
            (timeline_key(user, tick, poster), tweet(tick, _TWEET_BYTES))
            for poster in self.follows[user]
            for tick in self.posts[poster]
        )


def run(settings: BackedTwipSettings, bars: ProgressBars) -> BackedTwipReport:
    """Run everything on a fresh cluster.

    Raises:
        ServerStartError: PostgreSQL or the server does not start.
    """
    graph = make_graph("synthetic", settings.users, np.random.default_rng(settings.seed))
    with (
        tempfile.TemporaryDirectory(prefix="pequod-bench-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryDirectory(prefix="pequod-bench-") as own,
        started_cluster(Path(folder), SETTINGS) as server,
        bars.bar("running", 1 + len(settings.feeds)) as advance,
    ):
        dsn = f"postgresql://bench@127.0.0.1:{server.port}/postgres?sslmode=disable"
        mapping = Path(own) / "twip.toml"
        mapping.write_text(MAPPING)
        alone = asyncio.run(_alone(_Database(dsn, graph), settings))
        advance(1)
        feeds = []
        for feed in settings.feeds:
            feeds.append(_with_feed(_Database(dsn, graph), settings, feed, mapping))
            advance(1)
    return BackedTwipReport(settings, *alone, tuple(feeds))


async def _alone(database: _Database, settings: BackedTwipSettings) -> tuple[float, float]:
    await database.reset()
    began = time.monotonic()
    free = replace(settings, rate=0.0)
    until_s = began + settings.seconds
    await asyncio.gather(*(database.write(number, free, until_s) for number in range(settings.writers)))
    elapsed_s = time.monotonic() - began
    return database.post_count / elapsed_s, database.write_count / elapsed_s


def _with_feed(database: _Database, settings: BackedTwipSettings, feed: Feed, mapping: Path) -> FeedReport:
    asyncio.run(_install(database, feed))
    backing = ("--backing", database.dsn, "--backing-mapping", str(mapping), "--backing-feed", feed)
    with started_server(*backing, "--joins", PUSH_JOIN) as (target, _):
        report = asyncio.run(_measure(database, settings, feed, target))
    asyncio.run(_uninstall(database.dsn))
    return report


async def _install(database: _Database, feed: Feed) -> None:
    await database.reset()
    store = PostgresStore(database.dsn, parse_mappings(MAPPING), mode=feed)
    await store.install()
    await store.close()


async def _uninstall(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("SET client_min_messages = error")
    async with asyncio.timeout(CATCH_UP_S):
        while await connection.fetchval("SELECT count(*) FROM pg_replication_slots WHERE active"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    await connection.execute("DROP SCHEMA IF EXISTS pequod CASCADE; DROP PUBLICATION IF EXISTS pequod")
    await connection.execute("DROP TABLE p, s")
    await connection.close()


async def _measure(database: _Database, settings: BackedTwipSettings, feed: Feed, target: str) -> FeedReport:
    async with AsyncClient(target, timeout_s=CATCH_UP_S) as client, watching(client) as visible_s:
        # Every user has a timeline before the clock starts.
        for user in range(settings.users):
            await client.count(timeline_first(user, 0), timeline_last(user))
        began = time.monotonic()
        until_s = began + settings.seconds
        writers = [database.write(number, settings, until_s) for number in range(settings.writers)]
        checks = [_check(target, number, settings, until_s) for number in range(settings.checkers)]
        found = await asyncio.gather(asyncio.gather(*writers), asyncio.gather(*checks))
        elapsed_s = time.monotonic() - began
        async with asyncio.timeout(CATCH_UP_S):
            while len(visible_s) < database.post_count:  # noqa: ASYNC110 - a dictionary has no event
                await asyncio.sleep(0.005)
        catch_up_s = time.monotonic() - began - elapsed_s
        await _caught_up(client, database.dsn)
        rows, is_correct = await _verify(client, database, settings)
    lags = LatencyHistogram(visible_s[key] - at_s for key, at_s in database.committed_s.items())
    return FeedReport(
        feed=feed,
        posts_per_s=database.post_count / elapsed_s,
        writes_per_s=database.write_count / elapsed_s,
        checks_per_s=sum(found[1]) / elapsed_s,
        lag_p50_ms=lags.percentile_ms(50),
        lag_p99_ms=lags.percentile_ms(99),
        lag_max_ms=lags.percentile_ms(100),
        catch_up_s=catch_up_s,
        timelines=settings.users,
        timeline_rows=rows,
        correct=is_correct,
    )


@asynccontextmanager
async def watching(client: AsyncClient) -> AsyncIterator[dict[bytes, float]]:
    """Yield when each post was visible, as it is filled in."""
    visible_s: dict[bytes, float] = {}
    stands = asyncio.Event()

    async def watch() -> None:
        async for event in client.watch(b"p|", b"p}"):
            stands.set()
            now = time.monotonic()
            for change in event.changes:
                visible_s.setdefault(change[0], now)

    task = asyncio.create_task(watch())
    try:
        await stands.wait()
        yield visible_s
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _check(target: str, number: int, settings: BackedTwipSettings, until_s: float) -> int:
    """Check timelines of users in turn, from the tick of the check before; return how many."""
    users: Sequence[int] = range(number, settings.users, settings.checkers)
    since = dict.fromkeys(users, 0)
    done = 0
    async with AsyncClient(target, timeout_s=CATCH_UP_S) as client:
        while True:
            for user in users:
                if time.monotonic() >= until_s:
                    return done
                rows = await client.scan(timeline_first(user, since[user]), timeline_last(user))
                if rows:
                    since[user] = int(rows[-1][0].split(b"|")[2])
                done += 1


async def _caught_up(client: AsyncClient, dsn: str) -> None:
    """Wait until the feed has passed everything: subscriptions are not watched."""
    connection = await asyncpg.connect(dsn)
    position = await connection.fetchval("SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint")
    await connection.close()
    async with asyncio.timeout(CATCH_UP_S):
        while True:
            backing = (await client.statistics()).backing
            assert backing is not None
            if (backing.position or 0) >= position:
                return
            await asyncio.sleep(0.02)


async def _verify(client: AsyncClient, database: _Database, settings: BackedTwipSettings) -> tuple[int, bool]:
    """Compare each timeline with what the writes make; return how many rows they have, and whether all are right."""
    rows, is_correct = 0, True
    for user in range(settings.users):
        expected = database.timeline(user)
        rows += len(expected)
        is_correct &= await client.scan(timeline_first(user, 0), timeline_last(user)) == expected
    return rows, is_correct
