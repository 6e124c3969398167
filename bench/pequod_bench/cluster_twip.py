"""Twip on clusters of several sizes: what each server takes for it, and what larger clusters would do.

    whole      a home and 1 to 4 computes, all of them on this machine
    alone      each compute of the largest of these by itself, which shows what sharing the cores costs
    large      one compute of 12 or of 48, the busiest, with all that it would be asked (`cluster_member`)

On a machine with fewer cores than servers the time of a run says nothing of a cluster's speed; the CPU accounts do. The
core of the busiest compute limits a large cluster, whose homes are as many as it takes.

Source:
    The paper's §5.5 and figure 10.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pequod.client import AsyncClient
from pequod.cluster.servers import ServerRole
from pequod.commands.kinds import SCAN
from pequod.freshness import LATEST
from pequod_bench.cluster_member import busiest, copies_of_posts, cut, joined, member
from pequod_bench.cluster_site import ClusterShape, ClusterSite, SiteServer, started_site
from pequod_bench.process import Usage, loop_factory
from pequod_bench.report.cluster import ClusterRun, ClusterTwipReport, LargeCluster, MemberRun
from pequod_bench.report.progress import Advance, ProgressBars
from pequod_bench.twip import (
    LOAD_BATCH,
    SCAN_BATCH,
    Prepared,
    Stopwatch,
    TwipSettings,
    prepare,
    resting_collector,
    verify,
)
from pequod_bench.wire_twip import TIMEOUT_S, execute_all
from pequod_bench.workloads.commands import CommandBatch, load_batches, timeline_scans
from pequod_bench.workloads.keys import JOINS, timeline_first, timeline_last
from pequod_bench.workloads.stream import TwipStream, make_stream
from pequod_bench.workloads.verify import Differs, Reply

#: Operations of each user in a large cluster: each active user checks 50 times, as in the paper.
_TICKS_EACH: Final = 40
#: Timelines that are asked for at once before the clock starts.
_WARM_BATCH: Final = 256


@dataclass(frozen=True, slots=True)
class LargeClusters:
    """The large clusters of which one compute runs.

    Attributes:
        users: Of the graph, if it is made up: of one that is small for the number of computes, hardly two followers of
            a poster are at one of them, which no real cluster would be.
        sizes: How many computes.
        rounds: How often each runs, in turns.
    """

    users: int
    sizes: tuple[int, ...]
    rounds: int


def run(
    settings: TwipSettings, sizes: Sequence[int], homes: int, large: LargeClusters, bars: ProgressBars
) -> ClusterTwipReport:
    """Run Twip on a cluster of each size, and one compute of larger ones.

    Raises:
        ServerStartError: A server does not start.
    """
    # Checks of a cluster see writes a moment later, so the final timelines alone are certain.
    settings = replace(settings, verify="final")
    with bars.working("preparing"):
        prepared = prepare(settings)
    stream = prepared.stream
    runs = [_run_size(prepared, computes, homes, bars) for computes in sizes]
    last = max(sizes)
    alone = [_run_member(member(settings, stream, last, number), last, homes, bars) for number in range(last)]
    with bars.working("preparing"):
        large_stream = make_stream(settings.graph, large.users, _TICKS_EACH * large.users, settings.seed)
    return ClusterTwipReport(
        stream.graph.name,
        stream.graph.user_count,
        stream.tick_count,
        homes,
        tuple(runs),
        tuple(alone),
        large_stream.graph.user_count,
        tuple(_run_large(settings, large_stream, large, homes, bars)),
    )


def _run_large(
    settings: TwipSettings, stream: TwipStream, large: LargeClusters, homes: int, bars: ProgressBars
) -> Iterable[LargeCluster]:
    """Run the busiest compute of each size, as often as there are rounds, in turns."""
    found = defaultdict[int, list[MemberRun]](list)
    for _ in range(large.rounds):
        for computes in large.sizes:
            with bars.working("preparing"):
                prepared = member(settings, stream, computes, busiest(stream, computes))
            found[computes].append(_run_member(prepared, computes, homes, bars))
    for computes, runs in found.items():
        yield LargeCluster(computes, stream.tick_count, copies_of_posts(stream, computes), tuple(runs))


def _run_size(prepared: Prepared, computes: int, homes: int, bars: ProgressBars) -> ClusterRun:
    """Run on a cluster of one size, with as many commands for each compute in a message, however many there are."""
    whole, size = joined(prepared.batches), prepared.settings.batch * computes
    batches = [cut(whole, start, start + size) for start in range(0, len(whole.kinds), size)]
    found = _run(replace(prepared, batches=batches), computes, homes, bars)
    ticks, compute_s = prepared.stream.tick_count, found.compute_s
    return ClusterRun(
        computes=computes,
        seconds=found.seconds,
        ticks_per_s=ticks / found.seconds,
        home_cpu_us_per_tick=sum(found.home_s) / ticks * 1e6,
        compute_cpu_us_per_tick=sum(compute_s) / ticks * 1e6,
        imbalance=max(compute_s) * computes / max(sum(compute_s), 1e-9),
        client_cpu_us_per_tick=found.client_cpu_s / ticks * 1e6,
        home_mib=found.home_bytes / 2**20,
        compute_mib=found.compute_bytes / 2**20,
        correct=not found.difference,
        difference=found.difference,
    )


def _run_member(prepared: Prepared, computes: int, homes: int, bars: ProgressBars) -> MemberRun:
    found = _run(prepared, 1, homes, bars)
    return MemberRun(
        computes=computes,
        compute_cpu_s=sum(found.compute_s),
        home_cpu_s=sum(found.home_s),
        checks=sum(batch.kinds.count(SCAN) for batch in prepared.batches),
        changes=found.counted("backing_changes"),
        loads=found.counted("backing_flights"),
        loaded_ranges=found.counted("backing_ranges"),
        difference=found.difference,
    )


@dataclass(frozen=True, slots=True)
class _Found:
    seconds: float
    client_cpu_s: float
    #: CPU time of each server.
    compute_s: list[float]
    home_s: list[float]
    compute_bytes: int
    home_bytes: int
    #: What the computes counted meanwhile.
    counts: dict[str, float]
    #: The first timeline that was not what it must be; empty if all were.
    difference: str

    def counted(self, name: str) -> int:
        """Return a figure of the metrics page that is counted up."""
        return int(self.counts.get(f"pequod_{name}_total", 0))


def _run(prepared: Prepared, computes: int, homes: int, bars: ProgressBars) -> _Found:
    """Start a cluster, run Twip on it, and compare the final timelines."""
    settings = prepared.settings
    shape = ClusterShape(homes, computes, JOINS[settings.mode])
    with started_site(shape) as site, asyncio.Runner(loop_factory=loop_factory(settings.client_loop)) as runner:
        found, timelines = runner.run(_timed(prepared, site, bars))
    with bars.working("verifying"):
        verdict, _ = verify(prepared, [], timelines)
    return replace(found, difference=verdict.reason if isinstance(verdict, Differs) else "")


async def _timed(prepared: Prepared, site: ClusterSite, bars: ProgressBars) -> tuple[_Found, list[Reply]]:
    settings, stream = prepared.settings, prepared.stream
    async with AsyncClient(site.target, timeout_s=TIMEOUT_S) as client:
        with bars.bar("loading", prepared.load_count) as advance:
            batches = load_batches(stream, settings.tweet_bytes, LOAD_BATCH)
            await execute_all(client, batches, settings.window, advance)
        # As in the paper: timelines are there, and subscriptions between servers stand, before the clock starts.
        with bars.bar("warming", len(stream.active)) as advance:
            await _read(client, timeline_scans(stream, _WARM_BATCH), advance)
        with bars.bar("running", prepared.command_count) as advance, resting_collector():
            found = await _accounted(site, _execute(client, prepared, advance))
        with bars.bar("reading", len(stream.active)) as advance:
            timelines = await _read(client, timeline_scans(stream, SCAN_BATCH), advance)
    return found, timelines


async def _execute(client: AsyncClient, prepared: Prepared, advance: Advance) -> None:
    await execute_all(client, prepared.batches, prepared.settings.window, advance)
    # What is on its way to computes belongs to the run.
    user = int(prepared.stream.active[0])
    await client.scan(timeline_first(user, 0), timeline_last(user), freshness=LATEST)


async def _accounted(site: ClusterSite, running: Awaitable[None]) -> _Found:
    """Await a run, and return what the servers took for it."""
    computes, homes = site.of(ServerRole.COMPUTE), site.of(ServerRole.HOME)
    earlier = await asyncio.to_thread(_counts, computes)
    before = [_usages(computes), _usages(homes)]
    watch = Stopwatch()
    await running
    seconds, cpu_s = watch.seconds(), watch.cpu_seconds()
    after = [_usages(computes), _usages(homes)]
    later = await asyncio.to_thread(_counts, computes)
    compute_s, home_s = (
        [now.cpu_s - then.cpu_s for then, now in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)
    )
    return _Found(
        seconds=seconds,
        client_cpu_s=cpu_s,
        compute_s=compute_s,
        home_s=home_s,
        compute_bytes=sum(one.rss_bytes for one in after[0]),
        home_bytes=sum(one.rss_bytes for one in after[1]),
        counts={name: figure - earlier.get(name, 0.0) for name, figure in later.items()},
        difference="",
    )


def _usages(servers: Sequence[SiteServer]) -> list[Usage]:
    found = [server.usage() for server in servers]
    assert all(found), "no server is killed in this run"
    return [one for one in found if one is not None]


def _counts(servers: Sequence[SiteServer]) -> dict[str, float]:
    pages = [server.metrics() for server in servers]
    return {name: sum(page.get(name, 0.0) for page in pages) for name in pages[0]}


async def _read(client: AsyncClient, batches: Iterable[CommandBatch], advance: Advance) -> list[Reply]:
    """Read timelines as of the latest state of the homes."""
    replies: list[Reply] = []
    for kinds, arguments in batches:
        batch = client.batch(freshness=LATEST)
        batch.kinds += kinds
        batch.arguments += arguments
        replies.append(await batch.send())
        advance(len(kinds))
    return replies
