"""Twip on clusters of several sizes: what each server takes for it, and what larger clusters would do.

    run        1, 2, 4 computes and a home: CPU of each role, memory, timelines compared at the end
    price      of a tick, of a change that is delivered, of a write: from the accounts (`cluster_model`)
    predict    12 to 48 computes, by the same counts and these prices

On a machine with fewer cores than servers the time of a run says nothing of a cluster's speed; the CPU accounts do.
Each prediction has its error beside it: what the prices of the other sizes say of a size that was run.

Source:
    The paper's §5.5 and figure 10.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from pequod_proto.commands import SCAN
from rich.console import Console
from rich.table import Table

from pequod.client import AsyncClient
from pequod.freshness import LATEST
from pequod_bench.cluster_model import Account, Prediction, Prices, fitted, predicted, work
from pequod_bench.cluster_processes import StartedCluster, started_cluster
from pequod_bench.commands import CommandBatch, load_batches, timed_batches, timeline_scans
from pequod_bench.keys import JOINS, timeline_first, timeline_last
from pequod_bench.process import Usage, loop_factory
from pequod_bench.progress import Advance, ProgressBars
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

#: The sizes of the paper's figure.
PREDICTED: Final = (12, 24, 36, 48)
#: Throughput of 48 computes by that of 12 in the paper, where 4 would be perfect.
PAPER_SPEEDUP: Final = 3.0
_TABLES: Final = (b"p", b"s")
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
    #: What the prices of the other sizes say of `compute_cpu_us_per_tick`; None if there are too few.
    predicted_cpu_us_per_tick: float | None
    correct: bool
    difference: str


@dataclass(frozen=True, slots=True)
class ClusterTwipReport:
    """The runs, the prices that follow, and what larger clusters would do."""

    graph: str
    users: int
    ticks: int
    homes: int
    runs: tuple[ClusterRun, ...]
    #: None after a run with one size.
    prices: Prices | None
    predictions: tuple[Prediction, ...]

    @property
    def difference(self) -> str:
        """The first answer that was not what it must be; empty if all were."""
        return next((f"{run.computes} computes: {run.difference}" for run in self.runs if not run.correct), "")

    def to_json(self) -> str:
        """Return everything as one JSON object."""
        return json.dumps(asdict(self))

    def print_table(self, console: Console) -> None:
        """Print the tables for a person."""
        table = Table(
            title=f"Twip on {self.graph}: {self.ticks:,} ticks, {self.homes} homes", title_justify="left", box=None
        )
        columns = ("computes", "ticks/s", "µs a tick", "foretold", "busiest", "home µs", "client µs", "MiB", "exact")
        for column in columns:
            table.add_column(column, justify="right")
        for run in self.runs:
            guess = "" if run.predicted_cpu_us_per_tick is None else f"{run.predicted_cpu_us_per_tick:.2f}"
            table.add_row(
                f"{run.computes}",
                f"{run.ticks_per_s:,.0f}",
                f"{run.compute_cpu_us_per_tick:.2f}",
                guess,
                f"{run.imbalance:.2f}x",
                f"{run.home_cpu_us_per_tick:.2f}",
                f"{run.client_cpu_us_per_tick:.2f}",
                f"{run.home_mib:,.0f} + {run.compute_mib:,.0f}",
                "yes" if run.correct else "NO",
            )
        console.print(table)
        if self.prices is None:
            return
        prices = self.prices
        console.print(
            f"prices: a tick {prices.tick_us:.2f} µs and a delivered change {prices.change_us:.2f} µs of a compute; "
            f"a write {prices.write_us:.2f} µs and a delivered change {prices.delivery_us:.2f} µs of the homes"
        )
        base = self.predictions[0]
        table = Table(title="By these prices, with a core for each compute", title_justify="left", box=None)
        for column in ("computes", "ticks/s", "speed-up", "perfect", "cores of homes", "copies of posts"):
            table.add_column(column, justify="right")
        for one in self.predictions:
            table.add_row(
                f"{one.computes}",
                f"{one.ticks_per_s:,.0f}",
                f"{one.ticks_per_s / base.ticks_per_s:.2f}x",
                f"{one.computes / base.computes:.1f}x",
                f"{one.home_cores:.1f}",
                f"{one.duplication:.1f}",
            )
        console.print(table)
        console.print(f"the paper's figure 10: {PAPER_SPEEDUP:.1f}x from {PREDICTED[0]} to {PREDICTED[-1]} computes")


def run(settings: TwipSettings, sizes: Sequence[int], homes: int, bars: ProgressBars) -> ClusterTwipReport:
    """Run Twip on a cluster of each size.

    Raises:
        ServerStartError: A server does not start.
    """
    # Checks of a cluster see writes a moment later, so the final timelines alone are certain.
    with bars.working("preparing"):
        prepared = prepare(replace(settings, verify="final"))
    stream = prepared.stream
    runs, accounts = [], []
    for computes in sizes:
        one, account = _run_size(prepared, computes, homes, bars)
        runs.append(one)
        accounts.append(account)
    is_enough = len(set(sizes)) > 1
    prices = fitted(accounts) if is_enough else None
    predictions = () if prices is None else tuple(predicted(stream, computes, prices) for computes in PREDICTED)
    return ClusterTwipReport(
        stream.graph.name, stream.graph.user_count, stream.tick_count, homes,
        tuple(replace(one, predicted_cpu_us_per_tick=_left_out(accounts, number)) for number, one in enumerate(runs)),
        prices, predictions,
    )  # fmt: skip


def _run_size(prepared: Prepared, computes: int, homes: int, bars: ProgressBars) -> tuple[ClusterRun, Account]:
    """Run on a cluster of one size; return what it took, for people and for the prices."""
    settings, stream = prepared.settings, prepared.stream
    # As many commands for each compute in a message as with one of them: larger clusters have more clients.
    batches = timed_batches(stream, settings.tweet_bytes, settings.batch * computes)
    prepared = replace(prepared, batches=batches)
    with (
        started_cluster(homes, computes, JOINS[settings.mode], _TABLES) as cluster,
        asyncio.Runner(loop_factory=loop_factory(settings.client_loop)) as runner,
    ):
        found = runner.run(_run(prepared, cluster, bars))
    with bars.working("verifying"):
        verdict, _ = verify(prepared, found.replies, found.timelines)
        asked = work(stream, computes)
    home_s, compute_s = _spent(found.homes), _spent(found.computes)
    ticks = stream.tick_count
    one = ClusterRun(
        computes=computes,
        seconds=found.seconds,
        ticks_per_s=ticks / found.seconds,
        home_cpu_us_per_tick=sum(home_s) / ticks * 1e6,
        compute_cpu_us_per_tick=sum(compute_s) / ticks * 1e6,
        imbalance=max(compute_s) * computes / max(sum(compute_s), 1e-9),
        client_cpu_us_per_tick=found.client_cpu_s / ticks * 1e6,
        home_mib=sum(after.rss_bytes for _, after in found.homes) / 2**20,
        compute_mib=sum(after.rss_bytes for _, after in found.computes) / 2**20,
        predicted_cpu_us_per_tick=None,
        correct=not isinstance(verdict, Differs),
        difference=verdict.reason if isinstance(verdict, Differs) else "",
    )
    return one, Account(asked, sum(compute_s), sum(home_s))


def _left_out(accounts: Sequence[Account], number: int) -> float | None:
    """Return what the prices of the other runs say of a run's computes, in µs a tick."""
    others = [account for at, account in enumerate(accounts) if at != number]
    if len({account.work.computes for account in others}) < 2:
        return None
    prices, asked = fitted(others), accounts[number].work
    return prices.tick_us + prices.change_us * asked.change_count / asked.ticks


@dataclass(frozen=True, slots=True)
class _Found:
    seconds: float
    client_cpu_s: float
    #: Before and after, of each process.
    homes: list[tuple[Usage, Usage]]
    computes: list[tuple[Usage, Usage]]
    replies: list[Reply]
    timelines: list[Reply]


def _spent(usages: Sequence[tuple[Usage, Usage]]) -> list[float]:
    return [after.cpu_s - before.cpu_s for before, after in usages]


async def _run(prepared: Prepared, cluster: StartedCluster, bars: ProgressBars) -> _Found:
    settings, stream = prepared.settings, prepared.stream
    async with AsyncClient(cluster.target, timeout_s=TIMEOUT_S) as client:
        with bars.bar("loading", prepared.load_count) as advance:
            batches = load_batches(stream, settings.tweet_bytes, LOAD_BATCH)
            await execute_all(client, batches, settings.window, advance)
        # As in the paper: timelines are there, and subscriptions between servers stand, before the clock starts.
        with bars.bar("warming", len(stream.active)) as advance:
            await _read(client, _warm_scans(prepared), advance)
        with bars.bar("running", prepared.command_count) as advance, resting_collector():
            before = cluster.usages()
            watch = Stopwatch()
            replies = await execute_all(client, prepared.batches, settings.window, advance)
            seconds, cpu_s = watch.seconds(), watch.cpu_seconds()
            # What is on its way to computes belongs to the run.
            await client.scan(*_whole(0), freshness=LATEST)
            after = cluster.usages()
        with bars.bar("reading", len(stream.active)) as advance:
            timelines = await _read(client, timeline_scans(stream, SCAN_BATCH), advance)
    homes, computes = (list(zip(*pair, strict=True)) for pair in zip(before, after, strict=True))
    return _Found(seconds, cpu_s, homes, computes, replies, timelines)


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


def _warm_scans(prepared: Prepared) -> list[CommandBatch]:
    users = prepared.stream.active.tolist()
    found = []
    for at in range(0, len(users), _WARM_BATCH):
        some = users[at : at + _WARM_BATCH]
        arguments = [argument for user in some for argument in _whole(user)]
        found.append(CommandBatch(bytes([SCAN]) * len(some), arguments))
    return found


def _whole(user: int) -> tuple[bytes, bytes]:
    return timeline_first(user, 0), timeline_last(user)
