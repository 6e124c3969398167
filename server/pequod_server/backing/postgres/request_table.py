"""Writes with request ids: a table keeps the ids with their outcomes, written in the transaction of the write.

    lock of the id -> its row  -> the outcome of the first time
                   -> no row   -> the write, and its row

A repetition that comes while the first is under way, here or at another server, waits for its lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeVar

from pequod_server.backing.errors import BackingUnavailableError
from pequod_server.backing.postgres.deciding import lock_numbers
from pequod_server.backing.postgres.install import REQUESTS
from pequod_server.backing.postgres.schema import Connection, Facts
from pequod_server.backing.postgres.session import PostgresSession
from pequod_server.backing.postgres.transactions import in_transaction
from pequod_server.backing.store import Place
from pequod_server.once.outcomes import Once

T = TypeVar("T")

#: After each this many writes with ids, old ones are removed: more of them than came.
_SWEEP_EVERY: Final = 64
_SWEPT_MAX: Final = 1000
_SWEEP: Final = f"""
DELETE FROM {REQUESTS} WHERE id IN (
    SELECT id FROM {REQUESTS} WHERE at < now() - $1::interval ORDER BY at LIMIT {_SWEPT_MAX} FOR UPDATE SKIP LOCKED)
"""


class RequestTable:
    """The table of the ids.

    Args:
        keep_s: How long an id is kept.
    """

    def __init__(self, session: PostgresSession, keep_s: float) -> None:
        self._session = session
        self._keep = timedelta(seconds=keep_s)
        self._count = 0

    async def decided(
        self, write: Once[T], work: Callable[[Connection, Facts], Awaitable[T]], keys: Iterable[bytes] | None = None
    ) -> tuple[Place, T]:
        """Do a write in a transaction, unless it came before; return a place behind it, and its outcome.

        Args:
            work: The write.
            keys: Of one snapshot, which is taken once their locks are held; None: as `in_transaction`.

        Raises:
            BadRequestError: It has the id of another write.
            SchemaError: There is no such table.
        """
        request_id = write.request_id
        own = [request_id] if request_id else []

        async def once(connection: Connection, facts: Facts, _attempt: int) -> T:
            if not request_id:
                return await work(connection, facts)
            await connection.execute("SELECT pg_advisory_xact_lock($1)", lock_numbers(own)[0])
            kept = await connection.fetchval(f"SELECT outcome FROM {REQUESTS} WHERE id = $1", request_id)
            if kept is not None:
                return write.outcome(kept)
            outcome = await work(connection, facts)
            insert = f"INSERT INTO {REQUESTS} (id, outcome) VALUES ($1, $2)"
            await connection.execute(insert, request_id, write.kept(outcome))
            return outcome

        found = await in_transaction(self._session, once, None if keys is None else lock_numbers([*keys, *own]))
        self._count += bool(request_id)
        if request_id and not self._count % _SWEEP_EVERY:
            # The write is done, whatever comes of this.
            with suppress(BackingUnavailableError):
                await self.sweep()
        return found

    async def sweep(self) -> None:
        """Remove old ids.

        Raises:
            BackingUnavailableError: The database does not answer.
        """
        async with self._session.connection() as connection:
            await connection.execute(_SWEEP, self._keep)
