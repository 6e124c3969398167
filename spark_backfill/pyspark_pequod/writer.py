"""Writes of batches and of streams: each task reads all its rows, checks and sorts them, and then sends them.

    rows of a task --> packed, checked --> in key order, each key once --> messages of some thousand rows, 4 under way

A message is written whole or not at all. A task or a job is not: readers see its rows arrive. Putting a row again
changes nothing, so a task that Spark runs twice does no harm, and a failed job is simply run again.

A server that is restarted has lost what was written before. Each task reports which server took its rows, and the
commit checks that all tasks wrote to one server, and that this server still runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pequod_spark.connection import Connection, ServerChangedError
from pequod_spark.tasks import freeze_imports
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pequod.answers.rows import Rows
from pequod.client import AsyncClient
from pequod.errors import LimitExceededError, PequodError
from pyspark_pequod.packing import Packing, sorted_once

#: The limits of a message. Other calls wait while the server takes one in: a few ms.
ROWS_MAX: Final = 8192
BYTES_MAX: Final = 1 << 20
#: Messages under way at once, so that the server never waits for the next message.
WINDOW: Final = 4
#: For a task with a limit of rows a second: the number of messages in a second, so that other calls run between them.
_TURNS_PER_S: Final = 10


class RefusedError(PequodError):
    """The server refused rows of a task; some other rows of the task may be written."""

    def __init__(self, error: PequodError, row: str) -> None:
        super().__init__(
            f"{error}{row} (nothing of its message of up to {ROWS_MAX} rows is written, of others some may be; "
            "mend it and write again)"
        )


@dataclass(frozen=True, slots=True)
class Removal:
    """Keys to be removed."""

    keys: list[bytes]


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The result of a task that wrote."""

    row_count: int
    #: The server that took all rows; 0 if there were none.
    server_id: int = 0


class TaskWriter:
    """Writes the rows of one task; a null value removes its key.

    Args:
        rows_per_s: The greatest number of rows in a second; None for no limit.
    """

    def __init__(self, connection: Connection, packing: Packing, rows_per_s: int | None = None) -> None:
        self._connection = connection
        self._packing = packing
        self._rows_per_s = rows_per_s

    def write(self, batches: Iterator[Any]) -> Written:
        """Write the rows of a task, after all of them have been checked.

        Raises:
            ColumnError, RowError: A row cannot be written; no row was.
            RefusedError: The server refused some rows.
            ServerChangedError: The server was restarted meanwhile.
        """
        freeze_imports()
        staged = [self._packing.pack(batch) for batch in batches]
        if not sum(map(len, staged)):
            return Written(0)
        rows = sorted_once(staged)
        staged.clear()
        return Written(len(rows), asyncio.run(self._send(rows)))

    def refuse_changed(self, written: list[WriterCommitMessage | None]) -> None:
        """Check that one server has the rows of all tasks, and that it still runs; a cluster keeps them itself.

        Raises:
            ServerChangedError: It was restarted.
        """
        taken_by = {each.server_id for each in written if isinstance(each, Written) and each.row_count}
        if self._connection.is_of_cluster:
            return
        if taken_by and taken_by != {self._connection.server_id()}:
            raise self._changed()

    def _changed(self) -> ServerChangedError:
        return ServerChangedError(self._connection.target, "the write", "write again")

    async def _send(self, rows: Any) -> int:
        """Write rows and return the id of the server that took them."""
        rows_max = ROWS_MAX if self._rows_per_s is None else max(1, min(ROWS_MAX, self._rows_per_s // _TURNS_PER_S))
        waiting = _puts_and_removals(rows, rows_max)
        async with self._connection.async_client() as client:
            await client.joins()
            server_id = client.server_id
            clock = asyncio.get_running_loop().time
            due_s = clock()

            async def send() -> None:
                nonlocal due_s
                # Each sender takes the next message as soon as its last one is written.
                for message in waiting:
                    if self._rows_per_s is not None:
                        begin_s, due_s = due_s, max(due_s, clock()) + len(message.keys) / self._rows_per_s
                        await asyncio.sleep(begin_s - clock())
                    await _apply(client, message)
                    # A put that certainly was not applied is sent again, perhaps to the next server.
                    if client.server_id != server_id and not self._connection.is_of_cluster:
                        raise self._changed()

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(WINDOW):
                        group.create_task(send())
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
        return server_id


def _puts_and_removals(rows: Any, rows_max: int) -> Iterator[Rows | Removal]:
    values = rows.column("value")
    if values.null_count:
        removed = rows.column("key").filter(values.is_null())
        rows = rows.filter(values.is_valid())
        for start in range(0, len(removed), rows_max):
            yield Removal(removed.slice(start, rows_max).to_pylist())
    yield from messages(rows, rows_max)


def messages(rows: Any, rows_max: int = ROWS_MAX) -> Iterator[Rows]:
    """Cut rows into messages of at least one row."""
    for batch in rows.to_batches(max_chunksize=rows_max):
        todo = [batch]
        while todo:
            piece = todo.pop()
            keys, values = (piece.column(name) for name in ("key", "value"))
            if piece.num_rows > 1 and piece.nbytes > BYTES_MAX:
                middle = piece.num_rows // 2
                todo += [piece.slice(middle), piece.slice(0, middle)]
            else:
                yield Rows(keys.to_pylist(), values.to_pylist())


async def _apply(client: AsyncClient, message: Rows | Removal) -> None:
    try:
        if isinstance(message, Removal):
            await _remove(client, message.keys)
        else:
            await client.multi_put(message)
    except LimitExceededError as error:
        # The server names its limit; here is the row that is above it.
        columns = {"key_bytes_max": message.keys, "value_bytes_max": getattr(message, "values", [])}
        sizes = columns.get(error.setting, [])
        longest = max(range(len(sizes)), key=lambda at: len(sizes[at]), default=None)
        row = "" if longest is None else f", the key {message.keys[longest]!r:.200}"
        raise RefusedError(error, row) from None
    except PequodError as error:
        raise RefusedError(error, "") from None


async def _remove(client: AsyncClient, keys: list[bytes]) -> None:
    batch = client.batch()
    for key in keys:
        batch.remove(key)
    for result in await batch.send():
        if isinstance(result, PequodError):
            raise result


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, task: TaskWriter) -> None:
        self._task = task

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of a task."""
        return self._task.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check that the rows of all tasks are still there."""
        self._task.refuse_changed(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the rows stay, and the next attempt puts the same rows."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream; a batch that Spark repeats puts the same rows."""

    def __init__(self, task: TaskWriter) -> None:
        self._task = task

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of a task."""
        return self._task.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Check that the rows of all tasks are still there."""
        self._task.refuse_changed(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Do nothing: the batch will be written again."""
