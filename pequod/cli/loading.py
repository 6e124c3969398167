"""Rows to a server: puts in batches, several of them under way, and the result of each.

rows --> batch being filled --> [under way, under way, ...] --> stored, refused, computed
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final

from pequod.cli.rowfiles import BadRow, FileError, Row
from pequod.client import Client, Results
from pequod.errors import ComputedKeyError, InvalidTtlError, PequodError

#: The number of failed rows that are kept to be shown; all are counted.
SHOWN_MAX: Final = 10
#: A batch is sent when its rows have this many bytes, even if they are few.
_BATCH_BYTES_MAX: Final = 1 << 20


class RowLoader:
    """Writes rows to a server.

    Args:
        rows_max: Rows a batch.
        window: Batches under way at once.
        skip_computed: Count rows that a join computes separately, instead of as refused.

    Invariants:
        1. Each row that was put is in the batch, under way, or counted in one of ``stored``, ``computed``, ``refused``.
    """

    def __init__(self, client: Client, *, rows_max: int, window: int, skip_computed: bool) -> None:
        self._batch = client.batch()
        self._places: list[int] = []
        self._bytes = 0
        self._under_way: deque[tuple[Future[Results], list[int]]] = deque()
        self._rows_max = rows_max
        self._window = window
        self._skip_computed = skip_computed
        self.stored = self.computed = self.refused = self.malformed = self.expired = 0
        #: The first failed rows.
        self.problems: list[BadRow] = []

    def load(self, rows: Iterable[Row | BadRow], sent: Callable[[int], None], *, skip_bad: bool) -> None:
        """Write rows in their order.

        Args:
            sent: Called after each batch with the number of rows so far.
            skip_bad: Count rows that cannot be read, and continue.

        Raises:
            FileError: The file, or with ``bad`` a row of it, cannot be read. Batches that were sent are written, the
                batch that was being filled is not.
            PequodError: A batch failed as a whole; whether the batches under way are written is unknown.
        """
        try:
            for row in rows:
                if isinstance(row, Row):
                    if self._put(row):
                        sent(self.stored + self.computed + self.refused)
                elif skip_bad:
                    self.malformed += 1
                    self._note(row)
                else:
                    raise FileError(row.reason, row)  # noqa: TRY301 - the file's own errors end here as well
        except FileError:
            self._settle(0)
            raise
        if self._places:
            self._send()
        self._settle(0)
        sent(self.stored + self.computed + self.refused)

    @property
    def unsent_place(self) -> int | None:
        """The place of the first row that was put and not sent."""
        return self._places[0] if self._places else None

    def _put(self, row: Row) -> bool:
        """Take a row, unless it has expired; return whether a batch was sent."""
        ttl_s = row.expires_ms / 1000 - time.time() if row.expires_ms else None
        if ttl_s is not None and ttl_s <= 0:
            self.expired += 1
            return False
        try:
            self._batch.put(row.key, row.value, ttl_s=ttl_s)
        except InvalidTtlError as error:
            self.refused += 1
            self._note(BadRow(row.place, str(error)))
            return False
        self._places.append(row.place)
        self._bytes += len(row.key) + len(row.value)
        if len(self._places) < self._rows_max and self._bytes < _BATCH_BYTES_MAX:
            return False
        self._send()
        self._settle(self._window - 1)
        return True

    def _send(self) -> None:
        self._under_way.append((self._batch.send_nowait(), self._places))
        self._places, self._bytes = [], 0

    def _settle(self, window: int) -> None:
        """Wait until no more than ``window`` batches are under way."""
        while len(self._under_way) > window:
            future, places = self._under_way.popleft()
            for place, result in zip(places, future.result(), strict=True):
                if not isinstance(result, PequodError):
                    self.stored += 1
                elif self._skip_computed and isinstance(result, ComputedKeyError):
                    self.computed += 1
                else:
                    self.refused += 1
                    self._note(BadRow(place, str(result)))

    def _note(self, problem: BadRow) -> None:
        if len(self.problems) < SHOWN_MAX:
            self.problems.append(problem)
