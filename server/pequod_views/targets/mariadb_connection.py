"""Connections to a MariaDB: its address, the settings of a session, its errors, and statements with their arguments.

>>> address = parse_address("mariadb://views:secret@db.example/live")
>>> address.shown, address.port, address.database
('mariadb://db.example/live', 3306, 'live')
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT, CR, ER

from pequod.errors import PequodError
from pequod_views.errors import (
    TargetAwayError,
    TargetBusyError,
    TargetMissingError,
    TargetRefusedError,
    TargetUnfitError,
    ViewFileError,
)

#: SKIP LOCKED is there since this version.
_VERSION_MIN: Final = (10, 6)
_CONNECT_S: Final = 5
_STATEMENT_S: Final = 60
#: Statements of up to this many characters go in one message, so that none is larger than most servers take.
_MESSAGE_CHARACTERS: Final = 256 * 1024
#: Characters between two texts of a message.
_BETWEEN: Final = 2
# READ COMMITTED: each statement sees what is committed, as the fence needs it, and no gaps between keys are locked.
# SIMULTANEOUS_ASSIGNMENT: an UPDATE reads the columns as they were before it, as SQL has it. A transaction whose
# manager is silent for 20 s is rolled back, so that a dead machine keeps no locks.
_SESSION: Final = (
    "SET SESSION sql_mode = 'ANSI_QUOTES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,SIMULTANEOUS_ASSIGNMENT,"
    "STRICT_ALL_TABLES', time_zone = '+00:00', innodb_lock_wait_timeout = 10, lock_wait_timeout = 20,"
    " idle_transaction_timeout = 20, in_predicate_conversion_threshold = 0, autocommit = 0;"
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;"
    "SELECT @@max_allowed_packet"
)
#: Those of a server that has rolled back what was in the way of another transaction.
_BUSY: Final = frozenset({ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT})
#: Those of a server that is away, stops, starts, or is full for the moment: the same may work later.
_AWAY: Final = frozenset(
    {
        ER.CANT_CREATE_THREAD,
        ER.CON_COUNT_ERROR,
        ER.DISK_FULL,
        ER.ERROR_DURING_COMMIT,
        ER.LOCK_TABLE_FULL,
        ER.OPTION_PREVENTS_STATEMENT,
        ER.OUT_OF_RESOURCES,
        ER.QUERY_INTERRUPTED,
        ER.RECORD_FILE_FULL,
        ER.SERVER_SHUTDOWN,
        ER.TOO_MANY_USER_CONNECTIONS,
        ER.USER_LIMIT_REACHED,
        1047,  # a node of Galera that is not in its cluster
        1927,  # the connection was killed
        1969,  # max_statement_time
        4031,  # the client was silent for too long
        CR.CR_CONNECTION_ERROR,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_IPSOCK_ERROR,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_HANDSHAKE_ERR,
        CR.CR_SERVER_LOST,
        CR.CR_UNKNOWN_HOST,
    }
)
#: What goes wrong in a statement or on its way.
FAILURES: Final = (pymysql.MySQLError, OSError)


@dataclass(frozen=True, slots=True)
class MariadbAddress:
    """Where a database is, and who asks."""

    #: Without user and password, for messages.
    shown: str
    host: str
    port: int
    user: str | None
    password: str
    database: str
    #: The path of a Unix socket, in place of host and port.
    socket: str | None
    #: The certificate of those that sign the server's; with it the connection is encrypted.
    ca: str | None


def parse_address(name: str) -> MariadbAddress:
    """Return the parts of mariadb://USER:PASSWORD@HOST:PORT/NAME?socket=PATH&ca=PATH.

    Raises:
        ViewFileError: It is malformed, or names no database.
    """
    try:
        url = urlsplit(name)
        port = url.port or 3306
        settings = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
    except ValueError as error:
        raise ViewFileError("database", f"it is no address of a MariaDB: {error}") from None
    if unknown := settings.keys() - {"socket", "ca"}:
        raise ViewFileError("database", f"{min(unknown)!r} is no setting of a MariaDB; there are ca, socket")
    if (ca := settings.get("ca")) is not None and not Path(ca).is_file():
        raise ViewFileError("database", f"ca: {ca!r} is no file")
    database = unquote(url.path.removeprefix("/"))
    if not database or "/" in database:
        raise ViewFileError("database", "name one database of the MariaDB: mariadb://USER:PASSWORD@HOST/NAME")
    return MariadbAddress(
        f"mariadb://{url.netloc.rpartition('@')[2]}/{database}",
        url.hostname or "127.0.0.1",
        port,
        None if url.username is None else unquote(url.username),
        unquote(url.password or ""),
        database,
        settings.get("socket"),
        settings.get("ca"),
    )


def failure(name: str, error: Exception) -> PequodError:
    """Return what an error of a statement says: the database is away, or it refuses."""
    code = error.args[0] if isinstance(error, pymysql.MySQLError) and error.args else None
    reason = str(error.args[1] if len(error.args) > 1 else error) or type(error).__name__
    if code == ER.BAD_DB_ERROR:
        return TargetMissingError(name, "there is no such database; check its name")
    if code in _BUSY:
        return TargetBusyError(name, reason)
    if code in _AWAY or isinstance(error, OSError | pymysql.InterfaceError):
        return TargetAwayError(name, reason)
    return TargetRefusedError(name, reason)


class MariadbConnection:
    """A connection; its methods block, so they run in a thread, one at a time.

    Raises:
        TargetRefusedError: The server is no MariaDB, or one that is too old.
        pymysql.MySQLError, OSError: As everything here; see `failure`.
    """

    def __init__(self, address: MariadbAddress) -> None:
        self._name = address.shown
        self._raw = pymysql.Connection(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.database,
            ssl_ca=address.ca,
            charset="utf8mb4",
            # Counts rows that a statement finds, also those that are already as it would have them.
            client_flag=CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS,
            read_timeout=_CONNECT_S,
            write_timeout=_STATEMENT_S,
            program_name="pequod views",
            defer_connect=True,
        )
        try:
            self._raw.connect(_connected(address))
        except RuntimeError as error:
            # The way in which the user is to prove who it is needs a package that is not there.
            raise TargetUnfitError(self._name, str(error)) from error
        self._packet_bytes_max = 1 << 20
        try:
            self._prepare()
        except BaseException:
            self.cut()
            self.close()
            raise

    def _prepare(self) -> None:
        version: str = self._raw.get_server_info()  # type: ignore[no-untyped-call]
        # Old clients are told 5.5.5- first.
        found = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)\..*MariaDB", version)
        if found is None or (int(found[1]), int(found[2])) < _VERSION_MIN:
            wanted = ".".join(map(str, _VERSION_MIN))
            raise TargetUnfitError(self._name, f"it is {version}, and views need MariaDB {wanted} or a later one")
        ((self._packet_bytes_max,),) = self.run_all([_SESSION])[0]
        # From now on; a server that is stopped is known by its silence before.
        self._raw._read_timeout = _STATEMENT_S  # type: ignore[attr-defined]  # private

    def run_all(self, statements: Iterable[str]) -> list[list[tuple[Any, ...]]]:
        """Run statements in order, many in a message; return the rows of those that give rows."""
        return [rows for rows, _ in self._results(statements) if rows is not None]

    def count_all(self, statements: Iterable[str]) -> list[int]:
        """Run statements in order, many in a message; return how many rows each has found."""
        return [count for _, count in self._results(statements)]

    def _results(self, statements: Iterable[str]) -> Iterator[tuple[list[tuple[Any, ...]] | None, int]]:
        for group in grouped(statements):
            message = ";".join(group)
            size = len(message.encode(errors="surrogateescape"))
            if size >= self._packet_bytes_max:
                # The server would close the connection, and it would be taken for one that is away.
                raise TargetUnfitError(
                    self._name, f"a row of {size} bytes is larger than its max_allowed_packet, {self._packet_bytes_max}"
                )
            with self._raw.cursor() as cursor:
                cursor.execute(message)
                while True:
                    yield (None if cursor.description is None else list(cursor.fetchall())), cursor.rowcount
                    if not cursor.nextset():
                        break

    def cut(self) -> None:
        """Break the connection off, from whatever thread: a statement under way ends with an error."""
        raw = getattr(self._raw, "_sock", None)
        if raw is not None:
            with suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the server rolls back what it was doing."""
        with suppress(*FAILURES):
            self._raw.close()


def _connected(address: MariadbAddress) -> socket.socket:
    """Return a socket that is connected; the driver leaves one open if it cannot."""
    if address.socket is None:
        found = socket.create_connection((address.host, address.port), _CONNECT_S)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return found
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.settimeout(_CONNECT_S)
        found.connect(address.socket)
    except BaseException:
        found.close()
        raise
    return found


def literal(value: object) -> str:
    r"""Return a value as a statement has it.

    >>> print(literal("it's \\"), literal(b"k|"), literal(0.5), literal(True), literal(None))
    'it''s \\' x'6b7c' 0.5e0 1 NULL
    """
    match value:
        case None:
            return "NULL"
        case bool() | int():
            return str(int(value))
        case float():
            text = repr(value)
            return text if "e" in text else f"{text}e0"
        case bytes():
            return f"x'{value.hex()}'"
        case datetime():
            return f"'{value.isoformat(' ', 'microseconds')}'"
        case _:
            assert isinstance(value, str), f"no value of the ledger or of a column: {value!r}"
            text = value.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0")
            return f"'{text}'"


def bound(statement: str, arguments: Sequence[object]) -> str:
    """Return a statement with its arguments in the places of $1, $2, ...

    >>> bound("SELECT $2, $1, $2", [1, "a"])
    "SELECT 'a', 1, 'a'"
    """
    literals, pieces = list(map(literal, arguments)), _pieces(statement)
    return "".join(literals[int(piece) - 1] if at % 2 else piece for at, piece in enumerate(pieces))


@lru_cache(256)
def _pieces(statement: str) -> list[str]:
    """Return the text of a statement, and between its pieces the numbers of arguments."""
    return re.split(r"\$(\d+)", statement)


def grouped(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in groups that are as long as a message may be; one that is longer is a group of its own.

    >>> list(grouped(["one", "two"]))
    [['one', 'two']]
    """
    some, length = list[str](), 0
    for text in texts:
        if some and length + len(text) > _MESSAGE_CHARACTERS:
            yield some
            some, length = [], 0
        some.append(text)
        length += len(text) + _BETWEEN
    if some:
        yield some
