"""Twip on clusters of several sizes, all of them on this machine: what each server takes for it.

On a machine with fewer cores than servers the time of a run says nothing of a cluster's speed; the CPU accounts do. A
message of the client has as many commands for each compute, however many computes there are.

Source:
    The paper's §5.5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

from pequod_workloads.twip import timeline
from rich.console import Console

from pequod.client import AsyncClient
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.freshness import LATEST
from pequod_bench.collector import resting_collector
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ClusterSettings
from pequod_bench.systems.server import Stopwatch, Usage, loop_factory
from pequod_bench.systems.site import ClusterShape, ClusterSite, SiteServer, SiteWorker, started_site, started_workers
from pequod_bench.twip.prepared import SCAN_BATCH, Prepared, prepare, verify
from pequod_bench.twip.sending import TIMEOUT_S, execute_all
from pequod_bench.workloads.stream import timed_batches, timeline_scans
from pequod_bench.workloads.verify import Reply

#: Timelines that are asked for at once before the clock starts.
_WARM_BATCH: Final = 256


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """What one cluster took for the run."""

    computes: int
    seconds: float
    ticks_per_s: float
    home_cpu_us_per_tick: float
    compute_cpu_us_per_tick: float
    #: CPU of the busiest compute by the mean of all.
    imbalance: float
    client_cpu_us_per_tick: float
    home_mib: float
    compute_mib: float
    correct: bool
    difference: str


@dataclass(frozen=True, slots=True)
class ClusterTwipReport(Printed):
    """The runs of clusters."""

    graph: str
    users: int
    ticks: int
    homes: int
    runs: tuple[ClusterRun, ...]

    def fault(self) -> str:
        return next((f"{run.computes} computes: {run.difference}" for run in self.runs if run.difference), "")

    def print_table(self, console: Console) -> None:
        columns = {"size": "{0.computes}", "ticks/s": "{0.ticks_per_s:,.0f}"}
        columns |= {"µs a tick": "{0.compute_cpu_us_per_tick:.2f}", "busiest": "{0.imbalance:.2f}x"}
        columns |= {"home µs": "{0.home_cpu_us_per_tick:.2f}", "client µs": "{0.client_cpu_us_per_tick:.2f}"}
        columns |= {"MiB": "{0.home_mib:,.0f} + {0.compute_mib:,.0f}", "exact": "{0.correct}"}
        title = f"Twip on {self.graph}: {self.ticks:,} ticks, {self.homes} homes"
        print_rows(console, self.runs, columns, title=title)


def run(settings: ClusterSettings, bars: ProgressBars) -> ClusterTwipReport:
    """Run Twip on a cluster of each size."""
    # Checks of a cluster see writes a moment later, so the final timelines alone are certain.
    settings = replace(settings, verify="final")
    with bars.working("preparing"):
        prepared = prepare(settings)
    stream = prepared.stream
    if settings.workers:
        sites = [(count, started_workers(count, prepared.joins)) for count in settings.workers]
    else:
        shapes = [ClusterShape(settings.homes, computes, prepared.joins) for computes in settings.computes]
        sites = [(shape.computes, started_site(shape)) for shape in shapes]
    runs = tuple(_run_size(prepared, count, site, bars) for count, site in sites)
    return ClusterTwipReport(stream.graph.name, stream.graph.user_count, stream.tick_count, settings.homes, runs)


def _run_size(
    whole: Prepared, computes: int, starting: AbstractContextManager[ClusterSite], bars: ProgressBars
) -> ClusterRun:
    """Start a cluster of one size, run Twip on it, and compare the final timelines."""
    settings, ticks = whole.settings, whole.stream.tick_count
    batches = timed_batches(whole.stream, settings.tweet_bytes, settings.batch * computes)
    prepared = replace(whole, batches=batches)
    factory = loop_factory(settings.client_loop)
    with starting as site, asyncio.Runner(loop_factory=factory) as runner:
        found, timelines = runner.run(_timed(prepared, site, bars))
    with bars.working("verifying"):
        difference = verify(prepared, [], timelines)[0].reason
    computing, at_home = found.of(ServerRole.COMPUTE), found.of(ServerRole.HOME)
    compute_s = [one.cpu_s for one in computing]
    return ClusterRun(
        computes=computes,
        seconds=found.seconds,
        ticks_per_s=ticks / found.seconds,
        home_cpu_us_per_tick=sum(one.cpu_s for one in at_home) / ticks * 1e6,
        compute_cpu_us_per_tick=sum(compute_s) / ticks * 1e6,
        imbalance=max(compute_s) * computes / max(sum(compute_s), 1e-9),
        client_cpu_us_per_tick=found.client_cpu_s / ticks * 1e6,
        home_mib=sum(one.rss_bytes for one in at_home) / 2**20,
        compute_mib=sum(one.rss_bytes for one in computing) / 2**20,
        correct=not difference,
        difference=difference,
    )


@dataclass(frozen=True, slots=True)
class _Accounts:
    """What a run took: the CPU of each server, and its memory at the end."""

    seconds: float
    client_cpu_s: float
    servers: list[tuple[ServerEntry, Usage]]

    def of(self, role: ServerRole) -> list[Usage]:
        return [used for entry, used in self.servers if role in entry.roles]


async def _timed(prepared: Prepared, site: ClusterSite, bars: ProgressBars) -> tuple[_Accounts, list[Reply]]:
    stream, window = prepared.stream, prepared.settings.window
    async with AsyncClient(site.target, timeout_s=TIMEOUT_S) as client:
        with bars.bar("loading", prepared.load_count) as advance:
            await execute_all(client, prepared.loads(), window, advance)
        # As in the paper: timelines are there, and subscriptions between servers stand, before the clock starts.
        with bars.bar("warming", len(stream.active)) as advance:
            await execute_all(client, timeline_scans(stream, _WARM_BATCH), 1, advance, LATEST)
        with bars.bar("running", prepared.command_count) as advance, resting_collector():

            async def execute() -> None:
                await execute_all(client, prepared.batches, window, advance)
                # What is on its way to computes belongs to the run.
                await client.scan(*timeline(int(stream.active[0])), freshness=LATEST)

            found = await _accounted(site, execute())
        with bars.bar("reading", len(stream.active)) as advance:
            timelines = await execute_all(client, timeline_scans(stream, SCAN_BATCH), 1, advance, LATEST)
    return found, timelines


async def _accounted(site: ClusterSite, running: Awaitable[None]) -> _Accounts:
    """Await a run, and return what it took."""
    before, watch = _usages(site.servers), Stopwatch()
    await running
    seconds, cpu_s, after = watch.seconds(), watch.cpu_seconds(), _usages(site.servers)
    spent = [Usage(now.cpu_s - then.cpu_s, now.rss_bytes) for then, now in zip(before, after, strict=True)]
    return _Accounts(seconds, cpu_s, list(zip((one.entry for one in site.servers), spent, strict=True)))


def _usages(servers: Sequence[SiteServer | SiteWorker]) -> list[Usage]:
    found = [server.usage() for server in servers]
    assert all(found), "no server is killed in this run"
    return [one for one in found if one is not None]
