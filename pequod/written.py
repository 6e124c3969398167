"""The token of what a program has written to the database itself, around the cache.

    connection.commit()
    token = pequod.token_of(connection)                    psycopg, psycopg2, sqlite3
    token = await pequod.token_of(connection)              asyncpg, psycopg's AsyncConnection

    client.get(key, freshness=pequod.after(token))         shows the commit, at every server beside the database

No driver is imported here: a connection is known by its methods.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Final, Protocol, overload

from pequod.errors import SchemaError
from pequod.freshness import POSTGRES_STATE, SQLITE_STATE, Token, postgres_token, sqlite_token

#: No transaction is open: the same number in psycopg and psycopg2.
_IDLE: Final = 0


class AwaitedConnection(Protocol):
    """A connection of asyncpg, or an asynchronous one of psycopg."""

    async def close(self) -> None:
        """Close it."""


class WaitedConnection(Protocol):
    """A connection of psycopg, psycopg2 or sqlite3."""

    def close(self) -> None:
        """Close it."""


@overload
def token_of(connection: AwaitedConnection) -> Awaitable[Token]: ...


@overload
def token_of(connection: WaitedConnection) -> Token: ...


def token_of(connection: Any) -> Token | Awaitable[Token]:
    """Return a token of the state that a commit has just left: reads after it show the commit.

    Args:
        connection: Of asyncpg or psycopg, to PostgreSQL's primary, or of psycopg2 or sqlite3. Its last transaction has
            ended; nothing is left open on it.

    Returns:
        The token; for connections whose calls are awaited, an awaitable of it.

    Raises:
        ValueError: A transaction is open, so that the token would not cover it.
        SchemaError: Pequod is not installed in the SQLite database.
        TypeError: It is no such connection.

    Ensures:
        Errors of the driver come as they are, such as that of a standby, which has no position of its own. The token
        covers commits with ``synchronous_commit = off`` if the session has that setting, not one transaction alone.
    """
    if isinstance(connection, sqlite3.Connection):
        return _of_sqlite(connection)
    if hasattr(connection, "fetchrow"):
        return _of_asyncpg(connection)
    if hasattr(connection, "get_transaction_status"):
        extensions = import_module("psycopg2.extensions")
        _refuse_open(connection.get_transaction_status() != _IDLE)
        return _of_psycopg(connection, connection.cursor(cursor_factory=extensions.cursor))
    if hasattr(connection, "pgconn"):
        _refuse_open(connection.info.transaction_status != _IDLE)
        cursor = connection.cursor(row_factory=import_module("psycopg.rows").tuple_row)
        return (
            _of_awaited(connection, cursor)
            if iscoroutinefunction(connection.rollback)
            else _of_psycopg(connection, cursor)
        )
    raise TypeError(f"{type(connection).__name__} is no connection of asyncpg, psycopg, psycopg2 or sqlite3")


async def _of_asyncpg(connection: Any) -> Token:
    _refuse_open(connection.is_in_transaction())
    return postgres_token(*await connection.fetchrow(POSTGRES_STATE))


def _of_psycopg(connection: Any, cursor: Any) -> Token:
    try:
        with cursor:
            cursor.execute(POSTGRES_STATE)
            return postgres_token(*cursor.fetchone())
    finally:
        # The statement began a transaction, unless the connection commits by itself.
        connection.rollback()


async def _of_awaited(connection: Any, cursor: Any) -> Token:
    try:
        async with cursor:
            await cursor.execute(POSTGRES_STATE)
            return postgres_token(*await cursor.fetchone())
    finally:
        await connection.rollback()


def _of_sqlite(connection: sqlite3.Connection) -> Token:
    _refuse_open(connection.in_transaction)
    cursor = connection.cursor()
    cursor.row_factory = None
    try:
        file_id, position = cursor.execute(SQLITE_STATE).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        file_id, position = None, None
    finally:
        cursor.close()
    if file_id is None:
        raise SchemaError("the SQLite database", ["nothing counts its changes: run `pequod backing install`"])
    return sqlite_token(file_id, position)


def _refuse_open(is_open: bool) -> None:  # noqa: FBT001 - the answer of a driver
    if is_open:
        raise ValueError("a transaction is open on this connection: commit it, then ask for the token")
