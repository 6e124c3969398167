"""The statements that remove what `backing install` made in a PostgreSQL, which its catalog shows.

The mapping is not needed, and may be gone: triggers of earlier mappings are found by their functions. Install notes the
replica identities that it changes in the comment of its publication, so that they can be set back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping as AnyMapping
from collections.abc import Sequence
from typing import Final

from pequod_server.backing.errors import SlotNotDroppedError
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.postgres.install import REQUESTS
from pequod_server.backing.postgres.schema import Connection
from pequod_server.backing.sql import quoted, quoted_table

_NOTE: Final = "pequod replica identities before: "
_IDENTITY: Final = """
SELECT CASE c.relreplident WHEN 'd' THEN 'DEFAULT' WHEN 'n' THEN 'NOTHING' WHEN 'f' THEN 'FULL'
       ELSE (SELECT 'USING INDEX ' || quote_ident(i.relname) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
             WHERE x.indrelid = c.oid AND x.indisreplident) END
FROM pg_class c WHERE c.oid = to_regclass($1)
"""
_SLOT: Final = """
SELECT s.active, s.active_pid, s.database = current_database() AND s.plugin = 'pgoutput' AS is_ours,
       a.application_name, coalesce(host(a.client_addr), 'this machine') AS address
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid WHERE s.slot_name = $1
"""
#: The trigger functions that notify a channel, and their triggers.
_FUNCTIONS: Final = """
SELECT p.oid, format('%I.%I()', n.nspname, p.proname) AS name
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'pequod' AND p.proname LIKE 'note\\_%' AND strpos(p.prosrc, format('pg_notify(%L,', $1::text)) > 0
ORDER BY p.proname
"""
_TRIGGERS: Final = """
SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass) FROM pg_trigger
WHERE tgfoid = ANY($1::oid[]) AND NOT tgisinternal ORDER BY tgrelid::regclass::text, tgname
"""
#: Whether the table of request ids is there, and no other feed.
_LAST: Final = f"""
SELECT to_regclass('{REQUESTS}') IS NOT NULL AND NOT EXISTS (SELECT FROM pg_publication WHERE pubname <> $1)
       AND NOT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                       WHERE n.nspname = 'pequod' AND p.proname LIKE 'note\\_%'
                       AND strpos(p.prosrc, format('pg_notify(%L,', $1::text)) = 0)
"""
_SCHEMA_HOLDS_MORE: Final = """
SELECT EXISTS (SELECT FROM pg_depend
               WHERE refclassid = 'pg_namespace'::regclass AND refobjid = to_regnamespace('pequod')
               AND NOT (classid = 'pg_proc'::regclass AND objid = ANY($1::oid[])))
"""


async def replica_identities(connection: Connection, mappings: Sequence[Mapping]) -> dict[str, str]:
    """Return the replica identity of each mapped table, as ALTER TABLE ... REPLICA IDENTITY has it."""
    tables = dict.fromkeys(quoted_table(mapping.table) for mapping in mappings)
    return {table: await connection.fetchval(_IDENTITY, table) for table in tables}


async def note_identities(connection: Connection, name: str, before: AnyMapping[str, str]) -> list[str]:
    """Return the statement that notes the previous identities of tables; nothing if no table has one.

    The notes of an earlier install stay: they are the original ones.
    """
    comment = await _comment(connection, name)
    if not before or (comment and not comment.startswith(_NOTE)):
        return []
    noted = json.dumps({**before, **_noted(comment)}, ensure_ascii=False).replace("'", "''")
    return [f"COMMENT ON PUBLICATION {quoted(name)} IS '{_NOTE}{noted}'"]


async def drop_slot(connection: Connection, name: str) -> list[str]:
    """Return the statement that drops a replication slot; nothing if there is no such slot.

    Raises:
        SlotNotDroppedError: A server uses it, or it is not one of Pequod's for this database.
    """
    slot = await connection.fetchrow(_SLOT, name)
    if slot is None:
        return []
    if not slot["is_ours"]:
        raise SlotNotDroppedError(name, "it is of another database or plugin; name another one")
    if slot["active"]:
        user = f"{slot['application_name'] or 'a session'} from {slot['address']}"
        raise SlotNotDroppedError(
            name,
            f"{user} uses it (process {slot['active_pid']} of the database); stop that server first. One that died is "
            "noticed within wal_sender_timeout",
        )
    return [f"SELECT pg_drop_replication_slot('{name}')"]


async def uninstall(connection: Connection, name: str) -> list[str]:
    """Return the statements that remove everything that install made for a feed of this name, of either kind.

    The replication slot comes first, because dropping it cannot be part of a transaction.

    Raises:
        SlotNotDroppedError: As `drop_slot`.
    """
    statements = await drop_slot(connection, name)
    if await connection.fetchval("SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)", name):
        noted = _noted(await _comment(connection, name))
        statements.append(f"DROP PUBLICATION {quoted(name)}")
        for table, identity in noted.items():
            if await _may_be_put_back(connection, name, table):
                statements.append(f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
    functions = await connection.fetch(_FUNCTIONS, name)
    numbers = [function["oid"] for function in functions]
    statements += [row[0] for row in await connection.fetch(_TRIGGERS, numbers)]
    statements += [f"DROP FUNCTION {function['name']}" for function in functions]
    if await connection.fetchval(_LAST, name):
        statements.append(f"DROP TABLE {REQUESTS}")
    if numbers and not await connection.fetchval(_SCHEMA_HOLDS_MORE, numbers):
        statements.append("DROP SCHEMA pequod")
    return statements


async def _may_be_put_back(connection: Connection, name: str, table: str) -> bool:
    """Return whether a table is as install left it, and no other publication needs it so."""
    if await connection.fetchval(_IDENTITY, table) != "FULL":
        return False
    return not await connection.fetchval(
        "SELECT EXISTS (SELECT FROM pg_publication p LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid "
        "WHERE p.pubname <> $1 AND (p.puballtables OR r.prrelid = to_regclass($2)))",
        name,
        table,
    )


async def _comment(connection: Connection, name: str) -> str:
    comment: str | None = await connection.fetchval(
        "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = $1", name
    )
    return comment or ""


def _noted(comment: str) -> dict[str, str]:
    if not comment.startswith(_NOTE):
        return {}
    noted: dict[str, str] = json.loads(comment.removeprefix(_NOTE))
    return noted
