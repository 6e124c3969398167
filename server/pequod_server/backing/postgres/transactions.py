"""Transactions that write to PostgreSQL: what is tried again, and which errors are the database's refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import asyncpg

from pequod_server.backing.errors import WriteRefusedError
from pequod_server.backing.postgres.history import place
from pequod_server.backing.postgres.schema import Connection, Facts
from pequod_server.backing.postgres.session import PostgresSession
from pequod_server.backing.store import Place

T = TypeVar("T")
#: If a write meets a row that was inserted a moment ago, it is tried again.
_ATTEMPTS: Final = 3
_LOCK: Final = "SELECT count(pg_advisory_lock(number)) FROM unnest($1::bigint[]) AS number"


class OneByOneError(Exception):
    """Rows are missing after they have been written: a condition refused them, or they were deleted meanwhile."""


class _ConflictError(Exception):
    """Another writer was faster. The session would take it for a database that is away."""


async def in_transaction(
    session: PostgresSession, work: Callable[[Connection, Facts, int], Awaitable[T]], locks: Sequence[int] | None = None
) -> tuple[Place, T]:
    """Do work in a transaction, again after a conflict; return a place behind it, and what the work returns.

    Args:
        work: Takes the number of the attempt, from 0.
        locks: Of one snapshot, which is taken once these locks are held, in their order; None: each statement of the
            transaction sees what is committed by then.
    """
    for attempt in range(_ATTEMPTS):
        try:
            async with session.connection() as connection:
                facts = await session.facts(connection)
                if locks:
                    # The pool lets go of them when it takes the connection back, also if this is cancelled.
                    await connection.execute(_LOCK, locks)
                try:
                    async with connection.transaction(isolation=None if locks is None else "repeatable_read"):
                        found = await work(connection, facts, attempt)
                except asyncpg.TransactionRollbackError as error:
                    raise _ConflictError(_primary(error)) from error
                return await place(connection), found
        except OneByOneError:
            continue
        except (asyncpg.UniqueViolationError, _ConflictError) as error:
            if attempt + 1 == _ATTEMPTS:
                raise WriteRefusedError(session.name, _primary(error)) from error
        except (
            asyncpg.IntegrityConstraintViolationError,
            asyncpg.DataError,
            asyncpg.RaiseError,
            asyncpg.ProgramLimitExceededError,
        ) as error:
            raise WriteRefusedError(session.name, _primary(error)) from error
    raise AssertionError("the last attempt returns or raises")


def _primary(error: asyncpg.PostgresError | _ConflictError) -> str:
    """Return the error's text with the name of a constraint, and without the detail, which may show other rows."""
    return str(error.args[0]) if error.args else type(error).__name__
