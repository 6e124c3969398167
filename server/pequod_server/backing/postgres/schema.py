"""What PostgreSQL has for a mapping: its tables and columns, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import asyncpg

from pequod_server.backing.boxes import Box
from pequod_server.backing.columns import Column, Padded, Plain, SqlType, Text, Time, Uuid, WholeKey
from pequod_server.backing.errors import SchemaError
from pequod_server.backing.mapping import FieldType, Mapping
from pequod_server.backing.postgres.kinds import Kinds
from pequod_server.backing.sql import place, quoted, quoted_table, select
from pequod_server.backing.values import Kind, shown_as

Mode = Literal["slot", "notify"]
Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]"
#: The session settings that control how values are written as text: the same for loads and feeds.
SETTINGS: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
_FITTING: Final[dict[type[Column], tuple[str, ...]]] = {
    Text: ("text", "varchar"),
    Padded: ("int2", "int4", "int8"),
    Plain: ("int2", "int4", "int8"),
    Time: ("timestamptz", "timestamp"),
    Uuid: ("uuid",),
    WholeKey: ("bytea",),
}
#: Types whose cast to text is what a feed sends for them.
_CAST_IS_OUTPUT: Final = frozenset(
    [
        "text",
        "varchar",
        "int2",
        "int4",
        "int8",
        "float4",
        "float8",
        "numeric",
        "timestamptz",
        "timestamp",
        "date",
        "time",
        "uuid",
        "json",
        "jsonb",
        "bytea",
        "bool",
    ]
)


_FIELD_COLUMNS: Final[dict[FieldType, type[Column]]] = {"text": Text, "integer": Plain, "uuid": Uuid}


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column of the real table."""

    type: str
    kind: Kind
    #: Whether it sorts by bytes without a COLLATE.
    is_bytewise: bool
    #: Changes when the column is altered, which may rewrite its values without an event.
    version: str


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A real table."""

    oid: int
    schema: str
    columns: AnyMapping[str, ColumnFacts]
    #: The columns that old rows have in a feed.
    identity: frozenset[str]
    #: The columns of each unique index without a condition, and the first column of every index.
    unique: tuple[frozenset[str], ...]
    leading: frozenset[tuple[str, bool]]
    #: Whether its rows are in partitions.
    is_partitioned: bool = False


Facts = AnyMapping[str, TableFacts]

_COLUMNS: Final = """
SELECT a.attname, t.typname, a.atttypid,
       CASE WHEN a.attcollation = 0 THEN false
            WHEN c.collname = 'default' THEN (SELECT datcollate IN ('C', 'POSIX') FROM pg_database
                                              WHERE datname = current_database())
            ELSE c.collcollate IN ('C', 'POSIX') END AS is_bytewise,
       a.xmin::text AS version
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_INDEXES: Final = """
SELECT i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate AS is_unique,
       i.indisprimary, i.indisreplident,
       array_agg(a.attname::text ORDER BY k.n) AS columns,
       (SELECT c.collname IN ('C', 'POSIX') FROM pg_collation c WHERE c.oid = i.indcollation[0]) AS is_c
FROM pg_index i
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n)
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = $1 AND i.indisvalid AND i.indisready AND k.n <= i.indnkeyatts
GROUP BY i.indexrelid, i.indisunique, i.indpred, i.indexprs, i.indimmediate, i.indisprimary, i.indisreplident,
         i.indcollation
"""


class PostgresDialect:
    """The SQL of PostgreSQL; every parameter is an array of texts, cast to its type."""

    join = "JOIN"

    def __init__(self, facts: Facts | None = None) -> None:
        self._facts = facts or {}

    def read(self, mapping: Mapping, name: str) -> str:
        """Return the expression that reads a column as the text that a feed sends for it."""
        column = place(mapping, name)
        table = self._facts.get(mapping.table)
        if table is None or table.columns[name].type in _CAST_IS_OUTPUT:
            return f"{column}::text"
        # A composite value with a NULL in it is not NULL, nor is it IS NOT NULL.
        return f"CASE WHEN {column} IS DISTINCT FROM NULL THEN format('%s', {column}) END"

    def order(self, mapping: Mapping, name: str, column: Column) -> str:
        """Return the expression that sorts rows as the packed bytes of a slot."""
        where = place(mapping, name)
        if column.order_type != column.sql_type:
            where = f"{where}::text"
        table = self._facts.get(mapping.table)
        if column.order_type != "text" or (table is not None and table.columns[name].is_bytewise):
            return where
        return f'{where} COLLATE "C"'

    def boxes(self, number: int, types: Sequence[SqlType]) -> str:
        """Return a table of boxes over arrays, one for each bound."""
        arrays = ", ".join(f"${number + at}::text[]::{kind}[]" for at, kind in enumerate(types))
        return f"unnest({arrays}) AS box({', '.join(f'a{at}' for at in range(len(types)))})"

    def parameter(self, rows: Sequence[Sequence[str]], types: Sequence[SqlType]) -> list[object]:
        """Return one array for each bound."""
        return [[row[at] for row in rows] for at in range(len(types))]


async def read_facts(connection: Connection, mappings: Sequence[Mapping]) -> dict[str, TableFacts]:
    """Return the facts about the mapped tables that exist."""
    facts, kinds = {}, Kinds()
    for table in dict.fromkeys(mapping.table for mapping in mappings):
        row = await connection.fetchrow(
            "SELECT c.oid, n.nspname, c.relreplident::text AS identity, c.relkind = 'p' AS is_partitioned "
            "FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p')",
            quoted_table(table),
        )
        if row is None:
            continue
        found = await connection.fetch(_COLUMNS, row["oid"])
        await kinds.read(connection, {column["atttypid"] for column in found})
        columns = {
            column["attname"]: ColumnFacts(
                column["typname"], kinds.kind(column["atttypid"]), bool(column["is_bytewise"]), column["version"]
            )
            for column in found
        }
        indexes = await connection.fetch(_INDEXES, row["oid"])
        facts[table] = TableFacts(
            row["oid"],
            row["nspname"],
            columns,
            _identity(row["identity"], columns, indexes),
            tuple(frozenset(index["columns"]) for index in indexes if index["is_unique"]),
            frozenset((index["columns"][0], bool(index["is_c"])) for index in indexes if index["columns"][0]),
            row["is_partitioned"],
        )
    return facts


def _identity(
    replica_identity: str, columns: AnyMapping[str, ColumnFacts], indexes: Sequence[asyncpg.Record]
) -> frozenset[str]:
    match replica_identity:
        case "f":
            return frozenset(columns)
        case "d":
            chosen = [index for index in indexes if index["indisprimary"]]
        case "i":
            chosen = [index for index in indexes if index["indisreplident"]]
        case _:
            chosen = []
    return frozenset(chosen[0]["columns"]) if chosen else frozenset()


async def check_schema(connection: Connection, store: str, mappings: Sequence[Mapping]) -> dict[str, TableFacts]:
    """Compare the mappings with the tables and return the facts.

    Raises:
        SchemaError: With everything that does not fit.
    """
    problems: list[str] = []
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        problems.append(f"its encoding is {encoding}; keys are UTF-8, so it must be UTF8")
    facts = await read_facts(connection, mappings)
    for mapping in mappings:
        found = list(_problems(mapping, facts.get(mapping.table)))
        if not found:
            found = await _condition_problems(connection, mapping, facts)
        problems += found
    if problems:
        raise SchemaError(store, problems)
    return facts


def _problems(mapping: Mapping, table: TableFacts | None) -> Iterator[str]:
    if table is None:
        yield f"there is no table {mapping.table}, which {mapping.pattern} comes from"
        return
    missing = [column for column in mapping.columns if column not in table.columns]
    for column in missing:
        yield (
            f"{mapping.table} has no column {column}, which {mapping.pattern} needs; it has {', '.join(table.columns)}"
        )
    for slot in mapping.slots:
        fitting = _FITTING[type(slot.column)]
        if slot.name not in missing and table.columns[slot.name].type not in fitting:
            yield (
                f"{mapping.table}.{slot.name} is of type {table.columns[slot.name].type}, and the slot {slot.slot} of "
                f"{mapping.pattern} needs {' or '.join(fitting)}"
            )
    for name, kind in mapping.fields.items():
        fitting = _FITTING[_FIELD_COLUMNS[kind]]
        if name not in missing and table.columns[name].type not in fitting:
            yield (
                f"{mapping.table}.{name} is of type {table.columns[name].type}, and fields.{name} of "
                f"{mapping.pattern} needs {' or '.join(fitting)}"
            )
    if mapping.expires is not None and mapping.expires not in missing and table.columns[mapping.expires].type != "int8":
        yield (
            f"{mapping.table}.{mapping.expires} is of type {table.columns[mapping.expires].type}, and `expires` of "
            f"{mapping.pattern} needs int8, for milliseconds since 1970"
        )
    slots = {slot.name for slot in mapping.slots}
    if mapping.is_unique and not missing and not any(slots >= columns for columns in table.unique):
        yield (
            f"two rows of {mapping.table} could have one key of {mapping.pattern}: no unique index has only columns of "
            f"{', '.join(sorted(slots))}; add one, or set unique = false if that never happens"
        )
    if any(isinstance(slot.column, Time) and slot.column.step_us > 1 for slot in mapping.slots) and mapping.is_unique:
        yield (
            f"rows of one second would have one key of {mapping.pattern}: use timestamp_us, or set unique = false if "
            "that never happens"
        )


async def _condition_problems(connection: Connection, mapping: Mapping, facts: Facts) -> list[str]:
    query = select(PostgresDialect(facts), mapping, [Box(())])
    assert query is not None
    assert not query.parameters, "a whole relation needs no bound"
    try:
        await connection.execute(f"EXPLAIN {query.text}")
    except (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.InsufficientResourcesError):
        raise  # The database does not answer.
    except asyncpg.PostgresError as error:
        return [f"the condition of {mapping.pattern} is not right: {error}"]
    return []


def described(mapping: Mapping, table: TableFacts) -> list[str]:
    """Return for each column of a mapping what is made of it."""
    slots = {slot.name: slot.slot for slot in mapping.slots}
    found = []
    for name in mapping.columns:
        column = table.columns[name]
        uses = [f"the slot {slots[name]} of the key"] if name in slots else []
        uses += [shown_as(column.kind)] if name in mapping.value else []
        uses += ["when the row expires, in milliseconds since 1970"] if name == mapping.expires else []
        found.append(f"{name} ({column.type}): {', and '.join(uses)}")
    return found


def advice(mappings: Sequence[Mapping], facts: Facts) -> list[str]:
    """Return advice that would make loads faster."""
    found = []
    for mapping in mappings:
        leading, table = mapping.slots[0], facts[mapping.table]
        if not any(name == leading.name for name, _ in table.leading):
            found.append(
                f"no index on {mapping.table} starts with {leading.name}, so each load reads the whole table: "
                f"CREATE INDEX ON {quoted_table(mapping.table)} "
                f"({', '.join(_index_column(slot.name, slot.column) for slot in mapping.slots)})"
            )
        found += [
            f"no index on {mapping.table} starts with {field}, so each search by this field reads the whole table: "
            f"CREATE INDEX ON {quoted_table(mapping.table)} ({quoted(field)})"
            for field in mapping.fields
            if not any(name == field for name, _ in table.leading)
        ]
    return found


def _index_column(name: str, column: Column) -> str:
    return quoted(name) + (' COLLATE "C"' if column.sql_type == "text" else "")


def check_identity(store: str, mappings: Sequence[Mapping], facts: Facts) -> None:
    """Check that old rows have the columns of the key, so that a feed knows which key was removed.

    Raises:
        SchemaError: Some have not.
    """
    problems = [
        f"a deleted row of {mapping.table} would not tell {', '.join(sorted(missing))}, which the keys of "
        f"{mapping.pattern} need; run `pequod backing install`, or "
        f"ALTER TABLE {quoted_table(mapping.table)} REPLICA IDENTITY FULL"
        for mapping in mappings
        if (missing := {slot.name for slot in mapping.slots} - facts[mapping.table].identity)
    ]
    if problems:
        raise SchemaError(store, problems)
