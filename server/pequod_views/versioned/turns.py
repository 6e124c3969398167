"""Turns: the propagations that change pointers of a base record have numbers, and their writes have stamps.

A coordinator that dies may leave a write at less than a majority of the replicas. The next coordinator may not see it
and build on its absence; later it is seen. With the timestamps of updates it may win then, and two rows are live. So
pointers have stamps by the order of turns: what was left behind loses against all that was written after it.

    root.turn   the number of the last turn, at a majority before the turn writes anything else
    stamp       number * 2**20 + how many writes came before in the turn

Source:
    Ours; the paper's pointers have the timestamps of updates, and its coordinators do not die.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from pequod_views.versioned.records import EMPTY, Cells, Get, Put, StoredCell, StoredColumn
from pequod_views.versioned.rows import ROOT, TURN, VersionedView, put_row, record_of

_STAMPS: Final = 1 << 20


class TurnStamps:
    """The stamps of a turn, each larger than all before it."""

    def __init__(self, number: int) -> None:
        self._next = number * _STAMPS
        self._end = self._next + _STAMPS

    def stamp(self) -> int:
        """Return a new stamp."""
        stamp = self._next
        self._next += 1
        assert self._next < self._end, "a turn has few writes"
        return stamp


def take_turn(view: VersionedView, base_key: str, quorum: int) -> Generator[Get | Put, Any, TurnStamps]:
    """Begin a turn.

    Requires:
        The coordinator has the base record alone. Then two turns never have one number: a number is used once it is
        at a majority, and the next turn reads it there.
    """
    column = StoredColumn(TURN, base_key)
    cells: Cells = yield Get(view.name, record_of(ROOT, base_key), (column,), quorum)
    number = cells.get(column, EMPTY).timestamp + 1
    yield put_row(view, ROOT, base_key, {TURN: StoredCell("", number)}, quorum)
    return TurnStamps(number)
