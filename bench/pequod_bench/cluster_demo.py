"""Twip on a cluster whose servers are killed on the way; at the end every timeline has to be exact.

    ticks   0 ------- a third ------- two thirds ------- end ---> all timelines, as of everything that was written
                      a compute       a home
                      is killed       is killed

A write of unknown outcome is sent again: it says the same, and no other client writes its key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from rich.console import Console
from rich.table import Table

from pequod.client import AsyncClient, Result, Results
from pequod.cluster.servers import ServerRole
from pequod.commands.kinds import PUT
from pequod.errors import PequodError, UnavailableError
from pequod.freshness import Latest
from pequod_bench.cluster_databases import PostgresBehind, SqliteBehind
from pequod_bench.cluster_site import ClusterShape, ClusterSite, SiteServer, started_site
from pequod_bench.process import loop_factory
from pequod_bench.report.printed import Printed, print_figures
from pequod_bench.report.progress import Advance, ProgressBars
from pequod_bench.twip import SCAN_BATCH, TwipSettings, prepare
from pequod_bench.workloads.commands import CommandBatch, timeline_scans
from pequod_bench.workloads.recompute import StreamPosts
from pequod_bench.workloads.verify import Differs, Reply, verify_timelines

#: How long a final read may wait for everything that was written.
_LATEST: Final = Latest(wait_s=60.0)
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server at the end of the run."""

    id: str
    role: str
    was_killed: bool
    #: None if it is gone.
    cpu_s: float | None
    rss_mib: float | None


@dataclass(frozen=True, slots=True)
class ClusterReport(Printed):
    """What a run has found."""

    database: str
    coordinator: str
    graph: str
    users: int
    edges: int
    ticks: int
    seconds: float
    ticks_per_s: float
    #: At which part of the run a server was killed, and which.
    kills: dict[str, str]
    #: The longest time from the sending of a batch to its results, with what was tried again: from the start on, when
    #: every timeline is read for the first time, and from each kill on.
    longest_ms: dict[str, float]
    #: Writes that were sent again since their outcome was not known, and reads that failed.
    writes_repeated: int
    reads_failed: int
    timelines: int
    timeline_rows: int
    correct: bool
    difference: str
    servers: list[ServerRow]

    def print_table(self, console: Console) -> None:
        """Print the report for a person."""
        console.print(
            f"Twip over {sum('home' in one.role for one in self.servers)} homes beside {self.database} and "
            f"{sum('compute' in one.role for one in self.servers)} computes; the map is in {self.coordinator}"
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
        print_figures(console, Table("", "", box=None, show_header=False), (), facts)
        rows: list[tuple[str, ...]] = []
        for one in self.servers:
            figures = ("", "") if one.cpu_s is None else (f"{one.cpu_s:.1f}", f"{one.rss_mib:.0f}")
            rows.append((one.id, one.role, "killed" if one.was_killed else "lives", *figures))
        print_figures(console, Table("server", "role", "fate", box=None), ("CPU s", "MiB"), rows)


@dataclass(slots=True)
class _Course:
    """How a run has gone so far."""

    #: What happened last, and the longest batch that ended after it.
    stage: str = "from the start"
    longest_s: dict[str, float] = field(default_factory=dict)
    writes_repeated: int = 0
    reads_failed: int = 0
    kills: dict[str, str] = field(default_factory=dict)


def run(
    settings: TwipSettings, shape: ClusterShape, bars: ProgressBars, *, is_on_postgres: bool = False, kills: bool = True
) -> ClusterReport:
    """Run Twip on a cluster that is started for it.

    Raises:
        ServerStartError: Something does not start, or is not installed.
    """
    with bars.working("preparing"):
        prepared = prepare(replace(settings, verify="final"))
    stream = prepared.stream
    behind = PostgresBehind if is_on_postgres else SqliteBehind
    with started_site(shape, behind(stream.graph)) as site:
        course = _Course()
        with asyncio.Runner(loop_factory=loop_factory(settings.client_loop)) as runner:
            seconds, timelines = runner.run(
                _run(site, prepared.batches, list(timeline_scans(stream, SCAN_BATCH)), course, bars, kills=kills)
            )
        servers = [_row(one) for one in site.servers]
    with bars.working("verifying"):
        posts = StreamPosts(stream, settings.tweet_bytes)
        verdict = verify_timelines(stream, posts, timeline_scans(stream, SCAN_BATCH), timelines)
    difference = verdict.reason if isinstance(verdict, Differs) else ""
    if course.reads_failed:
        difference = difference or f"{course.reads_failed} reads failed"
    return ClusterReport(
        database=site.database,
        coordinator=site.coordinator,
        graph=stream.graph.name,
        users=stream.graph.user_count,
        edges=stream.graph.edge_count,
        ticks=stream.tick_count,
        seconds=seconds,
        ticks_per_s=stream.tick_count / seconds,
        kills=course.kills,
        longest_ms={stage: longest_s * 1000 for stage, longest_s in course.longest_s.items()},
        writes_repeated=course.writes_repeated,
        reads_failed=course.reads_failed,
        timelines=len(stream.active),
        timeline_rows=0 if isinstance(verdict, Differs) else verdict.row_count,
        correct=not difference,
        difference=difference,
        servers=servers,
    )


def _row(server: SiteServer) -> ServerRow:
    used = None if server.was_killed else server.usage()
    role = " ".join(sorted(server.entry.roles))
    if used is None:
        return ServerRow(server.entry.id, role, server.was_killed, None, None)
    return ServerRow(server.entry.id, role, server.was_killed, used.cpu_s, used.rss_bytes / 2**20)


async def _run(
    site: ClusterSite,
    batches: list[CommandBatch],
    scans: list[CommandBatch],
    course: _Course,
    bars: ProgressBars,
    *,
    kills: bool,
) -> tuple[float, list[Reply]]:
    """Return how long the ticks took, and the final timelines."""
    async with AsyncClient(site.target, timeout_s=_TIMEOUT_S) as client:
        with bars.bar("running", sum(len(batch.kinds) for batch in batches)) as advance:
            begun = time.perf_counter()
            order = _killing(site, batches, course) if kills else iter(batches)
            async with asyncio.TaskGroup() as workers:
                for _ in range(4):
                    workers.create_task(_work(client, order, course, advance))
            seconds = time.perf_counter() - begun
        timelines: list[Reply] = []
        with bars.bar("reading", sum(len(batch.kinds) for batch in scans)) as advance:
            for kinds, arguments in scans:
                batch = client.batch(_LATEST)
                batch.kinds += kinds
                batch.arguments += arguments
                timelines.append(await batch.send())
                advance(len(kinds))
    return seconds, timelines


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
    for kinds, arguments in order:
        begun = time.perf_counter()
        batch = client.batch()
        batch.kinds += kinds
        batch.arguments += arguments
        results = await _results(batch.send(), len(kinds))
        for at, result in enumerate(results):
            if not isinstance(result, PequodError):
                continue
            if kinds[at] == PUT:
                course.writes_repeated += 1
                await _put(client, *arguments[2 * at : 2 * at + 2])
            else:
                course.reads_failed += 1
        spent_s = time.perf_counter() - begun
        course.longest_s[course.stage] = max(course.longest_s.get(course.stage, 0.0), spent_s)
        advance(len(kinds))


async def _results(sending: asyncio.Future[Results], count: int) -> list[Result]:
    try:
        return list(await sending)
    except UnavailableError as error:
        return [error] * count


async def _put(client: AsyncClient, key: bytes, value: bytes) -> None:
    """Put a key until it is certain that it is there."""
    while True:
        try:
            await client.put(key, value)
        except UnavailableError:
            continue
        return
