"""One store after the other, with the same rows and the same queries, whose answers are compared with the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from rich.console import Console

from pequod.errors import SettingError
from pequod_bench.lakes import stores
from pequod_bench.report.printed import Printed, WrongAnswerError, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import LakesSettings

#: Rows of one upload.
_UPLOAD_ROWS: Final = 1_000_000
#: Rows of an author, on average, and of a range.
_OF_AUTHOR: Final = 100
_RANGE: Final = 1_000
_NEW: Final = "changed"


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """What a store took for `rows` rows."""

    store: str
    rows: int
    #: Until they are visible, and until they are in both orders, too.
    visible_rows_per_s: float
    indexed_rows_per_s: float
    #: CPU for a million rows, loaded and indexed.
    cpu_s_per_million: float
    disk_bytes_per_row: float
    #: Medians, in ms: in both orders, and a change of many rows.
    point_ms: float
    range_ms: float
    author_ms: float
    upsert_ms: float
    #: A point when the change is there and not in order yet.
    point_after_ms: float
    #: Of `cpu_s_per_million`, what each stage took, where a store has stages.
    stages_cpu_s_per_million: dict[str, float]


@dataclass(slots=True)
class LakesReport(Printed):
    """All stores."""

    upserts: int
    stores: list[StoreFigures] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def print_table(self, console: Console) -> None:
        columns = {"store": "{0.store}", "rows": "{0.rows:,}", "visible/s": "{0.visible_rows_per_s:,.0f}"}
        columns |= {"in order/s": "{0.indexed_rows_per_s:,.0f}", "CPU s/million": "{0.cpu_s_per_million:.2f}"}
        columns |= {"bytes/row": "{0.disk_bytes_per_row:.0f}", "point ms": "{0.point_ms:.2f}"}
        columns |= {f"{_RANGE:,} ms": "{0.range_ms:.2f}", f"author's {_OF_AUTHOR} ms": "{0.author_ms:.2f}"}
        columns |= {f"{self.upserts:,} changed ms": "{0.upsert_ms:.0f}", "point then ms": "{0.point_after_ms:.2f}"}
        print_rows(console, self.stores, columns)
        for one in self.stores:
            if one.stages_cpu_s_per_million:
                stages = ", ".join(f"{stage} {cpu_s:.2f}" for stage, cpu_s in one.stages_cpu_s_per_million.items())
                console.print(f"{one.store}, CPU s for each million of {one.rows:,} rows: {stages}")
        for name, reason in self.missing.items():
            console.print(f"{name} is not here: {reason}")


def run(settings: LakesSettings, bars: ProgressBars) -> LakesReport:
    """Measure all stores that are here, with each number of rows.

    Raises:
        SettingError: A name is that of no store.
    """
    names = [name.strip() for name in settings.systems.split(",")]
    if unknown := set(names) - set(stores.NAMES):
        raise SettingError("--systems", f"there is no store {min(unknown)!r}; there are {', '.join(stores.NAMES)}")
    report = LakesReport(settings.upserts)
    report.missing = {name: reason for name in names if (reason := stores.missing(name))}
    here = [name for name in names if name not in report.missing]
    with bars.bar("stores", len(here) * len(settings.rows)) as advance:
        for count in settings.rows:
            rows = _rows(count)
            for name in here:
                with TemporaryDirectory() as folder, stores.opened(name, Path(folder)) as store:
                    report.stores.append(_measured(store, name, Path(folder), rows, settings))
                advance(1)
    return report


def _rows(count: int) -> pa.Table:
    dice = np.random.default_rng(count)
    start = np.datetime64("2026-01-01", "us")
    return pa.table(
        {
            "id": pa.array(dice.permutation(count)),
            "author": pa.array(dice.integers(max(1, count // _OF_AUTHOR), size=count)),
            "created": pa.array(start + dice.integers(31_536_000_000_000, size=count)),
            "body": pa.array([f"the text of a post {number:021d}" for number in dice.integers(1 << 60, size=count)]),
        }
    )


def _measured(store: stores.Store, name: str, folder: Path, rows: pa.Table, settings: LakesSettings) -> StoreFigures:
    count = rows.num_rows
    begun_s, cpu_s = perf_counter(), store.cpu_s()
    for start in range(0, count, _UPLOAD_ROWS):
        store.load(rows.slice(start, _UPLOAD_ROWS))
    visible_s = perf_counter() - begun_s
    store.index()
    indexed_s, cpu_s = perf_counter() - begun_s, store.cpu_s() - cpu_s
    stages = {stage: spent_s / count * 1e6 for stage, spent_s in store.stages_cpu_s.items()}
    dice = np.random.default_rng(7)
    by_number = rows.sort_by("id")
    some = dice.integers(count, size=settings.reads).tolist()
    bodies = [str(by_number["body"][number]) for number in some]
    point_ms = _asked(store.point, some, bodies)
    lows = dice.integers(max(1, count - _RANGE), size=max(1, settings.reads // 10)).tolist()
    range_ms = _asked(lambda low: store.between(low, low + _RANGE).num_rows, lows, [min(_RANGE, count)] * len(lows))
    authors = [rows["author"][number].as_py() for number in some[: len(lows)]]
    per_author = np.bincount(np.asarray(rows["author"]))
    author_ms = _asked(lambda one: store.of_author(one).num_rows, authors, [int(per_author[one]) for one in authors])
    disk = stores.disk_bytes(folder)
    changed = np.sort(dice.choice(count, min(count, settings.upserts), replace=False))
    new = by_number.take(pa.array(changed)).set_column(3, "body", pa.array([_NEW] * len(changed)))
    begun_s = perf_counter()
    store.upsert(new)
    upsert_ms = (perf_counter() - begun_s) * 1000
    some = changed[: settings.reads].tolist()
    after_ms = _asked(store.point, some, [_NEW] * len(some))
    return StoreFigures(
        *(name, count, count / visible_s, count / indexed_s, cpu_s / count * 1e6, disk / count),
        *(point_ms, range_ms, author_ms, upsert_ms, after_ms, stages),
    )


def _asked(ask: Callable[[Any], Any], values: Sequence[Any], wanted: Sequence[Any]) -> float:
    """Ask for each value, and return the median in ms.

    Raises:
        WrongAnswerError: An answer is not what is wanted.
    """
    ask(values[0])
    times = list[float]()
    for value, right in zip(values, wanted, strict=True):
        begun_s = perf_counter()
        found = ask(value)
        times.append((perf_counter() - begun_s) * 1000)
        if found != right:
            raise WrongAnswerError(f"{value} has {found!r}, and {right!r} is right")
    return median(times)
