"""One range of a stream, followed by a watch in a thread of the driver.

    the watch --> rows, change, change, change ...          kept here until a batch takes them
                  |----- a batch ----|- the next one ...    each as large as its budget

A restarted query goes on after the place where it was: the server tells the changes after a revision again, as long as
it keeps them. Rows that were not read yet are read again, and the changes since their revision are undone.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pequod_spark.connection import Connection

from pequod.answers.changes import Change
from pequod.calls import WatchEvent
from pequod.errors import ClosedError, PequodError, UnavailableError, WatchCompactedError
from pyspark_pequod.limits import Budget
from pyspark_pequod.narrowing import Bounds
from pyspark_pequod.places import Place
from pyspark_pequod.told import SCHEMA, change_sizes, changes_told, row_sizes, rows_told

#: Changes that may wait for batches; beyond this the server keeps them, within its limit.
_CHANGES_MAX: Final = 1_000_000


class FollowedRange:
    """A range and what was told of it, but not taken.

    Args:
        place: Where to go on; None begins with the rows.
        begun: How often the range has been begun, with this time.
        progress_s: After this time without changes, the server says that there were none.

    Invariants:
        1. ``_waiting`` has the changes that follow on ``place``, the first ``_into`` of its first event left out.
        2. ``_rows`` has the rows from the place's key on, as of its revision; None if all rows were taken.

    Raises:
        WatchCompactedError: From any method: the server does not have the changes any more.
        UnavailableError: From any method: the server cannot be reached.
    """

    def __init__(
        self, connection: Connection, bounds: Bounds, place: Place | None, *, begun: int = 1, progress_s: float = 0.5
    ) -> None:
        self._connection = connection
        self._bounds = bounds
        self._client = connection.client()
        self._news = threading.Condition()
        self._waiting: deque[tuple[int, list[Change]]] = deque()
        self._waiting_count = 0
        self._into = 0
        self._first: WatchEvent | None = None
        #: All changes up to this revision are here, or were taken; below 0 before the first event.
        self.seen = -1
        self._ended: PequodError | None = None
        self._is_closed = False
        #: While rows are waiting, changes wait without a limit: the next batches are rows.
        self._has_rows = place is None or place.key is not None
        after = None if place is None else WatchEvent(place.revision, [], server_id=place.server_id)
        thread = threading.Thread(target=self._run, args=(after, progress_s), name="pequod stream", daemon=True)
        thread.start()
        try:
            first = self._begun()
            #: Up to where it was taken.
            self.place: Place = place or Place(first.server_id, first.revision, bounds[0], begun=begun)
            self._rows: Any = None
            if place is None:
                assert first.rows is not None
                self._rows = rows_told(*first.rows, first.revision)
            elif place.key is not None:
                self._rows = self._rows_again(place, place.key)
            self._skip(self.place.taken)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the watch."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        self._client.close()

    def _run(self, after: WatchEvent | None, progress_s: float) -> None:
        ended: PequodError = UnavailableError(self._connection.target, "the watch ended")
        try:
            watch = self._client.watch(*self._bounds, rows=after is None, after=after, progress_s=progress_s)
            with closing(watch) as events:
                for event in events:
                    self._note(event)
                    # It may have many rows, and the next one may take long.
                    del event
                    if self._is_closed:
                        return
        except ClosedError:
            pass
        except PequodError as error:
            ended = error
        finally:
            with self._news:
                self._ended = ended
                self._news.notify_all()

    def _note(self, event: WatchEvent) -> None:
        with self._news:
            if self.seen < 0:
                self._first = event
            if event.changes:
                self._waiting.append((event.revision, event.changes))
                self._waiting_count += len(event.changes)
            self.seen = max(self.seen, event.revision)
            self._news.notify_all()
            while self._waiting_count > _CHANGES_MAX and not self._has_rows and not self._is_closed:
                self._news.wait()

    def _until(self, is_so: Callable[[], bool], wait_s: float | None = None) -> None:
        """Wait until something is so.

        Raises:
            PequodError: The watch ended before.
            UnavailableError: It took longer.
        """
        until_s = None if wait_s is None else time.monotonic() + wait_s
        with self._news:
            while not is_so():
                if self._ended is not None:
                    raise self._ended
                left_s = None if until_s is None else until_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise UnavailableError(self._connection.target, f"the watch told nothing for {wait_s:g} s")
                self._news.wait(left_s)

    def _begun(self) -> WatchEvent:
        """Return the first event."""
        self._until(lambda: self._first is not None)
        first, self._first = self._first, None
        assert first is not None
        return first

    def wait_for(self, revision: int) -> None:
        """Wait until all changes up to a revision are here."""
        self._until(lambda: self.seen >= revision, self._connection.timeout_s)

    def take(self, budget: Budget, last: int | None = None) -> Any:
        """Return a table of what comes next, as much as the budget allows, and move the place on.

        Args:
            last: Take no changes after this revision; None: whatever is here.
        """
        if self._rows is not None:
            most = self._rows if budget.rows is None else self._rows.slice(0, budget.rows)
            return self._take_rows(budget.admit(row_sizes(most)))
        taken: list[tuple[int, list[Change]]] = []
        with self._news:
            if not self._waiting and self._ended is not None:
                raise self._ended
            while self._waiting and not budget.is_spent and (last is None or self._waiting[0][0] <= last):
                rest = self._waiting[0][1][self._into :]
                count = budget.admit(change_sizes(rest))
                if not count:
                    break
                taken.append(self._take_changes(count))
            self._news.notify_all()
        return changes_told(taken)

    def take_until(self, end: Place) -> Any:
        """Return what came between the place and another one, and move there.

        Raises:
            WatchCompactedError: The server does not tell exactly this again.
        """
        found = [SCHEMA.empty_table()]
        while self.place != end:
            if self._rows is not None:
                keys = self._rows["key"].to_pylist()
                found.append(self._take_rows(len(keys) if end.key is None else bisect_left(keys, end.key)))
                if self._rows is not None and self.place != end:
                    raise _untold()
                continue
            self._until(lambda: bool(self._waiting) or self.seen > end.revision, self._connection.timeout_s)
            with self._news:
                revision, changes = self._waiting[0] if self._waiting else (self.seen, [])
                if changes and revision <= end.revision:
                    count = len(changes) - self._into
                elif changes and self.place.revision == end.revision:
                    count = min(len(changes) - self._into, end.taken - self.place.taken)
                else:
                    count = 0
                if count <= 0:
                    raise _untold()
                found.append(changes_told([self._take_changes(count)]))
                self._news.notify_all()
        return pa.concat_tables(found)

    def _take_rows(self, count: int) -> Any:
        assert self._rows is not None
        taken, rest = self._rows.slice(0, count), self._rows.slice(count)
        if len(rest):
            self._rows = rest
            self.place = replace(self.place, key=rest["key"][0].as_py())
            return taken
        self._rows = None
        self.place = replace(self.place, key=None)
        with self._news:
            self._has_rows = False
        return taken

    def _take_changes(self, count: int) -> tuple[int, list[Change]]:
        """Take the next changes, all of one event. The caller has the lock."""
        revision, changes = self._waiting[0]
        start, self._into = self._into, self._into + count
        if self._into == len(changes):
            self._waiting.popleft()
            self._waiting_count -= len(changes)
            self._into = 0
            self.place = replace(self.place, revision=revision, taken=0)
        else:
            self.place = replace(self.place, taken=self.place.taken + count)
        return revision, changes[start : start + count]

    def _skip(self, taken: int) -> None:
        """Leave out changes that were taken before the query was restarted."""
        if not taken:
            return
        self._until(lambda: self._waiting_count >= taken, self._connection.timeout_s)
        with self._news:
            while taken >= len(self._waiting[0][1]):
                gone = len(self._waiting.popleft()[1])
                taken -= gone
                self._waiting_count -= gone
            self._into = taken

    def _rows_again(self, place: Place, first: bytes) -> Any:
        """Return the rows from a key on, as they were at the place's revision: later changes are undone."""
        keys, values = list[bytes](), list[bytes]()
        with self._connection.client() as client:
            for rows in client.scan_chunks(first, self._bounds[1]):
                keys += rows.keys
                values += rows.values
            client.joins()
            if client.server_id != place.server_id:
                raise WatchCompactedError("the server was started anew, or another one answers")
            self.wait_for(client.revision)
        before: dict[bytes, bytes | None] = {}
        with self._news:
            for _, changes in self._waiting:
                for key, old, _ in changes:
                    if key >= first:
                        before.setdefault(key, old)
        rows_then = dict(zip(keys, values, strict=True))
        for key, value in before.items():
            if value is None:
                rows_then.pop(key, None)
            else:
                rows_then[key] = value
        keys = sorted(rows_then)
        return rows_told(keys, [rows_then[key] for key in keys], place.revision)


def _untold() -> WatchCompactedError:
    return WatchCompactedError("the server does not tell the changes of a batch again")
