"""The micro benchmarks' frame: a workload is a generator that times itself, sample by sample.

    def put_new(scale: MicroScale) -> Samples:
        engine = Engine()                            # prepared once, not timed
        for start in count(0, RUN):
            new = [...]                              # prepared for the sample, not timed
            yield RUN, timed(engine.put, new)        # operations, nanoseconds

A sample gives one figure, µs of CPU an operation; the table shows the least of them, the median and the 99th
percentile.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import Final, TypeVar

#: Operations and nanoseconds of each sample.
Samples = Iterator[tuple[int, int]]

#: The thread's CPU time, since a pause by the operating system is longer than any sample. A reading takes 1 to 2 µs,
#: which counts: a sample takes 50 µs or more.
clock: Final = time.thread_time_ns
#: Operations a sample, where a single one is too short for the clock.
RUN: Final = 64
#: Into how many parts the samples of workloads that are compared are divided.
TURNS: Final = 10

#: Records of an index, unless more are asked for.
FEW_RECORDS: Final = 20_000

_First = TypeVar("_First")
_Second = TypeVar("_Second")


@dataclass(frozen=True, slots=True)
class MicroScale:
    """How large a run is."""

    #: Samples that count; a tenth as many go before them, unmeasured.
    sample_count: int
    #: Size of what a workload prepares, as a part of the full size.
    part: float
    #: Records of an index that is built.
    record_count: int = FEW_RECORDS

    def of(self, full_size: int) -> int:
        """Return ``full_size`` at this scale, at least 2."""
        return max(2, round(full_size * self.part))


FULL: Final = MicroScale(sample_count=300, part=1.0)
SMOKE: Final = MicroScale(sample_count=3, part=0.05)


Workload = Callable[[MicroScale], Samples]


@dataclass(frozen=True, slots=True)
class MicroRow:
    """One row of the table."""

    name: str
    #: What one operation is.
    operation: str
    samples: Workload
    #: Whether one sample takes all records of an index: of more records, fewer samples do.
    is_indexing: bool = False

    def sample_count(self, scale: MicroScale) -> int:
        fewer = scale.record_count // FEW_RECORDS if self.is_indexing else 1
        return max(3, scale.sample_count // max(1, fewer))


class MicroRows(list[MicroRow]):
    """Rows of the table, in their order."""

    def row(self, name: str, operation: str) -> Callable[[Workload], Workload]:

        def take(samples: Workload) -> Workload:
            self.append(MicroRow(name, operation, samples))
            return samples

        return take

    def add(
        self, name: str, operation: str, samples: Callable[..., Samples], *arguments: object, is_indexing: bool = False
    ) -> None:
        """Take a function in whose last argument is the scale."""
        self.append(MicroRow(name, operation, partial(samples, *arguments), is_indexing=is_indexing))


@dataclass(frozen=True, slots=True)
class Result:
    """What one workload took, in µs of CPU an operation."""

    name: str
    operation: str
    min_us: float
    median_us: float
    p99_us: float
    sample_count: int


@dataclass(frozen=True, slots=True)
class MicroRatio:
    """How much more one workload takes than another of the same run, by their medians."""

    name: str
    than: str
    times: float
    #: The most that is wanted.
    times_max: float


def measure(workloads: Sequence[MicroRow], scale: MicroScale) -> list[Result]:
    """Run workloads that are compared; the garbage collector rests meanwhile, as it does inside a server's batch.

    They take turns: for some tenths of a second, a machine that others use too takes twice the time for everything. All
    samples of a workload could fall into such a phase, and none of the one that it is compared with.
    """
    runs = [(workload.samples(scale), workload.sample_count(scale)) for workload in workloads]
    for samples, sample_count in runs:
        for _ in islice(samples, max(1, sample_count // 10)):
            pass
    figures: list[list[float]] = [[] for _ in runs]
    gc.collect()
    gc.disable()
    try:
        for turn in range(1, TURNS + 1):
            for (samples, sample_count), found in zip(runs, figures, strict=True):
                wanted = sample_count * turn // TURNS - len(found)
                found += [nanos / operations / 1000 for operations, nanos in islice(samples, wanted)]
    finally:
        gc.enable()
    return [_result(workload, sorted(found)) for workload, found in zip(workloads, figures, strict=True)]


def _result(workload: MicroRow, figures: list[float]) -> Result:
    p99 = figures[min(len(figures) - 1, round(0.99 * len(figures)))]
    return Result(workload.name, workload.operation, figures[0], statistics.median(figures), p99, len(figures))


def timed(call: Callable[[_First, _Second], object], arguments: Iterable[tuple[_First, _Second]]) -> int:
    """Make one call after the other; return the nanoseconds that all took."""
    begun = clock()
    for first, second in arguments:
        call(first, second)
    return clock() - begun


def over_and_over(
    call: Callable[[_First, _Second], object], arguments: Sequence[tuple[_First, _Second]], stride: int = 1
) -> Samples:
    """Make the calls in samples of `RUN`, and all of them again, for as long as samples are taken.

    Args:
        stride: How far apart those of successive calls are, to leave the order that the processor's cache likes.
    """
    for start in count(0, RUN):
        yield RUN, timed(call, [arguments[(start + i) * stride % len(arguments)] for i in range(RUN)])
