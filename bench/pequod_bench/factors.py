"""The factor analysis: what a part that can be switched off is worth on Twip (paper §4).

    round 1   as it is, off, as it is, off ...    one part switched off at a time, everything else as ever
    round 2   ...                                 each pair gives a ratio; each operation has a least time

All runs carry out the same operations, and what they answer must be the same to the byte; the first run is compared
with a computation from scratch.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pequod_grammar import parse
from rich.console import Console
from rich.table import Table

from pequod.engine import Engine, Rows, general_way
from pequod_bench.collector import Pauses, kept
from pequod_bench.engine_twip import execute, execute_all
from pequod_bench.report.phases import NAMES, Phases
from pequod_bench.report.printed import Printed, print_figures
from pequod_bench.report.progress import ProgressBars
from pequod_bench.twip import LOAD_BATCH, SCAN_BATCH, Prepared, TwipSettings, prepare, verify
from pequod_bench.workloads.commands import load_batches, timeline_scans
from pequod_bench.workloads.keys import JOINS
from pequod_bench.workloads.verify import Differs, Reply


@dataclass(frozen=True, slots=True)
class Factor:
    """A part that can be switched off."""

    name: str
    #: What takes its place.
    plain: str
    #: The block in which it is off.
    off: Callable[[], AbstractContextManager[None]]


FACTORS: Final = (
    Factor("timeline kernel", "the loops and updates of any join", general_way),
    Factor("tamed collector", "CPython's thresholds, nothing frozen", partial(kept, "default")),
)
#: Short for the kinds of operations.
_COLUMNS: Final = dict(zip(NAMES, ("first", "log", "check", "post", "subs."), strict=True))


@dataclass(frozen=True, slots=True)
class FactorResult:
    """How many times more CPU time Twip takes with one part off."""

    name: str
    plain: str
    #: The whole run, each operation with its least time of the rounds: what other programs did to it is left out.
    run: float
    #: The same from the sums of each pair: median, least and greatest of the rounds.
    run_median: float
    run_min: float
    run_max: float
    #: As ``run``, by kind of operation; kinds of which there are none are left out.
    phases: dict[str, float]
    #: The longest pause of the garbage collector, as it is and with the part off.
    pause_ms: float
    plain_pause_ms: float


@dataclass(frozen=True, slots=True)
class Factors(Printed):
    """The whole analysis."""

    users: int
    ticks: int
    rounds: int
    #: CPU time of a tick as it is.
    us_per_tick: float
    #: Checks of the first run that were compared with a computation from scratch.
    checks_verified: int
    #: What went wrong; empty if all answers are right and the same.
    difference: str
    results: list[FactorResult]

    def print_table(self, console: Console) -> None:
        """Print it for a person."""
        title = f"times more CPU without it; Twip, {self.users:,} users, {self.ticks:,} ticks"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, collapse_padding=True)
        table.add_column("part", no_wrap=True)
        rows = []
        for result in self.results:
            phases = (result.phases.get(name) for name in _COLUMNS)
            ratios = ["" if one is None else f"{one:.2f}" for one in (result.run, result.run_median, *phases)]
            rows.append((result.name, *ratios, f"{result.pause_ms:.1f}", f"{result.plain_pause_ms:.1f}"))
        print_figures(console, table, ("run", "median", *_COLUMNS.values(), "pause, ms", "without"), rows)
        console.print(
            "[dim]first checks, checks with a log to apply, other checks, posts, subscribes; the collector's longest "
            "pause[/]"
        )
        for result in self.results:
            console.print(f"[dim]without {result.name}: {result.plain}[/]")
        console.print(f"as it is: {self.us_per_tick:.2f} µs a tick")
        if not self.difference:
            console.print(
                f"[green]correct[/]: {self.checks_verified:,} checks equal a computation from scratch, "
                "and so do all runs each other"
            )


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of all operations."""

    kinds: NDArray[np.uint8]
    nanos: NDArray[np.int64]
    longest_pause_ms: float
    #: Of everything that was answered.
    digest: bytes


def analyse(settings: TwipSettings, rounds: int, only: str, bars: ProgressBars) -> Factors:
    """Run everything."""
    wanted = [factor for factor in FACTORS if only in factor.name]
    with bars.working("preparing"):
        prepared = prepare(settings)
        verdict, checks_verified, digest = _first_run(prepared)
    difference = verdict.reason if isinstance(verdict, Differs) else ""
    pairs: dict[str, list[tuple[Trial, Trial]]] = {factor.name: [] for factor in wanted}
    with bars.bar("running", 2 * rounds * len(wanted)) as advance:
        for _ in range(rounds):
            for factor in wanted:
                with kept("tamed"):
                    ours = _trial(prepared)
                with kept("tamed"), factor.off():
                    plain = _trial(prepared)
                pairs[factor.name].append((ours, plain))
                advance(2)
                if not difference and {ours.digest, plain.digest} != {digest}:
                    difference = f"without {factor.name} something else is answered"
    nanos = [int(ours.nanos.sum()) for some in pairs.values() for ours, _ in some]
    return Factors(
        users=prepared.stream.graph.user_count,
        ticks=prepared.stream.tick_count,
        rounds=rounds,
        us_per_tick=statistics.median(nanos) / prepared.stream.tick_count / 1000,
        checks_verified=checks_verified,
        difference=difference,
        results=[_compare(factor, pairs[factor.name]) for factor in wanted],
    )


def _compare(factor: Factor, pairs: Sequence[tuple[Trial, Trial]]) -> FactorResult:
    ratios = [float(plain.nanos.sum() / ours.nanos.sum()) for ours, plain in pairs]
    kinds = pairs[0][0].kinds
    least_ours, least_plain = (
        np.minimum.reduce([trial.nanos for trial in trials]) for trials in zip(*pairs, strict=True)
    )
    phases = {
        name: float(least_plain[kinds == number].sum() / least_ours[kinds == number].sum())
        for number, name in enumerate(NAMES)
        if (kinds == number).any()
    }
    return FactorResult(
        name=factor.name,
        plain=factor.plain,
        run=float(least_plain.sum() / least_ours.sum()),
        run_median=statistics.median(ratios),
        run_min=min(ratios),
        run_max=max(ratios),
        phases=phases,
        pause_ms=max(ours.longest_pause_ms for ours, _ in pairs),
        plain_pause_ms=max(plain.longest_pause_ms for _, plain in pairs),
    )


def _first_run(prepared: Prepared) -> tuple[object, int, bytes]:
    """Run once, keep what is answered, and compare it with a computation from scratch."""
    engine = _loaded(prepared)
    replies = execute_all(engine, prepared.batches)
    timelines = execute_all(engine, timeline_scans(prepared.stream, SCAN_BATCH))
    verdict, checks_verified = verify(prepared, replies, timelines)
    digest = hashlib.blake2b()
    for reply in (*replies, *timelines):
        _digest(digest, reply)
    return verdict, checks_verified, digest.digest()


def _trial(prepared: Prepared) -> Trial:
    pauses, phases, digest = Pauses(), Phases(), hashlib.blake2b()
    with pauses.watching():
        engine = _loaded(prepared)
        for batch in prepared.batches:
            _digest(digest, phases.execute(engine, batch))
    for batch in timeline_scans(prepared.stream, SCAN_BATCH):
        _digest(digest, execute(engine, batch))
    kinds = np.frombuffer(phases.kinds, dtype=np.uint8)
    return Trial(kinds, np.frombuffer(phases.nanos, dtype=np.int64), pauses.longest_ms, digest.digest())


def _loaded(prepared: Prepared) -> Engine:
    engine = Engine()
    engine.add_joins(parse(JOINS[prepared.settings.mode]))
    for batch in load_batches(prepared.stream, prepared.settings.tweet_bytes, LOAD_BATCH):
        execute(engine, batch)
    return engine


def _digest(digest: hashlib.blake2b, reply: Reply) -> None:
    for result in reply:
        assert isinstance(result, Rows | None), "the engine refuses nothing of Twip"
        if result is not None:
            digest.update(b"%d " % len(result.keys))
            digest.update(b"\0".join(result.keys))
            digest.update(b"\0".join(result.values))
