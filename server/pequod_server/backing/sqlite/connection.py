"""A connection to a SQLite file, in a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from pequod_server.backing.errors import BackingUnavailableError
from pequod_server.backing.health import FeedBrokenError
from pequod_server.backing.sqlite.dialect import BYTES_OF
from pequod_server.backing.values import bytes_of

P = ParamSpec("P")
T = TypeVar("T")


class SqliteConnection:
    """One connection, used in one thread, and opened again when the file was replaced."""

    def __init__(self, path: Path, *, is_feed: bool = False) -> None:
        self._path = path
        self._is_feed = is_feed
        self._thread = ThreadPoolExecutor(1, "pequod-sqlite")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    async def run(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` with the connection in the thread.

        Raises:
            BackingUnavailableError: The file does not exist or is locked, or the disk fails.
            FeedBrokenError: The file was replaced.
        """
        name = f"sqlite:{self._path}"

        def guarded() -> T:
            try:
                return work(self._open(), *args, **kwargs)
            except (sqlite3.OperationalError, sqlite3.DatabaseError, OSError) as error:
                self._drop()
                raise BackingUnavailableError(name, str(error)) from error

        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, guarded)
        except RuntimeError as error:
            raise BackingUnavailableError(name, "the store has been closed") from error

    async def rollback(self) -> None:
        """End the transaction of earlier work, if there is one; the next work checks the file."""

        def rollback() -> None:
            if self._connection is not None:
                try:
                    self._connection.rollback()
                except sqlite3.Error:
                    self._drop()

        with suppress(RuntimeError):
            await asyncio.get_running_loop().run_in_executor(self._thread, rollback)

    async def close(self) -> None:
        """Close the connection and end the thread, after its present work."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        except RuntimeError:
            return
        self._thread.shutdown(wait=False)

    def _open(self) -> sqlite3.Connection:
        found = self._path.stat()
        file = (found.st_dev, found.st_ino)
        if self._file not in {None, file}:
            self._drop()
            self._file = file
            if self._is_feed:
                raise FeedBrokenError("the file has been replaced", is_lost=True)
        if self._connection is None:
            self._connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=5.0
            )
            self._connection.text_factory = _text
            self._connection.create_function(BYTES_OF, 1, bytes_of, deterministic=True)
            self._file = file
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "DEFERRED") -> Iterator[None]:
    """Commit what the block does, or roll it back if it raises."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
