"""A lake that takes in rows at a steady rate while queries of four freshness levels run: LazyBase's figures 6 and 7.

Each upload changes two rows whose sum stays zero, and each query reads both: it is never off, whatever the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Event
from time import perf_counter, sleep
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pequod_lake import IngestLimits, Lake, MergePolicy
from pequod_lake.clock import machine_clock
from pequod_lake.freshness import staleness_s
from pequod_lake.runs import Stage
from rich.console import Console

from pequod_bench.report.plots import Curve, Panel, panels
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.settings import LakeDemoSettings

SCHEMA: Final = """
[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "int64", body = "text" }
views.by_author = ["author", "id"]

[[table]]
name = "accounts"
key = ["name"]
columns = { name = "text", balance = "int64" }
"""
LEVELS: Final = ("authority", "5s", "1s", "newest")
#: The stages whose staleness is drawn, each with the stages that a query of it reads.
STALENESS: Final = {
    "authority": {Stage.AUTHORITY, Stage.DELTA},
    "merged": {Stage.AUTHORITY, Stage.DELTA, Stage.MERGED},
    "sorted": {Stage.AUTHORITY, Stage.DELTA, Stage.MERGED, Stage.SORTED},
    "ingested": set(Stage),
}
_UPLOADS_PER_S: Final = 5
_AUTHORS: Final = 1000
_PAUSE_S: Final = 0.05


@dataclass(slots=True)
class DemoReport(Printed):
    """What was seen during a demo."""

    seconds: float
    row_count: int
    #: By level: when each query was asked, how long it took, and how old its answer was.
    latencies_ms: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    #: By stage: how old the state was that a query without later stages would have seen.
    staleness_s: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    #: Queries that saw one half of an upload.
    wrong: list[str] = field(default_factory=list)

    def fault(self) -> str:
        return self.wrong[0] if self.wrong else ""

    def print_table(self, console: Console) -> None:
        rows = []
        for level, samples in self.latencies_ms.items():
            times = [one[1] for one in samples]
            p95_ms = quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
            rows.append((level, len(times), median(times), p95_ms, max(one[2] for one in samples)))
        columns = {"freshness": "{0[0]}", "queries": "{0[1]}", "median ms": "{0[2]:.1f}", "p95 ms": "{0[3]:.1f}"}
        columns |= {"oldest answer s": "{0[4]:.1f}"}
        title = f"{self.row_count:,} rows in {self.seconds:.0f} s, and queries beside them"
        print_rows(console, rows, columns, title=title)
        console.print(f"{len(self.wrong)} answers with one half of an upload")


def run(settings: LakeDemoSettings) -> DemoReport:
    """Take in rows, merge and query for some seconds; then merge everything and compare."""
    seconds = settings.seconds
    report = DemoReport(seconds, 0, {level: [] for level in LEVELS}, {name: [] for name in STALENESS})
    with TemporaryDirectory() as folder, Lake.create(Path(folder, "lake"), SCHEMA) as lake:
        stop = Event()
        worker = lake.worker(MergePolicy(fan_in=4, authority_after_s=4.0))
        start_s = perf_counter()
        with ThreadPoolExecutor(len(LEVELS) + 3) as pool:
            taking = pool.submit(_take_in, lake, seconds, settings.rows_per_s, stop)
            beside: list[Future[Any]] = [pool.submit(worker.run, stop), pool.submit(_look, lake, report, start_s, stop)]
            beside += [pool.submit(_query, lake, level, report, start_s, stop) for level in LEVELS]
            try:
                # Those beside end before they are told to if they fail.
                wait([*beside, taking], return_when=FIRST_COMPLETED)
            finally:
                stop.set()
        for future in beside:
            future.result()
        report.row_count = taking.result()
        worker.compact()
        worker.close()
        lake.expire(0.0)
        with lake.snapshot("authority") as snapshot:
            count = snapshot.scan("posts", columns=["id"]).rows.num_rows
        if count != report.row_count or lake.verify():
            report.wrong.append(f"the authority has {count} posts at the end")
    return report


def _take_in(lake: Lake, seconds: float, rows_per_s: int, stop: Event) -> int:
    count = max(1, rows_per_s // _UPLOADS_PER_S)
    bodies = pa.array([f"the text of a post, {number:09d}" for number in range(count)])
    dice = np.random.default_rng(1)
    taken = 0
    start_s = perf_counter()
    with lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
        for number in range(int(seconds * _UPLOADS_PER_S)):
            upload = ingestor.upload(f"upload-{number}")
            authors = dice.integers(0, _AUTHORS, count)
            upload.put("posts", pa.table({"id": np.arange(taken, taken + count), "author": authors, "body": bodies}))
            upload.put("accounts", {"name": ["ann", "bob"], "balance": [number, -number]})
            ingestor.take(upload)
            taken += count
            if stop.is_set():
                break
            sleep(max(0.0, start_s + (number + 1) / _UPLOADS_PER_S - perf_counter()))
    return taken


def _query(lake: Lake, level: str, report: DemoReport, start_s: float, stop: Event) -> None:
    dice = np.random.default_rng(len(level))
    while not stop.wait(_PAUSE_S):
        asked_s = perf_counter()
        with lake.snapshot(level) as snapshot:
            snapshot.get("posts", int(dice.integers(0, 10_000)))
            took_ms = (perf_counter() - asked_s) * 1000
            rows = snapshot.scan("accounts").rows.to_pylist()
            if sum(row["balance"] for row in rows) or len(rows) not in {0, 2}:
                report.wrong.append(f"{level}, SCU {snapshot.scu}: {rows}")
            report.latencies_ms[level].append((asked_s - start_s, took_ms, snapshot.age_s))


def _look(lake: Lake, report: DemoReport, start_s: float, stop: Event) -> None:
    while not stop.wait(_PAUSE_S):
        runs = lake.catalog.snapshot().runs
        for name, stages in STALENESS.items():
            prefix = next((at for at, run in enumerate(runs) if run.stage not in stages), len(runs))
            age_s = staleness_s(runs, prefix, machine_clock())
            report.staleness_s[name].append((perf_counter() - start_s, age_s))


def draw(report: DemoReport, folder: Path) -> list[Path]:
    """Draw latency against time by level, and staleness against time by stage; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    latency = [
        Curve(level, list(zip([one[0] for one in some], _smooth([one[1] for one in some]), strict=True)))
        for level, some in report.latencies_ms.items()
    ]
    ages = [Curve(stage, some) for stage, some in report.staleness_s.items()]
    drawn = {
        folder / "latency.png": Panel("Latency of a point query, by its freshness", "s", latency, "ms", y_log=True),
        folder / "staleness.png": Panel("Age of the state at each stage", "s", ages, "s"),
    }
    for path, panel in drawn.items():
        panels([panel]).savefig(path, dpi=120)
    return list(drawn)


def _smooth(values: Sequence[float]) -> list[float]:
    """Return the median of each value and its neighbours."""
    return [median(values[max(0, at - 5) : at + 6]) for at in range(len(values))]
