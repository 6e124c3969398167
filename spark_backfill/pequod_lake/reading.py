"""Files read in part: the row groups whose statistics may meet the conditions, and of these the rows that do.

What footers say stays in memory, and so do row groups of queries that want few of them (blocks.py), within the bounds
of `CacheLimits`.

Nothing that was damaged is read as rows: the size and the footer's checksum are compared when a file is first opened,
each page has its own checksum, and `checked_path` compares the whole file for readers that know no checksums.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet

from pequod_lake.blocks import Block, BlockCache, CacheLimits
from pequod_lake.conditions import KeyBound, RowBound
from pequod_lake.errors import LakeCorruptError, LakeError
from pequod_lake.opened import OpenedFile, OpenedFiles
from pequod_lake.runs import LakeFile
from pequod_lake.schema import LakeSchema, LakeTable
from pequod_lake.store import FolderFiles, LakeFiles
from pequod_lake.writing import footer_of

#: Row groups with no more rows in all stay in memory: those of a delta, or of a short range of a large file.
_KEPT_ROWS_MAX: Final = 262_144
_CRC_BYTES: Final = 1 << 20


@dataclass(slots=True)
class ReadCounts:
    """What a query has read."""

    file_count: int = 0
    group_count: int = 0
    row_count: int = 0
    size_bytes: int = 0


class LakeReader:
    """Reads the files of a lake; threads may share it."""

    def __init__(
        self, files: LakeFiles, limits: CacheLimits | None = None, schema: Callable[[], LakeSchema] | None = None
    ) -> None:
        self.files = files
        self._schema = schema
        #: The types of columns, for those that a file does not have, by table and name.
        self._kinds: dict[tuple[str, str], Any] = {}
        self.limits = limits or CacheLimits()
        self.blocks = BlockCache(self.limits.bytes_max)
        self._opened = OpenedFiles(self.limits.files_max, self.limits.footers_bytes_max)
        #: Files whose whole content has been compared with its checksum.
        self._checked: set[str] = set()

    def learn(self, table: LakeTable) -> None:
        """Know the types of a table's columns, so that files without one of them have null in it.

        A column keeps its type for good: the name of one that was dropped is not given again.
        """
        self._learn(table.name, table.stored(table.primary))

    def _learn(self, table: str, stored: Any) -> None:
        self._kinds |= {(table, field.name): field.type for field in stored}

    def names_of(self, file: LakeFile) -> list[str]:
        """Return the columns that a file has.

        Raises:
            LakeCorruptError: The file is not what was written.
        """
        with self._damage(file):
            return list(self._open(file).places)

    def _kind(self, file: LakeFile, opened: OpenedFile, name: str) -> Any:
        if name in opened.places:
            return opened.schema.field(name).type
        if (file.table, name) not in self._kinds and self._schema is not None:
            self.learn(self._schema().table(file.table))
        return self._kinds[file.table, name]

    def _filled(self, file: LakeFile, opened: OpenedFile, names: Sequence[str], rows: Any, count: int) -> list[Any]:
        """Return columns of rows of a file; one that the file does not have is null."""
        # By name once: each look-up in a table of Arrow takes 3 microseconds.
        there = dict(zip(rows.schema.names, rows.columns, strict=True))
        return [
            there[name] if name in opened.places else pa.nulls(count, self._kind(file, opened, name)) for name in names
        ]

    def read(
        self,
        file: LakeFile,
        columns: Sequence[str],
        conditions: Sequence[RowBound] = (),
        counts: ReadCounts | None = None,
        order: Sequence[str] = (),
    ) -> Any:
        """Return the rows that meet the conditions, in the order of the file.

        Args:
            order: The columns by which the file is sorted; none if it is not, or if nobody knows.

        Raises:
            LakeCorruptError: The file is not what was written.
        """
        with self._damage(file):
            opened = self._open(file)
            if any(name not in opened.places for one in conditions for name in one.columns):
                # A null meets no condition.
                return pa.schema([(name, self._kind(file, opened, name)) for name in columns]).empty_table()
            groups = opened.groups(conditions, order)
            count_rows = [opened.metadata.row_group(one).num_rows for one in groups]
            if counts is not None:
                counts.file_count += 1
                counts.group_count += len(groups)
                counts.row_count += sum(count_rows)
                counts.size_bytes += sum(opened.metadata.row_group(one).total_byte_size for one in groups)
            if conditions and sum(count_rows) <= _KEPT_ROWS_MAX:
                return self._from_blocks(file, opened, groups, columns, conditions, order)
            with self._source(file, opened) as source:
                rows = _rows(source, groups, _asked(opened, columns), conditions)
            if rows.schema.names == list(columns):
                return rows
            return pa.table(dict(zip(columns, self._filled(file, opened, columns, rows, rows.num_rows), strict=True)))

    def block(self, file: LakeFile, opened: OpenedFile, group: int, columns: Sequence[str]) -> Block:
        """Return a row group with these columns, from memory or from the file."""
        count = opened.metadata.row_group(group).num_rows

        def read(names: list[str]) -> Sequence[Any]:
            with self._source(file, opened) as source:
                rows = source.read_row_group(group, columns=_asked(opened, names), use_threads=False)
            return [_flat(one) for one in self._filled(file, opened, names, rows, count)]

        return self.blocks.block(file.path, group, count, columns, read)

    def _from_blocks(
        self,
        file: LakeFile,
        opened: OpenedFile,
        groups: Sequence[int],
        columns: Sequence[str],
        conditions: Sequence[RowBound],
        order: Sequence[str],
    ) -> Any:
        tested = list(dict.fromkeys(column for condition in conditions for column in condition.columns))
        schema = pa.schema([(name, self._kind(file, opened, name)) for name in columns])
        pieces = []
        for group in groups:
            block = self.block(file, opened, group, tested)
            found = block.found(order, conditions)
            # Most files have no row of a point query: their other columns are left alone.
            if found.count:
                block = self.block(file, opened, group, [*tested, *columns])
                pieces.append(pa.Table.from_arrays([block.picked(one, found) for one in columns], schema=schema))
        return pa.concat_tables(pieces) if pieces else schema.empty_table()

    def first(
        self,
        file: LakeFile,
        order: Sequence[str],
        values: Sequence[Any],
        wanted: Sequence[Any],
        columns: Sequence[str],
        also: Sequence[str] = (),
    ) -> tuple[Block, int] | None:
        """Return the first row of a sorted file whose first columns have some values, as its place in a row group.

        Args:
            values: As Python has them.
            wanted: As `blocks.searched` gives them.
            columns: The columns that the row group has then.
            also: Columns that are read together with those that are compared, as a row is likely to be there.

        Raises:
            LakeCorruptError: The file is not what was written.
        """
        with self._damage(file):
            opened = self._open(file)
            tested = order[: len(values)]
            for group in opened.groups_with(tested, values):
                block = self.block(file, opened, group, [*tested, *(one for one in also if one not in tested)])
                place = block.first_with(tested, wanted)
                if place is not None:
                    is_whole = all(one in block.columns for one in columns)
                    return block if is_whole else self.block(file, opened, group, columns), place
        return None

    def batches(self, file: LakeFile, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield all rows, at most ``rows`` at a time.

        Raises:
            LakeCorruptError: The file is not what was written.
        """
        with self._damage(file), self._source(file, self._open(file)) as source:
            for batch in source.iter_batches(batch_size=rows, columns=list(columns)):
                yield pa.Table.from_batches([batch])

    def group_rows(self, file: LakeFile) -> list[int]:
        """Return the number of rows of each row group.

        Raises:
            LakeCorruptError: The file is not what was written.
        """
        with self._damage(file):
            metadata = self._open(file).metadata
            return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]

    def group_batches(self, file: LakeFile, stored: Any, groups: Sequence[int], rows: int) -> Iterator[Any]:
        """Yield the rows of some row groups, at most ``rows`` at a time.

        Args:
            stored: The columns, as a schema of Arrow; one that the file does not have is null.

        Raises:
            LakeCorruptError: The file is not what was written.
        """
        with self._damage(file):
            opened = self._open(file)
            self._learn(file.table, stored)
            with self._source(file, opened) as source:
                for batch in source.iter_batches(rows, list(groups), _asked(opened, stored.names)):
                    columns = self._filled(file, opened, stored.names, batch, batch.num_rows)
                    yield pa.table(dict(zip(stored.names, columns, strict=True)))

    def least_values(self, file: LakeFile, columns: Sequence[str]) -> list[tuple[tuple[Any, ...], int]]:
        """Return the least value of each column in each row group, and the group's number of rows.

        The columns end before the first one of which the least value is not known.
        """
        with self._damage(file):
            opened = self._open(file)
            bounds = [opened.bounds_of(column) for column in columns]
            found = []
            for one in range(opened.metadata.num_row_groups):
                pairs = takewhile(lambda pair: pair is not None, (column[one] for column in bounds))
                found.append((tuple(pair[0] for pair in pairs if pair), opened.metadata.row_group(one).num_rows))
            return found

    def has_nulls(self, file: LakeFile, columns: Sequence[str]) -> bool:
        """Return whether a column may have nulls.

        Raises:
            LakeCorruptError: The file is not what was written.
        """
        with self._damage(file):
            opened = self._open(file)
            return any(name not in opened.places or opened.may_have_nulls(name) for name in columns)

    def checked_path(self, file: LakeFile) -> Path:
        """Return the path of a file whose whole content has been compared with its checksum.

        Raises:
            LakeCorruptError: The file is not what was written.

        Cost:
            1 to 3 GB/s the first time, then nothing.
        """
        assert isinstance(self.files, FolderFiles), "only files in a folder have paths"
        if file.path not in self._checked:
            self.check(file)
            self._checked.add(file.path)
        return self.files.folder / file.path

    def verify_footer(self, file: LakeFile) -> None:
        """Compare the size and the footer with what was written.

        Raises:
            LakeCorruptError: The file is not what was written.
        """
        with self._damage(file):
            self._open(file)

    def check(self, file: LakeFile) -> None:
        """Compare the whole file with its checksum.

        Raises:
            LakeCorruptError: The file is not what was written.
        """
        crc, size_bytes = 0, 0
        try:
            with self.files.stream(file.path) as source:
                while piece := source.read(_CRC_BYTES):
                    crc = zlib.crc32(piece, crc)
                    size_bytes += len(piece)
        except OSError as error:
            raise self._reason(file, error) from error
        if size_bytes != file.size_bytes:
            raise LakeCorruptError(file.path, f"it has {size_bytes} bytes; {file.size_bytes} were written")
        if crc != file.crc:
            raise LakeCorruptError(file.path, "its checksum is not that of what was written")

    def _open(self, file: LakeFile) -> OpenedFile:
        size_bytes = self.files.size_bytes(file.path)
        if size_bytes is not None and size_bytes != file.size_bytes:
            raise LakeCorruptError(file.path, f"it has {size_bytes} bytes; {file.size_bytes} were written")
        if (known := self._opened.known(file.path)) is not None:
            return known
        if footer_of(self.files, file.path, file.size_bytes) != (file.footer_crc, file.footer_bytes):
            raise LakeCorruptError(file.path, "the checksum of its footer is not that of what was written")
        with self.files.opened(file.path) as path:
            metadata = parquet.read_metadata(path)
        places = {metadata.row_group(0).column(one).path_in_schema: one for one in range(metadata.num_columns)}
        schema = metadata.schema.to_arrow_schema()
        found = OpenedFile(metadata, schema, places)
        self._opened.keep(file.path, found)
        return found

    @contextmanager
    def _source(self, file: LakeFile, opened: OpenedFile) -> Iterator[Any]:
        is_near = isinstance(self.files, FolderFiles)
        with (
            self.files.opened(file.path) as path,
            parquet.ParquetFile(
                path, metadata=opened.metadata, page_checksum_verification=True, pre_buffer=not is_near
            ) as source,
        ):
            yield source

    def _check(self) -> None:
        """Check that what is kept of files is counted, and within the bounds."""
        self._opened._check()
        self.blocks._check()

    def close(self) -> None:
        """Let go of what was read."""
        self._opened.forget()
        self.blocks.forget()

    @contextmanager
    def _damage(self, file: LakeFile) -> Iterator[None]:
        """Say which file is damaged."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise self._reason(file, error) from error

    def _reason(self, file: LakeFile, error: Exception) -> LakeError:
        if isinstance(error, OSError) and self.files.is_unreachable(error):
            return self.files.failure(file.path, "be read", error)
        return LakeCorruptError(file.path, f"it cannot be read: {error}")


def _asked(opened: OpenedFile, columns: Sequence[str]) -> list[str]:
    """Return which columns to read: those that are there, or one, as without there would be no number of rows."""
    return [name for name in columns if name in opened.places] or [next(iter(opened.places))]


def _rows(source: Any, groups: list[int], columns: list[str], conditions: Sequence[RowBound]) -> Any:
    if not conditions:
        return source.read_row_groups(groups, columns=columns, use_threads=False).select(columns)
    if all(isinstance(one, KeyBound) for one in conditions):
        return _slice(source.read_row_groups(groups, columns=columns, use_threads=False), columns, conditions)
    tested = list(dict.fromkeys(column for condition in conditions for column in condition.columns))
    heads = source.read_row_groups(groups, columns=tested, use_threads=False)
    mask = _mask(heads, conditions)
    others = [column for column in columns if column not in tested]
    found = heads.filter(mask)
    # Most files have no row of a point query: their other columns are left alone.
    if others and found.num_rows:
        rest = source.read_row_groups(groups, columns=others, use_threads=False).filter(mask)
        for column in others:
            found = found.append_column(rest.schema.field(column), rest[column])
    elif others:
        schema = source.schema_arrow
        for column in others:
            found = found.append_column(schema.field(column), pa.chunked_array([], schema.field(column).type))
    return found.select(columns)


def _slice(rows: Any, columns: list[str], conditions: Sequence[RowBound]) -> Any:
    """Return the rows between bounds of the key: of a sorted file they follow each other, and are not copied."""
    mask = _mask(rows, conditions)
    places = np.flatnonzero(np.asarray(mask))
    is_one_piece = len(places) > 0 and places[-1] - places[0] + 1 == len(places)
    return (rows.slice(int(places[0]), len(places)) if is_one_piece else rows.filter(mask)).select(columns)


def _mask(rows: Any, conditions: Sequence[RowBound]) -> Any:
    return reduce(pc.and_, [condition.mask_of(rows) for condition in conditions])


def _flat(column: Any) -> Any:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
