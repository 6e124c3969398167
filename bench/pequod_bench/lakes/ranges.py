"""What a minute of a lake costs: some rows that come into lakes of different sizes are brought into the authority.

    adjacent    the rows follow each other in the key
    spread      the rows lie over all of the key

Each minute is one upload of rows that are there already, with new texts and another author, so that the secondary view
changes in two places for each of them. All sizes take turns in each round, and the CPU of the process counts: what else
runs on the machine does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pequod_lake import IngestLimits, Lake, MergePolicy, StageLimits
from rich.console import Console

from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import RangesSettings

SCHEMA: Final = """
[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "int64", body = "text" }
views.by_author = ["author", "id"]
"""
_AUTHORS: Final = 1_000
_LOADED_ROWS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Minutes:
    """What a minute cost in lakes of all sizes."""

    kind: str
    #: By the number of rows: the median of all rounds, in seconds of CPU.
    cpu_s: dict[int, float]

    @property
    def times(self) -> float:
        """How many times what it costs in the smallest lake it costs in the largest."""
        return self.cpu_s[max(self.cpu_s)] / self.cpu_s[min(self.cpu_s)]


@dataclass(slots=True)
class RangesReport(Printed):
    """The kinds of minutes, and what it takes to write all of the authority anew."""

    rounds: int
    row_count: int
    minutes: list[Minutes] = field(default_factory=list)
    #: By the number of rows, in seconds of CPU.
    whole_s: dict[int, float] = field(default_factory=dict)
    wrong: str = ""

    def fault(self) -> str:
        return self.wrong

    def print_table(self, console: Console) -> None:
        sizes = sorted(self.whole_s)
        rows = [(one.kind, *(one.cpu_s[size] * 1000 for size in sizes), one.times) for one in self.minutes]
        whole = [self.whole_s[size] * 1000 for size in sizes]
        rows.append(("all of the authority, written anew", *whole, whole[-1] / whole[0]))
        columns = {f"{self.row_count} rows": "{0[0]}"}
        columns |= {f"into {size:,}": f"{{0[{place}]:,.1f}} ms" for place, size in enumerate(sizes, 1)}
        columns |= {"times": f"{{0[{len(sizes) + 1}]:.2f}}"}
        print_rows(console, rows, columns)
        console.print(f"CPU of a minute's steps, medians of {self.rounds} rounds; at most 3 times is wanted")


def run(settings: RangesSettings, bars: ProgressBars) -> RangesReport:
    """Fill a lake of each size, and have minutes pass in each of them."""
    report = RangesReport(settings.rounds, settings.updates)
    limits = StageLimits(range_rows=settings.range_rows)
    # A minute has passed for what is merged, whatever the clock says.
    policy = MergePolicy(authority_after_s=0.0, delta_ratio=settings.delta_ratio)
    dice = np.random.default_rng(1)
    kinds: dict[str, Callable[[int], Any]] = {
        "adjacent": lambda size: dice.integers(size - settings.updates + 1) + np.arange(settings.updates),
        "spread": lambda size: np.sort(dice.choice(size, settings.updates, replace=False)),
    }
    with TemporaryDirectory() as folder, bars.bar("minutes", settings.rounds) as advance:
        lakes = {size: Lake.create(Path(folder, str(size)), SCHEMA) for size in settings.rows}
        try:
            for size, lake in lakes.items():
                _fill(lake, size)
                report.whole_s[size] = _merged_s(lake, policy, limits)
            found: dict[str, dict[int, list[float]]] = {kind: {size: [] for size in lakes} for kind in kinds}
            for number in range(settings.rounds):
                for kind, keys in kinds.items():
                    for size, lake in lakes.items():
                        ids = keys(size)
                        _put(lake, f"{kind} {number}", ids, f"new {number}")
                        found[kind][size].append(_merged_s(lake, policy, limits))
                        report.wrong = report.wrong or _fault(lake, ids, f"new {number}", size)
                advance(1)
            report.minutes = [
                Minutes(kind, {size: median(times) for size, times in by_size.items()})
                for kind, by_size in found.items()
            ]
        finally:
            for lake in lakes.values():
                lake.close()
    return report


def _fill(lake: Lake, size: int) -> None:
    for start in range(0, size, _LOADED_ROWS):
        _put(lake, f"load {start}", np.arange(start, min(size, start + _LOADED_ROWS)), "the text of a post")


def _put(lake: Lake, name: str, ids: Any, body: str) -> None:
    dice = np.random.default_rng(abs(int(ids[0])) + len(name))
    rows = {
        "id": pa.array(ids),
        "author": pa.array(dice.integers(_AUTHORS, size=len(ids))),
        "body": pa.array([f"{body} {number:09d}" for number in ids]),
    }
    with lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
        upload = ingestor.upload(name)
        upload.put("posts", pa.table(rows))
        ingestor.take(upload)


def _merged_s(lake: Lake, policy: MergePolicy, limits: StageLimits) -> float:
    """Do all steps, and return the CPU that they took."""
    worker = lake.worker(policy, limits)
    start_s = process_time()
    worker.drain()
    cpu_s = process_time() - start_s
    worker.close()
    lake.expire(0.0)
    return cpu_s


def _fault(lake: Lake, ids: Any, body: str, size: int) -> str:
    """Return what is wrong with the authority; empty if it is right."""
    with lake.snapshot("authority") as snapshot:
        if snapshot.scu != lake.catalog.snapshot().scu:
            return f"the authority of {size} rows is at SCU {snapshot.scu}"
        found = snapshot.scan("posts", [("id", "in", ids.tolist())], columns=["id", "body"]).rows
    expected = [{"id": number, "body": f"{body} {number:09d}"} for number in ids.tolist()]
    return "" if found.to_pylist() == expected else f"the rows of {size} are not those that came last"
