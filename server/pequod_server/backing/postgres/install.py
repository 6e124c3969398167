"""What the feeds of PostgreSQL need beside the tables: the statements that make it, and whether it is there.

`slot` needs a publication of the mapped tables, and old rows that have the columns of the key. `notify` needs triggers.
A fingerprint of all this is compared while the feed runs: if a part was missing for a moment, changes may be lost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import asyncpg

from pequod_server.backing.errors import SchemaError
from pequod_server.backing.mapping import GENERIC_EXPIRES, GENERIC_TABLE, Mapping
from pequod_server.backing.postgres.schema import SETTINGS, Connection, Facts, Mode, TableFacts, check_identity
from pequod_server.backing.sql import quoted, quoted_table

_PAYLOAD_BYTES_MAX: Final = 7800
#: After a statement that changes more rows of a table, the whole pattern is read again.
_NOTED_MAX: Final = 10_000
#: In a note in place of keys: read the whole pattern again. The reason follows if the trigger failed.
EVERYTHING: Final = "*"
_REASON_CHARACTERS_MAX: Final = 500


_GENERIC: Final = "key bytea PRIMARY KEY, value bytea NOT NULL"
#: Tables of earlier versions have no deadlines: the other statements change nothing but in these.
CREATE_GENERIC: Final = f"CREATE TABLE IF NOT EXISTS {GENERIC_TABLE} ({_GENERIC}, {GENERIC_EXPIRES} bigint)"
ADD_EXPIRES: Final = f"ALTER TABLE {GENERIC_TABLE} ADD COLUMN IF NOT EXISTS {GENERIC_EXPIRES} bigint"
INDEX_EXPIRES: Final = (
    f"CREATE INDEX IF NOT EXISTS {GENERIC_TABLE}_{GENERIC_EXPIRES} ON {GENERIC_TABLE} ({GENERIC_EXPIRES}) "
    f"WHERE {GENERIC_EXPIRES} IS NOT NULL"
)
MAKE_GENERIC: Final = (CREATE_GENERIC, ADD_EXPIRES, INDEX_EXPIRES)

#: The ids of writes that are done once, with their outcomes.
REQUESTS: Final = "pequod_requests"
CREATE_REQUESTS: Final = (
    (
        f"CREATE TABLE IF NOT EXISTS {REQUESTS} "
        "(id bytea PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), outcome bytea NOT NULL)"
    ),
    f"CREATE INDEX IF NOT EXISTS {REQUESTS}_at ON {REQUESTS} (at)",
)


def tables(mappings: Sequence[Mapping]) -> list[str]:
    """Return the statements that make tables of Pequod's own: that of request ids, and a generic mapping's."""
    is_generic = any(mapping.table == GENERIC_TABLE for mapping in mappings)
    return [*(MAKE_GENERIC if is_generic else []), *CREATE_REQUESTS]


def install_slot(name: str, mappings: Sequence[Mapping], facts: Facts, *, is_there: bool) -> Iterator[str]:
    """Yield the statements that publish the mapped tables; the feed itself makes the replication slot."""
    for table in dict.fromkeys(mapping.table for mapping in mappings):
        needed = {slot.name for mapping in mappings if mapping.table == table for slot in mapping.slots}
        if needed - facts[table].identity:
            yield f"ALTER TABLE {quoted_table(table)} REPLICA IDENTITY FULL"
    tables = ", ".join(quoted_table(table) for table in dict.fromkeys(mapping.table for mapping in mappings))
    if is_there:
        yield f"ALTER PUBLICATION {quoted(name)} SET TABLE {tables}"
    else:
        yield f"CREATE PUBLICATION {quoted(name)} FOR TABLE {tables}"
    if any(facts[mapping.table].is_partitioned for mapping in mappings):
        # Otherwise changes would name partitions, which no mapping does.
        yield f"ALTER PUBLICATION {quoted(name)} SET (publish_via_partition_root = true)"


def install_notify(channel: str, mappings: Sequence[Mapping]) -> Iterator[str]:
    """Yield the statements that make the triggers."""
    yield "CREATE SCHEMA IF NOT EXISTS pequod"
    for mapping in mappings:
        function = notify_function(channel, mapping)
        table = quoted_table(mapping.table)
        yield (
            f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql "
            + " ".join(f"SET {name} = '{value}'" for name, value in SETTINGS.items())
            + f" AS $pequod${_notify_body(channel, mapping)}$pequod$"
        )
        for name, event, rows in _NOTIFY_EVENTS:
            trigger = quoted(notify_trigger(channel, mapping, name))
            yield f"DROP TRIGGER IF EXISTS {trigger} ON {table}"
            yield (
                f"CREATE TRIGGER {trigger} AFTER {event} ON {table} {rows} "
                f"FOR EACH STATEMENT EXECUTE FUNCTION {function}"
            )


_NOTIFY_EVENTS: Final = (
    ("insert", "INSERT", "REFERENCING NEW TABLE AS new_rows"),
    ("update", "UPDATE", "REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows"),
    ("delete", "DELETE", "REFERENCING OLD TABLE AS old_rows"),
    ("truncate", "TRUNCATE", ""),
)


def notify_trigger(channel: str, mapping: Mapping, event: str) -> str:
    """Return the name of the trigger of a mapping for an event; each channel has triggers of its own."""
    digest = hashlib.sha256(f"{channel} {mapping.identity}".encode()).hexdigest()[:10]
    return f"pequod_{digest}_{event}"


def notify_function(channel: str, mapping: Mapping) -> str:
    """Return the trigger function of a mapping; its name changes with its body."""
    digest = hashlib.sha256(_notify_body(channel, mapping).encode()).hexdigest()[:8]
    return f"pequod.note_{mapping.identity}_{digest}()"


def _notify_body(channel: str, mapping: Mapping) -> str:
    def keys(rows: str) -> str:
        columns = ", ".join(f"{rows}.{quoted(slot.name)}::text" for slot in mapping.slots)
        return f"SELECT json_build_array({columns})::text FROM {rows}"

    # An error in a trigger is an error of the statement that fired it, so the block catches every one, such as that of
    # a column that was renamed. The block is a subtransaction, which costs 17 µs a statement. To look at the columns
    # beforehand would cost more and catch less.
    send = f"PERFORM pg_notify('{channel}', '{mapping.identity} [' || note || ']')"
    loop = f"""
        LOOP
            total := total + 1;
            EXIT WHEN total > {_NOTED_MAX} OR octet_length(piece) > {_PAYLOAD_BYTES_MAX};
            IF octet_length(note) + octet_length(piece) > {_PAYLOAD_BYTES_MAX} THEN
                {send};
                note := '';
            END IF;
            note := note || CASE WHEN note = '' THEN '' ELSE ',' END || piece;
        END LOOP;"""
    return f"""
DECLARE
    note text := '';
    piece text := '';
    total integer := 0;
BEGIN
    BEGIN
        IF TG_OP = 'INSERT' THEN
            FOR piece IN {keys("new_rows")} {loop}
        ELSIF TG_OP = 'DELETE' THEN
            FOR piece IN {keys("old_rows")} {loop}
        ELSIF TG_OP = 'UPDATE' THEN
            FOR piece IN {keys("old_rows")} UNION {keys("new_rows")} {loop}
        END IF;
        IF TG_OP = 'TRUNCATE' OR total > {_NOTED_MAX} OR octet_length(piece) > {_PAYLOAD_BYTES_MAX} THEN
            PERFORM pg_notify('{channel}', '{mapping.identity} {EVERYTHING}');
        ELSIF note <> '' THEN
            {send};
        END IF;
    EXCEPTION WHEN OTHERS THEN
        -- What is noted above is taken back with the block. The statement of the application goes on.
        PERFORM pg_notify('{channel}', '{mapping.identity} {EVERYTHING} ' || left(SQLERRM, {_REASON_CHARACTERS_MAX}));
    END;
    RETURN NULL;
END"""


_PUBLISHED: Final = """
SELECT c.oid AS table_oid, p.oid AS publication_oid, r.oid,
       r.prqual IS NULL AND r.prattrs IS NULL AND (p.pubviaroot OR c.relkind <> 'p') AS is_whole,
       p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AS is_all, c.relreplident::text AS identity,
       substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS timeline
FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid
WHERE p.pubname = $1 ORDER BY c.oid
"""
_TRIGGERS: Final = """
SELECT t.tgname::text AS name, t.tgrelid AS table_oid, t.oid, t.tgenabled::text AS enabled,
       'pequod.' || p.proname || '()' AS function, p.oid AS function_oid, p.xmin::text AS function_version
FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
WHERE t.tgname = ANY($1::text[]) AND NOT t.tgisinternal ORDER BY t.oid
"""


async def check_installed(
    connection: Connection, store: str, mode: Mode, name: str, mappings: Sequence[Mapping], facts: Facts
) -> str:
    """Check that everything that the feed needs is installed, and return a fingerprint of it.

    Raises:
        SchemaError: Something is missing.
    """
    records: Sequence[asyncpg.Record]
    if mode == "slot":
        records = await connection.fetch(_PUBLISHED, name)
        whole = {record["table_oid"] for record in records if record["is_whole"] and record["is_all"]}
        problems = [
            f"the publication {name} does not have all changes of {table}; run `pequod backing install`"
            for table in facts
            if facts[table].oid not in whole
        ]
        if not problems:
            check_identity(store, mappings, facts)
    else:
        triggers = [notify_trigger(name, mapping, event) for mapping in mappings for event, _, _ in _NOTIFY_EVENTS]
        records = await connection.fetch(_TRIGGERS, triggers)
        there = {
            (record["name"], record["table_oid"], record["function"])
            for record in records
            if record["enabled"] in {"O", "A"}
        }
        problems = [
            f"the trigger {trigger} on {mapping.table} is missing or disabled; run `pequod backing install`"
            for mapping in mappings
            for event, _, _ in _NOTIFY_EVENTS
            if (
                (trigger := notify_trigger(name, mapping, event)),
                facts[mapping.table].oid,
                notify_function(name, mapping),
            )
            not in there
        ]
    if problems:
        raise SchemaError(store, problems)
    return repr([dict(record) for record in records]) + repr([_ordered(facts[table]) for table in sorted(facts)])


def _ordered(facts: TableFacts) -> tuple[object, ...]:
    """Return the facts in an order that is the same in every process."""
    return (
        facts.oid,
        facts.schema,
        sorted(facts.columns.items(), key=lambda found: found[0]),
        sorted(facts.identity),
        sorted(map(sorted, facts.unique)),
        sorted(facts.leading),
    )
