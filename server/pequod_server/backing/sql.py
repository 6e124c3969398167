"""SQL for a mapping, shared by the databases, whose differences are in a `Dialect`.

All ranges of a pattern are read by one statement. Boxes of one shape are rows of one parameter table, which is
joined with the relation, so that the text of a statement depends on the shapes and not on the ranges:

    SELECT posts.poster, posts.time, posts.body
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS box(a0, a1, a2)
    JOIN posts ON posts.poster = box.a0 AND posts.time >= box.a1 AND posts.time < box.a2
    UNION ALL ...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pequod_server.backing.boxes import Box
from pequod_server.backing.columns import Between, Column, Equal, SqlType
from pequod_server.backing.mapping import Mapping, SlotColumn
from pequod_server.backing.store import KeyRange


def quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def table_parts(table: str) -> tuple[str | None, str]:
    """Return the schema, if it is named, and the name of a table."""
    schema, dot, name = table.partition(".")
    return (schema, name) if dot else (None, table)


def quoted_table(table: str) -> str:
    """Return the table of a mapping, quoted for SQL."""
    return ".".join(quoted(part) for part in table_parts(table) if part is not None)


def place(mapping: Mapping, name: str) -> str:
    """Return a column with its table, quoted for SQL."""
    return f"{quoted(table_parts(mapping.table)[1])}.{quoted(name)}"


class Dialect(Protocol):
    """The SQL of one database."""

    def read(self, mapping: Mapping, name: str) -> str:
        """Return the expression that reads a column in the form that the loader expects."""
        ...

    def order(self, mapping: Mapping, name: str, column: Column) -> str:
        """Return the expression that orders rows as the packed bytes of a slot."""
        ...

    def boxes(self, number: int, types: Sequence[SqlType]) -> str:
        """Return a table `box(a0, a1, ...)` over parameter ``number`` (from 1 on), for FROM."""
        ...

    def parameter(self, rows: Sequence[Sequence[str]], types: Sequence[SqlType]) -> list[object]:
        """Return the parameters for `boxes`."""
        ...

    #: The join that reads boxes first.
    join: str


@dataclass(frozen=True, slots=True)
class Query:
    """A statement and its parameters."""

    text: str
    parameters: tuple[object, ...]


def select(
    dialect: Dialect, mapping: Mapping, boxes: Iterable[Box], slots: Sequence[SlotColumn] | None = None
) -> Query | None:
    """Return the statement that reads the rows of all boxes; None if there are no boxes.

    Args:
        dialect: The SQL of the database.
        mapping: Whose columns are read.
        boxes: The conditions.
        slots: The columns that the terms of boxes are about; those of the mapping's keys if there are no others.
    """
    shapes: dict[tuple[str, ...], list[list[str]]] = {}
    for box in boxes:
        shapes.setdefault(_shape(box), []).append(_values(box))
    if not shapes:
        return None
    if () in shapes:
        # A box without terms is the whole relation, and all others are inside it.
        shapes = {(): [[]]}
    table = quoted(table_parts(mapping.table)[1])
    columns = ", ".join(dialect.read(mapping, column) for column in mapping.columns)
    statements: list[str] = []
    parameters: list[object] = []
    for shape, rows in shapes.items():
        conditions, types = _conditions(dialect, mapping, mapping.slots if slots is None else slots, shape)
        where = f"\nWHERE ({mapping.condition})" if mapping.condition else ""
        if types:
            source = (
                f"{dialect.boxes(len(parameters) + 1, types)}\n"
                f"{dialect.join} {quoted_table(mapping.table)} AS {table} ON {' AND '.join(conditions)}"
            )
            parameters += dialect.parameter(rows, types)
        else:
            source = f"{quoted_table(mapping.table)} AS {table}"
        statements.append(f"SELECT {columns}\nFROM {source}{where}")
    return Query("\nUNION ALL\n".join(statements), tuple(parameters))


def boxes_of(mapping: Mapping, ranges: Iterable[KeyRange]) -> list[Box]:
    """Return the boxes of all ranges, clipped to the keys of the mapping, each once."""
    clipped = (mapping.clip(one.first, one.last) for one in ranges)
    return list(dict.fromkeys(box for clip in clipped if clip is not None for box in mapping.boxes(*clip)))


def _shape(box: Box) -> tuple[str, ...]:
    shape = []
    for term in box.terms:
        match term:
            case Equal():
                shape.append("=")
            case Between(low, high):
                shape.append(("" if low is None else ">=") + ("" if high is None else "<"))
    return tuple(shape)


def _values(box: Box) -> list[str]:
    values: list[str] = []
    for term in box.terms:
        match term:
            case Equal(value):
                values.append(value)
            case Between(low, high):
                values += [bound for bound in (low, high) if bound is not None]
    return values


def _conditions(
    dialect: Dialect, mapping: Mapping, slots: Sequence[SlotColumn], shape: Sequence[str]
) -> tuple[list[str], list[SqlType]]:
    conditions: list[str] = []
    types: list[SqlType] = []
    # Terms follow the parts of the pattern, and stop before the first repeated slot: they are the first slots.
    for slot, kind in zip(slots, shape, strict=False):
        if kind == "=":
            conditions.append(f"{place(mapping, slot.name)} = box.a{len(types)}")
            types.append(slot.column.sql_type)
            continue
        ordered = dialect.order(mapping, slot.name, slot.column)
        for comparison in [">="] * (">=" in kind) + ["<"] * ("<" in kind):
            conditions.append(f"{ordered} {comparison} box.a{len(types)}")
            types.append(slot.column.order_type)
    return conditions, types
