"""The factor analysis: what each structure of the engine is worth on Twip (paper §4, where it is done for C++).

    round 1   as it is, plain, as it is, plain ...    one structure taken out at a time, everything else as ever
    round 2   ...                                     each pair gives a ratio; each operation has a least time

All runs carry out the same operations, so that a kind is compared over the very same ones: a check after a
subscription is one as the engine is, even if the plain way computes the timeline anew. What all runs answer must be
the same to the byte, and the first of them is compared with a computation from scratch.
"""

from __future__ import annotations

import gc
import hashlib
import json
import statistics
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pequod_grammar import parse
from rich.console import Console
from rich.table import Table

from pequod.engine import Engine, Rows
from pequod_bench import alternatives
from pequod_bench.collector import Pauses, kept
from pequod_bench.commands import load_batches, timed_batches, timeline_scans
from pequod_bench.engine_twip import execute, execute_all
from pequod_bench.keys import JOINS
from pequod_bench.phases import NAMES, Phases
from pequod_bench.progress import ProgressBars
from pequod_bench.twip import LOAD_BATCH, SCAN_BATCH, Prepared, Settings, prepare, verify
from pequod_bench.verify import Differs, Reply

Setting = Callable[[], AbstractContextManager[None]]


@contextmanager
def as_it_is() -> Iterator[None]:
    """Change nothing."""
    yield


@dataclass(frozen=True, slots=True)
class Factor:
    """One structure, and the plain way in its place."""

    name: str
    plain: str
    setting: Setting
    #: The paper's figures, in the table's terms (1.17 times the memory with groups is 0.85); None if it has none.
    paper_run: float | None = None
    paper_memory: float | None = None
    #: It is about memory, too.
    is_weighed: bool = False


FACTORS: Final = (
    Factor(
        "groups",
        "one ordered map for each table, timelines too",
        alternatives.flat_store,
        paper_run=1.55,
        paper_memory=0.85,
        is_weighed=True,
    ),
    Factor("fan-out appends", "a search for each entry's place", alternatives.searched_appends, paper_run=1.11),
    Factor(
        "shared tails",
        "whole keys in each timeline",
        alternatives.whole_keys,
        is_weighed=True,
    ),
    Factor(
        "shared values",
        "a copy of each tweet in each timeline",
        alternatives.copied_values,
        paper_memory=1.14,
        is_weighed=True,
    ),
    Factor(
        "shared updaters",
        "an updater for each context, in one ordered map",
        alternatives.lone_updaters,
        is_weighed=True,
    ),
    Factor("first-check loops", "the nested loops of any join", alternatives.general_loops),
    Factor("scan short way", "the way that fits all ranges", alternatives.general_scan),
    Factor(
        "subscription log",
        "the timeline is forgotten and computed anew as it is read",
        alternatives.forgotten_timelines,
    ),
)
#: Short for the kinds of operations.
_COLUMNS: Final = dict(zip(NAMES, ("first", "log", "check", "post", "subs."), strict=True))
#: Measured like the others, but it is not the engine that is replaced.
COLLECTOR: Final = Factor("tamed collector", "CPython's thresholds, nothing frozen", as_it_is)


@dataclass(frozen=True, slots=True)
class FactorResult:
    """What one structure is worth: how many times more the plain way takes."""

    name: str
    plain: str
    #: CPU time of the whole run, each operation with its least time of the rounds: what others on the machine did
    #: to it is left out.
    run: float
    #: The same from the sums of each pair: median, least and greatest of the rounds.
    run_median: float
    run_min: float
    run_max: float
    #: As ``run``, by kind of operation; kinds of which there are none are left out.
    phases: dict[str, float]
    #: What the engine holds at the end; None if the structure is not about memory.
    memory: float | None
    #: The longest pause of the garbage collector, as it is and the plain way.
    pause_ms: float
    plain_pause_ms: float
    paper_run: float | None
    paper_memory: float | None


@dataclass(frozen=True, slots=True)
class Factors:
    """The whole analysis."""

    users: int
    ticks: int
    rounds: int
    #: CPU time of a tick as it is, and what the engine holds at the end.
    us_per_tick: float
    memory_mib: float
    #: Checks of the first run that were compared with a computation from scratch.
    checks_verified: int
    #: What went wrong; empty if all answers are right and the same.
    difference: str
    results: list[FactorResult]

    def to_json(self) -> str:
        """Return everything as one JSON object on one line."""
        return json.dumps(asdict(self))

    def print_table(self, console: Console) -> None:
        """Print the table for a person."""
        title = f"times more that the plain way takes; Twip, {self.users:,} users, {self.ticks:,} ticks"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, collapse_padding=True)
        table.add_column("structure", no_wrap=True)
        for column in ("run", "median", *_COLUMNS.values(), "memory", "paper", "p.mem"):
            table.add_column(column, justify="right", no_wrap=True)
        for result in self.results:
            table.add_row(
                result.name,
                *map(_shown, (result.run, result.run_median)),
                *(_shown(result.phases.get(name)) for name in _COLUMNS),
                *map(_shown, (result.memory, result.paper_run, result.paper_memory)),
            )
        console.print(table)
        console.print(
            "[dim]first checks, checks with a log to apply, other checks, posts, subscribes; p. is the paper[/]"
        )
        for result in self.results:
            console.print(f"[dim]{result.name}: or {result.plain}[/]")
            if result.name == COLLECTOR.name:
                pauses = f"{result.pause_ms:.1f} ms, the plain way {result.plain_pause_ms:.1f} ms"
                console.print(f"[dim]longest pause of the collector: {pauses}[/]")
        console.print(f"as it is: {self.us_per_tick:.2f} µs a tick, {self.memory_mib:,.1f} MiB")
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


def analyse(settings: Settings, rounds: int, only: str, bars: ProgressBars) -> Factors:
    """Run everything.

    Requires:
        The pure Python engine, as this module does; see `pure.require_pure_engine`.
    """
    wanted = [factor for factor in (*FACTORS, COLLECTOR) if only in factor.name]
    with bars.working("preparing"):
        prepared = prepare(settings)
        verdict, checks_verified, digest = _first_run(prepared)
    difference = verdict.reason if isinstance(verdict, Differs) else ""
    pairs: dict[str, list[tuple[Trial, Trial]]] = {factor.name: [] for factor in wanted}
    weights: dict[str, int] = {}
    weighed = [Factor("", "", as_it_is), *(factor for factor in wanted if factor.is_weighed)]
    with bars.bar("running", 2 * rounds * len(wanted) + len(weighed)) as advance:
        for _ in range(rounds):
            for factor in wanted:
                pair = _trial_as_it_is(prepared), _trial_plain(prepared, factor)
                pairs[factor.name].append(pair)
                advance(2)
                if not difference and any(trial.digest != digest for trial in pair):
                    difference = f"{factor.name}: the plain way answers something else"
        for factor in weighed:
            weights[factor.name] = _retained_bytes(prepared, factor.setting)
            advance(1)
    ours = [trial for some in pairs.values() for trial, _ in some]
    return Factors(
        users=prepared.stream.graph.user_count,
        ticks=prepared.stream.tick_count,
        rounds=rounds,
        us_per_tick=statistics.median(int(trial.nanos.sum()) for trial in ours) / prepared.stream.tick_count / 1000,
        memory_mib=weights[""] / 2**20,
        checks_verified=checks_verified,
        difference=difference,
        results=[_compare(factor, pairs[factor.name], weights) for factor in wanted],
    )


def _compare(factor: Factor, pairs: Sequence[tuple[Trial, Trial]], weights: dict[str, int]) -> FactorResult:
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
        memory=weights[factor.name] / weights[""] if factor.is_weighed else None,
        pause_ms=max(ours.longest_pause_ms for ours, _ in pairs),
        plain_pause_ms=max(plain.longest_pause_ms for _, plain in pairs),
        paper_run=factor.paper_run,
        paper_memory=factor.paper_memory,
    )


def _shown(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


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


def _trial_as_it_is(prepared: Prepared) -> Trial:
    with kept("tamed"):
        return _trial(prepared)


def _trial_plain(prepared: Prepared, factor: Factor) -> Trial:
    with kept("default" if factor is COLLECTOR else "tamed"), factor.setting():
        return _trial(prepared)


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


def _retained_bytes(prepared: Prepared, setting: Setting) -> int:
    """Return what the engine holds after the run: its own structures, and the keys and values in them."""
    gc.collect()
    tracemalloc.start()
    try:
        with setting():
            engine = _loaded(prepared)
            # Rendered anew, so that keys and values which the engine keeps are counted, and the others are not.
            for batch in timed_batches(prepared.stream, prepared.settings.tweet_bytes, prepared.settings.batch):
                execute(engine, batch)
            del batch
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


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
