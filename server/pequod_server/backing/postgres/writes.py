"""The statements that write a change to PostgreSQL, and the one that locks its row."""

from __future__ import annotations

from pequod_server.backing.columns import SqlType
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.postgres.schema import Facts
from pequod_server.backing.sql import Query, quoted, quoted_table, table_parts
from pequod_server.backing.store import RowChange
from pequod_server.backing.values import Cell, decompose, written_text


def lock_of(mapping: Mapping, facts: Facts, key: bytes) -> Query:
    """Return the statement that locks the row of a key, if there is one, until the transaction ends."""
    # Where the removal looks for the row.
    (removal,) = statements_of(mapping, facts, RowChange(key, None))
    condition = removal.text.removeprefix("DELETE ").rpartition(" RETURNING ")[0]
    return Query(f"SELECT 1 {condition} FOR UPDATE", removal.parameters)


def statements_of(mapping: Mapping, facts: Facts, change: RowChange) -> list[Query]:
    """Return statements, of which the first that changes a row is the last to run."""
    slots = mapping.columns_of(change.key)
    assert slots is not None, "the mapping was found by the key"
    types: dict[str, SqlType] = {slot.name: slot.column.sql_type for slot in mapping.slots}
    table = f"{quoted_table(mapping.table)} AS {quoted(table_parts(mapping.table)[1])}"

    def where(first: int) -> str:
        tests = [f"{quoted(name)} = ${first + at}::text::{types[name]}" for at, name in enumerate(slots)]
        return " AND ".join([*tests, f"({mapping.condition})"] if mapping.condition else tests)

    if change.value is None:
        own = ", ".join(f"${at}::text" for at in range(1, len(slots) + 1))
        return [Query(f"DELETE FROM {table} WHERE {where(1)} RETURNING {own}", tuple(slots.values()))]
    cells: list[Cell] = decompose(change.key, change.value, mapping.value, mapping.form)
    columns = facts[mapping.table].columns
    values = {
        name: written_text(cell, columns[name].kind)
        for name, cell in zip(mapping.value, cells, strict=True)
        if name not in slots
    }
    names = [*values, *slots]
    # A text is assigned as a literal of the column's own type would be.
    places = [f"${at}::text::{quoted(columns[name].type)}" for at, name in enumerate(names, 1)]
    targets = ", ".join(f"{quoted(name)} = {place}" for name, place in zip(values, places, strict=False))
    untouched = f"{quoted(next(iter(slots)))} = {quoted(table_parts(mapping.table)[1])}.{quoted(next(iter(slots)))}"
    parameters = (*values.values(), *slots.values())
    return [
        Query(f"UPDATE {table} SET {targets or untouched} WHERE {where(len(values) + 1)}", parameters),
        Query(f"INSERT INTO {table} ({', '.join(map(quoted, names))}) VALUES ({', '.join(places)})", parameters),
    ]
