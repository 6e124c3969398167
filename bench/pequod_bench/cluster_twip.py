"""Twip on clusters of several sizes: what each server takes for it, and what larger clusters would do.

    warm       all timelines for the first time, half of them in large messages, half in small ones: loads
    run        the first half of the operations in large messages, the second half in small ones
    check      the checks of the second half alone, which tells messages of clients from those of feeds
    price      of a command, a message, a change, a load: from the accounts of all phases and sizes (`cluster_model`)
    predict    1 to 48 computes, by counts and these prices

On a machine with fewer cores than servers the time of a run says nothing of a cluster's speed; the CPU accounts do.
Each size has beside it what the prices of the other sizes, and counts without a measurement, say of it: the error.

Source:
    The paper's §5.5 and figure 10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
from pequod_proto.commands import SCAN

from pequod.client import AsyncClient
from pequod.cluster.servers import ServerRole
from pequod.freshness import LATEST
from pequod_bench.cluster_model import Account, ClusterCounts, Prediction, fitted, predicted, work
from pequod_bench.cluster_report import PREDICTED, ClusterRun, ClusterTwipReport
from pequod_bench.cluster_site import ClusterShape, ClusterSite, started_site
from pequod_bench.commands import CommandBatch, load_batches, timeline_scans
from pequod_bench.keys import JOINS, timeline_first, timeline_last
from pequod_bench.process import Usage, loop_factory
from pequod_bench.progress import Advance, ProgressBars
from pequod_bench.stream import LOGOUT, SUBSCRIBE, TwipStream, make_stream
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
from pequod_bench.verify import Differs, Reply
from pequod_bench.wire_twip import TIMEOUT_S, execute_all

#: Messages of the second half have fewer commands by this factor, so that their price shows.
_SMALLER: Final = 4
#: Messages of the second half of the timelines that are read for the first time have fewer by this factor: more loads.
_FEWER: Final = 16
#: The phases of Twip's operations.
_TIMED: Final = slice(2, 4)
#: Operations of each user in a prediction.
_TICKS_EACH: Final = 25
T = TypeVar("T")
#: Timelines that are asked for at once before the clock starts.
_WARM_BATCH: Final = 256


def run(
    settings: TwipSettings, sizes: Sequence[int], homes: int, predict_users: int, bars: ProgressBars
) -> ClusterTwipReport:
    """Run Twip on a cluster of each size, and predict larger ones.

    Args:
        predict_users: Users of the graph of the predictions, if it is made up: a graph that is small for the number of
            computes has hardly two followers of a poster at one of them, which no real cluster would be.

    Raises:
        ServerStartError: A server does not start.
    """
    # Checks of a cluster see writes a moment later, so the final timelines alone are certain.
    with bars.working("preparing"):
        prepared = prepare(replace(settings, verify="final"))
    stream = prepared.stream
    runs, accounts = [], list[Account]()
    for computes in sizes:
        one, some = _run_size(prepared, computes, homes, bars)
        runs.append(one)
        accounts += some
    prices = fitted(accounts) if len(set(sizes)) > 1 else None
    predictions: tuple[Prediction, ...] = ()
    if prices is not None:
        with bars.working("predicting"):
            large = make_stream(settings.graph, predict_users, _TICKS_EACH * predict_users, settings.seed)
            predictions = tuple(predicted(large, computes, settings.batch, prices) for computes in PREDICTED)
    return ClusterTwipReport(
        stream.graph.name, stream.graph.user_count, stream.tick_count, homes,
        tuple(replace(one, predicted_cpu_us_per_tick=_foretold(prepared, accounts, one.computes)) for one in runs),
        tuple(accounts), prices, predict_users, predictions,
    )  # fmt: skip


def _run_size(
    prepared: Prepared, computes: int, homes: int, bars: ProgressBars
) -> tuple[ClusterRun, tuple[Account, ...]]:
    """Run on a cluster of one size; return what it took, for people and for the prices."""
    settings, stream = prepared.settings, prepared.stream
    shape = ClusterShape(homes, computes, JOINS[settings.mode])
    with started_site(shape) as site, asyncio.Runner(loop_factory=loop_factory(settings.client_loop)) as runner:
        found = runner.run(_run(prepared, site, bars))
    with bars.working("verifying"):
        verdict, _ = verify(prepared, [], found.timelines)
    ticks = stream.tick_count
    timed = found.phases[_TIMED]
    compute_s = [sum(phase.spent_s(number) for phase in timed) for number in _numbers(site, ServerRole.COMPUTE)]
    home_s = [sum(phase.spent_s(number) for phase in timed) for number in _numbers(site, ServerRole.HOME)]
    last = timed[-1].after
    one = ClusterRun(
        computes=computes,
        seconds=found.seconds,
        ticks_per_s=ticks / found.seconds,
        home_cpu_us_per_tick=sum(home_s) / ticks * 1e6,
        compute_cpu_us_per_tick=sum(compute_s) / ticks * 1e6,
        imbalance=max(compute_s) * computes / max(sum(compute_s), 1e-9),
        client_cpu_us_per_tick=found.client_cpu_s / ticks * 1e6,
        home_mib=sum(last[number].rss_bytes for number in _numbers(site, ServerRole.HOME)) / 2**20,
        compute_mib=sum(last[number].rss_bytes for number in _numbers(site, ServerRole.COMPUTE)) / 2**20,
        predicted_cpu_us_per_tick=None,
        correct=not isinstance(verdict, Differs),
        difference=verdict.reason if isinstance(verdict, Differs) else "",
    )
    return one, tuple(_account(site, phase, computes) for phase in found.phases)


def _numbers(site: ClusterSite, role: ServerRole) -> list[int]:
    return [number for number, server in enumerate(site.servers) if role in server.entry.roles]


def _account(site: ClusterSite, phase: _Phase, computes: int) -> Account:
    compute_numbers, home_numbers = _numbers(site, ServerRole.COMPUTE), _numbers(site, ServerRole.HOME)

    def counted(numbers: Sequence[int], name: str) -> float:
        return sum(phase.counts[number].get(f"pequod_{name}_total", 0.0) for number in numbers)

    fed, ranges = counted(home_numbers, "peer_messages"), counted(compute_numbers, "backing_ranges")
    return Account(
        computes=computes,
        compute=ClusterCounts(
            counted(compute_numbers, "commands"),
            phase.messages,
            counted(compute_numbers, "backing_changes"),
            fed,
            counted(compute_numbers, "backing_flights"),
            ranges,
            counted(compute_numbers, "backing_rows"),
        ),
        home=ClusterCounts(
            counted(home_numbers, "commands"),
            phase.write_messages,
            counted(home_numbers, "peer_changes"),
            fed,
            counted(home_numbers, "peer_loads"),
            ranges,
            counted(home_numbers, "peer_loaded_rows"),
        ),
        compute_cpu_s=sum(map(phase.spent_s, compute_numbers)),
        home_cpu_s=sum(map(phase.spent_s, home_numbers)),
    )


def _foretold(prepared: Prepared, accounts: Sequence[Account], computes: int) -> float | None:
    """Return what the prices of the other sizes say of the computes of a run, in µs a tick; None: too few."""
    others = [account for account in accounts if account.computes != computes]
    if len({account.computes for account in others}) < 2:
        return None
    price, batch = fitted(others).compute, prepared.settings.batch * computes
    parts = _halves(prepared.stream), (batch, _small(batch))
    cpu_s = sum(price.cpu_s(work(part, computes, size).of_computes) for part, size in zip(*parts, strict=True))
    return cpu_s / prepared.stream.tick_count * 1e6


def _small(batch: int) -> int:
    return max(1, batch // _SMALLER)


def _half_tick(stream: TwipStream) -> int:
    return stream.tick_count // 2


def _halves(stream: TwipStream) -> tuple[TwipStream, TwipStream]:
    """Return the first half of the operations, and the second one with what the first has subscribed to."""
    half = _half_tick(stream)
    parts = (slice(half), slice(half, None))
    first, second = (
        replace(stream, kinds=stream.kinds[part], users=stream.users[part], details=stream.details[part])
        for part in parts
    )
    is_new = first.kinds == SUBSCRIBE
    graph = replace(
        stream.graph,
        users=np.append(stream.graph.users, first.users[is_new]),
        posters=np.append(stream.graph.posters, first.details[is_new]),
    )
    return first, replace(second, graph=graph)


def _cut(prepared: Prepared, computes: int) -> tuple[list[CommandBatch], list[CommandBatch]]:
    """Return the messages of both halves; as many commands for each compute in one, however many computes there are."""
    stream, batch = prepared.stream, prepared.settings.batch * computes
    whole = _joined(prepared.batches)
    count = int((stream.kinds[: _half_tick(stream)] != LOGOUT).sum())
    first, second = (
        CommandBatch(whole.kinds[part], whole.arguments[2 * (part.start or 0) : part.stop and 2 * part.stop])
        for part in (slice(count), slice(count, None))
    )
    return _messages(first, batch), _messages(second, _small(batch))


def _joined(batches: Sequence[CommandBatch]) -> CommandBatch:
    return CommandBatch(b"".join(one.kinds for one in batches), [one for batch in batches for one in batch.arguments])


def _messages(commands: CommandBatch, size: int) -> list[CommandBatch]:
    kinds, arguments = commands
    return [
        CommandBatch(kinds[at : at + size], arguments[2 * at : 2 * (at + size)]) for at in range(0, len(kinds), size)
    ]


def _checks_alone(batches: Sequence[CommandBatch]) -> list[CommandBatch]:
    """Return the checks of some messages, each message with those it had."""
    return [
        CommandBatch(
            bytes([SCAN]) * kinds.count(SCAN),
            [bound for at, kind in enumerate(kinds) if kind == SCAN for bound in arguments[2 * at : 2 * at + 2]],
        )
        for kinds, arguments in batches
    ]


@dataclass(frozen=True, slots=True)
class _Phase:
    """A part of a run; lists are parallel to the servers."""

    #: Messages of the client at computes, and at homes.
    messages: float
    write_messages: float
    counts: list[dict[str, float]]
    before: list[Usage]
    after: list[Usage]

    def spent_s(self, number: int) -> float:
        """Return the CPU time of a server."""
        return self.after[number].cpu_s - self.before[number].cpu_s


@dataclass(frozen=True, slots=True)
class _Found:
    seconds: float
    client_cpu_s: float
    #: Warming in large and in small messages, Twip in large and in small messages, checks alone.
    phases: list[_Phase]
    timelines: list[Reply]


class _Accounting:
    """Takes the accounts of the servers before and after each phase."""

    def __init__(self, site: ClusterSite) -> None:
        self._site = site
        self.phases: list[_Phase] = []

    def usages(self) -> list[Usage]:
        """Return what each server has used so far."""
        found = [server.usage() for server in self._site.servers]
        assert all(found), "no server is killed in this run"
        return [one for one in found if one is not None]

    async def of(self, messages: float, write_messages: float, phase: Awaitable[T]) -> T:
        """Await a phase, and keep its account."""
        figures = await asyncio.to_thread(self._metrics)
        before = self.usages()
        result = await phase
        after = self.usages()
        counts = [
            {name: figure - earlier.get(name, 0.0) for name, figure in later.items()}
            for earlier, later in zip(figures, await asyncio.to_thread(self._metrics), strict=True)
        ]
        self.phases.append(_Phase(messages, write_messages, counts, before, after))
        return result

    def _metrics(self) -> list[dict[str, float]]:
        return [server.metrics() for server in self._site.servers]


async def _run(prepared: Prepared, site: ClusterSite, bars: ProgressBars) -> _Found:
    settings, stream = prepared.settings, prepared.stream
    computes = len(site.of(ServerRole.COMPUTE))
    accounting = _Accounting(site)
    seconds = cpu_s = 0.0
    async with AsyncClient(site.target, timeout_s=TIMEOUT_S) as client:
        with bars.bar("loading", prepared.load_count) as advance:
            batches = load_batches(stream, settings.tweet_bytes, LOAD_BATCH)
            await execute_all(client, batches, settings.window, advance)
        # As in the paper: timelines are there, and subscriptions between servers stand, before the clock starts.
        with bars.bar("warming", len(stream.active)) as advance:
            users = stream.active.tolist()
            half = len(users) // 2
            for some, size in ((users[:half], _WARM_BATCH), (users[half:], _WARM_BATCH // _FEWER)):
                scans = _warm_scans(some, size)
                await accounting.of(len(scans) * min(computes, size), 0, _read(client, scans, advance))
        batch, messages = settings.batch * computes, _cut(prepared, computes)
        asked = [work(part, computes, size) for part, size in zip(_halves(stream), (batch, _small(batch)), strict=True)]
        with bars.bar("running", prepared.command_count) as advance, resting_collector():
            for part, some in zip(asked, messages, strict=True):
                watch = Stopwatch()
                phase = _timed(client, some, settings.window, advance)
                await accounting.of(float(part.messages.sum()), part.write_messages, phase)
                seconds += watch.seconds()
                cpu_s += watch.cpu_seconds()
            phase = _timed(client, _checks_alone(messages[1]), settings.window, lambda _: None)
            await accounting.of(float(asked[1].messages.sum()), 0, phase)
        with bars.bar("reading", len(stream.active)) as advance:
            timelines = await _read(client, timeline_scans(stream, SCAN_BATCH), advance)
    return _Found(seconds, cpu_s, accounting.phases, timelines)


async def _timed(client: AsyncClient, batches: Sequence[CommandBatch], window: int, advance: Advance) -> None:
    await execute_all(client, batches, window, advance)
    # What is on its way to computes belongs to the run.
    await client.scan(*_whole(0), freshness=LATEST)


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


def _warm_scans(users: Sequence[int], size: int) -> list[CommandBatch]:
    return [
        CommandBatch(bytes([SCAN]) * len(some), [bound for user in some for bound in _whole(user)])
        for some in (users[at : at + size] for at in range(0, len(users), size))
    ]


def _whole(user: int) -> tuple[bytes, bytes]:
    return timeline_first(user, 0), timeline_last(user)
