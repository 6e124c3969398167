r"""Where PostgreSQL is: its position, its timeline, and where it left earlier timelines.

    timeline 1   ----------------x---- (a tail that was lost)
    timeline 2                   \---------> now              the end of 1 is at x

A primary is asked: a standby refuses both its position and the name of its file of the log. The ends of earlier
timelines are in files that only the replication protocol gives to everyone who may replicate.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

import psycopg2
from psycopg2.extras import LogicalReplicationConnection

from pequod.freshness import POSTGRES_STATE, database_of
from pequod_server.backing.postgres.schema import Connection
from pequod_server.backing.store import History, Place

_PLACE: Final = """
SELECT ('x' || left(pg_walfile_name(at), 8))::bit(32)::int, (at - '0/0')::bigint FROM pg_current_wal_flush_lsn() AS at
"""
#: Two statements: the log is flushed up to the commit of the first when it is answered.
_COMMIT: Final = "SELECT pg_logical_emit_message(true, 'pequod', '')"
#: A line of a timeline's file: the timeline that was left, and where.
_END: Final = re.compile(r"^(\d+)\t([0-9A-F]+)/([0-9A-F]+)", re.MULTILINE)


async def place(connection: Connection) -> Place:
    """Return up to where the log is safe: every commit that was acknowledged is before it."""
    row = await connection.fetchrow(_PLACE)
    assert row is not None
    return Place(*row)


async def proven_place(connection: Connection) -> Place:
    """Commit nothing, and return a place after it, which is after every commit that was acknowledged before.

    A primary that was replaced and has to wait for standbys does not answer this, though it would tell its position.
    """
    await connection.execute(_COMMIT)
    return await place(connection)


async def is_flushed_no_further(connection: Connection, position: int) -> bool:
    """Return whether the log goes as far as a position, and is not flushed beyond it."""
    found: bool = await connection.fetchval(
        "SELECT (pg_current_wal_flush_lsn() - '0/0')::numeric <= $1 "
        "AND $1 <= (pg_current_wal_insert_lsn() - '0/0')::numeric",
        position,
    )
    return found


async def history(connection: Connection, dsn: str, timeout_s: float) -> History:
    """Return the history of the database; the ends of its earlier timelines only if its user may replicate."""
    row = await connection.fetchrow(POSTGRES_STATE)
    assert row is not None
    database, timeline = database_of("postgresql", row["system_identifier"], row["name"]), row["timeline"]
    ends = await asyncio.to_thread(_ends, dsn, timeline, timeout_s) if timeline > 1 else {}
    return History(database, timeline, ends)


def _ends(dsn: str, timeline: int, timeout_s: float) -> dict[int, int]:
    try:
        connection = psycopg2.connect(
            dsn,
            connection_factory=LogicalReplicationConnection,
            connect_timeout=max(2, int(timeout_s)),
            application_name="pequod feed",
        )
    except psycopg2.Error:
        return {}
    try:
        cursor = connection.cursor()
        cursor.execute(f"TIMELINE_HISTORY {timeline}")
        (_, content) = cursor.fetchone() or ("", "")
    except psycopg2.Error:
        return {}
    finally:
        connection.close()
    text = content if isinstance(content, str) else bytes(content).decode(errors="replace")
    return {int(left): (int(high, 16) << 32) + int(low, 16) for left, high, low in _END.findall(text)}
