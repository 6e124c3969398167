"""Latencies of checks and posts that come at a fixed rate, and how long after its acknowledgement a post is visible.

    load        the graph; every timeline is read once, and some operations go unrecorded
    1,000 / s   |  |  |  |  |  |      each operation by itself, no batches but those that the client makes of what comes
    2,000 / s   | | | | | | | | |     at the same moment; latency from the intended start (`report.latency`)

70 checks to a post, which is acknowledged when it is written; a client that keeps timelines delivers it afterwards.

    post ------> acknowledged
                 |-- check --|-- check --|        lag until visible: to the end of the first check that shows it
                 |------|                         lag until told: to the event of a watch; Pequod alone has these

One post after the other, beside checks of other timelines at a fixed rate. Where the store keeps timelines as it takes
a post, the first check shows it, and the lag is what a check takes. A watch may tell a post before its acknowledgement
is here: that counts as no lag.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from pequod_workloads import twip as keys

from pequod.client import AsyncClient
from pequod_bench.collector import resting_collector
from pequod_bench.paper.materialisation import make_stream
from pequod_bench.paper.measure import Trials, verified
from pequod_bench.report.latency import Latencies, LatencyHistogram, latencies, open_loop
from pequod_bench.systems.pequod_results import meanwhile, watched
from pequod_bench.systems.pequod_system import PEQUOD, TIMEOUT_S
from pequod_bench.systems.system import Server, System, SystemSession, SystemWorkload
from pequod_bench.workloads.graph import Ids, make_graph
from pequod_bench.workloads.stream import CHECK, POST, TwipStream
from pequod_bench.workloads.verify import grouped

#: Of all users; each check is one of theirs.
ACTIVE_PERCENT: Final = 70
#: Operations before the clock starts, one after the other.
_WARM_COUNT: Final = 200
#: Users whose timelines are looked at for posts, and checks a second beside these.
_READERS: Final = 16
_CHECKS_PER_S: Final = 200.0
_TELL_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class AtRate:
    """What was found at one rate."""

    #: Operations a second that were to start, and that were done.
    rate: int
    done_per_s: float
    checks: Latencies
    posts: Latencies
    #: Percents of the checks, and the ms within which that part of them was done.
    check_curve: list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class LatencyResult:
    """One system at all rates."""

    title: str
    rates: list[AtRate]
    #: What was wrong with the timelines at the end; empty if nothing.
    difference: str


@dataclass(frozen=True, slots=True)
class Load:
    """The operations for all rates, and how they are spread over these."""

    workload: SystemWorkload
    rates: Sequence[int]
    #: Of each rate.
    seconds: float


def make_load(user_count: int, rates: Sequence[int], seconds: float, seed: int) -> Load:
    """Draw as many operations as will be needed."""
    count = _WARM_COUNT + sum(round(rate * seconds) for rate in rates)
    stream = make_stream("synthetic", user_count, ACTIVE_PERCENT, seed, post_count=count // ACTIVE_PERCENT + 1)
    cut = replace(stream, kinds=stream.kinds[:count], users=stream.users[:count], details=stream.details[:count])
    return Load(SystemWorkload(cut), rates, seconds)


def run_rates(system: System, load: Load, trials: Trials) -> LatencyResult:
    """Run all rates, the lowest first, on a fresh server."""

    async def measure(server: Server) -> LatencyResult:
        async with system.session(server, load.workload) as session:
            await session.load()
            await session.timelines(load.workload.stream.active.tolist())
            found = await _rates(session, load)
            return LatencyResult(system.title, found, (await verified(session, load.workload)).reason)

    return trials.on_server(system, measure)


def run_alone(load: Load, trials: Trials) -> LatencyResult:
    """Run the generator against nothing: what it adds to every latency."""
    return LatencyResult("nothing (the generator alone)", trials.run(_rates(_Nothing(), load)), "")


class _Nothing:
    async def check(self, user: int, since: int) -> int:
        del user, since
        return 0

    async def post(self, poster: int, tick: int, text: bytes) -> Awaitable[None]:
        del poster, tick, text
        return asyncio.sleep(0)


async def _rates(session: SystemSession | _Nothing, load: Load) -> list[AtRate]:
    stream, tweet_bytes = load.workload.stream, load.workload.tweet_bytes
    operations = list(stream.operations())
    deliveries: list[Awaitable[None]] = []

    async def operation(begin: int, number: int) -> None:
        row = begin + number
        kind, user, detail = operations[row]
        if kind == CHECK:
            await session.check(user, detail)
        else:
            tick = stream.first_tick + row
            deliveries.append(await session.post(user, tick, keys.tweet(tick, tweet_bytes)))

    for row in range(_WARM_COUNT):
        await operation(0, row)
    found: list[AtRate] = []
    begin = _WARM_COUNT
    for rate in load.rates:
        count = round(rate * load.seconds)
        with resting_collector():
            seconds = await open_loop(partial(operation, begin), rate, count)
        done_s = max(number / rate + latency for number, latency in enumerate(seconds))
        checks, posts = LatencyHistogram(), LatencyHistogram()
        for number, latency in enumerate(seconds, begin):
            (checks if operations[number][0] == CHECK else posts).record(latency)
        begin += count
        found.append(AtRate(rate, count / done_s, checks.summary(), posts.summary(), checks.curve()))
        await asyncio.gather(*deliveries)
        deliveries.clear()
    return found


@dataclass(frozen=True, slots=True)
class Freshness:
    """One system's lags."""

    title: str
    #: From a post's acknowledgement to the end of the first check that shows it.
    visible: Latencies
    #: The part of the posts that the first check showed.
    first_check_part: float
    #: From the acknowledgement to the event of a watch, and the part that came before; None without watches.
    told: Latencies | None
    told_before_part: float | None
    #: What was wrong with the timelines at the end; empty if nothing.
    difference: str


@dataclass(frozen=True, slots=True)
class WatchedPosts:
    """Posts, each with one of the followers who will look for it."""

    workload: SystemWorkload
    #: One for each row of the stream.
    readers: Ids

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """Yield tick, poster and reader of each."""
        pairs = zip(self.workload.stream.users.tolist(), self.readers.tolist(), strict=True)
        return ((tick, poster, reader) for tick, (poster, reader) in enumerate(pairs))


def make_posts(user_count: int, post_count: int, seed: int) -> WatchedPosts:
    """Draw some readers, and posts by those whom they follow."""
    graph_rng, rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    graph = make_graph("synthetic", user_count, graph_rng)
    follows = grouped(graph.users, graph.posters)
    active = rng.permutation(graph.user_count)[: max(_READERS, graph.user_count * 7 // 10)]
    readers = rng.choice(active[:_READERS], post_count)
    posters = np.array([rng.choice(sorted(follows[reader])) for reader in readers.tolist()], dtype=np.int64)
    none, zeros = np.empty(0, dtype=np.int64), np.zeros(post_count, dtype=np.int64)
    stream = TwipStream(graph, active, none, np.full(post_count, POST, dtype=np.int8), posters, zeros, 0)
    return WatchedPosts(SystemWorkload(stream), readers)


def run_freshness(system: System, posts: WatchedPosts, trials: Trials) -> Freshness:
    """Measure a system; watches are measured on another server, since events cost server and client some time."""
    visible_s, first_check_part, difference = trials.on_server(system, partial(_visible, system, posts))
    told_s: list[float] | None = None
    if system is PEQUOD:
        told_s, late = trials.on_server(system, partial(_told, posts))
        difference = difference or late
    return Freshness(
        title=system.title,
        visible=latencies(visible_s),
        first_check_part=first_check_part,
        told=None if told_s is None else latencies(told_s),
        told_before_part=None if told_s is None else sum(lag <= 0 for lag in told_s) / len(told_s),
        difference=difference,
    )


async def _visible(system: System, posts: WatchedPosts, server: Server) -> tuple[list[float], float, str]:
    """Return the lags until visible, the part of the posts that the first check showed, and what was wrong."""
    lags: list[float] = []
    first_checks = 0
    async with system.session(server, posts.workload) as session:
        async with _prepared(session, posts):
            for tick, poster, reader in posts.rows():
                delivered = await session.post(poster, tick, keys.tweet(tick))
                acknowledged = time.perf_counter()
                check_count = 1
                while not await session.check(reader, tick):
                    check_count += 1
                lags.append(time.perf_counter() - acknowledged)
                first_checks += check_count == 1
                await delivered
        return lags, first_checks / len(lags), (await verified(session, posts.workload)).reason


async def _told(posts: WatchedPosts, server: Server) -> tuple[list[float], str]:
    """Return the lags until told, below nothing where the watch was first, and what was wrong."""
    lags: list[float] = []
    ranges = [keys.timeline(user) for user in set(posts.readers.tolist())]
    async with (
        PEQUOD.session(server, posts.workload) as session,
        AsyncClient(f"127.0.0.1:{server.port}", timeout_s=TIMEOUT_S) as client,
    ):
        async with _prepared(session, posts), watched(client, ranges) as told:
            for tick, poster, reader in posts.rows():
                delivered = await session.post(poster, tick, keys.tweet(tick))
                acknowledged = time.perf_counter()
                async with asyncio.timeout(_TELL_S_MAX):
                    lags.append(await told[keys.timeline_key(reader, tick, poster)] - acknowledged)
                await delivered
        return lags, (await verified(session, posts.workload)).reason


@asynccontextmanager
async def _prepared(session: SystemSession, posts: WatchedPosts) -> AsyncIterator[None]:
    """Load and read everything once; check timelines at a fixed rate meanwhile."""
    users = posts.workload.stream.active.tolist()
    await session.load()
    await session.timelines(users)

    async def check(number: int) -> None:
        await session.check(users[number % len(users)], 0)

    async def check_on() -> None:
        while True:
            await open_loop(check, _CHECKS_PER_S, round(_CHECKS_PER_S))

    async with meanwhile(check_on()):
        yield
