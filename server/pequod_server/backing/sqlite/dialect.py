"""How SQLite says things: expressions of statements, values of columns, and the statements that write a change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from pequod.escapes import shown
from pequod.language.deadlines import KEEP
from pequod_server.backing import timed
from pequod_server.backing.columns import Column, SqlType
from pequod_server.backing.errors import PackError
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.sql import Query, place, quoted, table_parts
from pequod_server.backing.store import RowChange
from pequod_server.backing.values import Cell, bytes_of, decompose

#: The characters of an integer of 64 bits, with its sign.
_INTEGER_CHARACTERS_MAX: Final = 20

#: The function of our connections that makes bytes of their text: JSON has none, and `unhex` came with SQLite 3.41.
BYTES_OF: Final = "pequod_bytes"


class SqliteDialect:
    """The SQL of SQLite; parameters are one JSON text, so their number has no limit."""

    #: SQLite never puts the right side of a CROSS JOIN first.
    join = "CROSS JOIN"

    def read(self, mapping: Mapping, name: str) -> str:
        """Return the expression that reads a column: the value unchanged."""
        return place(mapping, name)

    def order(self, mapping: Mapping, name: str, column: Column) -> str:
        """Return the expression that sorts rows as the packed bytes of a slot."""
        column_place = place(mapping, name)
        if column.order_type != column.sql_type:
            column_place = f"CAST({column_place} AS TEXT)"
        return f"{column_place} COLLATE BINARY" if column.order_type == "text" else column_place

    def boxes(self, number: int, types: Sequence[SqlType]) -> str:  # noqa: ARG002 - parameters count themselves
        """Return a table of boxes over a JSON array of arrays."""
        columns = ", ".join(
            f"{BYTES_OF}(value ->> {at}) AS a{at}" if kind == "bytea" else f"value ->> {at} AS a{at}"
            for at, kind in enumerate(types)
        )
        return f"(SELECT {columns} FROM json_each(?)) AS box"

    def parameter(self, rows: Sequence[Sequence[str]], types: Sequence[SqlType]) -> list[object]:
        """Return the JSON text of the boxes."""
        typed = [
            [int(value) if kind == "bigint" else value for value, kind in zip(row, types, strict=True)] for row in rows
        ]
        return [json.dumps(typed)]


def quoted_name(mapping: Mapping) -> str:
    """Return the table of a mapping, quoted for SQL."""
    return quoted(table_parts(mapping.table)[1])


def slot_parameter_of(column: Column, text: str) -> object:
    """Return what SQLite takes for the column of a slot; it makes numbers of texts itself."""
    return bytes_of(text) if column.sql_type == "bytea" else text


def parameter_of(cell: Cell) -> object:
    """Return what SQLite takes for a cell."""
    if cell.text is None:
        return None
    match cell.kind:
        case "text" | "json" | "moment":
            return cell.text
        case "bytes":
            return bytes_of(cell.text)
        case "boolean":
            return int(cell.text == "true")
        case "number":
            return _number(cell.text)
        case kind:
            raise AssertionError(f"SQLite has no {kind}")


def _number(text: str) -> int | float | str:
    """Return a number of JSON as SQLite takes it, which makes of a long integer what the column's type says."""
    if not text.lstrip("-").isdigit():
        return float(text)
    number = int(text) if len(text) <= _INTEGER_CHARACTERS_MAX else None
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else text


def plan_of(mappings: Sequence[Mapping], change: RowChange) -> tuple[Mapping, list[Query]]:
    """Return the mapping and the statements of one change; the first that changes a row is the last to run.

    Raises:
        PackError: The key is of no mapping, or the value does not have its form.
        NoDeadlineError: The row is to expire, and its table has no column for that.
    """
    for mapping in mappings:
        slots = mapping.columns_of(change.key)
        if slots is not None:
            break
    else:
        raise PackError(
            f"key {shown(change.key)}", "it is of no mapped pattern, or its slots cannot be of their columns"
        )
    table = quoted_name(mapping)
    own = tuple(slot_parameter_of(slot.column, slots[slot.name]) for slot in mapping.slots)
    where = " AND ".join(f"{quoted(name)} = ?" for name in slots)
    if mapping.condition:
        where += f" AND ({mapping.condition})"
    if change.value is None:
        if mapping.expires is None:
            return mapping, [Query(f"DELETE FROM {table} WHERE {where}", own)]
        # A row that is due is not there.
        where += " AND ({0} IS NULL OR {0} > ?)".format(quoted(mapping.expires))
        return mapping, [Query(f"DELETE FROM {table} WHERE {where}", (*own, timed.now_ms()))]
    cells = decompose(change.key, change.value, mapping.value, mapping.form)
    values = {name: parameter_of(cell) for name, cell in zip(mapping.value, cells, strict=True) if name not in slots}
    kept: list[str] = []
    if mapping.expires is None:
        timed.refuse_deadline(change.key, change.value)
    elif (at_ms := timed.deadline_of(change.value)) == KEEP:
        # That of a row that is due is none any more. A new row has none.
        kept = ["{0} = CASE WHEN {0} > ? THEN {0} END".format(quoted(mapping.expires))]
    else:
        values[mapping.expires] = at_ms or None
    names = [*slots, *values]
    insert = Query(
        f"INSERT INTO {table} ({', '.join(map(quoted, names))}) VALUES ({', '.join('?' * len(names))})",
        (*own, *values.values()),
    )
    # Without a column to set, the update only shows whether the row exists.
    assigned = [*(f"{quoted(name)} = ?" for name in values), *kept]
    targets = ", ".join(assigned) or "{0} = {0}".format(quoted(names[0]))
    parameters = (*values.values(), *([timed.now_ms()] if kept else []), *own)
    update = Query(f"UPDATE {table} SET {targets} WHERE {where}", parameters)
    return mapping, [update, insert]
