"""Columns of a DataFrame as keys and values: the reverse of columns.py.

    poster bob, time 120      pattern p|<poster>|<time:10>  ->  key p|bob|0000000120

Numbers become the decimal text that joins read as numbers, without an exponent; a whole number in a slot gets zeros in
front up to the slot's width. Every row is checked before any is sent.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from pequod.errors import PequodError
from pequod.language.decimals import NUMBER_BYTES_MAX
from pequod.language.spec import Pattern, Slot
from pyspark_pequod.columns import ColumnError

_TEXT: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)


class RowError(PequodError):
    """A row that cannot be written."""

    def __init__(self, column: str, reason: str, row: str) -> None:
        super().__init__(f"column {column!r}: {reason}, in the row {row}")
        self.column = column
        self.reason = reason
        #: The row as it was given.
        self.row = row


class Packing:
    """Makes keys and values of batches.

    Args:
        takes_nulls: Allow null values, for keys to be removed.

    Raises:
        ColumnError: The columns do not give a key and a value.
    """

    def __init__(self, schema: StructType, pattern: Pattern | None, *, takes_nulls: bool = False) -> None:
        self._takes_nulls = takes_nulls
        names = set(schema.names)
        slots = [] if pattern is None else list(dict.fromkeys(slot.name for slot in pattern.slots()))
        #: The parts of the key; None if the column `key` has the keys.
        self._pattern = None if "key" in names else pattern
        needed = ["value", *(["key"] if self._pattern is None else slots)]
        for name in needed:
            if name not in names:
                hint = "a key, or the option `pattern` and a column for each slot" if name == "key" else "it is needed"
                raise ColumnError(name, f"there is none; {hint}")
        for name in schema.names:
            if name not in {"key", "value", *slots}:
                raise ColumnError(name, f"nobody reads it; drop it, or select {', '.join(needed)}")
            if name in slots and self._pattern is None:
                raise ColumnError(name, "the column `key` says where a row goes; drop one of the two")

    def pack(self, batch: Any) -> Any:
        """Return a table of keys and values, both binary.

        Raises:
            ColumnError, RowError: A column or a row cannot be written.
        """
        column = batch.column("value")
        if not self._takes_nulls:
            _refuse_null(batch, "value", column)
        value = _bytes_of(batch, "value", column)
        if self._pattern is None:
            _refuse_null(batch, "key", batch.column("key"))
            key = _bytes_of(batch, "key", batch.column("key"))
            _refuse(batch, "key", "it is empty", pc.equal(pc.binary_length(key), 0))
        else:
            parts = [self._part(batch, part) for part in self._pattern.parts]
            key = pc.binary_join_element_wise(*parts, b"")
        return pa.table({"key": key, "value": value})

    def _part(self, batch: Any, part: bytes | Slot) -> Any:
        if isinstance(part, bytes):
            return pa.scalar(part, pa.binary())
        column = batch.column(part.name)
        _refuse_null(batch, part.name, column)
        if part.width is not None and pa.types.is_integer(column.type):
            _refuse(batch, part.name, "it is negative, and has a width", pc.less(column, 0))
            column = pc.ascii_lpad(column.cast(pa.string()), part.width, "0")
        found = _bytes_of(batch, part.name, column)
        length = pc.binary_length(found)
        if part.width is not None:
            _refuse(batch, part.name, f"it is not {part.width} bytes long", pc.not_equal(length, part.width))
            return found
        _refuse(batch, part.name, "it is empty, and a slot is not", pc.equal(length, 0))
        _refuse(batch, part.name, "it holds a |, which ends the slot", _holds_delimiter(found))
        return found


def sorted_once(tables: list[Any]) -> Any:
    """Return the rows in key order; of rows with the same key, the last one.

    Cost:
        O(n log n); O(n) if the rows are in order.
    """
    rows = pa.concat_tables(tables).combine_chunks()
    key = rows.column("key")
    if len(rows) < 2:
        return rows
    if not pc.all(pc.less(key.slice(0, len(rows) - 1), key.slice(1))).as_py():
        # With the row's number as a second sort key, rows of one key keep their order.
        numbered = rows.append_column("number", pa.array(range(len(rows)), pa.int64()))
        rows = numbered.sort_by([("key", "ascending"), ("number", "ascending")]).drop_columns(["number"])
        key = rows.column("key")
        differs = pc.not_equal(key.slice(0, len(rows) - 1), key.slice(1)).combine_chunks()
        rows = rows.filter(pa.concat_arrays([differs, pa.array([True])]))
    return rows


def _bytes_of(batch: Any, name: str, column: Any) -> Any:
    kind = column.type
    if pa.types.is_integer(kind):
        column = column.cast(pa.string())
    elif name == "value" and (pa.types.is_decimal(kind) or pa.types.is_floating(kind)):
        column = _plain_decimals(batch, column)
    elif not any(is_kind(kind) for is_kind in _TEXT):
        raise ColumnError(name, f"it is {kind}; make it binary, string or a whole number")
    return column.cast(pa.binary())


def _plain_decimals(batch: Any, column: Any) -> Any:
    """Return numbers as joins read them: 1e15 as 1000000000000000, since a sum does not count the text 1e+15."""
    if pa.types.is_floating(column.type):
        _refuse(batch, "value", "it is no number", pc.invert(pc.is_finite(column)))
    text = column.cast(pa.string())
    has_exponent = pc.match_substring(text, "e", ignore_case=True)
    if pc.any(has_exponent).as_py():
        spelt = [f"{Decimal(number):f}" for number in text.filter(has_exponent).to_pylist()]
        text = pc.replace_with_mask(text, has_exponent, pa.array(spelt, pa.string()))
    too_long = pc.greater(pc.binary_length(text), NUMBER_BYTES_MAX)
    reason = f"joins take text of more than {NUMBER_BYTES_MAX} bytes for no number; round it, or write it as text"
    _refuse(batch, "value", reason, too_long)
    return text


def _refuse_null(batch: Any, name: str, column: Any) -> None:
    _refuse(batch, name, "it is null", column.is_null())


def _holds_delimiter(column: Any) -> Any:
    return pc.match_substring(column, "|")


def _refuse(batch: Any, name: str, reason: str, is_bad: Any) -> None:
    """Raise for the first bad row, if there is one."""
    at = pc.index(is_bad, value=True).as_py()
    if at >= 0:
        cells = batch.slice(at, 1).to_pylist()[0].items()
        row = ", ".join(f"{column}={cell!r:.80}" for column, cell in cells)
        raise RowError(name, reason, row)
