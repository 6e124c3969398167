"""Takes the rows of loads into the engine, in slices.

small ranges   [p|bob|] [p|liz|] [p|eve|]                 together: to weigh the memory takes longer
a large range  [p|dan| ......][ part ][ part ][ part ]    each part may be read once it is in
searches       [ rows ][ rows ]                           those that they show; noted as searched at the end
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from pequod.engine import Engine, LimitExceededError, Loadable, Range, RangeRows, SearchRange
from pequod_server.backing.landing import RowList
from pequod_server.backing.turns import SLICE_S, Turns
from pequod_server.database.counters import DatabaseCounters

#: Ranges for which there was no memory.
Refused = dict[Loadable, LimitExceededError]

NO_DEADLINES: Final[Mapping[bytes, int]] = {}
#: Rows of a search that are examined between two looks at the clock: 0.3 ms.
_LOOKED_AT: Final = 128
#: Rows of a load that go into the engine at a time, at first and at most; fewer if each changes many contexts.
_ROWS_FIRST: Final = 64
_ROWS_MAX: Final = 512
#: Small ranges that go into the engine together.
_RANGES_MAX: Final = 64


class Arrivals:
    """Takes the rows of one load at a time into an engine.

    Invariants:
        1. ``partial`` is the range of which a part is in, while there is one.
    """

    __slots__ = ("_counters", "_deadlines", "_engine", "partial")

    def __init__(self, engine: Engine, counters: DatabaseCounters) -> None:
        self._engine = engine
        self._counters = counters
        #: Of the rows of the load.
        self._deadlines: Mapping[bytes, int] = NO_DEADLINES
        #: A read that lacks some of it waits for its load.
        self.partial: Range | None = None

    async def take(
        self,
        ranges: Sequence[Range],
        searches: Sequence[SearchRange],
        rows: RowList,
        turns: Turns,
        deadlines: Mapping[bytes, int] = NO_DEADLINES,
    ) -> Refused:
        """Take in the rows of ranges and searches, and free them; return those for which there is no memory.

        Args:
            rows: All of them, in the order of their keys.
            deadlines: Of those that expire.
        """
        self._deadlines = deadlines
        refused: Refused = {}
        small: list[RangeRows] = []
        small_rows = 0
        for one in ranges:
            start, stop = bisect_left(rows, (one.first,)), bisect_left(rows, (one.last,))
            if stop - start > _ROWS_FIRST:
                await self._large(one, rows, start, stop, turns, refused)
                continue
            small.append(RangeRows(*one, rows[start:stop]))
            small_rows += stop - start
            if small_rows > _ROWS_FIRST or len(small) == _RANGES_MAX:
                self._small(small, refused)
                small, small_rows = [], 0
                await turns.give_if_due()
        if small:
            self._small(small, refused)
        for found in searches:
            await self._searched(found, rows, turns, refused)
        counters = self._counters
        counters.flights += 1
        counters.ranges += len(ranges) + len(searches)
        counters.rows += len(rows)
        while rows:
            del rows[-_ROWS_MAX:]
            await turns.give_if_due()
        return refused

    def _follow_deadlines(self, loads: Sequence[RangeRows]) -> None:
        """Have rows that were loaded in this turn expire when the database says."""
        if self._deadlines or self._engine.deadlines:
            self._engine.follow_deadlines((key for one in loads for key, _ in one.rows), self._deadlines)

    def _small(self, loads: Sequence[RangeRows], refused: Refused) -> None:
        """Load ranges together; where there is no memory for all, one by one."""
        engine = self._engine
        try:
            engine.load_all(loads)
            self._follow_deadlines(loads)
        except LimitExceededError:
            for one in loads:
                try:
                    engine.load_all((one,))
                    self._follow_deadlines((one,))
                except LimitExceededError as error:
                    assert one.last is not None, "ranges that reads lack end"
                    refused[Range(one.first, one.last)] = error.with_traceback(None)

    async def _large(self, one: Range, rows: RowList, start: int, stop: int, turns: Turns, refused: Refused) -> None:
        engine, row_bytes = self._engine, 0
        try:
            for at in range(start, stop, _ROWS_MAX):
                row_bytes += engine.row_bytes(rows[at : min(at + _ROWS_MAX, stop)])
                await turns.give_if_due()
            engine.refuse_rows(row_bytes)
            self.partial = one
            await self._parts(one, rows, start, stop, turns)
        except LimitExceededError as error:
            refused[one] = error.with_traceback(None)
            while self.partial is not None and engine.forget_some(*one):
                await turns.give()
        finally:
            self.partial = None

    async def _parts(self, one: Range, rows: RowList, start: int, stop: int, turns: Turns) -> None:
        first, count = one.first, _ROWS_FIRST
        while first < one.last:
            upto = min(start + count, stop)
            last = one.last if upto == stop else rows[upto][0]
            begun_s = time.perf_counter()
            part = RangeRows(first, last, rows[start:upto])
            self._engine.load_all((part,))
            self._follow_deadlines((part,))
            is_quick = time.perf_counter() - begun_s < SLICE_S / 4
            count = min(count * 2, _ROWS_MAX) if is_quick else max(count // 2, 1)
            start, first = upto, last
            await turns.give_if_due()

    async def _searched(self, found: SearchRange, rows: RowList, turns: Turns, refused: Refused) -> None:
        start, stop = (bisect_left(rows, (key,)) for key in found.search.keys)
        try:
            for at in range(start, stop, _LOOKED_AT):
                part = RangeRows(*found.search.keys, rows[at : min(at + _LOOKED_AT, stop)])
                self._engine.load_found(found, part.rows)
                self._follow_deadlines((part,))
                await turns.give_if_due()
            self._engine.note_searched(found)
        except LimitExceededError as error:
            refused[found] = error.with_traceback(None)
        finally:
            self._engine.abandon_search(found)
