"""Live rows that a process knows without a read: what it may know, and when it has to look again."""

from __future__ import annotations

import pytest
from pequod_views.versioned import RowUnfinishedError, StoredCell, Update
from pequod_views.versioned.algorithms import propagate
from pequod_views.versioned.known import KnownRows, LiveRow
from pequod_views.versioned.mending import collect, mend
from pequod_views.versioned.records import Get
from pequod_views.versioned.rows import ROOT, row_of, view_column
from pequod_views.versioned.turns import TurnStamps

from tests.views.versioned.oracle import rows_in, view_of
from tests.views.versioned.replicas import ThreeReplicas
from tests.views.versioned.schedules import VIEW, simulate
from tests.views.versioned.simulated import Simulation

ALL = [0, 1, 2]


def assigned(name: str, time: int) -> Update:
    return Update("ticket", "t", "assigned", StoredCell(name, time))


class OneProcess:
    """A process that has the share of a record, and whose coordinators propagate updates of it."""

    def __init__(self) -> None:
        self.store = ThreeReplicas()
        self.stamps = TurnStamps(100)

    def propagate(self, update: Update, guess: str, dies_at_put: int | None = None) -> None:
        steps = propagate(VIEW, [update], guess, 2, self.stamps)
        assert self.store.carry_out(steps, ALL, dies_at_put=dies_at_put) == (dies_at_put is None)

    def knows(self) -> bool:
        """Return whether a column is written without a read before."""
        update = Update("ticket", "t", "title", StoredCell("x", 1))
        return not isinstance(next(propagate(VIEW, [update], ROOT, 2, self.stamps)), Get)


def test_a_row_that_a_reader_finished_is_not_passed_by() -> None:
    process = OneProcess()
    process.propagate(assigned("a", 1), ROOT)
    # Another process, which had the share before, left a row at one replica.
    late = propagate(VIEW, [assigned("b", 9)], row_of("a"), 2, TurnStamps(1))
    process.store.carry_out(late, ALL, dies_at_put=1)
    process.propagate(assigned("a", 2), ROOT)
    assert process.knows()
    broken = RowUnfinishedError(VIEW.name, "t", row_of("b"))
    process.store.carry_out(mend(VIEW, broken, 2, process.stamps), [1, 2])
    assert not process.knows()
    process.propagate(assigned("d", 10), row_of("a"))
    assert rows_in(VIEW, process.store.records()) == (view_of(VIEW, [assigned("d", 10)]), [])


def test_a_row_is_read_again_after_a_coordinator_of_the_process_died() -> None:
    process = OneProcess()
    process.propagate(assigned("a", 1), ROOT)
    assert process.knows()
    process.propagate(assigned("b", 2), row_of("a"), dies_at_put=3)
    assert not process.knows()
    with pytest.raises(RowUnfinishedError):
        # The end is at the last replica alone.
        process.store.carry_out(propagate(VIEW, [assigned("c", 3)], row_of("a"), 2, process.stamps), [0, 1])


def test_a_known_row_goes_on_with_the_columns_that_were_written_since() -> None:
    process = OneProcess()
    status = Update("ticket", "t", "status", StoredCell("x", 5))
    for update in (assigned("a", 1), status, assigned("b", 7), assigned("a", 6)):
        process.propagate(update, ROOT)
    assert rows_in(VIEW, process.store.records()) == (view_of(VIEW, [status, assigned("b", 7)]), [])
    assert process.knows()


def test_a_collection_forgets_the_row_of_its_record() -> None:
    process = OneProcess()
    for update in (assigned("a", 1), assigned("b", 2)):
        process.propagate(update, ROOT)
    process.store.carry_out(collect(VIEW, "t", row_of("a"), 2, process.stamps), ALL)
    assert not process.knows()


def test_few_rows_are_known_and_no_large_ones() -> None:
    known, column = KnownRows(), view_column("status", "1")
    for number in range(1000):
        known.keep("view", str(number), LiveRow(ROOT, number, is_finished=True, columns={}))
    found = [number for number in range(1000) if known.take("view", str(number)) is not None]
    assert found == list(range(1000 - 256, 1000))
    known.keep("view", "1", LiveRow(ROOT, 1, is_finished=True, columns={}))
    assert known.add("view", "1", {column: StoredCell("x" * 5000, 2)}) is not None
    assert known.take("view", "1") is None, "it is read again from now on"


def test_schedules_find_rows_that_are_known_for_longer_than_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    stamps_of, kept = Simulation._stamps, dict[object, KnownRows]()

    def stamps(self: Simulation, *of: object) -> TurnStamps:
        found = stamps_of(self, *of)  # type: ignore[arg-type]
        found.known = kept.setdefault((id(self), of[0].home, of[1]), found.known)  # type: ignore[attr-defined, misc]
        return found

    monkeypatch.setattr(Simulation, "_stamps", stamps)
    with pytest.raises(AssertionError):
        for seed in range(500):
            kept.clear()
            simulate(seed)
