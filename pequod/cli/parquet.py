"""Rows in Parquet files: two columns, `key` and `value`, binary when written and binary or text when read.

A third column, `expires_ms`, is there if rows may have deadlines: integers, in milliseconds since 1970, or null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final

from pequod_installed.names import how_to_install

from pequod.cli.rowfiles import EXPIRES, BadRow, FileError, Row, TimedRow, is_instant

_COLUMNS: Final = ("key", "value")
#: A row group ends at either limit; readers of Parquet work well with some tens of megabytes, and a dump holds as much.
_GROUP_ROWS_MAX: Final = 1 << 16
_GROUP_BYTES_MAX: Final = 32 << 20
_READ_ROWS: Final = 4096


def read_parquet(file: BinaryIO) -> Iterator[Row | BadRow]:
    """Yield the rows of a Parquet file; ``place`` counts them.

    Raises:
        FileError: The file is not Parquet, its columns are wrong, or pyarrow is not installed.
    """
    arrow, parquet = _pyarrow()
    try:
        if file.seekable():
            yield from _read(arrow, parquet.ParquetFile(file))
            return
        # Parquet has its description at the end of the file.
        with TemporaryFile() as copy:
            while piece := file.read(1 << 20):
                copy.write(piece)
            yield from _read(arrow, parquet.ParquetFile(copy))
    except arrow.ArrowException as error:
        raise FileError(f"it is no Parquet file, or damaged: {error}") from error


def _read(arrow: Any, source: Any) -> Iterator[Row | BadRow]:
    schema = source.schema_arrow
    expires = [EXPIRES] if EXPIRES in schema.names else []
    if sorted(schema.names) != sorted([*_COLUMNS, *expires]):
        raise FileError(f"its columns must be key and value, not {', '.join(schema.names) or 'none'}")
    for field in schema:
        if field.name == EXPIRES:
            if not arrow.types.is_integer(field.type):
                raise FileError(f"the column {EXPIRES} is {field.type}; write it as int64")
        elif not _is_text(arrow, field.type):
            raise FileError(f"the column {field.name} is {field.type}; write it as binary or text")
    place = 0
    for batch in source.iter_batches(batch_size=_READ_ROWS, columns=[*_COLUMNS, *expires]):
        columns = [batch.column(name).cast(arrow.large_binary()).to_pylist() for name in _COLUMNS]
        columns += [batch.column(name).to_pylist() for name in expires] or [[0] * batch.num_rows]
        for key, value, expires_ms in zip(*columns, strict=True):
            place += 1
            if key is None or value is None:
                yield BadRow(place, f"the {'key' if key is None else 'value'}: it is null")
            elif not is_instant(expires_ms or 0):
                yield BadRow(place, f"the {EXPIRES}: it must be milliseconds since 1970")
            else:
                yield Row(place, key, value, expires_ms or 0)


def _is_text(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return any(
        is_kind(kind)
        for is_kind in (
            types.is_binary,
            types.is_large_binary,
            types.is_fixed_size_binary,
            types.is_string,
            types.is_large_string,
        )
    )


def write_parquet(rows: Iterable[TimedRow], file: BinaryIO, *, may_expire: bool) -> None:
    """Write rows as Parquet, with a column of deadlines if they may have some.

    Raises:
        FileError: pyarrow is not installed.
    """
    arrow, parquet = _pyarrow()
    if file.seekable():
        _write(arrow, parquet, rows, file, may_expire=may_expire)
        return
    # The Parquet writer asks for its position, and a pipe has none.
    with TemporaryFile() as copy:
        _write(arrow, parquet, rows, copy, may_expire=may_expire)
        copy.seek(0)
        while piece := copy.read(1 << 20):
            file.write(piece)


def _write(arrow: Any, parquet: Any, rows: Iterable[TimedRow], file: BinaryIO, *, may_expire: bool) -> None:
    fields = [arrow.field(name, arrow.binary(), nullable=False) for name in _COLUMNS]
    schema = arrow.schema([*fields, *([arrow.field(EXPIRES, arrow.int64())] if may_expire else [])])
    with parquet.ParquetWriter(file, schema) as writer:
        for group in _groups(rows):
            keys, values, deadlines = zip(*group, strict=True)
            columns = [arrow.array(column, arrow.binary()) for column in (keys, values)]
            if may_expire:
                columns.append(arrow.array([expires_ms or None for expires_ms in deadlines], arrow.int64()))
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))


def _groups(rows: Iterable[TimedRow]) -> Iterator[list[TimedRow]]:
    remaining = iter(rows)
    while group := list(islice(remaining, 1)):
        size = len(group[0][0]) + len(group[0][1])
        for row in islice(remaining, _GROUP_ROWS_MAX - 1):
            group.append(row)
            size += len(row[0]) + len(row[1])
            if size >= _GROUP_BYTES_MAX:
                break
        yield group


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise FileError(f"Parquet needs {error.name}: {how_to_install('files')}") from error
    return pa, parquet
