"""Streaming reads: the rows of a range first, then its changes as they happen, by a watch.

    offset   {}              {server_id, revision}           {server_id, revision}
    read        the rows              changes                       changes

A watch runs in a thread beside the query; each batch takes the changes that the watch has delivered so far. After a
restart of the query, the server is asked for the changes after the last offset. If it does not have them any more, the
query fails or, if the option says so, begins again with all rows.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, Final, TypedDict

from pequod_spark.connection import Connection
from pyspark.sql.datasource import SimpleDataSourceStreamReader

from pequod.answers.rows import Rows
from pequod.calls import WatchEvent
from pequod.errors import ClosedError, PequodError, WatchCompactedError
from pyspark_pequod.columns import RowColumns

#: Events that may wait for the next batch. The thread reads no more; the server keeps further events within its limit.
_EVENTS_MAX: Final = 10_000


class Offset(TypedDict, total=False):
    """The state at the end of a batch; empty before the first batch."""

    server_id: int
    revision: int


class StreamReader(SimpleDataSourceStreamReader):
    """Reads the changes of a range.

    Args:
        starts_anew: Give all rows again, instead of failing, if the server does not have the changes any more.
    """

    def __init__(
        self, connection: Connection, columns: RowColumns, first: bytes, last: bytes | None, *, starts_anew: bool
    ) -> None:
        self._connection = connection
        self._columns = columns
        self._bounds = first, last
        self._starts_anew = starts_anew
        self._watching: _Watching | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Begin with the rows of the range."""
        return {}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        """Return what happened since ``start``, and the offset at which it ends."""
        if self._watching is None:
            self._watching = self._watch(start)
        try:
            events = self._watching.take()
        except WatchCompactedError:
            if not self._starts_anew:
                raise
            self._watching.close()
            self._watching = self._watch({})
            events = self._watching.take()
        if not any(event.changes or event.rows is not None for event in events):
            return iter(()), start
        end = Offset(server_id=events[-1].server_id, revision=events[-1].revision)
        return iter(self._rows(events)), dict(end)

    def readBetweenOffsets(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[tuple[Any, ...]]:
        """Return what happened in a batch that was planned before the query was restarted.

        Raises:
            WatchCompactedError: The server does not have these changes any more; also for the first batch, since its
                rows were those of a moment that is gone.
        """
        try:
            events = self._again(start, end["revision"])
        except WatchCompactedError:
            if not self._starts_anew:
                raise
            with closing(self._watch({})) as watching:
                events = watching.take()
        return iter(self._rows(events))

    def _again(self, start: dict[str, Any], revision: int) -> list[WatchEvent]:
        """Return the rows of a batch that ended at a revision, which was complete."""
        if not start:
            raise WatchCompactedError("the rows of the first batch are of a moment that is gone")
        events: list[WatchEvent] = []
        with closing(self._watch(start)) as watching:
            while not events or events[-1].revision < revision:
                told = watching.take(wait=True)
                if not told:
                    raise WatchCompactedError("the server does not tell the changes of a batch again")
                events += told
        return [event for event in events if event.revision <= revision]

    def _watch(self, start: dict[str, Any]) -> _Watching:
        after = WatchEvent(start["revision"], [], server_id=start["server_id"]) if start else None
        return _Watching(self._connection, self._bounds, after)

    def _rows(self, events: list[WatchEvent]) -> list[tuple[Any, ...]]:
        found: dict[str, list[Any]] = {"key": [], "value": [], "old": [], "revision": []}
        for event in events:
            rows = event.rows or Rows([], [])
            found["key"] += rows.keys + [change.key for change in event.changes]
            found["value"] += rows.values + [change.new for change in event.changes]
            found["old"] += [None for _ in rows.keys] + [change.old for change in event.changes]
            found["revision"] += [event.revision] * (len(rows.keys) + len(event.changes))
        batch = self._columns.batch_of(found)
        return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


class _Watching:
    """A watch in a thread, and the events that it has delivered."""

    def __init__(self, connection: Connection, bounds: tuple[bytes, bytes | None], after: WatchEvent | None) -> None:
        self._client = connection.client()
        self._events: queue.Queue[WatchEvent | PequodError] = queue.Queue(_EVENTS_MAX)
        self._wait_s = connection.timeout_s
        self._is_first = True
        self._is_closed = False
        thread = threading.Thread(target=self._run, args=(bounds, after), name="pequod stream", daemon=True)
        thread.start()

    def _run(self, bounds: tuple[bytes, bytes | None], after: WatchEvent | None) -> None:
        try:
            with closing(self._client.watch(*bounds, rows=after is None, after=after)) as events:
                for event in events:
                    self._events.put(event)
                    if self._is_closed:
                        return
        except ClosedError:
            pass
        except PequodError as error:
            self._events.put(error)

    def take(self, *, wait: bool = False) -> list[WatchEvent]:
        """Return the events since the last call; wait for one at the first call, and if the caller asks for it.

        Raises:
            PequodError: The watch ended, and all its events were taken.
        """
        taken: list[WatchEvent] = []
        is_waiting = wait or self._is_first
        self._is_first = False
        with suppress(queue.Empty):
            while True:
                event = self._events.get(block=is_waiting and not taken, timeout=self._wait_s)
                if isinstance(event, PequodError):
                    if not taken:
                        raise event
                    self._events.put(event)
                    break
                taken.append(event)
        return taken

    def close(self) -> None:
        """End the watch."""
        self._is_closed = True
        with suppress(queue.Empty):
            while True:
                self._events.get_nowait()
        self._client.close()
