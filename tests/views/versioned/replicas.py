"""Three replicas, and coordinators that reach some of them and die at a write."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from pequod_views.versioned import StoredCell, StoredColumn
from pequod_views.versioned.records import Forget, Get, Put, PutAll, merge
from pequod_views.versioned.rows import NEXT, Pointer, row_in
from pequod_views.versioned.turns import TurnStamps

from tests.views.versioned.processes import Record, Replica


class TurnPointers:
    """The pointers that a turn has written.

    Invariants:
        1. If a turn has come to its end, it has written the own pointer of each row to which it has written a pointer,
           so that no pointer of an earlier turn comes up there later.
    """

    def __init__(self) -> None:
        self._rows: set[str] = set()
        self._ends: set[str] = set()

    def note(self, put: Put) -> None:
        for (name, base_key), cell in put.cells:
            if name == NEXT and cell.value is not None:
                self._rows.add(row_in(put.key, base_key))
                self._ends.add(Pointer.of(cell.value).row)

    def _check(self) -> None:
        assert self._ends <= self._rows


class ThreeReplicas:
    """Replicas of which a coordinator reaches some."""

    def __init__(self) -> None:
        self.replicas: list[Replica] = [{} for _ in range(3)]
        self._epoch = 0

    def turn(self) -> TurnStamps:
        """Begin a turn, as of another process."""
        self._epoch += 1
        return TurnStamps(self._epoch)

    def carry_out(
        self, steps: Generator[Any, Any, Any], reached: Sequence[int], dies_at_put: int | None = None
    ) -> bool:
        """Carry out an algorithm, and return whether it came to its end.

        Args:
            dies_at_put: The number of the write at which the coordinator dies; it gets to the last replica alone.
        """
        reply: Any = None
        puts = 0
        turn = TurnPointers()
        for _ in range(200):
            try:
                request = steps.send(reply)
            except StopIteration:
                turn._check()
                return True
            reply = {}
            if isinstance(request, PutAll):
                # The other one is a mark in the base, which is not here.
                (request, _) = request.puts
            records = [self.replicas[number].setdefault((request.table, request.key), {}) for number in reached]
            if isinstance(request, Get):
                for record in records:
                    merge(reply, {column: record[column] for column in request.columns or record if column in record})
                continue
            if isinstance(request, Forget):
                for record in records:
                    for column, cell in request.cells:
                        if column in record and record[column].timestamp <= cell.timestamp:
                            del record[column]
                continue
            turn.note(request)
            puts += 1
            for record in records[-1:] if puts == dies_at_put else records:
                merge(record, dict(request.cells))
            if puts == dies_at_put:
                steps.close()
                return False
        raise AssertionError("pointers run in a circle")

    def records(self, seen: Sequence[int] = (0, 1, 2)) -> dict[str, dict[StoredColumn, StoredCell]]:
        """Return the records of the view as a read of some replicas has them."""
        merged: dict[str, Record] = {}
        for number in seen:
            for (_, key), record in self.replicas[number].items():
                merge(merged.setdefault(key, {}), record)
        return merged

    def spread(self) -> None:
        """Bring all replicas to one state (anti-entropy)."""
        for source in self.replicas:
            for replica in self.replicas:
                for place, record in source.items():
                    merge(replica.setdefault(place, {}), record)
