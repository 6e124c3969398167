"""What a watch knows of a range, and whether the checksum of its rows in a table is the same."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable
from typing import Final

from pequod.client.watch_ranges import RangesEvent
from pequod_views.definition import DurableView, TableRow
from pequod_views.errors import UnfitError, UnverifiableError
from pequod_views.parts import ViewPart
from pequod_views.targets import Target

PROGRESS_S: Final = 0.2
CUT_ANEW: Final = "it was cut anew or split meanwhile; verify again"
#: Positions at which a sum is looked for. Where a key changes all the time, the watch is beyond each of them.
_TRIES: Final = 5


class WatchedRows:
    """The rows of a range as a watch shows them, with the revisions of their last changes.

    Args:
        number: That of the range in the watch.

    Invariants:
        1. ``rows`` is the range as of ``revision``; a key that is not in ``_changed`` has been so since ``begun``.
    """

    def __init__(self, number: int, begin: RangesEvent, events: AsyncGenerator[RangesEvent]) -> None:
        found = begin.rows.get(number)
        self._number = number
        self.rows: dict[bytes, bytes] = {} if found is None else dict(zip(found.keys, found.values, strict=True))
        #: What `RangeSums` has computed of rows; None of one that is no row of the view.
        self.digests: dict[bytes, int | None] = {}
        self.server_id = begin.server_id
        self.revision = self.begun = begin.revision
        self._events = events
        self._changed: dict[bytes, int] = {}
        #: The keys of the beginning, in order, and those that came later.
        self._first_keys = sorted(self.rows)
        self._later_keys: set[bytes] = set()

    async def come_to(self, revision: int) -> None:
        """Take events until one shows a revision."""
        while self.revision < revision:
            event = await anext(self._events)
            if event.ended:
                raise UnverifiableError(next(iter(event.ended.values())))
            for key, _, new in event.changes.get(self._number, ()):
                self.digests.pop(key, None)
                self._changed[key] = event.revision
                if new is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = new
                    self._later_keys.add(key)
            self.revision = event.revision

    def bounds(self, count: int) -> list[bytes]:
        """Return every ``count``-th key of the beginning, but the first."""
        return self._first_keys[count::count]

    def is_known_within(self, start: bytes, stop: bytes | None, revision: int) -> bool:
        """Return whether all keys of ``[start, stop)`` had at a revision the values that they have now."""
        return not any(
            at > revision and key >= start and (stop is None or key < stop) for key, at in self._changed.items()
        )

    def is_known_at(self, key: bytes, revision: int) -> bool:
        """Return whether a key had at a revision, to which this has come, the value that it has now."""
        return self._changed.get(key, self.begun) <= revision

    def keys_within(self, start: bytes, stop: bytes | None) -> set[bytes]:
        """Return the keys of ``[start, stop)``."""
        last = len(self._first_keys) if stop is None else bisect_left(self._first_keys, stop)
        some = {key for key in self._later_keys if key >= start and (stop is None or key < stop)}
        some.update(self._first_keys[bisect_left(self._first_keys, start) : last])
        return some & self.rows.keys()


class RangeSums:
    """Compares checksums of ranges of a part.

    Args:
        digest: Of a row as the database computes it.
    """

    def __init__(
        self,
        target: Target,
        view: DurableView,
        part: ViewPart,
        watched: WatchedRows,
        digest: Callable[[TableRow], int],
    ) -> None:
        self._target = target
        self._view = view
        self._part = part
        self._watched = watched
        self._digest = digest

    async def row_count_if_equal(self, start: bytes, stop: bytes | None) -> int | None:
        """Return the number of rows of a range if their sum is what it has to be at a position, else None.

        Raises:
            UnverifiableError: The part was cut anew or split.
        """
        tries = 0
        while tries < _TRIES:
            async with self._target.transaction() as transaction:
                found = await transaction.sum_of(self._view, self._part, start, stop)
            if found is None:
                raise UnverifiableError(CUT_ANEW)
            if not has_come(found.server_id, found.revision, self._watched):
                await asyncio.sleep(PROGRESS_S)
                continue
            await self._watched.come_to(found.revision)
            if self._watched.is_known_within(start, stop, found.revision):
                is_equal = (found.row_count, found.digest) == self._sum(start, stop)
                return found.row_count if is_equal else None
            tries += 1
        return None

    def _sum(self, start: bytes, stop: bytes | None) -> tuple[int, int]:
        """Return the number of rows of a range as the watch knows them, and the sum of their digests."""
        count, total, digests = 0, 0, self._watched.digests
        for key in self._watched.keys_within(start, stop):
            if key not in digests:
                row = row_of(self._view, key, self._watched.rows[key])
                digests[key] = None if row is None else self._digest(row)
            digest = digests[key]
            if digest is not None:
                count, total = count + 1, total + digest
        return count, total


def has_come(server_id: str, revision: int, watched: WatchedRows) -> bool:
    """Return whether a part is as far as the watch was when it began."""
    return server_id == f"{watched.server_id:016x}" and revision >= watched.begun


def row_of(view: DurableView, key: bytes, value: bytes | None) -> TableRow | None:
    """Return the row of the table for a row of the server; None if there is none."""
    try:
        return None if value is None else view.row(key, value)
    except UnfitError:
        return None
