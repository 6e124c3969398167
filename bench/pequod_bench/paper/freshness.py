"""How long after its acknowledgement a post is in its followers' timelines.

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
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

from pequod.client import AsyncClient
from pequod_bench.paper.measure import RUN_S_MAX, started, verified, within
from pequod_bench.report.latency import Latencies, latencies, open_loop
from pequod_bench.systems.pequod_system import PEQUOD, TIMEOUT_S
from pequod_bench.systems.system import Server, System, SystemSession, SystemWorkload
from pequod_bench.workloads import keys
from pequod_bench.workloads.graph import Ids, make_graph
from pequod_bench.workloads.recompute import grouped
from pequod_bench.workloads.stream import POST, TwipStream
from pequod_bench.workloads.verify import Differs

#: Users whose timelines are looked at.
_READERS: Final = 16
#: Checks a second beside the posts.
_CHECKS_PER_S: Final = 200.0
_TELL_S_MAX: Final = 60.0


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

    def rows(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield tick, poster, reader and text of each."""
        pairs = zip(self.workload.stream.users.tolist(), self.readers.tolist(), strict=True)
        for tick, (poster, reader) in enumerate(pairs):
            yield tick, poster, reader, keys.tweet(tick, self.workload.tweet_bytes)


def make_posts(user_count: int, post_count: int, seed: int) -> WatchedPosts:
    """Draw some readers, and posts by those whom they follow."""
    graph_rng, rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    graph = make_graph("synthetic", user_count, graph_rng)
    follows = grouped(graph.users, graph.posters)
    active = rng.permutation(graph.user_count)[: max(_READERS, graph.user_count * 7 // 10)]
    readers = rng.choice(active[:_READERS], post_count)
    posters = np.array([rng.choice(sorted(follows[reader])) for reader in readers.tolist()], dtype=np.int64)
    none = np.empty(0, dtype=np.int64)
    zeros = np.zeros(post_count, dtype=np.int64)
    stream = TwipStream(graph, active, none, np.full(post_count, POST, dtype=np.int8), posters, zeros, 0)
    return WatchedPosts(SystemWorkload(stream, tweet_bytes=140), readers)


def run(system: System, posts: WatchedPosts, loop: asyncio.Runner, *, pin: bool) -> Freshness:
    """Measure a system; watches are measured on another server, since events cost server and client some time."""
    with started(system, pin=pin) as server:
        visible_s, first_check_part, difference = loop.run(within(RUN_S_MAX, _visible(system, server, posts)))
    told_s: list[float] | None = None
    if system is PEQUOD:
        with started(system, pin=pin) as server:
            told_s, late = loop.run(within(RUN_S_MAX, _told(server, posts)))
        difference = difference or late
    return Freshness(
        title=system.title,
        visible=latencies(visible_s),
        first_check_part=first_check_part,
        told=None if told_s is None else latencies(told_s),
        told_before_part=None if told_s is None else sum(lag <= 0 for lag in told_s) / len(told_s),
        difference=difference,
    )


async def _visible(system: System, server: Server, posts: WatchedPosts) -> tuple[list[float], float, str]:
    """Return the lags until visible, the part of the posts that the first check showed, and what was wrong."""
    lags: list[float] = []
    first_checks = 0
    async with system.session(server, posts.workload) as session:
        async with _prepared(session, posts):
            for tick, poster, reader, text in posts.rows():
                delivered = await session.post(poster, tick, text)
                acknowledged = time.perf_counter()
                check_count = 1
                while not await session.check(reader, tick):
                    check_count += 1
                lags.append(time.perf_counter() - acknowledged)
                first_checks += check_count == 1
                await delivered
        verdict = await verified(session, posts.workload)
    return lags, first_checks / len(lags), verdict.reason if isinstance(verdict, Differs) else ""


async def _told(server: Server, posts: WatchedPosts) -> tuple[list[float], str]:
    """Return the lags until told, below nothing where the watch was first, and what was wrong."""
    lags: list[float] = []
    async with (
        PEQUOD.session(server, posts.workload) as session,
        AsyncClient(f"127.0.0.1:{server.port}", timeout_s=TIMEOUT_S) as client,
    ):
        async with _prepared(session, posts), _watched(client, set(posts.readers.tolist())) as told:
            for tick, poster, reader, text in posts.rows():
                delivered = await session.post(poster, tick, text)
                acknowledged = time.perf_counter()
                async with asyncio.timeout(_TELL_S_MAX):
                    lags.append(await told[keys.timeline_key(reader, tick, poster)] - acknowledged)
                await delivered
        verdict = await verified(session, posts.workload)
    return lags, verdict.reason if isinstance(verdict, Differs) else ""


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

    async with _meanwhile(check_on()):
        yield


@asynccontextmanager
async def _watched(client: AsyncClient, users: set[int]) -> AsyncIterator[defaultdict[bytes, asyncio.Future[float]]]:
    """Watch timelines; each key's future ends with the time at which it was told."""
    told: defaultdict[bytes, asyncio.Future[float]] = defaultdict(asyncio.get_running_loop().create_future)
    standing = asyncio.Semaphore(0)

    async def watch(user: int) -> None:
        async for event in client.watch(b"t|%08d|" % user, keys.timeline_last(user)):
            standing.release()
            now = time.perf_counter()
            for change in event.changes:
                told[change.key].set_result(now)

    async with _meanwhile(*(watch(user) for user in users)):
        for _ in users:
            await asyncio.wait_for(standing.acquire(), _TELL_S_MAX)
        yield told


@asynccontextmanager
async def _meanwhile(*works: Awaitable[None]) -> AsyncIterator[None]:
    """Do something until the block ends.

    Raises:
        Exception: What the work raised, once the block ends.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
