"""Tasks that read and write the files of a lake, wherever they and the tasks are.

    driver      pieces of files -> DataFrame of rows        a task for each piece: read by the lake's own code
    driver      DataFrame -> tasks that write files         each answers with its `LakeFile`, or with what was wrong

A task knows the address of the lake and the files that it reads; it opens no catalog. It writes under the lock of the
worker whose step it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from pequod_lake.errors import LakeCorruptError, LakeError
from pequod_lake.place import opened_files
from pequod_lake.runs import LakeFile
from pequod_lake.states import files_at, reader_at
from pequod_lake.store import LakeFiles
from pequod_lake.writing import FileWriter, WriterTask

from pequod_spark.tasks import freeze_imports

if TYPE_CHECKING:
    from pequod_lake.reading import LakeReader
    from pyspark.sql import DataFrame, SparkSession

#: A row of a task's answer: the number of its part, what was wrong with which file, and a `LakeFile`.
ANSWER: Final = (
    "part int, reason string, path string, table_name string, view_name string, row_count bigint, size_bytes bigint, "
    "crc bigint, footer_crc bigint, footer_bytes bigint, first_key string, last_key string, "
    "content string"
)
_ANSWER_SCHEMA: Final = pa.schema(
    [
        (name, {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}[kind])
        for name, kind in (one.split() for one in ANSWER.split(", "))
    ]
)
#: The place of a row among all that are read: later rows of a key replace earlier ones. And the piece that it is of.
PLACE: Final = "_place"
PIECE: Final = "_piece"
#: Rows of one batch that a task gives to Spark, whole row groups of a file.
BATCH_ROWS: Final = 131_072
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


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of a file that follow each other."""

    file: LakeFile
    groups: tuple[int, ...]
    #: The place of the first row among those of all pieces.
    first_place: int
    row_count: int


def pieces_of(reader: LakeReader, files: Sequence[LakeFile], rows: int) -> list[Piece]:
    """Cut files into pieces of about ``rows`` rows, in their order.

    Raises:
        LakeCorruptError: A file is damaged.
    """
    found, place = list[Piece](), 0
    for file in files:
        groups, count = list[int](), 0
        sizes = reader.group_rows(file)
        for number, size in enumerate(sizes):
            groups.append(number)
            count += size
            if count >= rows or number + 1 == len(sizes):
                found.append(Piece(file, tuple(groups), place, count))
                place += count
                groups, count = [], 0
    return found


def rows_of(spark: SparkSession, location: str, pieces: Sequence[Piece], stored: Any) -> DataFrame:
    """Return the rows of pieces with their places, a task for each piece.

    Args:
        stored: The columns, as a schema of Arrow.
    """
    whole = [*stored, pa.field(PLACE, pa.int64()), pa.field(PIECE, pa.int64())]
    some = list(pieces)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            piece, place = some[number], some[number].first_place
            for table in reader_at(location).group_batches(piece.file, stored, piece.groups, BATCH_ROWS):
                count = table.num_rows
                columns = [
                    *table.columns,
                    pa.array(range(place, place + count)),
                    pa.array([number] * count, pa.int64()),
                ]
                place += count
                yield from pa.table(columns, schema=pa.schema(whole)).combine_chunks().to_batches()

    kinds = ", ".join(f"`{field.name}` {_TYPES[str(field.type)]}" for field in whole)
    return spark.range(0, len(some), 1, max(1, len(some))).mapInArrow(read, kinds)


class Attempt:
    """One try at a step of a table: what its tasks leave without being named is removed.

    Args:
        what: What the step does, for errors.
    """

    def __init__(self, location: str, kind: str, writer_id: str, what: str) -> None:
        self.location = location
        self.kind = kind
        self._what = what
        self._task = WriterTask(writer_id, secrets.token_hex(4))
        self._written = list[LakeFile]()
        self._is_done = False

    def files(self, answers: DataFrame) -> list[LakeFile]:
        """Run the tasks, and return the files that they wrote, in the order of their parts.

        Raises:
            LakeCorruptError: A task found a damaged file.
            LakeError: A task could not read or write.
        """
        rows = sorted(answers.collect(), key=lambda row: row.part)
        found = [LakeFile(*row[2:]) for row in rows if row.reason is None]
        self._written += found
        for row in rows:
            if row.reason is not None:
                raise LakeCorruptError(row.path, row.reason) if row.path else LakeError(row.reason)
        return found

    def writing(self, write: Callable[[FileWriter, int, Iterable[Any]], LakeFile | None]) -> Task:
        """Return what a task runs: it writes a file of its part, and answers what `ANSWER` says."""
        answer = self.answering()

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext  # noqa: PLC0415 - slow to import, and seldom needed

            context = TaskContext.get()
            assert context is not None
            part = context.partitionId()
            yield from answer(part, lambda writer: write(writer, part, batches)).to_batches()

        return run

    def answering(self) -> Callable[[int, Callable[[FileWriter], LakeFile | None]], Any]:
        """Return what gives the answer for a part, a table of at most one row, by what writes its file."""
        location, task = self.location, self._task

        def answered(part: int, write: Callable[[FileWriter], LakeFile | None]) -> Any:
            from pyspark import TaskContext  # noqa: PLC0415 - as above

            freeze_imports()
            context = TaskContext.get()
            assert context is not None
            # A task that runs twice writes two files, of which one is named; a task may write several.
            label = f"{task.label}.{context.taskAttemptId()}.{part}"
            none = [None] * (len(fields(LakeFile)) - 1)
            try:
                file = write(FileWriter(files_at(location), WriterTask(task.writer_id, label)))
            except LakeCorruptError as error:
                return _answer(part, error.reason, error.path, *none)
            except LakeError as error:
                return _answer(part, str(error), None, *none)
            return _ANSWER_SCHEMA.empty_table() if file is None else _answer(part, None, *astuple(file))

        return answered

    def done(self, files: list[LakeFile]) -> list[LakeFile]:
        """Note that the step is done, and return its files."""
        self._is_done = True
        return files

    def __enter__(self) -> Self:
        """Return the attempt."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Remove what failed tasks wrote; tell errors of Spark as those of the lake."""
        files = opened_files(self.location)
        named = {file.path for file in self._written} if self._is_done else set[str]()
        for folder in {str(PurePosixPath(file.path).parent) for file in self._written} if self._is_done else {"data"}:
            self._sweep(files, folder, named)
        if error is not None and isinstance(error, Exception) and not isinstance(error, LakeError):
            told = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise LakeError(f"Spark could not {self._what}: {told[:500]}") from error

    def _sweep(self, files: LakeFiles, folder: str, named: set[str]) -> None:
        for path, _ in files.listed(folder):
            name = PurePosixPath(path).name
            if name.startswith(f"{self.kind}-{self._task.writer_id}-{self._task.label}") and path not in named:
                files.remove(path)


def _answer(*cells: object) -> Any:
    columns = [pa.array([cell], field.type) for cell, field in zip(cells, _ANSWER_SCHEMA, strict=True)]
    return pa.table(columns, schema=_ANSWER_SCHEMA)
