"""Ranges of a folder's rows, taken into an engine in slices: each is of the moment at which it is taken in.

    read    engine.get -> MissingError(ranges) -> commit, read a slice, take it in | others | ... -> engine.get
    fill    all tables, from the first key to the last, while there is memory
    count   engine.count -> MissingError(a count) -> commit, look at a slice | others | ... -> engine.count: now exact

A slice is one turn of the event loop: what was changed before is on the disk first, so nothing is missed, and nothing
has to be patched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from pequod.engine import Engine, FirstRows, LimitExceededError, Range, Uncounted, prefix_end
from pequod.language.spec import DELIMITER
from pequod_server.backing.turns import Turns
from pequod_server.data.counting import Counted
from pequod_server.data.disk import Disk
from pequod_server.data.library import Piece, RowsError
from pequod_server.setting_kinds import MIB

#: A slice takes some ms. Tests make it small.
ROWS_A_SLICE: Final = 2048
_BYTES_A_SLICE: Final = 1 * MIB
#: A key that is read alone brings the rows behind it: a range by itself takes as much memory as five rows do.
_ROWS_BESIDE: Final = 16
_BYTES_BESIDE: Final = 16 << 10
#: How long counts are kept exact, at least, for those who have waited for them; and how many times as long as one took,
#: since a call may wait for several, one after another. The last is for keys that have deadlines.
_COUNTS_KEPT_S: Final = 0.1
_TIMES_AS_LONG: Final = 10
_TIMES_AS_LONG_TIMED: Final = 2


class Ranges:
    """Takes ranges of the rows on disk into an engine.

    Cost:
        Of a range, 40 µs, and 1.5 µs for each row.
    """

    __slots__ = ("_disk", "_engine", "_one_at_a_time", "loads", "rows_loaded")

    def __init__(self, engine: Engine, disk: Disk) -> None:
        self._engine = engine
        self._disk = disk
        #: A slice of each count in every turn of the loop would add up.
        self._one_at_a_time = asyncio.Lock()
        #: How many ranges reads have lacked, and how many rows came for them.
        self.loads = 0
        self.rows_loaded = 0

    async def load(self, lacking: Sequence[Range | FirstRows | Uncounted]) -> None:
        """Have the engine take in what reads lack, and make counts; other calls have their turn between slices.

        Raises:
            LimitExceededError: There is no memory for it, even after eviction.
            BackingUnavailableError, DiskFullError: Rows cannot be read.
        """
        turns, counts = Turns(), list[Counted]()
        try:
            for one in lacking:
                if isinstance(one, Uncounted):
                    await self._make_count(Range(*one), counts, turns)
                else:
                    await self._load(one, turns)
                await turns.give_if_due()
        except BaseException:
            for one in lacking:
                # No read waits for what was taken in so far.
                self._engine.release(one.first, one.last)
            raise
        finally:
            for counted in counts:
                kept_s = max(_COUNTS_KEPT_S, _TIMES_AS_LONG * counted.took_s)
                asyncio.get_running_loop().call_later(kept_s, self._disk.counts.end, counted)

    async def _load(self, one: Range | FirstRows, turns: Turns) -> None:
        if isinstance(one, FirstRows):
            await self._take_first(one, turns)
            return
        if one.last == one.first + b"\0":
            # Another reader may have waited for the same.
            if self._engine.absent(*one):
                end = prefix_end(one.first.partition(DELIMITER)[0] + DELIMITER)
                assert end is not None, "tables have ends"
                self._count(self.take_ahead(Range(one.first, end), _ROWS_BESIDE, _BYTES_BESIDE))
            return
        for gap in self._engine.absent(*one):
            first = gap.first
            while first < gap.last:
                piece = self._count(self.take(Range(first, gap.last)))
                first = gap.last if piece.is_end else piece.keys[-1] + b"\0"
                await turns.give_if_due()

    async def _take_first(self, one: FirstRows, turns: Turns) -> None:
        first, last, left, _ = one
        while first < last and left > 0:
            piece = self._count(self.take_ahead(Range(first, last), min(left, ROWS_A_SLICE), is_down=one.is_down))
            if piece.is_end:
                return
            left -= len(piece.keys)
            first, last = (first, piece.keys[0]) if one.is_down else (piece.keys[-1] + b"\0", last)
            await turns.give_if_due()

    async def _make_count(self, one: Range, counts: list[Counted], turns: Turns) -> None:
        """Count the rows of a range, for `counted`; one that has few rows is taken in instead, for the next count.

        Args:
            counts: Takes the count as soon as it is begun.
        """
        with suppress(LimitExceededError):
            if self._count(self.take_ahead(one)).is_end:
                return
        counted = self._disk.counts.begin(one)
        counts.append(counted)
        begun_s = time.monotonic()
        while counted.at < counted.last:
            async with self._one_at_a_time:
                self._count_some(counted)
                await turns.give_if_due()
        counted.took_s = max(counted.took_s, time.monotonic() - begun_s)

    def _count_some(self, counted: Counted) -> None:
        rows, at, last = self._disk.rows(), counted.at, counted.last
        try:
            piece = rows.some(at, last, ROWS_A_SLICE, _BYTES_A_SLICE)
            reached = last if piece.is_end else piece.keys[-1] + b"\0"
            deadlines = rows.deadlines_within(at, reached) if self._disk.has_deadlines else ()
        except RowsError as error:
            raise self._disk.refuse_damage(error) from error
        # A key whose deadline comes later, while others are counted, counts.
        counted.count += len(piece.keys)
        counted.at = reached
        counted.made_ms = now_ms = self._engine.deadlines.now_ms
        for key, at_ms in deadlines:
            if at_ms <= now_ms:
                # The next commit takes it off the count.
                self._engine.expire_away(key)

    def counted(self, one: Range) -> int | None:
        """Return how many rows of a range there are now, None if that is not known; see `Engine.count_by`.

        Raises:
            BackingUnavailableError, DiskFullError: Rows cannot be read.
        """
        counted = self._disk.counts.find(one)
        if counted is None:
            return None
        age_s = (self._engine.deadlines.now_ms - counted.made_ms) / 1000
        if self._disk.has_deadlines and age_s > max(_COUNTS_KEPT_S, _TIMES_AS_LONG_TIMED * counted.took_s):
            # Keys may have come to be due that it counts.
            self._disk.counts.drop(one)
            return None
        try:
            return counted.count + counted.change(self._disk.committed, self._disk.effects)
        except RowsError as error:
            raise self._disk.refuse_damage(error) from error

    def take(
        self, one: Range, row_count: int | None = None, bytes_max: int = _BYTES_A_SLICE, *, is_down: bool = False
    ) -> Piece:
        """Have the engine take in the first rows of a range, or the last ones, in this turn; return the rows.

        Args:
            row_count: How many at most; None: as many as make a slice.

        Raises:
            LimitExceededError, BackingUnavailableError, DiskFullError: As `load`.
        """
        first, last = one
        rows = self._disk.rows()
        try:
            piece = rows.some(first, last, row_count or ROWS_A_SLICE, bytes_max, is_down=is_down)
            if not piece.is_end:
                first, last = (piece.keys[0], last) if is_down else (first, piece.keys[-1] + b"\0")
            deadlines = rows.deadlines_within(first, last) if self._disk.has_deadlines else ()
        except RowsError as error:
            raise self._disk.refuse_damage(error) from error
        self._engine.take_in(first, last, piece.keys, piece.values, deadlines)
        return piece

    def take_ahead(
        self, one: Range, row_count: int | None = None, bytes_max: int = _BYTES_A_SLICE, *, is_down: bool = False
    ) -> Piece:
        """Do so for rows that no read may need: they are evicted as if one had used them now, and not kept for one.

        Raises:
            LimitExceededError, BackingUnavailableError, DiskFullError: As `load`.
        """
        piece = self.take(one, row_count, bytes_max, is_down=is_down)
        if piece.keys:
            self._engine.release(piece.keys[0], piece.keys[-1] + b"\0")
        return piece

    def _count(self, piece: Piece) -> Piece:
        self.loads += 1
        self.rows_loaded += len(piece.keys)
        return piece
