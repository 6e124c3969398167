"""Steps of a lake's tables by Spark, for those that are too much for one process or one machine.

    remap   texts of the raw files -> ranges of texts -> ids; the files written anew (lake_remap.py)
    sort    raw files -> partitions by key range, sorted by key and place        a task for each: combine, write
    merge   slices of the key, a task for each: read, combine, write             no rows pass through Java
    views   the files of the primary view -> partitions by the view's key        a task for each: write

Tasks do what a worker does, with the lake's own code: they read with checksums, combine, and write durable files. Only
to put rows into another order is Spark's. Executors may be on other machines, if they reach the lake's files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pequod_lake.combining import combined
from pequod_lake.place import opened_files
from pequod_lake.reading import LakeReader
from pequod_lake.runs import LakeFile
from pequod_lake.schema import DELETED, TIME, LakeTable, LakeView
from pequod_lake.slices import KeySlice, RunWork, TableWork, key_slices
from pequod_lake.states import reader_at
from pequod_lake.writing import FileWriter

from pequod_spark.lake_remap import remapped
from pequod_spark.lake_tasks import ANSWER, BATCH_ROWS, PIECE, PLACE, Attempt, pieces_of, rows_of
from pequod_spark.session import is_running, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows of a part, at the least and at the most; the latter is what a task has in memory.
_PART_ROWS_MIN: Final = 1_000_000
_PART_ROWS_MAX: Final = 4_000_000
_PARTS: Final = 64
_SETTINGS: Final = {
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
}


class SparkBulk:
    """Does the large steps of workers of one lake; threads may share it.

    Args:
        location: The folder or the address of the lake; executors open it by the same name.
        master: Where Spark runs: ``local[*]``, or a cluster.
        settings: Further settings of Spark.
        part_rows: Rows of a part; None chooses by the number of rows.
    """

    def __init__(
        self,
        location: Path | str,
        master: str = "local[*]",
        settings: dict[str, str] | None = None,
        *,
        part_rows: int | None = None,
    ) -> None:
        self._location = str(location) if "://" in str(location) else str(Path(location).resolve())
        self._reader = LakeReader(opened_files(self._location))
        self._master = master
        self._settings = {**_SETTINGS, **(settings or {})}
        self._part_rows = part_rows
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._is_own = False

    def remap(self, work: RunWork, take_ids: Callable[[str, int], int]) -> list[LakeFile]:
        """Give the texts of a raw run their ids, and write its tables that have ids anew."""
        with self._attempt(work.kind, work.writer_id, f"{work.kind} SCU {work.run.first_scu}") as attempt:
            rows = self._rows_of(work.run.row_count)
            return attempt.done(remapped(self._spark(), self._reader, attempt, work, take_ids, rows))

    def sort(self, work: TableWork) -> list[LakeFile]:
        """Sort one run that is not sorted, into files for each view."""
        table, key = work.table, list(work.table.key)
        kinds = table.stored(table.primary, raw=not work.runs[0].stage.is_remapped)

        def write(writer: FileWriter, _part: int, batches: Iterable[Any]) -> LakeFile | None:
            pieces = [pa.Table.from_batches([batch]).select(kinds.names).cast(kinds) for batch in batches]
            rows = [combined(table, pieces)] if pieces else []
            return writer.write(work.kind, table, table.primary, rows)

        with self._attempt_at(work) as attempt:
            rows = self._read(work.files, kinds).drop(PIECE)
            ordered = _ordered(rows, key, [PLACE], self._part_count(work.row_count))
            primary = attempt.files(ordered.mapInArrow(attempt.writing(write), ANSWER))
            return attempt.done([*primary, *self._views(attempt, work, primary)])

    def merge(self, work: TableWork) -> list[LakeFile]:
        """Merge sorted runs, into files for each view."""
        location, table = self._location, work.table
        slices: Sequence[KeySlice] = key_slices(self._reader, work, self._rows_of(work.row_count))

        def write(writer: FileWriter, part: int, _batches: Iterable[Any]) -> LakeFile | None:
            return writer.write(work.kind, table, table.primary, [slices[part].rows(reader_at(location), work)])

        with self._attempt_at(work) as attempt:
            numbers = self._spark().range(0, len(slices), 1, len(slices))
            primary = attempt.files(numbers.mapInArrow(attempt.writing(write), ANSWER))
            return attempt.done([*primary, *self._views(attempt, work, primary)])

    def close(self) -> None:
        """End Spark, if it was started here."""
        with self._lock:
            if self._session is not None and self._is_own:
                self._session.stop()
            self._session = None

    def _views(self, attempt: Attempt, work: TableWork, primary: Sequence[LakeFile]) -> Iterator[LakeFile]:
        """Write the files of the secondary views from those of the primary one."""
        table = work.table
        count = sum(file.row_count for file in primary)
        stored = table.stored(table.primary)
        for view in table.views if primary else ():

            def write(writer: FileWriter, _part: int, batches: Iterable[Any], view: LakeView = view) -> LakeFile | None:
                return writer.write(work.kind, table, view, (pa.Table.from_batches([batch]) for batch in batches))

            wanted = pa.schema([field for field in stored if field.name in {*view.columns, _marker(table)}])
            there = self._read(primary, wanted).where(_is_live(table)).select(*view.columns)
            ordered = _ordered(there, list(view.key), [], self._part_count(count))
            yield from attempt.files(ordered.mapInArrow(attempt.writing(write), ANSWER))

    def _read(self, files: Sequence[LakeFile], stored: Any) -> DataFrame:
        rows = self._rows_of(sum(file.row_count for file in files))
        return rows_of(self._spark(), self._location, pieces_of(self._reader, files, rows), stored)

    def _attempt_at(self, work: TableWork) -> Attempt:
        return self._attempt(work.kind, work.writer_id, f"{work.kind} table {work.table.name}")

    def _attempt(self, kind: str, writer_id: str, what: str) -> Attempt:
        return Attempt(self._location, kind, writer_id, what)

    def _spark(self) -> SparkSession:
        with self._lock:
            if self._session is None:
                self._is_own = not is_running()
                settings = self._settings if self._is_own else {}
                self._session = spark_session(self._master, name="pequod-lake", settings=settings)
            return self._session

    def _rows_of(self, count: int) -> int:
        return self._part_rows or min(_PART_ROWS_MAX, max(_PART_ROWS_MIN, count // _PARTS))

    def _part_count(self, count: int) -> int:
        return -(-count // self._rows_of(count))


def _ordered(rows: DataFrame, key: Sequence[str], more: Sequence[str], count: int) -> DataFrame:
    """Return rows in ``count`` partitions by ranges of the key, each in the order of the key; nulls last, as Arrow."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import, and seldom needed

    by = [f.col(name).asc_nulls_last() for name in key]
    return rows.repartitionByRange(count, *by).sortWithinPartitions(*by, *more)


def _marker(table: LakeTable) -> str:
    """Return the column that says whether a row is there."""
    return TIME if table.is_partial else DELETED


def _is_live(table: LakeTable) -> str:
    """Return the condition of rows that are there, as `combining.live` has it."""
    return f"`{TIME}` IS NOT NULL" if table.is_partial else f"NOT `{DELETED}`"
