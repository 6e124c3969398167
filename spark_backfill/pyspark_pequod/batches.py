"""The batches of a stream: planned on the driver, kept there until Spark has committed them.

A batch that was planned before the query was restarted is made again from its two offsets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from pequod_spark.connection import Connection

from pequod.errors import WatchCompactedError
from pyspark_pequod.followed import FollowedRange
from pyspark_pequod.limits import Budget
from pyspark_pequod.narrowing import Bounds
from pyspark_pequod.places import Offset, Place, offset_of, places_of
from pyspark_pequod.told import SCHEMA

#: How often a server says that there was no change: seldom, or often if a query waits for its last one.
_PROGRESS_S = 0.5
_PROGRESS_TO_END_S = 0.05


class Batches:
    """Plans batches over ranges that do not touch.

    Args:
        starts_anew: Give all rows of a range again, instead of failing, if the server does not have its changes.

    Raises:
        WatchCompactedError: From each method: changes are not kept any more, and ``starts_anew`` is not set.
        CheckpointError: From each method: an offset is of other ranges.
        UnavailableError: From each method: the server cannot be reached.
    """

    def __init__(self, connection: Connection, ranges: Sequence[Bounds], *, starts_anew: bool) -> None:
        self._connection = connection
        self._ranges = tuple(ranges)
        self._starts_anew = starts_anew
        self._followed: dict[int, FollowedRange] = {}
        #: By its start as JSON: the end of a batch and what is in it.
        self._planned: dict[str, tuple[Offset, Any]] = {}
        #: The last state to be read of each range, a server's id and its revision; None for no end.
        self._ends: list[tuple[int, int]] | None = None
        #: The range whose turn is first, so that each has its turn if a batch has no room for all.
        self._turn = 0

    def end_with_now(self) -> None:
        """Give nothing that comes after the present state."""
        self._ends = []
        with self._connection.client() as client:
            for first, last in self._ranges:
                # A watch begins between two messages of all others.
                with closing(client.watch(first, last)) as events:
                    event = next(events)
                self._ends.append((event.server_id, event.revision))

    def plan(self, start: Offset, budget: Budget) -> Offset:
        """Return the end of the batch that begins at an offset; the same offset if there is nothing new."""
        name = _name(start)
        if name in self._planned:
            return self._planned[name][0]
        starts = places_of(start, self._ranges)
        found, ends = dict[int, Any](), list(starts)
        for number, place in enumerate(starts):
            self._open(number, place)
        order = [(self._turn + step) % len(starts) for step in range(len(starts))]
        for number in order:
            if budget.is_spent:
                self._turn = number
                break
            found[number] = self._take(number, budget)
            ends[number] = self._followed[number].place
        if ends == starts:
            return start
        end = offset_of(ends, self._ranges)
        # In the order of the ranges, as the same batch has it when it is made again.
        self._planned[name] = (
            end,
            pa.concat_tables([SCHEMA.empty_table(), *(found[number] for number in sorted(found))]),
        )
        return end

    def between(self, start: Offset, end: Offset) -> Any:
        """Return what is in a batch, as a table."""
        if start == end:
            return SCHEMA.empty_table()
        name = _name(start)
        planned = self._planned.get(name)
        if planned is None or planned[0] != end:
            planned = self._planned[name] = end, self._again(start, end)
        return planned[1]

    def newest(self) -> Offset | None:
        """Return the newest state that the server has told of; None before the first batch."""
        if len(self._followed) < len(self._ranges):
            return None
        here = [self._followed[number] for number in range(len(self._ranges))]
        return offset_of([Place(one.place.server_id, one.seen) for one in here], self._ranges)

    def commit(self, end: Offset) -> None:
        """Forget the batches up to an offset."""
        name = _name(end)
        self._planned = {start: batch for start, batch in self._planned.items() if start == name}

    def stop(self) -> None:
        """Follow the ranges no more."""
        while self._followed:
            self._followed.popitem()[1].close()
        self._planned.clear()

    def _take(self, number: int, budget: Budget) -> Any:
        followed = self._followed[number]
        try:
            return followed.take(budget, self._end_of(number, followed))
        except WatchCompactedError:
            if not self._starts_anew:
                raise
            self._begin_anew(number, followed.place)
            return self._followed[number].take(budget)

    def _end_of(self, number: int, followed: FollowedRange) -> int | None:
        if self._ends is None:
            return None
        server_id, revision = self._ends[number]
        if server_id != followed.place.server_id:
            # The revisions of another server say nothing of this one.
            self._ends[number] = followed.place.server_id, followed.seen
            return followed.seen
        followed.wait_for(revision)
        return revision

    def _open(self, number: int, place: Place | None) -> None:
        """Have a range followed from a place on."""
        followed = self._followed.get(number)
        if followed is not None:
            if followed.place == place or (place is None and followed.place.key == self._ranges[number][0]):
                return
            self._followed.pop(number).close()
        try:
            self._follow(number, place)
        except WatchCompactedError:
            if not self._starts_anew or place is None:
                raise
            self._begin_anew(number, place)

    def _begin_anew(self, number: int, place: Place) -> None:
        if number in self._followed:
            self._followed.pop(number).close()
        self._follow(number, None, place.begun + 1)

    def _follow(self, number: int, place: Place | None, begun: int = 1) -> None:
        progress_s = _PROGRESS_S if self._ends is None else _PROGRESS_TO_END_S
        self._followed[number] = FollowedRange(
            self._connection, self._ranges[number], place, begun=begun, progress_s=progress_s
        )

    def _again(self, start: Offset, end: Offset) -> Any:
        """Return a batch that was planned before the query was restarted."""
        found = [SCHEMA.empty_table()]
        starts, ends = places_of(start, self._ranges), places_of(end, self._ranges)
        for number, (place, last) in enumerate(zip(starts, ends, strict=True)):
            if place == last or last is None:
                continue
            begin = place
            if begin is None or begin.begun != last.begun:
                begin = Place(last.server_id, last.revision, self._ranges[number][0], begun=last.begun)
            try:
                if number in self._followed:
                    self._followed.pop(number).close()
                self._follow(number, begin)
                found.append(self._followed[number].take_until(last))
            except WatchCompactedError as error:
                if not self._starts_anew:
                    raise _lost(error, is_begin=begin.key is not None) from error
                # The next batch begins anew, with all rows.
                if number in self._followed:
                    self._followed.pop(number).close()
        return pa.concat_tables(found)


def _name(offset: Offset) -> str:
    return json.dumps(offset, sort_keys=True)


def _lost(error: WatchCompactedError, *, is_begin: bool) -> WatchCompactedError:
    if not is_begin:
        return error
    return WatchCompactedError(f"the rows of a batch are of a moment that is gone: {error}")
