"""Twip on a cluster whose servers are killed on the way; at the end every timeline has to be exact.

    ticks   0 ------- a third ------- two thirds ------- end ---> all timelines, as of everything that was written
                      a compute       a home
                      is killed       is killed

A write of unknown outcome is sent again: it says the same, and no other client writes its key.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import asyncpg
from pequod_server.backing import Mapping
from pequod_server.backing.mapping import GENERIC_TABLE
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.backing.sqlite.store import SqliteStore
from pequod_workloads.twip import FOLLOWS, subscription_key
from rich.console import Console

from pequod.client import AsyncClient
from pequod.cluster.servers import ServerRole
from pequod.commands.kinds import PUT
from pequod.errors import PequodError, UnavailableError
from pequod.freshness import Latest
from pequod_bench.report.printed import print_rows
from pequod_bench.report.progress import Advance, ProgressBars
from pequod_bench.settings import DemoSettings
from pequod_bench.systems.postgres_cluster import BACKING_SETTINGS, started_cluster
from pequod_bench.systems.server import loop_factory
from pequod_bench.systems.site import (
    OWNED,
    ClusterShape,
    ClusterSite,
    SiteServer,
    SiteWorker,
    StartDatabase,
    started_site,
)
from pequod_bench.twip.prepared import SCAN_BATCH, Prepared, prepare, verify
from pequod_bench.twip.report import TwipOutcome, outcome
from pequod_bench.twip.sending import TIMEOUT_S, execute_all, sent
from pequod_bench.workloads.graph import Graph
from pequod_bench.workloads.stream import CommandBatch, timeline_scans
from pequod_bench.workloads.verify import Reply

#: How long a final read may wait for everything that was written.
_LATEST: Final = Latest(wait_s=60.0)
_WORKERS: Final = 4
#: No schema is needed: one table has all keys of these tables.
_GENERIC: Final = (Mapping.generic(name.encode() for name in OWNED),)


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server at the end of the run."""

    id: str
    role: str
    was_killed: bool
    #: None if it is gone.
    cpu_s: float | None
    rss_mib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport(TwipOutcome):
    """What a run has found."""

    database: str
    coordinator: str
    #: At which part of the run a server was killed, and which.
    kills: dict[str, str]
    #: The longest time from the sending of a batch to its results, with what was tried again: from the start on, when
    #: every timeline is read for the first time, and from each kill on.
    longest_ms: dict[str, float]
    #: Writes that were sent again since their outcome was not known, and reads that failed.
    writes_repeated: int
    reads_failed: int
    timelines: int
    servers: list[ServerRow]

    def print_table(self, console: Console) -> None:
        homes, computes = (sum(role in one.role for one in self.servers) for role in ("home", "compute"))
        console.print(
            f"Twip over {homes} homes beside {self.database} and {computes} computes; the map is in {self.coordinator}"
        )
        facts = (
            ("graph", f"{self.graph}, {self.users:,} users, {self.edges:,} subscriptions"),
            ("ticks", f"{self.ticks:,} in {self.seconds:.1f} s, {self.ticks_per_s:,.0f}/s"),
            *((f"at {when}", f"{which} was killed") for when, which in self.kills.items()),
            *((f"longest batch {when}", f"{longest_ms:,.0f} ms") for when, longest_ms in self.longest_ms.items()),
            ("writes sent again", f"{self.writes_repeated:,}"),
            ("reads that failed", f"{self.reads_failed:,}"),
            ("final timelines", f"{self.timelines:,} of {self.timeline_rows:,} rows"),
            ("all exact", "yes" if self.correct else "NO"),
        )
        print_rows(console, facts, {"": "{0[0]}", " ": "{0[1]}"}, left=2)
        fates = {"server": "{0.id}", "role": "{0.role}", "killed": "{0.was_killed}"}
        print_rows(console, self.servers, {**fates, "CPU s": "{0.cpu_s:.1f}", "MiB": "{0.rss_mib:.0f}"}, left=3)


@dataclass(slots=True)
class _Course:
    """How a run has gone so far."""

    #: What happened last, and the longest batch that ended after it.
    stage: str = "from the start"
    longest_s: dict[str, float] = field(default_factory=dict)
    writes_repeated: int = 0
    reads_failed: int = 0
    kills: dict[str, str] = field(default_factory=dict)


def run(settings: DemoSettings, bars: ProgressBars) -> ClusterReport:
    """Run Twip on a cluster that is started for it."""
    with bars.working("preparing"):
        prepared = prepare(replace(settings, verify="final"))
    stream = prepared.stream
    shape = ClusterShape(settings.homes, settings.computes, is_on_etcd=settings.etcd)
    with started_site(shape, (_postgres if settings.postgres else _sqlite)(stream.graph)) as site:
        course = _Course()
        order = _killing(site, prepared.batches, course) if settings.kill else iter(prepared.batches)
        with asyncio.Runner(loop_factory=loop_factory(settings.client_loop)) as runner:
            seconds, timelines = runner.run(_run(prepared, site, order, course, bars))
        servers = [_row(one) for one in site.servers]
    with bars.working("verifying"):
        verdict, _ = verify(prepared, [], timelines)
    difference = verdict.reason or (f"{course.reads_failed} reads failed" if course.reads_failed else "")
    return ClusterReport(
        **outcome(prepared, seconds, verdict.row_count, difference),
        database="PostgreSQL" if settings.postgres else "SQLite",
        coordinator="etcd, 3 nodes" if settings.etcd else "a file",
        kills=course.kills,
        longest_ms={stage: longest_s * 1000 for stage, longest_s in course.longest_s.items()},
        writes_repeated=course.writes_repeated,
        reads_failed=course.reads_failed,
        timelines=len(stream.active),
        servers=servers,
    )


def _row(server: SiteServer | SiteWorker) -> ServerRow:
    used = server.usage()
    figures = (None, None) if used is None else (used.cpu_s, used.rss_bytes / 2**20)
    return ServerRow(server.entry.id, " ".join(sorted(server.entry.roles)), server.was_killed, *figures)


async def _run(
    prepared: Prepared, site: ClusterSite, order: Iterator[CommandBatch], course: _Course, bars: ProgressBars
) -> tuple[float, list[Reply]]:
    """Return how long the ticks took, and the final timelines."""
    async with AsyncClient(site.target, timeout_s=TIMEOUT_S) as client:
        with bars.bar("running", prepared.command_count) as advance:
            begun = time.perf_counter()
            async with asyncio.TaskGroup() as workers:
                for _ in range(_WORKERS):
                    workers.create_task(_work(client, order, course, advance))
            seconds = time.perf_counter() - begun
        with bars.bar("reading", len(prepared.stream.active)) as advance:
            scans = timeline_scans(prepared.stream, SCAN_BATCH)
            return seconds, await execute_all(client, scans, 1, advance, _LATEST)


def _killing(site: ClusterSite, batches: list[CommandBatch], course: _Course) -> Iterator[CommandBatch]:
    """Yield the batches; kill a compute after a third of them, and a home after two thirds."""
    for number, batch in enumerate(batches):
        for part, role, text in ((1, ServerRole.COMPUTE, "a third"), (2, ServerRole.HOME, "two thirds")):
            if number == len(batches) * part // 3:
                victim = site.one(role)
                victim.kill()
                course.kills[text] = f"{role} {victim.entry.id}"
                course.stage = f"after {victim.entry.id}"
        yield batch


async def _work(client: AsyncClient, order: Iterator[CommandBatch], course: _Course, advance: Advance) -> None:
    """Send batches until there are no more, each after the results of the one before."""
    for batch in order:
        begun = time.perf_counter()
        try:
            results: Reply = await sent(client, batch)
        except UnavailableError as error:
            results = [error] * len(batch.kinds)
        for at, result in enumerate(results):
            if not isinstance(result, PequodError):
                continue
            if batch.kinds[at] == PUT:
                course.writes_repeated += 1
                await _put(client, *batch.arguments[2 * at : 2 * at + 2])
            else:
                course.reads_failed += 1
        spent_s = time.perf_counter() - begun
        course.longest_s[course.stage] = max(course.longest_s.get(course.stage, 0.0), spent_s)
        advance(len(batch.kinds))


async def _put(client: AsyncClient, key: bytes, value: bytes) -> None:
    """Put a key until it is certain that it is there."""
    while True:
        with suppress(UnavailableError):
            return await client.put(key, value)


def _subscriptions(graph: Graph) -> list[tuple[bytes, bytes]]:
    edges = zip(graph.users.tolist(), graph.posters.tolist(), strict=True)
    return [(subscription_key(*edge), FOLLOWS) for edge in edges]


def _flags(backing: str) -> list[str]:
    return ["--backing", backing, "--backing-tables", ",".join(OWNED), "--backing-mode", "write-through"]


def _sqlite(graph: Graph) -> StartDatabase:
    """Return what makes an SQLite file with a graph's subscriptions."""

    def start(_stack: ExitStack, folder: Path, homes: Sequence[str]) -> dict[str, list[str]]:
        file = folder / "twip.db"

        async def install() -> None:
            store = SqliteStore(file, _GENERIC)
            await store.install()
            await store.close()

        asyncio.run(install())
        with closing(sqlite3.connect(file)) as connection:
            connection.executemany("INSERT INTO pequod_base (key, value) VALUES (?, ?)", _subscriptions(graph))
            connection.commit()
        return dict.fromkeys(homes, _flags(f"sqlite:{file}"))

    return start


def _postgres(graph: Graph) -> StartDatabase:
    """Return what starts a PostgreSQL with a graph's subscriptions, and with a replication slot for each home."""

    def start(stack: ExitStack, _folder: Path, homes: Sequence[str]) -> dict[str, list[str]]:
        # Root starts it as another user, whom the folder then belongs to: one of its own.
        own = Path(stack.enter_context(TemporaryDirectory(prefix="pequod-demo-", ignore_cleanup_errors=True)))
        dsn = stack.enter_context(started_cluster(own, BACKING_SETTINGS)).dsn

        async def install() -> None:
            for home in homes:
                store = PostgresStore(dsn, _GENERIC, feed_name=home)
                await store.install()
                await store.close()
            connection = await asyncpg.connect(dsn)
            await connection.copy_records_to_table(GENERIC_TABLE, records=_subscriptions(graph))
            await connection.execute(f"ANALYZE {GENERIC_TABLE}; CHECKPOINT")
            await connection.close()

        asyncio.run(install())
        return {home: [*_flags(dsn), "--backing-feed-name", home] for home in homes}

    return start
