"""A lake's stages, timed: rows in, sorted, merged; beside PostgreSQL's COPY into tables with the same indexes.

Rows go in and through all stages, one after the other, and again with two workers beside the uploads.

Two workloads, LazyBase's. `simple`: posts with one sort order. `complex`: two tables whose keys have ids, with two sort
orders each.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter, process_time
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
from pequod_lake import IngestLimits, Lake, MergePolicy
from pequod_lake.ingest import Ingestor
from pequod_lake.worker import StepReport
from pyarrow import csv
from rich.console import Console

from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import LakeSettings
from pequod_bench.systems.postgres_cluster import LOAD_SETTINGS, started_cluster

SIMPLE: Final = """
[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "int64", created = "timestamp", body = "text" }
"""
COMPLEX: Final = """
[[id]]
name = "host"

[[table]]
name = "test_one"
key = ["host"]
columns = { host = "id:host", string_data = "text", int_data = "int32" }
views.by_string = ["string_data", "host"]

[[table]]
name = "test_two"
key = ["host", "attribute"]
columns = { host = "id:host", attribute = "int32", value = "int32" }
views.by_value = ["value", "host", "attribute"]
"""
#: The tables of PostgreSQL, with an index for each sort order.
_POSTGRES: Final = {
    "simple": "CREATE TABLE posts (id bigint PRIMARY KEY, author bigint, created timestamp, body text)",
    "complex": "CREATE TABLE test_one (host text PRIMARY KEY, string_data text, int_data int);"
    "CREATE INDEX ON test_one (string_data, host);"
    "CREATE TABLE test_two (host text, attribute int, value int, PRIMARY KEY (host, attribute));"
    "CREATE INDEX ON test_two (value, host, attribute)",
}
_REPLACE: Final = {
    "test_one": "INSERT INTO test_one SELECT * FROM incoming ON CONFLICT (host) DO UPDATE "
    "SET string_data = excluded.string_data, int_data = excluded.int_data",
    "test_two": "INSERT INTO test_two SELECT * FROM incoming ON CONFLICT (host, attribute) DO UPDATE "
    "SET value = excluded.value",
}
_STAGES: Final = ("remap", "sort", "merge", "authority")
_AUTHORS: Final = 100_000
#: Attributes of a host.
_ATTRIBUTES: Final = 4

#: The columns of each table in an SCU.
Tables = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StageFigures:
    """What one stage took, for all rows."""

    stage: str
    row_count: int
    elapsed_s: float
    cpu_s: float

    @property
    def rows_per_s(self) -> float:
        """Rows in a second."""
        return self.row_count / self.elapsed_s

    @property
    def rows_per_cpu_s(self) -> float:
        """Rows in a second of CPU: what one core does that has nothing else to do."""
        return self.row_count / self.cpu_s if self.cpu_s else 0.0


@dataclass(frozen=True, slots=True)
class LakeReport(Printed):
    """What the stages took, COPY, and queries."""

    workload: str
    scu_rows: int
    stages: list[StageFigures]
    #: From the first row to the last one merged, one stage after the other, and with two workers beside the uploads.
    elapsed_s: float
    through_s: float
    #: None if there was no PostgreSQL. The CPU is that of the connection's process, without the writers behind it.
    copy_s: float | None
    copy_cpu_s: float | None

    def print_table(self, console: Console) -> None:
        columns = {"stage": "{0.stage}", "rows": "{0.row_count:,}", "s": "{0.elapsed_s:.2f}"}
        columns |= {"rows/s": "{0.rows_per_s:,.0f}", "CPU s": "{0.cpu_s:.2f}", "rows/CPU s": "{0.rows_per_cpu_s:,.0f}"}
        print_rows(console, self.stages, columns, title=f"{self.workload}: SCUs of {self.scu_rows:,} rows")
        rows_per_s = self.stages[0].row_count / self.through_s
        console.print(f"through to merged: {self.elapsed_s:.2f} s")
        console.print(f"two workers beside the uploads: {self.through_s:.2f} s, {rows_per_s:,.0f} rows/s")
        if self.copy_s is not None:
            cpu_s = sum(one.cpu_s for one in self.stages)
            console.print(
                f"COPY into PostgreSQL with the same indexes: {self.copy_s:.2f} s, "
                f"{self.copy_s / self.through_s:.1f} times as long; {self.copy_cpu_s:.2f} s of CPU for {cpu_s:.2f}"
            )


def run(settings: LakeSettings, postgres: str | None, folder: Path | None, bars: ProgressBars) -> LakeReport:
    """Take the rows of a workload through all stages, and into PostgreSQL if there is one.

    Args:
        settings: How many rows.
        postgres: A database, or ``own`` for one that is started; None for none.
        folder: Where the lake is made; None: where temporary files are.
        bars: Show how far it is.

    Raises:
        ServerStartError: PostgreSQL does not start, or is not there.
    """
    workload, scus = settings.workload, settings.scus
    schema, rows = (SIMPLE, _simple) if workload == "simple" else (COMPLEX, _complex)
    batches = list(rows(settings.scu_rows, scus))
    count = sum(piece.num_rows for batch in batches for piece in batch.values())
    with TemporaryDirectory(dir=folder) as place, _database(postgres) as dsn:
        root = Path(place)
        with bars.bar("stages", scus) as advance:
            stages, elapsed_s = _stages(root / "stages", schema, batches, count, advance)
        with bars.working("workers beside the uploads"):
            through_s = _through(root / "workers", schema, batches)
        copy_s, copy_cpu_s = (None, None) if dsn is None else _copied(dsn, workload, batches)
    return LakeReport(workload, settings.scu_rows, stages, elapsed_s, through_s, copy_s, copy_cpu_s)


@contextmanager
def _database(postgres: str | None) -> Iterator[str | None]:
    if postgres != "own":
        yield postgres
        return
    # Root starts it as another user, whom the folder then belongs to: one of its own.
    with TemporaryDirectory(ignore_cleanup_errors=True) as own, started_cluster(Path(own), LOAD_SETTINGS) as server:
        yield server.dsn


def _simple(count: int, scus: int) -> Iterator[Tables]:
    """Yield the rows of each SCU: posts with ids in no order."""
    dice = np.random.default_rng(1)
    ids = dice.permutation(count * scus)
    for number in range(scus):
        authors, created = dice.integers(0, _AUTHORS, count), dice.integers(10**15, 2 * 10**15, count)
        yield _posts(ids[number * count : (number + 1) * count], authors, created, dice.integers(0, 10**9, count))


def _posts(ids: Any, authors: Any, created: Any, numbers: Any) -> Tables:
    bodies = pa.array([f"the text of a post, {one:010d}" for one in numbers])
    columns = {"id": ids, "author": authors, "created": pa.array(created).cast(pa.timestamp("us"))}
    return {"posts": pa.table({**columns, "body": bodies})}


def _complex(count: int, scus: int) -> Iterator[Tables]:
    """Yield the rows of each SCU: hosts, of which some were there before, and four attributes of each."""
    dice = np.random.default_rng(1)
    hosts = count // (1 + _ATTRIBUTES)
    for _ in range(scus):
        numbers = dice.choice(hosts * scus, hosts, replace=False)
        names = pa.array([f"host-{one:012d}.example" for one in numbers])
        texts = pa.array([f"string {one:09d}" for one in dice.integers(0, 10**9, hosts)])
        one = pa.table({"host": names, "string_data": texts, "int_data": dice.integers(0, 10**6, hosts).astype("i4")})
        repeated = names.take(pa.array(np.repeat(np.arange(hosts), _ATTRIBUTES)))
        attributes = np.tile(np.arange(_ATTRIBUTES, dtype="i4"), hosts)
        values = dice.integers(0, 10**6, hosts * _ATTRIBUTES).astype("i4")
        yield {"test_one": one, "test_two": pa.table({"host": repeated, "attribute": attributes, "value": values})}


def _upload(ingestor: Ingestor, name: str, batch: Tables) -> int:
    upload = ingestor.upload(name)
    for table, piece in batch.items():
        upload.put(table, piece)
    return ingestor.take(upload).scu


@contextmanager
def _ingesting(folder: Path, schema: str) -> Iterator[tuple[Lake, Ingestor]]:
    """Make a lake that takes each upload as an SCU."""
    limits = IngestLimits(scu_age_s=0.0, scu_rows_max=10**9)
    with Lake.create(folder, schema) as lake, lake.ingestor(limits) as ingestor:
        yield lake, ingestor


def _stages(
    folder: Path, schema: str, batches: list[Tables], count: int, advance: Callable[[int], None]
) -> tuple[list[StageFigures], float]:
    """Return what each stage takes, one after the other, and all of them together."""
    reports = list[StepReport]()
    with _ingesting(folder, schema) as (lake, ingestor):
        start_s, start_cpu_s = perf_counter(), process_time()
        for number, batch in enumerate(batches):
            _upload(ingestor, f"scu-{number}", batch)
            advance(1)
        found = [StageFigures("ingest", count, perf_counter() - start_s, process_time() - start_cpu_s)]
        with closing(lake.worker(MergePolicy(fan_in=min(8, len(batches)), authority_after_s=1e9))) as worker:
            worker.drain(reports.append)
        elapsed_s = perf_counter() - start_s
    by_kind = {kind: [one for one in reports if one.step.kind.value == kind] for kind in _STAGES}
    found += [
        StageFigures(kind, count, sum(one.elapsed_s for one in some), sum(one.cpu_s for one in some))
        for kind, some in by_kind.items()
        if some
    ]
    return found, elapsed_s


def _through(folder: Path, schema: str, batches: list[Tables]) -> float:
    """Return how long it takes until the authority has everything, with two workers beside the uploads."""
    policy, stop = MergePolicy(fan_in=min(8, len(batches)), authority_after_s=1e9), Event()
    with _ingesting(folder, schema) as (lake, ingestor):
        workers = [lake.worker(policy) for _ in range(2)]
        threads = [Thread(target=worker.run, args=(stop,), daemon=True) for worker in workers]
        start_s = perf_counter()
        for thread in threads:
            thread.start()
        try:
            for number, batch in enumerate(batches):
                _upload(ingestor, f"scu-{number}", batch)
            while lake.catalog.snapshot().runs[0].last_scu < len(batches):
                assert all(thread.is_alive() for thread in threads), "a worker failed"
                stop.wait(0.01)
            return perf_counter() - start_s
        finally:
            stop.set()
            for thread, worker in zip(threads, workers, strict=True):
                thread.join()
                worker.close()


@contextmanager
def _cursor(dsn: str) -> Iterator[Any]:
    """Yield a cursor whose statements are transactions of their own, after it has dropped the tables."""
    import psycopg2  # noqa: PLC0415 - only with a PostgreSQL

    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS posts, test_one, test_two")
            yield cursor


def _copied(dsn: str, workload: str, batches: Sequence[Tables]) -> tuple[float, float]:
    """Return how long COPY takes for the same batches, and the CPU of PostgreSQL's process for it."""
    with _cursor(dsn) as cursor:
        cursor.execute(_POSTGRES[workload])
        process = psutil.Process(cursor.connection.info.backend_pid)
        texts = [(table, _text(piece)) for batch in batches for table, piece in batch.items()]
        start_s, start_cpu_s = perf_counter(), sum(process.cpu_times()[:2])
        for table, text in texts:
            # Hosts come again: their rows are replaced, as in the lake, by way of a table without indexes.
            replaces = _REPLACE.get(table)
            cursor.execute("BEGIN" if replaces is None else f"BEGIN; CREATE TEMP TABLE incoming (LIKE {table})")
            cursor.copy_expert(f"COPY {table if replaces is None else 'incoming'} FROM STDIN WITH (FORMAT csv)", text)
            cursor.execute("COMMIT" if replaces is None else f"{replaces}; DROP TABLE incoming; COMMIT")
        return perf_counter() - start_s, sum(process.cpu_times()[:2]) - start_cpu_s


def _text(piece: Any) -> io.BytesIO:
    text = io.BytesIO()
    csv.write_csv(piece, text, csv.WriteOptions(include_header=False))
    text.seek(0)
    return text
