"""Uploads: rows on their way in, made fit for the tables and checked before anything is written.

An upload is taken as a whole: all its rows of all its tables become visible in one SCU. It has an id, by which it is
taken once however often it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.errors import UploadRefusedError
from pequod_lake.schema import (
    DELETED,
    DELETED_TIME,
    TIME,
    TIMESTAMP_MAX_US,
    TIMESTAMP_MIN_US,
    LakeSchema,
    LakeTable,
    set_time,
)

#: The most bytes of an id.
_ID_BYTES_MAX: Final = 256


@dataclass(slots=True)
class Upload:
    r"""Rows of several tables that become visible together.

    >>> schema = LakeSchema.parse('[[table]]\nname = "a"\nkey = ["id"]\ncolumns = { id = "int64", n = "int64" }')
    >>> upload = Upload(schema, "file-1")
    >>> upload.put("a", pa.table({"id": [1, 2], "n": [10, 20]}))
    >>> upload.delete("a", pa.table({"id": [2]}))
    >>> upload.row_count
    3
    """

    schema: LakeSchema
    id: str
    #: The rows of each table in the form of raw files, in the order in which they came.
    pieces: dict[str, list[Any]] = field(default_factory=dict)
    row_count: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the id.

        Raises:
            UploadRefusedError: It is empty or too long.
        """
        if not 0 < len(self.id.encode()) <= _ID_BYTES_MAX:
            raise UploadRefusedError("-", f"the id of an upload has 1 to {_ID_BYTES_MAX} bytes")

    def put(self, table: str, rows: Any) -> None:
        """Add rows that are there afterwards.

        Args:
            rows: A table or a batch of Arrow, or a mapping of column names to values. A table that is not partial wants
                all columns; of a partial one, the columns that are named are set.

        Raises:
            UploadRefusedError: A column is missing, unknown or of another type; a null stands in the key or the
                timestamp; or a timestamp is outside years 1 to 9999.
        """
        chosen = self._table(table)
        self._add(chosen, put_rows(chosen, rows))

    def delete(self, table: str, keys: Any) -> None:
        """Add keys that are gone afterwards.

        Args:
            keys: As for `put`, with the columns of the key, and the timestamp if the table has one.

        Raises:
            UploadRefusedError: As for `put`.
        """
        chosen = self._table(table)
        self._add(chosen, deleted_rows(chosen, keys))

    def _table(self, name: str) -> LakeTable:
        if name not in {table.name for table in self.schema.tables}:
            names = ", ".join(table.name for table in self.schema.tables)
            raise UploadRefusedError(name, f"the lake has no such table; it has {names}")
        return self.schema.table(name)

    def _add(self, table: LakeTable, rows: Any) -> None:
        if rows.num_rows:
            self.pieces.setdefault(table.name, []).append(rows)
            self.row_count += rows.num_rows
            self.size_bytes += rows.nbytes


def put_rows(table: LakeTable, rows: Any) -> Any:
    """Return rows in the form of raw files."""
    given = _given(table, rows)
    wanted = {*table.key, *([table.timestamp] if table.timestamp else [])}
    if not table.is_partial:
        wanted |= {column.name for column in table.columns if not column.is_optional}
    _check_columns(table, given, wanted, set(table.names))
    times = _times(table, given)
    columns: dict[str, Any] = {}
    for column in table.columns:
        if column.name in given.schema.names:
            columns[column.name] = given[column.name]
            columns[set_time(column.name)] = times
        else:
            columns[column.name] = pa.nulls(given.num_rows, column.type)
    columns |= {TIME: times, DELETED: _repeated(given, value=False)}
    return _formed(table, columns, given.num_rows)


def deleted_rows(table: LakeTable, keys: Any) -> Any:
    """Return delete markers in the form of raw files."""
    given = _given(table, keys)
    wanted = {*table.key, *([table.timestamp] if table.timestamp else [])}
    _check_columns(table, given, wanted, wanted)
    times = _times(table, given)
    columns: dict[str, Any] = {name: given[name] for name in table.key}
    columns |= {DELETED_TIME: times, DELETED: _repeated(given, value=True)}
    if not table.is_partial:
        columns[TIME] = times
    return _formed(table, columns, given.num_rows)


def _given(table: LakeTable, rows: Any) -> Any:
    """Return rows as a table with the types of the columns."""
    try:
        if isinstance(rows, Mapping):
            names = [column for column in table.columns if column.name in rows]
            unknown = set(rows) - set(table.names)
            if unknown:
                raise UploadRefusedError(
                    table.name, f"{min(unknown)!r} is no column; there are {', '.join(table.names)}"
                )
            return pa.table({one.name: pa.array(rows[one.name], one.type) for one in names})
        given = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        fields = [(name, table.column(name).type) for name in given.schema.names if name in table.names]
        if len(fields) < len(given.schema.names):
            unknown = set(given.schema.names) - set(table.names)
            raise UploadRefusedError(table.name, f"{min(unknown)!r} is no column; there are {', '.join(table.names)}")
        wanted = pa.schema(fields)
        return given if given.schema.equals(wanted) else given.cast(wanted)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UploadRefusedError(table.name, f"a value does not fit its column: {error}") from error


def _check_columns(table: LakeTable, given: Any, wanted: set[str], known: set[str]) -> None:
    names = given.schema.names
    if missing := wanted - set(names):
        raise UploadRefusedError(table.name, f"the column {min(missing)} is missing")
    if unknown := set(names) - known:
        raise UploadRefusedError(
            table.name, f"a deletion has the columns {', '.join(sorted(known))}, not {min(unknown)}"
        )
    if len(set(names)) < len(names):
        raise UploadRefusedError(table.name, "a column is there twice")
    for column in table.columns:
        if column.kind == "timestamp" and column.name in names:
            _check_moments(table, column.name, given[column.name])
    for name in (*table.key, *([table.timestamp] if table.timestamp else [])):
        if given[name].null_count:
            raise UploadRefusedError(table.name, f"the column {name} holds a null; the key and the timestamp have none")


def _check_moments(table: LakeTable, name: str, moments: Any) -> None:
    """Pass if timestamps are in years 1 to 9999: a query of the column could show no other one."""
    numbers = moments.cast(pa.int64())
    found = pc.min_max(numbers)
    if numbers.null_count < len(numbers) and not (
        found["min"].as_py() >= TIMESTAMP_MIN_US and found["max"].as_py() <= TIMESTAMP_MAX_US
    ):
        outside = pc.or_(pc.less(numbers, TIMESTAMP_MIN_US), pc.greater(numbers, TIMESTAMP_MAX_US))
        row = pc.index(outside, value=True).as_py()
        raise UploadRefusedError(
            table.name,
            f"row {row + 1}, column {name}: the timestamp {numbers[row].as_py()}, in microseconds since 1970, is "
            "outside years 1 to 9999",
        )


def _times(table: LakeTable, given: Any) -> Any:
    """Return the moments of rows; of a table without a timestamp all are equal, and the last row wins."""
    if table.timestamp is None:
        return pa.array([0]).take(pa.nulls(given.num_rows, pa.int64()).fill_null(0)) if table.is_partial else None
    return given[table.timestamp].cast(pa.int64())


def _repeated(given: Any, *, value: bool) -> Any:
    return pa.repeat(pa.scalar(value), given.num_rows)


def _formed(table: LakeTable, columns: Mapping[str, Any], count: int) -> Any:
    schema = table.stored(table.primary, raw=True)
    arrays = [pa.nulls(count, one.type) if columns.get(one.name) is None else columns[one.name] for one in schema]
    return pa.table(arrays, schema=schema)


def joined(uploads: Sequence[Upload], table: str) -> list[Any]:
    """Return the rows of a table of several uploads, in the order in which the uploads came."""
    return [piece for upload in uploads for piece in upload.pieces.get(table, ())]
