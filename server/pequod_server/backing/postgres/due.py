"""Deadlines in PostgreSQL: the column of the generic table, and the deletion of rows that are due."""

from __future__ import annotations

from typing import Final

import asyncpg

from pequod_server.backing.deadlines import timed_of
from pequod_server.backing.errors import SchemaError
from pequod_server.backing.mapping import GENERIC_EXPIRES, GENERIC_TABLE, Mapping
from pequod_server.backing.postgres.install import ADD_EXPIRES, INDEX_EXPIRES
from pequod_server.backing.postgres.schema import Connection, Facts
from pequod_server.backing.postgres.session import PostgresSession
from pequod_server.backing.postgres.transactions import in_transaction
from pequod_server.backing.sql import quoted, quoted_table
from pequod_server.backing.timed import now_ms

_LACKS: Final = """
SELECT to_regclass($1) IS NOT NULL AND NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = $2 AND NOT attisdropped)
"""


class PostgresDeadlines:
    """The part of `PostgresStore` that is about deadlines; see `KeepsDeadlines`."""

    mappings: tuple[Mapping, ...]
    _session: PostgresSession

    async def migrate(self) -> list[str]:
        """Give a generic table of an earlier version its column of deadlines; return the statements that did it.

        The new column is empty, so that no row is written anew. Servers of earlier versions go on beside it.
        """
        if all(mapping.table != GENERIC_TABLE for mapping in self.mappings):
            return []
        async with self._session.connection() as connection:
            if not await connection.fetchval(_LACKS, GENERIC_TABLE, GENERIC_EXPIRES):
                return []
            try:
                async with connection.transaction():
                    # Who waits for the table has all others wait behind him.
                    await connection.execute("SET LOCAL lock_timeout = '5s'")
                    for statement in (ADD_EXPIRES, INDEX_EXPIRES):
                        await connection.execute(statement)
            except asyncpg.PostgresError as error:
                advice = f"{GENERIC_TABLE} gets no column {GENERIC_EXPIRES}, for keys that expire ({error})"
                raise SchemaError(
                    self._session.name, [f"{advice}; run `pequod backing install` as the owner of the table"]
                ) from error
        self._session.forget_facts()
        return [ADD_EXPIRES, INDEX_EXPIRES]

    async def remove_due(self, rows_max: int) -> int:
        """Delete rows that are due, the earliest first, and that no other server deletes at this moment."""
        timed = timed_of(self.mappings)

        async def work(connection: Connection, _facts: Facts, _attempt: int) -> int:
            count = 0
            for mapping in timed:
                assert mapping.expires is not None, "it was chosen for it"
                table, column = quoted_table(mapping.table), quoted(mapping.expires)
                where = f" AND ({mapping.condition})" if mapping.condition else ""
                done = await connection.execute(
                    f"DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE {column} <= $1{where} "
                    f"ORDER BY {column} LIMIT $2 FOR UPDATE SKIP LOCKED))",
                    now_ms(),
                    rows_max - count,
                )
                count += int(done.rpartition(" ")[2])
                if count >= rows_max:
                    break
            return count

        return (await in_transaction(self._session, work))[1] if timed else 0
