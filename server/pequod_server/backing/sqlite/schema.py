"""What SQLite must have for a mapping: the right columns, a change table, and triggers that fill it.

Triggers note the keys that a statement changed; the feed reads the keys' present values in the same snapshot as the
list, so that a batch is the database at one moment. `INSERT OR REPLACE` deletes rows without firing delete triggers:
before an insert or an update, one trigger looks for rows that share a unique index with the new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as AnyMapping
from typing import Final

from pequod_server.backing.columns import Padded, Plain, Text, WholeKey
from pequod_server.backing.errors import SchemaError
from pequod_server.backing.mapping import GENERIC_EXPIRES, GENERIC_TABLE, Mapping, SlotColumn
from pequod_server.backing.sql import quoted, table_parts

_SHOWN_AS: Final = r"each value by its own type: text, a number (text for infinities), a BLOB as digits after \x"

CHANGES: Final = "pequod_changes"
#: The name of a row beside that of the change table among SQLite's own numbers. Its number is random: it names the
#: database in tokens, as `pequod.freshness.SQLITE_STATE` reads it.
DATABASE: Final = "pequod_database"
NAME_DATABASE: Final = (
    f"INSERT INTO sqlite_sequence (name, seq) SELECT '{DATABASE}', abs(random() / 2) "
    f"WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '{DATABASE}')"
)
#: Notes of changes that are kept for a feed that comes back.
KEPT: Final = 100_000
CREATE_CHANGES: Final = (
    f"CREATE TABLE IF NOT EXISTS {CHANGES} "
    "(seq INTEGER PRIMARY KEY AUTOINCREMENT, mapping TEXT NOT NULL, slots TEXT NOT NULL)"
)
#: The ids of writes that are done once, with their outcomes.
REQUESTS: Final = "pequod_requests"
CREATE_REQUESTS: Final = (
    (
        f"CREATE TABLE IF NOT EXISTS {REQUESTS} "
        "(id BLOB PRIMARY KEY NOT NULL, at_s INTEGER NOT NULL, outcome BLOB NOT NULL) STRICT, WITHOUT ROWID"
    ),
    f"CREATE INDEX IF NOT EXISTS {REQUESTS}_at ON {REQUESTS} (at_s)",
)

#: STRICT: a text is no key, and would not sort among them.
CREATE_GENERIC: Final = (
    f"CREATE TABLE IF NOT EXISTS {GENERIC_TABLE} "
    f"(key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL, {GENERIC_EXPIRES} INTEGER) STRICT, WITHOUT ROWID"
)
#: For tables of earlier versions, which have no deadlines.
ADD_EXPIRES: Final = f"ALTER TABLE {GENERIC_TABLE} ADD COLUMN {GENERIC_EXPIRES} INTEGER"
INDEX_EXPIRES: Final = (
    f"CREATE INDEX IF NOT EXISTS {GENERIC_TABLE}_{GENERIC_EXPIRES} ON {GENERIC_TABLE} ({GENERIC_EXPIRES}) "
    f"WHERE {GENERIC_EXPIRES} IS NOT NULL"
)


def check_all(connection: sqlite3.Connection, store: str, mappings: Sequence[Mapping]) -> list[str]:
    """Compare the mappings with the tables, the triggers and the settings, and return advice.

    Raises:
        SchemaError: With everything that does not fit.
    """
    advice, problems = list[str](), list[str]()
    try:
        advice = check_schema(connection, store, mappings)
    except SchemaError as error:
        problems += error.problems
    try:
        check_triggers(connection, store, mappings)
    except SchemaError as error:
        problems += error.problems
    if problems:
        raise SchemaError(store, problems)
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        advice.append("writers and loads wait for each other; set PRAGMA journal_mode=WAL once")
    return advice


def check_schema(connection: sqlite3.Connection, store: str, mappings: Sequence[Mapping]) -> list[str]:
    """Compare the mappings with the tables and return advice.

    Raises:
        SchemaError: With everything that does not fit.
    """
    problems: list[str] = []
    advice: list[str] = []
    encoding = connection.execute("PRAGMA encoding").fetchone()[0]
    if encoding != "UTF-8":
        problems.append(f"its encoding is {encoding}, in which text does not sort as its bytes; it must be UTF-8")
    for mapping in mappings:
        found = list(_problems(connection, mapping))
        problems += found
        if not found:
            advice += _advice(connection, mapping)
    if problems:
        raise SchemaError(store, problems)
    return advice


def check_triggers(connection: sqlite3.Connection, store: str, mappings: Sequence[Mapping]) -> None:
    """Check that the change table and the triggers of all mappings are as `install` makes them.

    Raises:
        SchemaError: Something is missing or different.
    """
    there = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'trigger')"))
    problems = []
    if CHANGES not in there:
        problems.append(f"there is no table {CHANGES}; run `pequod backing install`")
    for mapping in mappings:
        for name, statement in triggers(connection, mapping).items():
            if name not in there:
                problems.append(f"the trigger {name} on {mapping.table} is missing; run `pequod backing install`")
            elif there[name] != statement:
                problems.append(f"the trigger {name} on {mapping.table} is not ours; run `pequod backing install`")
    if problems:
        raise SchemaError(store, problems)


def triggers(connection: sqlite3.Connection, mapping: Mapping) -> dict[str, str]:
    """Return name and statement of each trigger that the mapping needs."""
    table = quoted(table_parts(mapping.table)[1])
    prefix = f"pequod_{mapping.identity}"

    def note(*rows: str) -> str:
        return " ".join(
            f"INSERT INTO {CHANGES} (mapping, slots) VALUES ('{mapping.identity}', {_slots(mapping, row)});"
            for row in rows
        )

    replaced = " ".join(
        f"INSERT INTO {CHANGES} (mapping, slots) SELECT '{mapping.identity}', {_slots(mapping, table)} "
        f"FROM {table} WHERE " + " AND ".join(f"{table}.{quoted(c)} = NEW.{quoted(c)}" for c in columns) + ";"
        for columns in _unique_columns(connection, mapping)
    )
    bodies = {
        "insert": ("AFTER INSERT", note("NEW")),
        "update": ("AFTER UPDATE", note("OLD", "NEW")),
        "delete": ("AFTER DELETE", note("OLD")),
    }
    if replaced:
        bodies["replace"] = ("BEFORE INSERT", replaced)
        bodies["supersede"] = ("BEFORE UPDATE", replaced)
    return {
        f"{prefix}_{name}": f"CREATE TRIGGER {prefix}_{name} {event} ON {table} BEGIN {body} END"
        for name, (event, body) in bodies.items()
    }


def generic(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the statements that make the generic table, or give one of an earlier version what it lacks."""
    there = [column for _, column, *_ in connection.execute(f"PRAGMA table_info({GENERIC_TABLE})")]
    yield CREATE_GENERIC
    if there and GENERIC_EXPIRES not in there:
        yield ADD_EXPIRES
    yield INDEX_EXPIRES


def install(connection: sqlite3.Connection, mappings: Sequence[Mapping]) -> Iterator[str]:
    """Yield the statements that make the change table and the triggers; they drop old ones of ours first."""
    yield CREATE_CHANGES
    yield NAME_DATABASE
    yield from CREATE_REQUESTS
    wanted = {name: text for mapping in mappings for name, text in triggers(connection, mapping).items()}
    yield from _drop_triggers(connection)
    yield from wanted.values()


def uninstall(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield the statements that remove what install made, for any mapping."""
    yield from _drop_triggers(connection)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if REQUESTS in tables:
        yield f"DROP TABLE {REQUESTS}"
    if CHANGES in tables:
        yield f"DROP TABLE {CHANGES}"
        yield f"DELETE FROM sqlite_sequence WHERE name = '{DATABASE}'"


def _drop_triggers(connection: sqlite3.Connection) -> list[str]:
    ours = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND sql LIKE ? ORDER BY name",
        (f"%INSERT INTO {CHANGES} %",),
    )
    return [f"DROP TRIGGER {quoted(name)}" for (name,) in ours]


def _problems(connection: sqlite3.Connection, mapping: Mapping) -> Iterator[str]:
    schema, name = table_parts(mapping.table)
    if schema is not None:
        yield f"{mapping.table}: attached databases cannot be mapped; name the table alone"
        return
    there = {column: kind for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({quoted(name)})")}
    if not there:
        yield f"there is no table {mapping.table}, which {mapping.pattern} comes from"
        return
    missing = [column for column in mapping.columns if column not in there]
    for column in missing:
        yield f"{mapping.table} has no column {column}, which {mapping.pattern} needs; it has {', '.join(there)}"
    for slot in mapping.slots:
        if slot.name in missing:
            continue
        affinity = _affinity(there[slot.name])
        wanted = {Text: "text", Padded: "integer", Plain: "integer", WholeKey: "blob"}.get(type(slot.column))
        if wanted is None:
            yield (
                f"the slot {slot.slot} of {mapping.pattern}: SQLite has no type {slot.column.sql_type}; "
                "store it as text or integer, and say so in the mapping"
            )
        elif affinity != wanted:
            yield (
                f"{mapping.table}.{slot.name} is declared {there[slot.name] or 'without a type'}, "
                f"and the slot {slot.slot} of {mapping.pattern} needs {wanted}"
            )
    if missing:
        return
    if mapping.expires is not None and _affinity(there[mapping.expires]) != "integer":
        yield (
            f"{mapping.table}.{mapping.expires} is declared {there[mapping.expires] or 'without a type'}, and "
            f"`expires` of {mapping.pattern} needs integer, for milliseconds since 1970"
        )
    yield from _field_problems(connection, mapping, name, there)
    try:
        connection.execute(f"SELECT 1 FROM {quoted(name)} WHERE ({mapping.condition or 1}) LIMIT 0")
    except sqlite3.OperationalError as error:
        yield f"the condition of {mapping.pattern} is not right: {error}"
        return
    slots = {slot.name for slot in mapping.slots}
    if mapping.is_unique and not any(slots >= set(columns) for columns in _all_unique(connection, name)):
        yield (
            f"two rows of {mapping.table} could have one key of {mapping.pattern}: no unique index has only columns of "
            f"{', '.join(sorted(slots))}; add one, or set unique = false if that never happens"
        )


def _field_problems(
    connection: sqlite3.Connection, mapping: Mapping, name: str, there: AnyMapping[str, str]
) -> Iterator[str]:
    # Columns of other tables hold values of any type, which searches by one type would not find.
    is_strict = any(row[1] == name and row[5] for row in connection.execute(f"PRAGMA table_list({quoted(name)})"))
    for field, kind in mapping.fields.items():
        if kind == "uuid":
            yield f"fields.{field} of {mapping.pattern}: SQLite has no type uuid; store it as text, and say so"
        elif not is_strict:
            yield f"fields.{field} of {mapping.pattern} needs a table that keeps to its types: declare {name} STRICT"
        elif _affinity(there[field]) != kind:
            yield f"{mapping.table}.{field} is declared {there[field]}, and fields.{field} needs {kind}"


def _advice(connection: sqlite3.Connection, mapping: Mapping) -> Iterator[str]:
    name = table_parts(mapping.table)[1]
    leading = mapping.slots[0]
    firsts = {columns[0] for _, columns in _indexes(connection, name) if columns}
    if leading.name not in firsts and [leading.name] not in _rowid(connection, name):
        yield (
            f"no index on {mapping.table} starts with {leading.name}, so each load reads the whole table: CREATE INDEX "
            f"ON {mapping.table} ({', '.join(slot.name for slot in mapping.slots)})"
        )
    for field in mapping.fields:
        if field not in firsts:
            yield (
                f"no index on {mapping.table} starts with {field}, so each search by this field reads the whole table: "
                f"CREATE INDEX ON {mapping.table} ({field})"
            )


def described(connection: sqlite3.Connection, mapping: Mapping) -> list[str]:
    """Return for each column of a mapping what is made of it."""
    declared = {
        column: kind
        for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({quoted(table_parts(mapping.table)[1])})")
    }
    slots = {slot.name: slot.slot for slot in mapping.slots}
    found = []
    for name in mapping.columns:
        uses = [f"the slot {slots[name]} of the key"] if name in slots else []
        uses += [_SHOWN_AS] if name in mapping.value else []
        uses += ["when the row expires, in milliseconds since 1970"] if name == mapping.expires else []
        found.append(f"{name} ({declared[name] or 'no type'}): {', and '.join(uses)}")
    return found


def _affinity(declared: str) -> str:
    kind = declared.upper()
    if kind == "BLOB":
        return "blob"
    if "INT" in kind:
        return "integer"
    return "text" if any(word in kind for word in ("CHAR", "CLOB", "TEXT")) else "other"


def _slots(mapping: Mapping, row: str) -> str:
    return f"json_array({', '.join(_slot(slot, f'{row}.{quoted(slot.name)}') for slot in mapping.slots)})"


def _slot(slot: SlotColumn, place: str) -> str:
    return f"'\\x' || hex({place})" if slot.column.sql_type == "bytea" else f"CAST({place} AS TEXT)"


def _unique_columns(connection: sqlite3.Connection, mapping: Mapping) -> list[list[str]]:
    """Return the column lists whose rows a REPLACE deletes although their keys differ."""
    slots = {slot.name for slot in mapping.slots}
    return [columns for columns in _all_unique(connection, table_parts(mapping.table)[1]) if not set(columns) >= slots]


def _all_unique(connection: sqlite3.Connection, name: str) -> list[list[str]]:
    return [*_rowid(connection, name), *(columns for unique, columns in _indexes(connection, name) if unique)]


def _rowid(connection: sqlite3.Connection, name: str) -> list[list[str]]:
    """Return the column that is the rowid, if one is; it has no index of its own."""
    keys = [
        (column, kind) for _, column, kind, _, _, pk in connection.execute(f"PRAGMA table_info({quoted(name)})") if pk
    ]
    return [[keys[0][0]]] if len(keys) == 1 and keys[0][1].upper() == "INTEGER" else []


def _indexes(connection: sqlite3.Connection, name: str) -> list[tuple[bool, list[str]]]:
    """Return uniqueness and columns of each index that is not partial and has no expressions."""
    found = []
    for _, index, unique, _, partial in connection.execute(f"PRAGMA index_list({quoted(name)})").fetchall():
        columns = [column for _, _, column in connection.execute(f"PRAGMA index_info({quoted(index)})")]
        if not partial and None not in columns:
            found.append((bool(unique), columns))
    return sorted(found)


def position_of(connection: sqlite3.Connection) -> int:
    """Return the number of the last change."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (CHANGES,)).fetchone()
    return int(row[0]) if row else 0


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the version of the schema, which each change of it raises."""
    return int(connection.execute("PRAGMA schema_version").fetchone()[0])


def data_version(connection: sqlite3.Connection) -> int:
    """Return a number that is another one after commits of other connections."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def forget_changes(connection: sqlite3.Connection, position: int) -> None:
    """Delete notes that no feed will need, in large pieces."""
    (oldest,) = connection.execute(f"SELECT min(seq) FROM {CHANGES}").fetchone()
    if oldest is not None and position - oldest > 2 * KEPT:
        connection.execute(f"DELETE FROM {CHANGES} WHERE seq <= ?", (position - KEPT,))
