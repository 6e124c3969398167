"""Files written so that they are there, whole, when the catalog names them: checksummed, fsynced, never changed."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, BinaryIO, Final

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet

from pequod_lake.contents import content_of, total
from pequod_lake.ducklake_tables import table_name
from pequod_lake.errors import LakeCorruptError, LakeError
from pequod_lake.keys import key_text
from pequod_lake.locks import Lock
from pequod_lake.runs import LakeFile
from pequod_lake.schema import LakeTable, LakeView
from pequod_lake.store import LakeFiles

#: Texts of which a sample has a smaller share of different ones are written as a dictionary.
_SAMPLE_ROWS: Final = 4_096
_REPEATED: Final = 0.125
#: The length of the footer and the magic number, at the end of a Parquet file.
_TAIL_BYTES: Final = 8
#: What is read at once to find the footer, which is seldom longer.
_FOOTER_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Packing:
    """How the rows of a file are packed."""

    #: Rows of one group, the least that a point query reads: smaller groups read faster and take more room in footers.
    group_rows: int
    #: For Arrow.
    codec: dict[str, Any]


#: For files that a later step reads once. A million rows of four columns take 28 MB, with zstd 17 and a fifth more CPU.
_RAW: Final = Packing(131_072, {"compression": "lz4"})
_PASSING: Final = Packing(16_384, {"compression": "lz4"})
#: A point that is not in memory decodes a group. Of 4,096 rows it takes a third more CPU, and footers half the bytes.
_LASTING: Final = Packing(2_048, {"compression": "zstd", "compression_level": 1})
_PACKINGS: Final = {"raw": _RAW, "remap": _PASSING, "sort": _PASSING, "merge": _PASSING}


class _NoRowsError(Exception):
    """There is nothing to write."""


class _Summed:
    """A file that counts what is written and sums it up."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size_bytes = 0
        self.crc = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        self.size_bytes += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class WriterTask:
    """A part of a writer's work that another process does, while the writer holds its lock."""

    writer_id: str
    #: What tells its files from those of the writer and of other tasks.
    label: str


class FileWriter:
    """Writes the files of one process.

    A sweep for orphans leaves the files of a living writer alone; `close` ends that.

    Args:
        begun: Begins a writer when the first file is wanted (`LakeCatalog.begin_writer`); or the task of another
            writer, whose lock is held elsewhere.
    """

    def __init__(self, files: LakeFiles, begun: Callable[[], Lock] | WriterTask) -> None:
        self._files = files
        self._begun = begun
        self._begin_lock = threading.Lock()
        self._lock: Lock | None = None
        self._count = count()

    @property
    def id(self) -> str:
        """The part of the files' names by which they are known."""
        if isinstance(self._begun, WriterTask):
            return self._begun.writer_id
        with self._begin_lock:
            if self._lock is None:
                self._lock = self._begun()
            return self._lock.id

    def write(
        self, kind: str, table: LakeTable, view: LakeView, batches: Iterable[Any], *, raw: bool = False
    ) -> LakeFile | None:
        """Write tables of Arrow one after the other into one durable file.

        Args:
            kind: What the file is, for people who look at the folder.

        Returns:
            The file; None if there are no rows, then there is none.

        Raises:
            LakeError: The disk is full, or cannot be written; nothing is left.
        """
        path = self._path(kind, table_name(table.name, view.name, raw=raw))
        return write_file(self._files, path, table, view, batches, raw=raw, packing=_PACKINGS.get(kind))

    def link(self, kind: str, table: LakeTable, file: LakeFile, *, raw: bool = False) -> LakeFile:
        """Return a file with the same content under another name.

        Args:
            raw: It is a file of the stage `ingest`.

        Raises:
            LakeCorruptError: The file is gone.
            LakeError: The disk is full.
        """
        path = self._path(kind, table_name(table.name, file.view, raw=raw))
        try:
            self._files.copy(file.path, path)
        except FileNotFoundError as error:
            raise LakeCorruptError(file.path, f"it cannot be read: {error}") from error
        except OSError as error:
            raise self._files.failure(path, f"be made of {file.path}", error) from error
        return replace(file, path=path)

    def remove(self, files: Iterable[LakeFile]) -> None:
        """Delete files that no catalog will name."""
        for file in files:
            self._files.remove(file.path)

    def renew(self, lost: str) -> None:
        """Begin again as another writer, if this one is still the one that was taken for dead."""
        with self._begin_lock:
            if self._lock is not None and self._lock.id == lost:
                self._lock.release()
                self._lock = None

    def close(self) -> None:
        """End the writer: what it wrote and no catalog names are orphans from now on."""
        with self._begin_lock:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _path(self, kind: str, folder: str) -> str:
        label = f"{self._begun.label}." if isinstance(self._begun, WriterTask) else ""
        return f"data/main/{folder}/{kind}-{self.id}-{label}{next(self._count)}.parquet"


def write_file(
    files: LakeFiles,
    path: str,
    table: LakeTable,
    view: LakeView,
    batches: Iterable[Any],
    *,
    raw: bool,
    packing: Packing | None = None,
) -> LakeFile | None:
    """Write tables of Arrow one after the other into one durable file; see `FileWriter.write`."""
    schema = table.stored(view, raw=raw)
    packing = packing or (_RAW if raw else _LASTING)
    rows, first_key, last_key = 0, "", ""
    contents = list[str]()
    try:
        with files.create(path) as file:
            counted = _Summed(file)
            first, others = _begun(batches)
            options = _options(table, view, schema, first, raw=raw) | packing.codec
            with parquet.ParquetWriter(pa.PythonFile(counted, "w"), schema, **options) as writer:
                for batch in chain([first], others):
                    if batch.num_rows:
                        piece = _in_schema(batch, schema)
                        writer.write_table(piece, row_group_size=packing.group_rows)
                        rows += batch.num_rows
                        if not raw:
                            first_key = first_key or key_text(batch, view.key, 0)
                            last_key = key_text(batch, view.key, batch.num_rows - 1)
                            contents.append(content_of(piece))
        footer_crc, footer_bytes = footer_of(files, path, counted.size_bytes)
    except _NoRowsError:
        return None
    except OSError as error:
        # It may be there all the same: a store that was asked for its footer did not answer.
        with suppress(LakeError):
            files.remove(path)
        raise files.failure(path, "be written", error) from error
    return LakeFile(
        path,
        table.name,
        view.name,
        rows,
        counted.size_bytes,
        counted.crc,
        footer_crc,
        footer_bytes,
        first_key,
        last_key,
        total(contents) if contents else "",
    )


def _begun(batches: Iterable[Any]) -> tuple[Any, Iterator[Any]]:
    """Return the first batch that has rows, and the others.

    Raises:
        _NoRowsError: There is none; in the block of a file that is being created, so none is left.
    """
    others = iter(batches)
    for batch in others:
        if batch.num_rows:
            return batch, others
    raise _NoRowsError


def _options(table: LakeTable, view: LakeView, schema: Any, first: Any, *, raw: bool) -> dict[str, Any]:
    """Return how columns are packed: numbers by their differences, texts that repeat in a dictionary.

    Footers have bounds of numbers, and of texts by which the file is sorted: those of other texts lie over all groups,
    and were a sixth of the footer.
    """
    repeated = {column.name for column in table.columns if raw and column.ids}
    encodings = dict[str, str]()
    for field in schema:
        if pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type):
            encodings[field.name] = "DELTA_BINARY_PACKED"
        elif _is_text(field.type):
            some = first[field.name].slice(0, _SAMPLE_ROWS)
            if len(some) == _SAMPLE_ROWS and pc.count_distinct(some).as_py() < _SAMPLE_ROWS * _REPEATED:
                repeated.add(field.name)
    bounded = [field.name for field in schema if field.name in view.key or not _is_text(field.type)]
    return {
        "use_dictionary": sorted(repeated) or False,
        "write_statistics": bounded or False,
        "column_encoding": {name: kind for name, kind in encodings.items() if name not in repeated} or None,
        "write_page_checksum": True,
    }


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _in_schema(batch: Any, schema: Any) -> Any:
    return batch if batch.schema.equals(schema, check_metadata=True) else batch.select(schema.names).cast(schema)


def footer_of(files: LakeFiles, path: str, size_bytes: int) -> tuple[int, int]:
    """Return the CRC-32 and the length of a file's footer, with what follows it.

    Raises:
        OSError: The file cannot be read.
    """
    tail = _tail(files, path, size_bytes, _FOOTER_BYTES)
    footer_bytes = int.from_bytes(tail[-_TAIL_BYTES:-4], "little")
    whole_bytes = footer_bytes + _TAIL_BYTES
    if whole_bytes > size_bytes:
        return 0, footer_bytes
    if whole_bytes > len(tail):
        tail = _tail(files, path, size_bytes, whole_bytes)
    return zlib.crc32(tail[-whole_bytes:]), footer_bytes


def _tail(files: LakeFiles, path: str, size_bytes: int, wanted_bytes: int) -> bytes:
    start = max(0, size_bytes - wanted_bytes)
    return files.part(path, start, size_bytes - start)
