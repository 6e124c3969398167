"""A lake's stages, timed: rows in, sorted, merged; beside PostgreSQL's COPY into tables with the same indexes.

Two workloads, LazyBase's. `simple`: posts with one sort order. `complex`: two tables whose keys have ids, with two sort
orders each.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
from pequod_lake import IngestLimits, Lake, MergePolicy
from pequod_lake.worker import StepReport
from pyarrow import csv
from rich.console import Console
from rich.table import Table

from pequod_bench.report.printed import Printed, print_figures

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
POSTGRES: Final = {
    "simple": "CREATE TABLE posts (id bigint PRIMARY KEY, author bigint, created timestamp, body text)",
    "complex": "CREATE TABLE test_one (host text PRIMARY KEY, string_data text, int_data int);"
    "CREATE INDEX ON test_one (string_data, host);"
    "CREATE TABLE test_two (host text, attribute int, value int, PRIMARY KEY (host, attribute));"
    "CREATE INDEX ON test_two (value, host, attribute)",
}
_AUTHORS: Final = 100_000
#: Attributes of a host.
_ATTRIBUTES: Final = 4


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
    """What the stages took, and COPY."""

    workload: str
    scu_rows: int
    stages: list[StageFigures]
    #: From the first row to the last one merged, for the lake.
    elapsed_s: float
    #: None if there was no PostgreSQL. The CPU is that of the connection's process, without the writers behind it.
    copy_s: float | None
    copy_cpu_s: float | None

    def print_table(self, console: Console) -> None:
        """Print it for a person."""
        table = Table("stage", title=f"{self.workload}: SCUs of {self.scu_rows:,} rows")
        rows = [
            (
                one.stage,
                f"{one.row_count:,}",
                f"{one.elapsed_s:.2f}",
                f"{one.rows_per_s:,.0f}",
                f"{one.cpu_s:.2f}",
                f"{one.rows_per_cpu_s:,.0f}",
            )
            for one in self.stages
        ]
        print_figures(console, table, ("rows", "s", "rows/s", "CPU s", "rows/CPU s"), rows)
        console.print(f"through to merged: {self.elapsed_s:.2f} s")
        if self.copy_s is not None:
            cpu_s = sum(one.cpu_s for one in self.stages)
            console.print(
                f"COPY into PostgreSQL with the same indexes: {self.copy_s:.2f} s, "
                f"{self.copy_s / self.elapsed_s:.1f} times as long; {self.copy_cpu_s:.2f} s of CPU for {cpu_s:.2f}"
            )


def simple_rows(count: int, scus: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield the rows of each SCU: posts with ids in no order."""
    dice = np.random.default_rng(seed)
    ids = dice.permutation(count * scus)
    for number in range(scus):
        authors = dice.integers(0, _AUTHORS, count)
        created = pa.array(dice.integers(10**15, 2 * 10**15, count)).cast(pa.timestamp("us"))
        bodies = pa.array([f"the text of a post, {one:010d}" for one in dice.integers(0, 10**9, count)])
        columns = {"id": ids[number * count : (number + 1) * count], "author": authors}
        yield {"posts": pa.table({**columns, "created": created, "body": bodies})}


def complex_rows(count: int, scus: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield the rows of each SCU: hosts, of which some were there before, and four attributes of each."""
    dice = np.random.default_rng(seed)
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


def measure_lake(
    folder: Path, workload: str, scu_rows: int, scus: int, dsn: str | None, advance: Callable[[int], None]
) -> LakeReport:
    """Take the rows of a workload through all stages, and into PostgreSQL if there is one.

    Args:
        advance: Called with the number of rows of each SCU that is in.
    """
    schema, rows = (SIMPLE, simple_rows) if workload == "simple" else (COMPLEX, complex_rows)
    batches = list(rows(scu_rows, scus))
    reports = list[StepReport]()
    with Lake.create(folder, schema) as lake:
        worker = lake.worker(MergePolicy(fan_in=min(8, scus), authority_after_s=1e9))
        start_s, start_cpu_s = perf_counter(), process_time()
        with lake.ingestor(IngestLimits(scu_age_s=0.0, scu_rows_max=scu_rows)) as ingestor:
            for number, batch in enumerate(batches):
                upload = ingestor.upload(f"scu-{number}")
                for table, piece in batch.items():
                    upload.put(table, piece)
                ingestor.take(upload)
                advance(scu_rows)
        count = sum(piece.num_rows for batch in batches for piece in batch.values())
        ingested = StageFigures("ingest", count, perf_counter() - start_s, process_time() - start_cpu_s)
        worker.drain(reports.append)
        elapsed_s = perf_counter() - start_s
        worker.close()
    stages = [ingested, *_stages(reports, count)]
    copy_s, copy_cpu_s = (None, None) if dsn is None else copied(dsn, workload, batches)
    return LakeReport(workload, scu_rows, stages, elapsed_s, copy_s, copy_cpu_s)


def _stages(reports: Sequence[StepReport], count: int) -> Iterator[StageFigures]:
    for kind in ("remap", "sort", "merge", "authority"):
        some = [one for one in reports if one.step.kind.value == kind]
        if some:
            yield StageFigures(kind, count, sum(one.elapsed_s for one in some), sum(one.cpu_s for one in some))


def copied(
    dsn: str, workload: str, batches: Sequence[dict[str, Any]], columns: Sequence[str] | None = None
) -> tuple[float, float]:
    """Return how long COPY takes for the same batches, and the CPU of PostgreSQL's process for it.

    Args:
        columns: The columns of the batches in their order; None if it is that of the table.
    """
    import psycopg2  # noqa: PLC0415 - only with a PostgreSQL

    texts = []
    for batch in batches:
        for table, piece in batch.items():
            text = io.BytesIO()
            csv.write_csv(piece, text, csv.WriteOptions(include_header=False))
            texts.append((table, text))
    connection = psycopg2.connect(dsn)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS posts, test_one, test_two")
            cursor.execute(POSTGRES[workload])
        process = psutil.Process(connection.info.backend_pid)
        start_cpu_s = _cpu_s(process)
        start_s = perf_counter()
        named = "" if columns is None else f" ({', '.join(columns)})"
        for table, text in texts:
            with connection, connection.cursor() as cursor:
                text.seek(0)
                # Hosts come again: their rows are replaced, as in the lake, by way of a table without indexes.
                cursor.execute(f"CREATE TEMP TABLE incoming (LIKE {table}) ON COMMIT DROP")
                target = "incoming" if workload == "complex" else table
                cursor.copy_expert(f"COPY {target}{named} FROM STDIN WITH (FORMAT csv)", text)
                if workload == "complex":
                    cursor.execute(_REPLACE[table])
        return perf_counter() - start_s, _cpu_s(process) - start_cpu_s
    finally:
        connection.close()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


_REPLACE: Final = {
    "test_one": "INSERT INTO test_one SELECT * FROM incoming ON CONFLICT (host) DO UPDATE "
    "SET string_data = excluded.string_data, int_data = excluded.int_data",
    "test_two": "INSERT INTO test_two SELECT * FROM incoming ON CONFLICT (host, attribute) DO UPDATE "
    "SET value = excluded.value",
}
