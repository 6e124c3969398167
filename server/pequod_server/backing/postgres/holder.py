"""Who holds a replication slot that is in use: a server that lives, or a connection whose other end is gone.

A feed gives PostgreSQL a sign of life every second. A machine that loses its power, or whose link is cut, says nothing,
and PostgreSQL keeps its connection, and the replication slot with it, until `wal_sender_timeout` is over.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from pequod_server.backing.errors import BackingUnavailableError
from pequod_server.backing.postgres.schema import Connection
from pequod_server.backing.postgres.session import PostgresSession

log = logging.getLogger("pequod.server")

#: How long a holder has to give a sign of life, of which a feed gives one a second; and how often it is looked for.
_ALIVE_S: Final = 3.0
_LOOK_S: Final = 0.25
#: `reply_time` is the holder's own clock: that it changes says that the holder lives, whatever it is set to. A sender
#: that neither waits for the log nor for its client reads no signs of life meanwhile. PostgreSQL shows both to roles
#: that may read all statistics, and to others only the number of the holder's process.
_HOLDER: Final = """
SELECT slots.active_pid AS pid, senders.reply_time, coalesce(host(senders.client_addr), 'this machine') AS address,
       coalesce(activity.wait_event_type, '') NOT IN ('Activity', 'Client') AS is_at_work,
       senders.pid IS NOT NULL AND senders.state IS NULL AS is_hidden, current_user AS "user"
FROM pg_replication_slots AS slots
LEFT JOIN pg_stat_replication AS senders ON senders.pid = slots.active_pid
LEFT JOIN pg_stat_activity AS activity ON activity.pid = slots.active_pid
WHERE slots.slot_name = $1
"""


async def pass_if_free(session: PostgresSession, connection: Connection) -> None:
    """Pass if no connection holds the replication slot of a session any more.

    This process's own connection of before, which the other end has not seen closed, is ended. Nobody else's is: two
    servers with one replication slot would throw each other out for ever.

    Raises:
        BackingUnavailableError: Another server uses it, and lives; or a connection holds it that gives no sign of life,
            and that PostgreSQL will end; or the role of the session is not shown which of both.
    """
    first = found = await connection.fetchrow(_HOLDER, session.feed_name)
    for look in range(int(_ALIVE_S / _LOOK_S)):
        if found is None or found["pid"] is None:
            return
        assert first is not None
        if found["pid"] == session.sender:
            # A connection that was closed in the normal way is gone in a moment.
            if look == 1:
                log.warning("the feed's connection of before is ended", extra={"slot": session.feed_name})
                await connection.execute("SELECT pg_terminate_backend($1)", session.sender)
        elif found["is_hidden"]:
            raise BackingUnavailableError(session.name, _hidden(session.feed_name, found["pid"], found["user"]))
        elif found["is_at_work"] or (found["pid"], found["reply_time"]) != (first["pid"], first["reply_time"]):
            where = f"a server at {found['address']} uses the replication slot {session.feed_name}"
            raise BackingUnavailableError(session.name, f"{where}; give each server a replication slot of its own")
        await asyncio.sleep(_LOOK_S)
        found = await connection.fetchrow(_HOLDER, session.feed_name)
    if found is None or found["pid"] is None:
        return
    raise BackingUnavailableError(
        session.name,
        f"the replication slot {session.feed_name} is held by a connection from {found['address']} that gives no sign "
        "of life, as those of a machine without power or network are; PostgreSQL ends it after wal_sender_timeout, or "
        f"at once by SELECT pg_terminate_backend({found['pid']})",
    )


def _hidden(slot: str, pid: int, user: str) -> str:
    return (
        f"a connection (process {pid} of the database) uses the replication slot {slot}, and PostgreSQL does not show "
        f"the role {user} whether it lives. If another server uses it, give each server a replication slot of its own. "
        f"If the machine of an earlier server has no power or network, PostgreSQL ends the connection after "
        f'wal_sender_timeout. GRANT pg_read_all_stats TO "{user}" has this message say which of both it is'
    )
