"""Sorts and merges of a lake's tables by Spark, for those that are too much for one process.

    merge   slices of the key, a task for each: read, combine, write           no rows pass through Java
    sort    raw file -> partitions by key range, sorted by key and place        a task for each: combine, write
    views   the files of the primary view -> partitions by the view's key       a task for each: write

Tasks do what a worker does, with the lake's own code: they read with checksums, combine, and write durable files under
the worker's lock. Only to put rows into another order is Spark's. It runs on the lake's machine.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, fields
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from pequod_lake.combining import combined
from pequod_lake.errors import LakeCorruptError, LakeError
from pequod_lake.reading import LakeReader
from pequod_lake.runs import LakeFile
from pequod_lake.schema import DELETED, TIME, LakeTable, LakeView
from pequod_lake.slices import KeySlice, TableWork, key_slices
from pequod_lake.store import FolderFiles
from pequod_lake.writing import FileWriter, WriterTask

from pequod_spark.session import is_running, spark_session
from pequod_spark.tasks import freeze_imports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A row of a task's answer: the number of its part, what was wrong with which file, and a `LakeFile`.
_ANSWER: Final = (
    "part int, reason string, path string, table_name string, view_name string, row_count bigint, size_bytes bigint, "
    "crc bigint, footer_crc bigint, footer_bytes bigint, first_key string, last_key string, content string"
)
_NAMES: Final = [one.split()[0] for one in _ANSWER.split(", ")]
#: Rows of a part, at the least and at the most; the latter is what a task has in memory.
_PART_ROWS_MIN: Final = 1_000_000
_PART_ROWS_MAX: Final = 4_000_000
_PARTS: Final = 64
#: Rows of one batch from Spark, whole row groups of a file.
_BATCH_ROWS: Final = 131_072
#: The place of a row in its file: later rows of a key replace earlier ones.
_PLACE: Final = "_place"
#: More than a file has.
_FILE_ROWS_MAX: Final = 1 << 40
_SETTINGS: Final = {
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH_ROWS),
}
_TYPES: Final = {
    "bool": "boolean",
    "int32": "int",
    "int64": "bigint",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "timestamp[us]": "timestamp_ntz",
}
Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SparkBulk:
    """Does the large steps of workers of one lake; threads may share it.

    Args:
        folder: The lake.
        master: Where Spark runs: ``local[*]``, or a cluster of this machine.
        settings: Further settings of Spark.
        part_rows: Rows of a part; None chooses by the number of rows.
    """

    def __init__(
        self,
        folder: Path,
        master: str = "local[*]",
        settings: dict[str, str] | None = None,
        *,
        part_rows: int | None = None,
    ) -> None:
        self._folder = folder.resolve()
        self._reader = LakeReader(FolderFiles(self._folder))
        self._master = master
        self._settings = {**_SETTINGS, **(settings or {})}
        self._part_rows = part_rows
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._is_own = False

    def sort(self, work: TableWork) -> list[LakeFile]:
        """Sort one run that is not sorted, into files for each view."""
        from pyspark.sql import DataFrame  # noqa: PLC0415 - slow to import, and seldom needed
        from pyspark.sql import functions as f  # noqa: PLC0415

        folder, table, key = self._folder, work.table, list(work.table.key)
        is_raw = not work.runs[0].stage.is_remapped
        kinds = table.stored(table.primary, raw=is_raw)

        def write(writer: FileWriter, _part: int, batches: Iterable[Any]) -> LakeFile | None:
            pieces = [pa.Table.from_batches([batch]).drop_columns([_PLACE]).cast(kinds) for batch in batches]
            rows = [combined(table, pieces)] if pieces else []
            return writer.write(work.kind, table, table.primary, rows)

        with _Attempt(folder, work) as attempt:
            # Files of a job are in the order of its parts.
            places = [f.col("_metadata.row_index") + number * _FILE_ROWS_MAX for number in range(len(work.files))]
            found = reduce(
                DataFrame.union,
                [
                    self._read(kinds, [file]).select("*", place.alias(_PLACE))
                    for file, place in zip(work.files, places, strict=True)
                ],
            )
            ordered = _ordered(found, key, [_PLACE], self._part_count(work.row_count))
            primary = attempt.files(ordered.mapInArrow(_writing(folder, attempt.task, write), _ANSWER))
            return attempt.done([*primary, *self._views(attempt, primary)])

    def merge(self, work: TableWork) -> list[LakeFile]:
        """Merge sorted runs, into files for each view."""
        folder, table = self._folder, work.table
        slices: Sequence[KeySlice] = key_slices(self._reader, work, self._rows_of(work.row_count))

        def write(writer: FileWriter, part: int, _batches: Iterable[Any]) -> LakeFile | None:
            return writer.write(
                work.kind, table, table.primary, [slices[part].rows(LakeReader(FolderFiles(folder)), work)]
            )

        with _Attempt(folder, work) as attempt:
            numbers = self._spark().range(0, len(slices), 1, len(slices))
            primary = attempt.files(numbers.mapInArrow(_writing(folder, attempt.task, write), _ANSWER))
            return attempt.done([*primary, *self._views(attempt, primary)])

    def close(self) -> None:
        """End Spark, if it was started here."""
        with self._lock:
            if self._session is not None and self._is_own:
                self._session.stop()
            self._session = None

    def _views(self, attempt: _Attempt, primary: Sequence[LakeFile]) -> Iterator[LakeFile]:
        """Write the files of the secondary views from those of the primary one."""
        work = attempt.work
        folder, table = self._folder, work.table
        count = sum(file.row_count for file in primary)
        for view in table.views if primary else ():

            def write(writer: FileWriter, _part: int, batches: Iterable[Any], view: LakeView = view) -> LakeFile | None:
                return writer.write(work.kind, table, view, map(_table_of, batches))

            rows = self._read(table.stored(table.primary), primary)
            there = rows.where(_is_live(table)).select(*view.columns)
            ordered = _ordered(there, list(view.key), [], self._part_count(count))
            yield from attempt.files(ordered.mapInArrow(_writing(folder, attempt.task, write), _ANSWER))

    def _read(self, stored: Any, files: Sequence[LakeFile]) -> DataFrame:
        """Return the rows of files, in no order."""
        paths = [str(self._reader.checked_path(file)) for file in files]
        read = self._spark().read.option("parquet.page.verify-checksum.enabled", "true")
        return read.schema(", ".join(f"`{field.name}` {_TYPES[str(field.type)]}" for field in stored)).parquet(*paths)

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


class _Attempt:
    """One try at a table: what its tasks leave without being named is removed."""

    def __init__(self, folder: Path, work: TableWork) -> None:
        self.folder = folder
        self.work = work
        self.task = WriterTask(work.writer_id, secrets.token_hex(4))
        self.named = set[str]()

    def files(self, answers: DataFrame) -> list[LakeFile]:
        """Run the tasks, and return the files that they wrote, in the order of their parts.

        Raises:
            LakeCorruptError: A task found a damaged file.
        """
        rows = sorted(answers.collect(), key=lambda row: row.part)
        for row in rows:
            if row.reason is not None:
                raise LakeCorruptError(row.path, row.reason) if row.path else LakeError(row.reason)
        return [LakeFile(*row[2:]) for row in rows]

    def done(self, files: list[LakeFile]) -> list[LakeFile]:
        """Note the files of the result, and return them."""
        self.named = {file.path for file in files}
        return files

    def __enter__(self) -> Self:
        """Return the attempt."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Remove what failed tasks wrote; tell errors of Spark as those of the lake."""
        for path in (self.folder / "data").rglob(f"{self.work.kind}-{self.task.writer_id}-{self.task.label}*"):
            if path.relative_to(self.folder).as_posix() not in self.named:
                path.unlink(missing_ok=True)
        if error is not None and isinstance(error, Exception) and not isinstance(error, LakeError):
            told = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise LakeError(f"Spark could not {self.work.kind} table {self.work.table.name}: {told[:500]}") from error


def _writing(
    folder: Path, task: WriterTask, write: Callable[[FileWriter, int, Iterable[Any]], LakeFile | None]
) -> Task:
    """Return what a task runs: it writes a file of its part, and answers what `_ANSWER` says."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - as above

        freeze_imports()
        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        # A task that runs twice writes two files, of which one is named.
        label = f"{task.label}.{context.taskAttemptId()}"
        none = [None] * (len(fields(LakeFile)) - 1)
        try:
            file = write(FileWriter(FolderFiles(folder), WriterTask(task.writer_id, label)), part, batches)
        except LakeCorruptError as error:
            yield _answer(part, error.reason, error.path, *none)
        except LakeError as error:
            yield _answer(part, str(error), None, *none)
        else:
            if file is not None:
                yield _answer(part, None, *astuple(file))

    return run


def _answer(*cells: object) -> pa.RecordBatch:
    kinds = [
        pa.int32(),
        pa.string(),
        pa.string(),
        pa.string(),
        pa.string(),
        *[pa.int64()] * 5,
        *[pa.string()] * 3,
    ]
    columns = [pa.array([cell], kind) for cell, kind in zip(cells, kinds, strict=True)]
    return pa.record_batch(columns, names=_NAMES)


def _ordered(rows: DataFrame, key: Sequence[str], more: Sequence[str], count: int) -> DataFrame:
    """Return rows in ``count`` partitions by ranges of the key, each in the order of the key; nulls last, as Arrow."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    by = [f.col(name).asc_nulls_last() for name in key]
    return rows.repartitionByRange(count, *by).sortWithinPartitions(*by, *more)


def _is_live(table: LakeTable) -> str:
    """Return the condition of rows that are there, as `combining.live` has it."""
    return f"`{TIME}` IS NOT NULL" if table.is_partial else f"NOT `{DELETED}`"


def _table_of(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])
