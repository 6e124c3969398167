"""Coordinators that die at every write of a propagation, a repair and a collection, while others see some replicas.

Each case is a few processes one after another over three replicas, of which each reaches two: one that dies, an update
by another one, a repair or a collection that may die as well, and a sweep. In the end every majority has the view of
the base. A part of the cases is tried; PEQUOD_VIEWS_ALL=1 tries all.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pytest
from pequod_views.versioned import NoLiveRowError, RowUnfinishedError, StoredCell, StoredColumn, Update
from pequod_views.versioned.algorithms import propagate
from pequod_views.versioned.mending import collect, forget, heal
from pequod_views.versioned.rows import NEXT, ROOT, Pointer, row_in, row_of
from pequod_views.versioned.shown import swept_rows
from pequod_views.versioned.turns import TurnStamps

from tests.views.versioned.oracle import rows_in, view_of
from tests.views.versioned.replicas import ThreeReplicas
from tests.views.versioned.schedules import VIEW

QUICK: Final = "PEQUOD_VIEWS_ALL" not in os.environ
_CASES: Final = 500
ALL: Final = (0, 1, 2)
PAIRS: Final = ((0, 1), (1, 2), (2, 0))
_PUTS_MAX: Final = 6
_SWEEPS_MAX: Final = 10


def _update(column: str, value: str | None, time: int) -> Update:
    return Update("ticket", "t", column, StoredCell(value, time))


BEFORE: Final = (_update("assigned", "a", 1), _update("status", "x", 2))
MOVED: Final = _update("assigned", "b", 5)
#: What another coordinator propagates after the death: another column, or a view key that is newer, older, the same.
BETWEEN: Final = (
    None,
    _update("status", "y", 7),
    _update("assigned", "c", 9),
    _update("assigned", "c", 3),
    _update("assigned", "b", 6),
    _update("assigned", "a", 8),
    _update("assigned", None, 9),
)


class Story:
    """What happens to one base record."""

    def __init__(self) -> None:
        self.store = ThreeReplicas()
        self.done: list[Update] = []

    def propagate(self, update: Update, reached: Sequence[int]) -> None:
        """Propagate an update as a coordinator does that lives."""
        for guess in (row_of("a"), ROOT):
            try:
                self._insist(partial(propagate, VIEW, [update], guess, 2), reached)
                break
            except NoLiveRowError:
                continue
        self.done.append(update)

    def _insist(self, steps: Callable[[TurnStamps], Generator[Any, Any, Any]], reached: Sequence[int]) -> None:
        while True:
            try:
                self.store.carry_out(steps(self.store.turn()), reached)
                return
            except RowUnfinishedError as error:
                self.store.carry_out(heal(VIEW, "t", error.row, 2, self.store.turn()), reached)

    def sweep(self, reached: Sequence[int], *, collects: bool) -> None:
        """Finish and collect what some replicas show, again and again."""
        for _ in range(_SWEEPS_MAX):
            is_clean = True
            for record, cells in sorted(self.store.records(reached).items()):
                found = swept_rows(VIEW, record, cells)
                for base_key in found.unfinished:
                    is_clean = False
                    self.store.carry_out(heal(VIEW, base_key, row_in(record, base_key), 2, self.store.turn()), reached)
                for base_key in found.stale if collects else ():
                    is_clean = False
                    self._insist(partial(collect, VIEW, base_key, row_in(record, base_key), 2), reached)
            if is_clean:
                return
        raise AssertionError("there is always something to sweep")

    def judge(self, seen: Sequence[int], *also: Update) -> None:
        """Compare what some replicas show with the view of what was propagated, and of more updates."""
        assert rows_in(VIEW, self.store.records(seen)) == (view_of(VIEW, [*self.done, *also]), [])

    def pointers(self, seen: Sequence[int] = ALL) -> dict[str, StoredCell]:
        """Return the pointers of rows, as some replicas show them."""
        column, records = StoredColumn(NEXT, "t"), self.store.records(seen)
        return {row_in(record, "t"): cells[column] for record, cells in records.items() if column in cells}

    def end(self, reached: Sequence[int], *, collects: bool, dead: Sequence[Update] = ()) -> None:
        """Sweep, propagate what the dead have not, as sweeps do, and judge what every majority has.

        Args:
            dead: Updates of view keys whose coordinators died. Whoever sees the row of one finishes it.
        """
        led_to = {pointer.value for pointer in self.pointers(reached).values()}
        # What no pointer leads to has not been begun, or something newer has replaced it.
        begun = [one for one in dead if Pointer(one.cell.timestamp, row_of(one.cell.value)).text in led_to]
        self.sweep(reached, collects=collects)
        self.judge(reached, *begun)
        for update in dead:
            self.propagate(update, reached)
        self.judge(reached)
        self.store.spread()
        self.sweep(ALL, collects=collects)
        for seen in PAIRS:
            self.judge(seen)


def _deaths() -> list[tuple[tuple[int, ...], int]]:
    """Return the replicas that a process reaches, the last of which gets its last write, and which write that is."""
    return list(itertools.product(itertools.permutations(ALL, 2), range(1, _PUTS_MAX)))


def _between() -> list[tuple[Update | None, Sequence[int]]]:
    return [(update, pair) for update in BETWEEN for pair in (PAIRS if update is not None else PAIRS[:1])]


def _some(*choices: Iterable[Any]) -> Sequence[Any]:
    cases = list(itertools.product(*choices))
    return random.Random(1).sample(cases, _CASES) if QUICK else cases


def _begun() -> Story:
    story = Story()
    for update in BEFORE:
        story.propagate(update, ALL)
    return story


@pytest.mark.parametrize("collects", [False, True], ids=["finished", "collected"])
def test_a_row_is_finished_whatever_its_coordinator_and_one_that_healed_it_left(collects: bool) -> None:
    cases = _some(range(1, _PUTS_MAX), _between(), _deaths(), PAIRS)
    for dies, (update, between), (healing, ends), last in cases:
        story = _begun()
        story.store.carry_out(propagate(VIEW, [MOVED], row_of("a"), 2, story.store.turn()), ALL, dies)
        if update is not None:
            story.propagate(update, between)
        story.store.carry_out(heal(VIEW, "t", row_of("b"), 2, story.store.turn()), healing, ends)
        story.end(last, collects=collects, dead=[MOVED])


def test_two_rows_are_finished_though_one_may_lead_to_the_other() -> None:
    """The second coordinator may not see what the first left, and builds on the same row; a reader sees both.

    The first has left the new row at one replica, or the pointer that leads to it.
    """
    seconds = [_update("assigned", "c", 3), _update("assigned", "c", 9)]
    between = [None, *PAIRS]
    cases = _some([1, 2], between, seconds, _deaths(), between, "bc", PAIRS)
    for dies, early, second, (other, ends), late, row, last in cases:
        story = _begun()
        story.store.carry_out(propagate(VIEW, [MOVED], row_of("a"), 2, story.store.turn()), ALL, dies)
        if early is not None:
            story.propagate(_update("status", "y", 7), early)
        with suppress(RowUnfinishedError):
            story.store.carry_out(propagate(VIEW, [second], row_of("a"), 2, story.store.turn()), other, ends)
        if late is not None:
            story.propagate(_update("status", "z", 8), late)
        story.store.carry_out(heal(VIEW, "t", row_of(row), 2, story.store.turn()), last)
        story.end(last, collects=False, dead=[MOVED, second])


def test_rows_are_finished_though_each_was_made_from_the_other() -> None:
    """A key changes to another and back; that the first change was finished is at one replica alone, or nearly so."""
    there, back = _update("assigned", "b", 5), _update("assigned", "a", 9)
    cases = _some([2, 3], _deaths(), _between()[1:5], "ab", PAIRS)
    for dies, (other, ends), (between, early), row, last in cases:
        story = _begun()
        story.store.carry_out(propagate(VIEW, [there], row_of("a"), 2, story.store.turn()), ALL, dies)
        with suppress(RowUnfinishedError):
            story.store.carry_out(propagate(VIEW, [back], row_of("b"), 2, story.store.turn()), other, ends)
        if between is not None:
            story.propagate(between, early)
        story.store.carry_out(heal(VIEW, "t", row_of(row), 2, story.store.turn()), last)
        story.end(last, collects=False, dead=[there, back])


def test_a_row_is_collected_whatever_a_collector_left() -> None:
    cases = _some("abc", _deaths(), _between(), PAIRS)
    for row, (first, dies), (update, between), last in cases:
        story = _begun()
        # The root leads to a, a to b, and b to c.
        for number, key in enumerate("bc"):
            story.propagate(_update("assigned", key, 3 + number), ALL)
        story.store.carry_out(collect(VIEW, "t", row_of(row), 2, story.store.turn()), first, dies)
        story.judge(ALL)
        if update is not None:
            story.propagate(update, between)
        story.end(last, collects=True)


def _late() -> Story:
    """Return a record whose live row is b; a is stale, and c has been so from the beginning, since it came late."""
    story = _begun()
    story.propagate(_update("assigned", "b", 5), ALL)
    story.propagate(_update("assigned", "c", 3), ALL)
    return story


@pytest.mark.parametrize("row", [row_of("a"), row_of("b"), row_of("c"), row_of(None), ROOT])
def test_nothing_is_healed_where_nothing_is_unfinished(row: str) -> None:
    """Another may have finished it between the look of a sweep and its turn."""
    story = _late()
    before = story.pointers()
    story.store.carry_out(heal(VIEW, "t", row, 2, story.store.turn()), ALL)
    assert story.pointers() == before
    story.judge(ALL)


def test_a_live_row_is_not_collected() -> None:
    """It may have been stale when a sweep looked."""
    story = _late()
    before = story.pointers()
    story.store.carry_out(collect(VIEW, "t", row_of("b"), 2, story.store.turn()), ALL)
    assert story.pointers() == before
    for row in (row_of("a"), row_of("c")):
        story.store.carry_out(collect(VIEW, "t", row, 2, story.store.turn()), ALL)
        assert story.pointers()[row].value is None
    story.judge(ALL)


@pytest.mark.parametrize("steps", [heal, collect], ids=["heal", "collect"])
def test_a_record_without_rows_gets_none(steps: Callable[..., Generator[Any, Any, None]]) -> None:
    """A sweep may have looked before its rows were collected and forgotten."""
    story = Story()
    story.store.carry_out(steps(VIEW, "t", row_of("a"), 2, story.store.turn()), ALL)
    assert story.pointers() == {}


def test_a_row_that_came_back_is_not_forgotten() -> None:
    story = _late()
    story.store.carry_out(collect(VIEW, "t", row_of("c"), 2, story.store.turn()), ALL)
    stamp = story.pointers()[row_of("c")].timestamp
    forgotten = _late()
    forgotten.store.carry_out(collect(VIEW, "t", row_of("c"), 2, forgotten.store.turn()), ALL)
    forgotten.store.carry_out(forget(VIEW, "t", row_of("c"), stamp, 3, forgotten.store.turn()), ALL)
    assert row_of("c") not in forgotten.pointers()
    # The sweep that looked before has the stamp of the tombstone that was there.
    story.propagate(_update("assigned", "c", 30), ALL)
    story.store.carry_out(forget(VIEW, "t", row_of("c"), stamp, 3, story.store.turn()), ALL)
    assert story.pointers()[row_of("c")].timestamp > stamp
    story.judge(ALL)
