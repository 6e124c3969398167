"""The statements that write a change to PostgreSQL, and the one that locks its row."""

from __future__ import annotations

from collections.abc import Mapping as AnyMapping

from pequod.language.deadlines import KEEP
from pequod_server.backing import timed
from pequod_server.backing.columns import SqlType
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.postgres.schema import Facts
from pequod_server.backing.sql import Query, quoted, quoted_table, table_parts
from pequod_server.backing.store import RowChange
from pequod_server.backing.values import Cell, decompose, written_text


def lock_of(mapping: Mapping, key: bytes) -> Query:
    """Return the statement that locks the row of a key, if there is one, until the transaction ends."""
    slots = mapping.columns_of(key)
    assert slots is not None, "the mapping was found by the key"
    return Query(f"SELECT 1 FROM {_table(mapping)} WHERE {_where(mapping, slots, 1)} FOR UPDATE", tuple(slots.values()))


def _table(mapping: Mapping) -> str:
    return f"{quoted_table(mapping.table)} AS {quoted(table_parts(mapping.table)[1])}"


def _where(mapping: Mapping, slots: AnyMapping[str, str], first: int) -> str:
    """Return the condition of the row with these values of slots, which are the parameters from ``first`` on."""
    types: dict[str, SqlType] = {slot.name: slot.column.sql_type for slot in mapping.slots}
    tests = [f"{quoted(name)} = ${first + at}::text::{types[name]}" for at, name in enumerate(slots)]
    return " AND ".join([*tests, f"({mapping.condition})"] if mapping.condition else tests)


def _removal_of(mapping: Mapping, slots: AnyMapping[str, str]) -> Query:
    """Return the statement that removes a row, and returns its parameters if it was there: one that is due was not."""
    parameters, is_there = [*slots.values()], _where(mapping, slots, 1)
    if mapping.expires is not None:
        parameters.append(str(timed.now_ms()))
        column = quoted(mapping.expires)
        is_there += f" AND ({column} IS NULL OR {column} > ${len(parameters)}::text::int8)"
    own = ", ".join(f"${at}::text" for at in range(1, len(parameters) + 1))
    return Query(f"DELETE FROM {_table(mapping)} WHERE {is_there} RETURNING {own}", tuple(parameters))


def statements_of(mapping: Mapping, facts: Facts, change: RowChange) -> list[Query]:
    """Return statements, of which the first that changes a row is the last to run."""
    slots = mapping.columns_of(change.key)
    assert slots is not None, "the mapping was found by the key"
    if change.value is None:
        return [_removal_of(mapping, slots)]
    cells: list[Cell] = decompose(change.key, change.value, mapping.value, mapping.form)
    columns = facts[mapping.table].columns
    values: dict[str, str | None] = {
        name: written_text(cell, columns[name].kind)
        for name, cell in zip(mapping.value, cells, strict=True)
        if name not in slots
    }
    kept: list[str] = []
    if mapping.expires is None:
        timed.refuse_deadline(change.key, change.value)
    elif (at_ms := timed.deadline_of(change.value)) == KEEP:
        # That of a row that is due is none any more. A new row has none.
        column = quoted(mapping.expires)
        kept = [f"{column} = CASE WHEN {column} > ${len(values) + len(slots) + 1}::text::int8 THEN {column} END"]
    else:
        values[mapping.expires] = str(at_ms) if at_ms else None
    names = [*values, *slots]
    # A text is assigned as a literal of the column's own type would be.
    places = [f"${at}::text::{quoted(columns[name].type)}" for at, name in enumerate(names, 1)]
    assigned = [f"{quoted(name)} = {place}" for name, place in zip(values, places, strict=False)]
    targets = ", ".join([*assigned, *kept])
    untouched = f"{quoted(next(iter(slots)))} = {quoted(table_parts(mapping.table)[1])}.{quoted(next(iter(slots)))}"
    parameters = (*values.values(), *slots.values())
    return [
        Query(
            f"UPDATE {_table(mapping)} SET {targets or untouched} WHERE {_where(mapping, slots, len(values) + 1)}",
            (*parameters, str(timed.now_ms())) if kept else parameters,
        ),
        Query(
            f"INSERT INTO {_table(mapping)} ({', '.join(map(quoted, names))}) VALUES ({', '.join(places)})", parameters
        ),
    ]
