"""Twip on clusters of several sizes: what each server takes for it, and what larger clusters would do.

    whole      a home and 1 to 4 computes, all of them on this machine
    large      one compute of 12 or of 48, the busiest, with all that it would be asked beside the others

On a machine with fewer cores than servers the time of a run says nothing of a cluster's speed; the CPU accounts do. The
core of the busiest compute limits a large cluster, whose homes are as many as it takes.

The client's own rendezvous hashing says which compute has which timeline. A message of the client has as many commands
for each compute, however many computes there are; what others are asked is left out of it. So a home and one compute
run here as they would beside all others, however few cores there are.

Source:
    The paper's §5.5 and figure 10.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import Final

import numpy as np
from pequod_workloads.twip import timeline, timeline_last
from rich.console import Console

from pequod.client import AsyncClient
from pequod.cluster.rendezvous import owners
from pequod.commands.kinds import SCAN
from pequod.freshness import LATEST
from pequod_bench.collector import resting_collector
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ClusterSettings, TwipSettings
from pequod_bench.systems.server import Usage, loop_factory
from pequod_bench.systems.site import ClusterShape, ClusterSite, SiteServer, started_site
from pequod_bench.twip import SCAN_BATCH, TIMEOUT_S, Prepared, Stopwatch, execute_all, prepare, verify
from pequod_bench.workloads.graph import Ids
from pequod_bench.workloads.stream import (
    CHECK,
    LOGOUT,
    POST,
    CommandBatch,
    TwipStream,
    make_stream,
    timed_batches,
    timeline_scans,
)
from pequod_bench.workloads.verify import Reply

#: Operations of each user in a large cluster: each active user checks 50 times, as in the paper.
_TICKS_EACH: Final = 40
#: Timelines that are asked for at once before the clock starts.
_WARM_BATCH: Final = 256
#: The sizes of the paper's figure, and the throughput of the larger by that of the smaller, where 4 would be perfect.
PAPER_SIZES: Final = (12, 48)
PAPER_SPEEDUP: Final = 3.0


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
class MemberRun:
    """What one compute of a cluster took for all that it was asked, beside a home and nobody else."""

    #: The size of the cluster.
    computes: int
    compute_cpu_s: float
    #: For all writes that it hears of, and for what is delivered to it.
    home_cpu_s: float
    checks: int
    changes: int
    loads: int
    loaded_ranges: int
    difference: str


@dataclass(frozen=True, slots=True)
class LargeCluster:
    """What the busiest compute of a cluster took, in several rounds; its core limits the cluster."""

    computes: int
    #: Operations of the whole cluster.
    ticks: int
    copies_of_posts: float
    runs: tuple[MemberRun, ...]

    @property
    def compute_cpu_s(self) -> float:
        """The median of the rounds."""
        return median(run.compute_cpu_s for run in self.runs)

    @property
    def ticks_per_s(self) -> float:
        """With a core for each compute, and homes enough."""
        return self.ticks / self.compute_cpu_s


@dataclass(frozen=True, slots=True)
class ClusterTwipReport(Printed):
    """The runs of whole clusters, and those of one compute of larger ones."""

    graph: str
    users: int
    ticks: int
    homes: int
    runs: tuple[ClusterRun, ...]
    #: Users of the graph of the large clusters.
    large_users: int
    large: tuple[LargeCluster, ...]

    def fault(self) -> str:
        runs: list[ClusterRun | MemberRun] = [*self.runs, *(run for one in self.large for run in one.runs)]
        return next((f"{run.computes} computes: {run.difference}" for run in runs if run.difference), "")

    def growth(self) -> list[float]:
        """Return the throughput of 48 computes by that of 12 in each round; empty if one of these was left out."""
        found = {one.computes: one for one in self.large}
        if not all(size in found for size in PAPER_SIZES):
            return []
        small, large = (found[size].runs for size in PAPER_SIZES)
        return [few.compute_cpu_s / many.compute_cpu_s for few, many in zip(small, large, strict=True)]

    def print_table(self, console: Console) -> None:
        whole = {
            "size": "{0.computes}",
            "ticks/s": "{0.ticks_per_s:,.0f}",
            "µs a tick": "{0.compute_cpu_us_per_tick:.2f}",
            "busiest": "{0.imbalance:.2f}x",
            "home µs": "{0.home_cpu_us_per_tick:.2f}",
            "client µs": "{0.client_cpu_us_per_tick:.2f}",
            "MiB": "{0.home_mib:,.0f} + {0.compute_mib:,.0f}",
            "exact": "{0.correct}",
        }
        title = f"Twip on {self.graph}: {self.ticks:,} ticks, {self.homes} homes"
        print_rows(console, self.runs, whole, title=title)
        counts = {"checks": "checks", "changes": "changes", "loads": "loads", "ranges": "loaded_ranges"}
        large = {"computes": "{0.computes}", "CPU s": "{0.compute_cpu_s:.2f}"}
        large |= {head: f"{{0.runs[0].{field}:,}}" for head, field in counts.items()}
        large |= {"copies of posts": "{0.copies_of_posts:.1f}", "ticks/s": "{0.ticks_per_s:,.0f}"}
        title = f"The busiest compute, by itself, of larger clusters for {self.large_users:,} users"
        print_rows(console, self.large, large, title=title)
        if growth := self.growth():
            few, many = PAPER_SIZES
            console.print(
                f"from {few} to {many} computes: {median(growth):.2f}x ({min(growth):.2f}x to {max(growth):.2f}x);"
                f" the paper's figure 10: {PAPER_SPEEDUP:.1f}x; perfect: {many / few:.1f}x"
            )


def run(settings: ClusterSettings, bars: ProgressBars) -> ClusterTwipReport:
    """Run Twip on a cluster of each size, and one compute of larger ones.

    Raises:
        ServerStartError: A server does not start.
    """
    # Checks of a cluster see writes a moment later, so the final timelines alone are certain.
    settings = replace(settings, verify="final")
    homes = settings.homes
    with bars.working("preparing"):
        prepared = prepare(settings)
    stream = prepared.stream
    runs = [_run_size(prepared, computes, homes, bars) for computes in settings.computes]
    with bars.working("preparing"):
        users = settings.large_users
        large_stream = make_stream(settings.graph, users, _TICKS_EACH * users, settings.seed)
    found = defaultdict[int, list[MemberRun]](list)
    for _ in range(settings.rounds):
        for computes in settings.large:
            with bars.working("preparing"):
                own = member(settings, large_stream, computes, busiest(large_stream, computes))
            found[computes].append(_run_member(own, computes, homes, bars))
    large = [
        LargeCluster(computes, large_stream.tick_count, copies_of_posts(large_stream, computes), tuple(members))
        for computes, members in found.items()
    ]
    return ClusterTwipReport(
        stream.graph.name,
        stream.graph.user_count,
        stream.tick_count,
        homes,
        tuple(runs),
        large_stream.graph.user_count,
        tuple(large),
    )


@lru_cache(maxsize=64)
def owner_numbers(user_count: int, computes: int) -> Ids:
    """Return for each user the number of the compute that has the timeline."""
    servers = [(f"c{number}", 1.0) for number in range(computes)]
    # The group of a timeline is its table and user: `t|00000007|`.
    groups = (timeline_last(user)[:-1] + b"|" for user in range(user_count))
    return np.array([int(owners(group, servers)[0][1:]) for group in groups], dtype=np.int64)


def busiest(stream: TwipStream, computes: int) -> int:
    """Return the number of the compute that gets the most checks: its core limits the cluster."""
    owner = owner_numbers(stream.graph.user_count, computes)
    return int(np.bincount(owner[stream.users[stream.kinds == CHECK]], minlength=computes).argmax())


def copies_of_posts(stream: TwipStream, computes: int) -> float:
    """Return how many computes have the posts of a poster, on average over the posters that any of them has."""
    graph, owner = stream.graph, owner_numbers(stream.graph.user_count, computes)
    is_read = np.isin(graph.users, stream.active)
    posters = graph.posters[is_read]
    return len(np.unique(posters * computes + owner[graph.users[is_read]])) / max(1, len(np.unique(posters)))


def member(settings: TwipSettings, stream: TwipStream, computes: int, number: int) -> Prepared:
    """Return what one compute of a cluster is asked in a run: its timelines' checks and subscriptions, and all posts.

    Args:
        settings: ``batch`` is for each compute.
        stream: What the whole cluster is asked.
        computes: The size of the cluster.
        number: From 0 up.
    """
    graph = stream.graph
    is_own = owner_numbers(graph.user_count, computes) == number
    is_asked = (stream.kinds == POST) | (is_own[stream.users] & (stream.kinds != LOGOUT))
    # A logout keeps its tick, and is no command.
    own = replace(
        stream,
        graph=replace(graph, users=graph.users[is_own[graph.users]], posters=graph.posters[is_own[graph.users]]),
        active=stream.active[is_own[stream.active]],
        kinds=np.where(is_asked, stream.kinds, np.int8(LOGOUT)),
    )
    message = ((np.cumsum(stream.kinds != LOGOUT) - 1) // (settings.batch * computes))[is_asked]
    starts = [0, *(np.flatnonzero(np.diff(message)) + 1).tolist(), len(message)]
    batches = timed_batches(own, settings.tweet_bytes, settings.batch)
    return Prepared(settings, own, cut(batches, [bounds for bounds in pairwise(starts) if bounds[0] < bounds[1]]))


def cut(batches: Sequence[CommandBatch], bounds: Iterable[tuple[int, int]]) -> list[CommandBatch]:
    """Return the commands of all batches as others, with these bounds."""
    kinds = b"".join(one.kinds for one in batches)
    arguments = [each for one in batches for each in one.arguments]
    return [CommandBatch(kinds[start:stop], arguments[2 * start : 2 * stop]) for start, stop in bounds]


def _run_size(prepared: Prepared, computes: int, homes: int, bars: ProgressBars) -> ClusterRun:
    """Run on a cluster of one size, with as many commands for each compute in a message, however many there are."""
    size = prepared.settings.batch * computes
    starts = range(0, prepared.command_count, size)
    batches = cut(prepared.batches, [(start, start + size) for start in starts])
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
    checks = sum(batch.kinds.count(SCAN) for batch in prepared.batches)
    changes, loads, ranges = map(found.counted, ("backing_changes", "backing_flights", "backing_ranges"))
    spent_s = sum(found.compute_s), sum(found.home_s)
    return MemberRun(computes, *spent_s, checks, changes, loads, ranges, found.difference)


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
    difference: str = ""

    def counted(self, name: str) -> int:
        """Return a figure of the metrics page that is counted up."""
        return int(self.counts.get(f"pequod_{name}_total", 0))


def _run(prepared: Prepared, computes: int, homes: int, bars: ProgressBars) -> _Found:
    """Start a cluster, run Twip on it, and compare the final timelines."""
    shape, factory = ClusterShape(homes, computes, prepared.joins), loop_factory(prepared.settings.client_loop)
    with started_site(shape) as site, asyncio.Runner(loop_factory=factory) as runner:
        found, timelines = runner.run(_timed(prepared, site, bars))
    with bars.working("verifying"):
        return replace(found, difference=verify(prepared, [], timelines)[0].reason)


async def _timed(prepared: Prepared, site: ClusterSite, bars: ProgressBars) -> tuple[_Found, list[Reply]]:
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


async def _accounted(site: ClusterSite, running: Awaitable[None]) -> _Found:
    """Await a run, and return what the servers took for it."""
    earlier = await asyncio.to_thread(_counts, site.computes)
    before = [_usages(site.computes), _usages(site.homes)]
    watch = Stopwatch()
    await running
    seconds, cpu_s = watch.seconds(), watch.cpu_seconds()
    after = [_usages(site.computes), _usages(site.homes)]
    later = await asyncio.to_thread(_counts, site.computes)
    compute_s, home_s = (
        [now.cpu_s - then.cpu_s for then, now in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)
    )
    compute_bytes, home_bytes = (sum(one.rss_bytes for one in some) for some in after)
    counts = {name: figure - earlier.get(name, 0.0) for name, figure in later.items()}
    return _Found(seconds, cpu_s, compute_s, home_s, compute_bytes, home_bytes, counts)


def _usages(servers: Sequence[SiteServer]) -> list[Usage]:
    found = [server.usage() for server in servers]
    assert all(found), "no server is killed in this run"
    return [one for one in found if one is not None]


def _counts(servers: Sequence[SiteServer]) -> dict[str, float]:
    pages = [server.metrics() for server in servers]
    return {name: sum(page.get(name, 0.0) for page in pages) for name in pages[0]}
