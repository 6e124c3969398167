"""Latencies of a small cluster: one home without a database, two computes, and one server alone beside them.

first     a timeline of 20 posters that a compute has nothing of: it loads 21 ranges from the home
later     the same timelines again, at the compute and at a server alone that has all data itself
visible   from the call of a put at the home to the change of a timeline that a watch at a compute is told
burst     posts as fast as the home takes them; each is delivered to both computes
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from pequod.client import AsyncClient
from pequod.cluster.servers import ServerRole
from pequod.freshness import LATEST
from pequod_bench.cluster_site import ClusterShape, ClusterSite, started_site
from pequod_bench.process import loop_factory, started_server
from pequod_bench.report.latency import Latencies, latencies
from pequod_bench.report.printed import Printed, print_figures
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ClusterLatencySettings
from pequod_bench.workloads.keys import (
    FOLLOWS,
    PUSH_JOIN,
    post_key,
    subscription_key,
    timeline_first,
    timeline_last,
    tweet,
)

#: As in the goal: the posters of a timeline, and the posts of each.
_POSTERS: Final = 20
_POSTS: Final = 5
_TWEET_BYTES: Final = 140
_TIMEOUT_S: Final = 60.0
#: Between the puts whose way is timed.
_PUT_EVERY_S: Final = 0.01
#: Posts of one message of the burst.
_BURST_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class ClusterLatencyReport(Printed):
    """A whole run."""

    settings: ClusterLatencySettings
    first: Latencies
    #: At a compute, and at a server alone.
    later: Latencies
    alone: Latencies
    visible: Latencies
    #: Changes that the home delivered in the burst, and what one cost it, its clients' puts included.
    burst_changes: int
    burst_changes_per_s: float
    home_cpu_us_per_change: float
    compute_cpu_us_per_change: float
    #: What was not as it must be; empty if all was.
    difference: str

    def print_table(self, console: Console) -> None:
        """Print it for a person."""
        ways = (
            (f"first read of a timeline of {_POSTERS} posters", self.first),
            ("later reads, at a compute", self.later),
            ("later reads, at a server alone", self.alone),
            ("put at the home to a watch at a compute", self.visible),
        )
        rows = [(name, f"{one.p50_ms:.2f}", f"{one.p99_ms:.2f}", f"{one.max_ms:.2f}") for name, one in ways]
        print_figures(console, Table("", box=None), ("p50 ms", "p99 ms", "max ms"), rows)
        console.print(
            f"burst: {self.burst_changes:,} changes delivered, {self.burst_changes_per_s:,.0f}/s; "
            f"{self.home_cpu_us_per_change:.2f} µs of the home each with the puts, "
            f"{self.compute_cpu_us_per_change:.2f} µs of a compute"
        )


def run(settings: ClusterLatencySettings, bars: ProgressBars) -> ClusterLatencyReport:
    """Start the servers, and measure.

    Raises:
        ServerStartError: One does not start.
    """
    with (
        started_site(ClusterShape(homes=1, computes=2)) as site,
        started_server() as (alone, _),
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        return runner.run(_run(settings, site, alone, bars))


async def _run(
    settings: ClusterLatencySettings, site: ClusterSite, alone: str, bars: ProgressBars
) -> ClusterLatencyReport:
    rows = dict(_rows(settings))
    compute = site.of(ServerRole.COMPUTE)[0].entry.address
    async with (
        AsyncClient(site.target, timeout_s=_TIMEOUT_S) as client,
        # Of this server alone, so that what is measured is not spread over two.
        AsyncClient(compute, timeout_s=_TIMEOUT_S) as reader,
        AsyncClient(alone, timeout_s=_TIMEOUT_S) as single,
    ):
        with bars.working("loading"):
            await single.add_join(PUSH_JOIN)
            await client.multi_put(rows)
            await single.multi_put(rows)
        users = range(settings.timelines)
        again = [user * 31 % settings.timelines for user in range(settings.later_reads)]
        with bars.working("reading"):
            first, found = await _read(reader, users)
            _, expected = await _read(single, users)
            later, _ = await _read(reader, again)
            beside, _ = await _read(single, again)
        difference = "" if found == expected else "a timeline at the compute differs from the server's alone"
        with bars.working("putting"):
            visible = await _visible(settings, client, reader)
        with bars.working("bursting"):
            burst = await _burst(settings, site, client)
    return ClusterLatencyReport(
        settings, latencies(first), latencies(later), latencies(beside), latencies(visible), *burst, difference
    )


def _posters(user: int) -> range:
    """Return whom a user follows: nobody else does."""
    return range(user * _POSTERS, (user + 1) * _POSTERS)


def _rows(settings: ClusterLatencySettings) -> Iterable[tuple[bytes, bytes]]:
    for user in range(settings.timelines):
        for poster in _posters(user):
            yield subscription_key(user, poster), FOLLOWS
            for tick in range(_POSTS):
                yield post_key(poster, tick), tweet(tick, _TWEET_BYTES)


async def _read(client: AsyncClient, users: Iterable[int]) -> tuple[list[float], list[object]]:
    """Read timelines one after the other; return the time of each, and what was read."""
    seconds, found = list[float](), list[object]()
    for user in users:
        begun = time.perf_counter()
        found.append(await client.scan(timeline_first(user, 0), timeline_last(user)))
        seconds.append(time.perf_counter() - begun)
    return seconds, found


@asynccontextmanager
async def _watching(client: AsyncClient, user: int) -> AsyncIterator[asyncio.Queue[tuple[bytes, float]]]:
    """Yield a queue of the keys that change in a timeline, and when that was told."""
    heard: asyncio.Queue[tuple[bytes, float]] = asyncio.Queue()
    stands = asyncio.Event()

    async def watch() -> None:
        async for event in client.watch(timeline_first(user, 0), timeline_last(user)):
            stands.set()
            now = time.perf_counter()
            for change in event.changes:
                heard.put_nowait((change[0], now))

    task = asyncio.create_task(watch())
    try:
        await stands.wait()
        yield heard
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _visible(settings: ClusterLatencySettings, client: AsyncClient, reader: AsyncClient) -> list[float]:
    """Return the times from a put to the change of a timeline elsewhere; puts wait for each other."""
    seconds = []
    async with _watching(reader, 0) as heard, asyncio.timeout(_TIMEOUT_S + settings.puts):
        for tick in range(_POSTS, _POSTS + settings.puts):
            begun = time.perf_counter()
            await client.put(post_key(0, tick), tweet(tick, _TWEET_BYTES))
            _, at_s = await heard.get()
            seconds.append(at_s - begun)
            await asyncio.sleep(_PUT_EVERY_S)
    return seconds


async def _burst(
    settings: ClusterLatencySettings, site: ClusterSite, client: AsyncClient
) -> tuple[int, float, float, float]:
    """Return the changes that were delivered, those of a second, and the CPU of each at the home and at a compute."""
    computes, homes = site.of(ServerRole.COMPUTE), site.of(ServerRole.HOME)
    for server in computes:
        async with AsyncClient(server.entry.address, timeout_s=_TIMEOUT_S) as reader:
            await _read(reader, range(settings.timelines))
    keys = [post_key(number % (settings.timelines * _POSTERS), 10**6 + number) for number in range(settings.burst)]

    async def account() -> tuple[float, float, float]:
        delivered = [(await asyncio.to_thread(home.metrics))["pequod_peer_changes_total"] for home in homes]
        used = [sum(found.cpu_s for one in some if (found := one.usage())) for some in (homes, computes)]
        return sum(delivered), used[0], used[1]

    before, begun = await account(), time.perf_counter()
    for at in range(0, len(keys), _BURST_BATCH):
        await client.multi_put({key: tweet(at, _TWEET_BYTES) for key in keys[at : at + _BURST_BATCH]})
    for server in computes:
        async with AsyncClient(server.entry.address, timeout_s=_TIMEOUT_S) as reader:
            await reader.scan(timeline_first(0, 0), timeline_last(0), freshness=LATEST)
    seconds, after = time.perf_counter() - begun, await account()
    changes, home_s, compute_s = (late - early for late, early in zip(after, before, strict=True))
    each_us = 1e6 / max(1.0, changes)
    return int(changes), changes / seconds, home_s * each_us, compute_s * each_us
