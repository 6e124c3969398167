"""All figures of the lake in one run, with a report; beside PostgreSQL if it is there.

1. Rows in and through all stages, with workers beside the uploads, and COPY of the same rows with the same indexes.
2. One row at a time, each durable before the next.
3. What an SCU waits for: until it is visible, and in each stage.
4. Point and range queries by freshness with SCUs under way, and the same of PostgreSQL.
5. Latency by freshness, and age by stage, over time: two plots (`lake_demo`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pequod_lake import IngestLimits, Lake, MergePolicy
from pequod_lake.ingest import Ingestor

from pequod_bench.lake import COMPLEX, POSTGRES, SIMPLE, complex_rows, copied, measure_lake, simple_rows
from pequod_bench.lake_demo import draw, run_demo
from pequod_bench.systems.postgres_cluster import find_postgres, started_cluster
from pequod_bench.systems.system import Found

#: PostgreSQL as it is set up for loads of some million rows; every commit waits for the disk, as in the lake.
_SETTINGS: Final = {"shared_buffers": "1GB", "max_wal_size": "8GB", "maintenance_work_mem": "256MB"}
_RANGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresSize:
    """How much is done."""

    scu_rows: int = 1_000_000
    scus: int = 4
    puts: int = 200
    #: Rows in the authority, rows of each SCU that is under way, and how many there are.
    authority_rows: int = 2_000_000
    young_rows: int = 50_000
    young_scus: int = 20
    queries: int = 200
    demo_s: float = 30.0


SMOKE: Final = FiguresSize(
    scu_rows=1000, scus=2, puts=5, authority_rows=2000, young_rows=100, young_scus=3, queries=5, demo_s=1.0
)


def take_figures(out: Path, size: FiguresSize, say: Callable[[str], None]) -> Path:
    """Take all figures; return the report, which is in ``out`` with the plots."""
    out.mkdir(parents=True, exist_ok=True)
    lines = ["# Figures of the lake", ""]
    with TemporaryDirectory() as place, _postgres(Path(place)) as dsn:
        root = Path(place)
        for workload in ("simple", "complex"):
            say(f"{workload}: rows in and through all stages")
            lines += _ingested(root, workload, size, dsn)
        say("single puts")
        lines += _single_puts(root / "puts", size, dsn)
        say("queries")
        lines += _queried(root / "queries", size, dsn)
        say("latency by freshness over time")
        report = run_demo(root / "demo", size.demo_s, 20_000)
        paths = draw(report, out)
        lines += [
            "## Over time, 20,000 rows a second",
            "",
            "| freshness | queries | median ms | p95 ms |",
            "|---|---|---|---|",
        ]
        for level, samples in report.latencies_ms.items():
            lines.append(f"| {level} | {len(samples)} | {_times([one[1] for one in samples])} |")
        lines += ["", f"{len(report.wrong)} answers with one half of an upload.", ""]
        lines += [f"![{path.stem}]({path.name})" for path in paths]
    (out / "report.md").write_text("\n".join(lines) + "\n", "utf-8")
    return out / "report.md"


@contextmanager
def _postgres(root: Path) -> Iterator[str | None]:
    if not isinstance(find_postgres(), Found):
        yield None
        return
    root.chmod(0o755)
    (root / "postgres").mkdir()
    with started_cluster(root / "postgres", _SETTINGS) as server:
        yield f"postgresql://bench@127.0.0.1:{server.port}/postgres"


def _ingested(root: Path, workload: str, size: FiguresSize, dsn: str | None) -> list[str]:
    """Rows through the stages one after the other, and with two workers beside the uploads."""
    report = measure_lake(root / f"{workload}-stages", workload, size.scu_rows, size.scus, None, lambda _rows: None)
    schema, rows = (SIMPLE, simple_rows) if workload == "simple" else (COMPLEX, complex_rows)
    batches = list(rows(size.scu_rows, size.scus))
    count = sum(piece.num_rows for batch in batches for piece in batch.values())
    through_s = _through(root / f"{workload}-workers", schema, batches, size)
    lines = [f"## {workload}: {size.scus} SCUs of {size.scu_rows:,} rows", ""]
    lines += ["| stage | s of an SCU | rows/s | rows/CPU s |", "|---|---|---|---|"]
    for one in report.stages:
        lines.append(
            f"| {one.stage} | {one.elapsed_s / size.scus:.2f} | {one.rows_per_s:,.0f} | {one.rows_per_cpu_s:,.0f} |"
        )
    lines += [
        "",
        f"Two workers beside the uploads: {through_s:.2f} s to the authority, {count / through_s:,.0f} rows/s.",
    ]
    if dsn is None:
        lines.append("There is no PostgreSQL here.")
    else:
        copy_s, cpu_s = copied(dsn, workload, batches)
        lake_cpu_s = sum(one.cpu_s for one in report.stages)
        lines.append(
            f"COPY with the same indexes: {copy_s:.2f} s, {count / copy_s:,.0f} rows/s, {copy_s / through_s:.1f} times "
            f"as long; {cpu_s:.2f} s of CPU of its connection, {lake_cpu_s:.2f} of the lake."
        )
    # On paper: uploads have a core of their own, and the stages behind share the others.
    behind = sum(one.cpu_s / one.row_count for one in report.stages[1:])
    scale = [min(report.stages[0].rows_per_cpu_s, workers / behind) for workers in (1, 2, 4, 8, 16)]
    told = ", ".join(f"{workers}: {rate:,.0f}" for workers, rate in zip((1, 2, 4, 8, 16), scale, strict=True))
    return [*lines, "", f"Rows/s by number of workers, on paper from the CPU, each with a core: {told}.", ""]


def _through(folder: Path, schema: str, batches: list[dict[str, Any]], size: FiguresSize) -> float:
    """Return how long it takes until the authority has everything, with two workers beside the uploads."""
    policy = MergePolicy(fan_in=size.scus, authority_after_s=1e9)
    with Lake.create(folder, schema) as lake:
        stop = Event()
        workers = [lake.worker(policy) for _ in range(2)]
        threads = [Thread(target=worker.run, args=(stop,), daemon=True) for worker in workers]
        start_s = perf_counter()
        for thread in threads:
            thread.start()
        try:
            with lake.ingestor(IngestLimits(scu_age_s=0.0, scu_rows_max=size.scu_rows)) as ingestor:
                for number, batch in enumerate(batches):
                    _upload(ingestor, f"scu-{number}", batch)
            while lake.catalog.snapshot().runs[0].last_scu < size.scus:
                assert all(thread.is_alive() for thread in threads), "a worker failed"
                stop.wait(0.01)
            return perf_counter() - start_s
        finally:
            stop.set()
            for thread, worker in zip(threads, workers, strict=True):
                thread.join()
                worker.close()


def _upload(ingestor: Ingestor, name: str, batch: dict[str, Any]) -> int:
    upload = ingestor.upload(name)
    for table, piece in batch.items():
        upload.put(table, piece)
    return ingestor.take(upload).scu


def _single_puts(folder: Path, size: FiguresSize, dsn: str | None) -> list[str]:
    with Lake.create(folder, SIMPLE) as lake, lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
        start_s = perf_counter()
        for number, batch in enumerate(simple_rows(1, size.puts)):
            _upload(ingestor, f"put-{number}", batch)
        lake_s = perf_counter() - start_s
    lines = ["## One row at a time, durable before the next", ""]
    lines.append(f"Lake: {size.puts / lake_s:,.0f} rows/s.")
    if dsn is not None:
        with _cursor(dsn) as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS posts; {POSTGRES['simple']}")
            start_s = perf_counter()
            for number in range(size.puts):
                cursor.execute("INSERT INTO posts VALUES (%s, 1, now(), 'the text of a post')", (number,))
            lines.append(f"PostgreSQL: {size.puts / (perf_counter() - start_s):,.0f} rows/s.")
    return [*lines, ""]


def _queried(folder: Path, size: FiguresSize, dsn: str | None) -> list[str]:
    """Queries of the authority alone and of everything, while SCUs are not sorted yet."""
    count = size.authority_rows + size.young_rows * size.young_scus
    ids = np.random.default_rng(1).permutation(count)

    def rows(first: int, last: int) -> dict[str, Any]:
        bodies = pa.array([f"the text of a post, {one:010d}" for one in range(first, last)])
        columns = {"id": ids[first:last], "author": ids[first:last] % 1000, "body": bodies}
        created = pa.array(np.arange(first, last)).cast(pa.timestamp("us"))
        return {"posts": pa.table({**columns, "created": created})}

    visible_ms = list[float]()
    lines = ["## Queries", "", f"{size.authority_rows:,} rows in the authority, {size.young_scus} unsorted SCUs.", ""]
    lines += ["| query | median ms | p95 ms |", "|---|---|---|"]
    with Lake.create(folder, SIMPLE) as lake, lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
        _upload(ingestor, "old", rows(0, size.authority_rows))
        worker = lake.worker()
        worker.compact()
        worker.close()
        for number in range(size.young_scus):
            first = size.authority_rows + number * size.young_rows
            batch = rows(first, first + size.young_rows)
            start_s = perf_counter()
            scu = _upload(ingestor, f"young-{number}", batch)
            with lake.snapshot(f"scu:{scu}") as snapshot:
                assert snapshot.get("posts", int(ids[first])) is not None
            visible_ms.append((perf_counter() - start_s) * 1000)
        for level in ("authority", "newest"):
            lines += [f"| lake, {name} | {_times(found)} |" for name, found in _timed(lake, level, count, size)]
    if dsn is not None:
        copied(dsn, "simple", [rows(0, count)], columns=("id", "author", "body", "created"))
        lines += [f"| PostgreSQL, {name} | {_times(found)} |" for name, found in _timed_postgres(dsn, count, size)]
    told = f"An SCU of {size.young_rows:,} rows is visible, and its row read, {_pair(visible_ms)} ms after its last row"
    return [*lines, "", f"{told} (median, p95).", ""]


def _timed(lake: Lake, level: str, count: int, size: FiguresSize) -> Iterator[tuple[str, list[float]]]:
    dice = np.random.default_rng(2)
    for name, span in (("point", 0), (f"range of {_RANGE}", _RANGE)):
        found = list[float]()
        for first in dice.integers(0, max(1, count - span), size.queries):
            start_s = perf_counter()
            with lake.snapshot(level) as snapshot:
                if span:
                    snapshot.scan("posts", [("id", ">=", int(first)), ("id", "<", int(first) + span)])
                else:
                    snapshot.get("posts", int(first))
            found.append((perf_counter() - start_s) * 1000)
        yield f"{name}, {level}", found


def _timed_postgres(dsn: str, count: int, size: FiguresSize) -> Iterator[tuple[str, list[float]]]:
    dice = np.random.default_rng(2)
    with _cursor(dsn) as cursor:
        cursor.execute("ANALYZE posts")
        for name, span in (("point", 1), (f"range of {_RANGE}", _RANGE)):
            found = list[float]()
            for first in dice.integers(0, max(1, count - span), size.queries):
                start_s = perf_counter()
                cursor.execute("SELECT * FROM posts WHERE id >= %s AND id < %s", (int(first), int(first) + span))
                cursor.fetchall()
                found.append((perf_counter() - start_s) * 1000)
            yield name, found


@contextmanager
def _cursor(dsn: str) -> Iterator[Any]:
    import psycopg2  # noqa: PLC0415 - only with a PostgreSQL

    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()


def _times(values_ms: list[float]) -> str:
    return " | ".join(f"{one:.1f}" for one in _quantiles(values_ms))


def _pair(values_ms: list[float]) -> str:
    return " and ".join(f"{one:.0f}" for one in _quantiles(values_ms))


def _quantiles(values_ms: list[float]) -> tuple[float, float]:
    return median(values_ms), quantiles(values_ms, n=20)[-1] if len(values_ms) > 1 else values_ms[0]
