"""Writes with request ids: a table keeps the ids with their outcomes, written in the transaction of the write.

    lock of the id -> its row  -> the outcome of the first time
                   -> no row   -> the write, and its row

A repetition that comes while the first is under way, here or at another server, waits for its lock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
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
from pequod_server.once.outcomes import ID_BYTES, Once, with_head
from pequod_server.once.parts import PAGE_ROWS, IdPage, IdPart, one_by_one

T = TypeVar("T")

#: After each this many writes with ids, old ones are removed: more of them than came.
_SWEEP_EVERY: Final = 64
_SWEPT_MAX: Final = 1000
_SWEEP: Final = f"""
DELETE FROM {REQUESTS} WHERE id IN (
    SELECT id FROM {REQUESTS} WHERE at < now() - $1::interval ORDER BY at LIMIT {_SWEPT_MAX} FOR UPDATE SKIP LOCKED)
"""

#: Numbers of transactions are compared as PostgreSQL does, in a circle.
_NUMBERS: Final = 1 << 32
_NUMBER_BYTES: Final = 4
#: The first transaction that may still be under way: those from it on may commit what a snapshot of now does not see.
_HORIZON: Final = "SELECT txid_snapshot_xmin(txid_current_snapshot())"
_ROW: Final = f"SELECT id, outcome, greatest(0, extract(epoch FROM now() - at) * 1000)::bigint FROM {REQUESTS}"
_PAGE: Final = f"{_ROW} WHERE id > $1 ORDER BY id LIMIT {PAGE_ROWS}"
#: Of transactions from one on. There are few: with OFFSET 0 the rows are not looked at in the order of ids, which would
#: visit each of them in another place of the disk. One that was written 2^31 transactions ago comes, too.
_PAGE_SINCE: Final = f"""
SELECT * FROM ({_ROW} WHERE ((xmin::text::bigint - $2) & {_NUMBERS - 1}) < {_NUMBERS // 2} OFFSET 0) AS recent
WHERE id > $1 ORDER BY id LIMIT {PAGE_ROWS}
"""
_TAKE: Final = f"""
INSERT INTO {REQUESTS} (id, at, outcome)
SELECT id, now() - age_ms * interval '1 millisecond', outcome
FROM unnest($1::bytea[], $2::bigint[], $3::bytea[]) AS taken (id, age_ms, outcome)
ON CONFLICT (id) DO UPDATE SET at = excluded.at, outcome = excluded.outcome
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

    async def page(self, since: bytes) -> IdPage:
        """Return a page of the ids, in their order; see `Remembered.page`.

        ``since`` has the transaction from which on this pass tells (none: it tells all), the one from which on the next
        pass is to tell, which is noted before the first row is read, and the last id of the page before.

        Raises:
            BackingUnavailableError: The database does not answer.
            SchemaError: There is no such table.
        """
        from_there, horizon, last = since[:_NUMBER_BYTES], since[_NUMBER_BYTES:][:_NUMBER_BYTES], since[-ID_BYTES:]
        async with self._session.connection() as connection:
            if len(since) <= _NUMBER_BYTES:
                number = await connection.fetchval(_HORIZON)
                horizon, last = (number % _NUMBERS).to_bytes(_NUMBER_BYTES), b""
            if from_there.strip(b"\0"):
                rows = await connection.fetch(_PAGE_SINCE, last, int.from_bytes(from_there))
            else:
                rows = await connection.fetch(_PAGE, last)
        parts = [IdPart(one, with_head(one, outcome), age_ms) for one, outcome, age_ms in rows]
        if len(rows) < PAGE_ROWS:
            return IdPage(parts, horizon)
        return IdPage(parts, (from_there or bytes(_NUMBER_BYTES)) + horizon + parts[-1].id, has_more=True)

    async def take(self, parts: Sequence[IdPart]) -> None:
        """Remember ids, but for those that are too old; raises as `page`."""
        taken = one_by_one(parts, self._keep.total_seconds())
        # A statement takes each id once.
        rows = {one: (age_ms, outcome) for one, age_ms, outcome in taken}
        ages_ms, outcomes = [one for one, _ in rows.values()], [one for _, one in rows.values()]
        async with self._session.connection() as connection:
            await connection.execute(_TAKE, [*rows], ages_ms, outcomes)
