"""Latencies of checks and posts that come at a fixed rate, whether or not the server keeps up.

    load        the graph; every timeline is read once, and some operations go unrecorded
    1,000 / s   |  |  |  |  |  |      each operation by itself, no batches but those that the client makes of what comes
    2,000 / s   | | | | | | | | |     at the same moment; latency from the intended start (`report.latency`)

70 checks to a post, which is acknowledged when it is written; a client that keeps timelines delivers it afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from operator import not_
from typing import Final

from pequod_workloads import twip as keys

from pequod_bench.collector import resting_collector
from pequod_bench.paper.materialisation import make_stream
from pequod_bench.paper.measure import Trials, verified
from pequod_bench.report.latency import Latencies, curve, histogram, open_loop, percentiles
from pequod_bench.systems.system import Server, System, SystemSession, SystemWorkload
from pequod_bench.workloads.stream import CHECK

#: Of all users; each check is one of theirs.
ACTIVE_PERCENT: Final = 70
#: Operations before the clock starts, one after the other.
_WARM_COUNT: Final = 200


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
    async def check(self, *_: object) -> int:
        return 0

    async def post(self, *_: object) -> None:
        """Return at once."""


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
            delivery = await session.post(user, tick, keys.tweet(tick, tweet_bytes))
            if delivery is not None:
                deliveries.append(delivery)

    for row in range(_WARM_COUNT):
        await operation(0, row)
    found: list[AtRate] = []
    begin = _WARM_COUNT
    for rate in load.rates:
        count = round(rate * load.seconds)
        with resting_collector():
            seconds = await open_loop(partial(operation, begin), rate, count)
        done_s = max(number / rate + latency for number, latency in enumerate(seconds))
        is_check = [kind == CHECK for kind, _, _ in operations[begin : begin + count]]
        checks = histogram(compress(seconds, is_check))
        posts = histogram(compress(seconds, map(not_, is_check)))
        begin += count
        found.append(AtRate(rate, count / done_s, percentiles(checks), percentiles(posts), curve(checks)))
        await asyncio.gather(*deliveries)
        deliveries.clear()
    return found
