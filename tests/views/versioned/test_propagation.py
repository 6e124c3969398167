"""Propagations leave what Definitions 2 and 3 say, in whatever order and however late messages arrive."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Generator
from typing import Any

import pytest
from pequod_views.versioned import StoredCell, StoredColumn, Update, VersionedView
from pequod_views.versioned.algorithms import NoLiveRowError, decide, get_view, propagate
from pequod_views.versioned.mending import heal
from pequod_views.versioned.records import Get, Put, merge
from pequod_views.versioned.rows import ROOT, base_column, guesses, likely_row, row_of
from pequod_views.versioned.turns import TurnStamps

from tests.views.versioned.oracle import judge, rows_in, view_of
from tests.views.versioned.processes import Process, parts_of
from tests.views.versioned.replicas import ThreeReplicas
from tests.views.versioned.schedules import VIEW, simulate
from tests.views.versioned.simulated import Simulation
from tests.views.versioned.updates import random_updates

#: The whole set takes a minute: PEQUOD_VIEWS_ALL=1.
QUICK = "PEQUOD_VIEWS_ALL" not in os.environ
KINDS = [("assigned", "a"), ("assigned", "b"), ("assigned", None), ("status", "x"), ("status", None)]


class OneReplica:
    """A store whose requests are done at once, under processes of which a schedule picks the next."""

    def __init__(self, updates: list[Update], view: VersionedView, *, knows_rows: bool = False) -> None:
        self.view = view
        #: Processes of one epoch know the live rows that the others left; else each turn has an epoch of its own.
        self._stamps = TurnStamps(1) if knows_rows else None
        self.records: dict[tuple[str, str], dict[StoredColumn, StoredCell]] = {}
        self.done: list[Update] = []
        self._holders: list[int] = []
        self._is_exclusive = False
        self._epoch = 0
        self._steps = [self._work(number, update) for number, update in enumerate(updates)]
        self._replies: list[Any] = [None] * len(updates)
        #: For each process what it has been sent, which decides what it does next.
        self.seen: list[list[Any]] = [[] for _ in updates]
        self._wants: list[Any] = [next(steps) for steps in self._steps]

    def runnable(self) -> list[int]:
        return [number for number, want in enumerate(self._wants) if want is not None and self._may(want)]

    def _may(self, want: Any) -> bool:
        return not isinstance(want, bool) or not (self._is_exclusive or (want and self._holders))

    def step(self, number: int) -> None:
        want = self._wants[number]
        reply: Any = None
        if isinstance(want, bool):
            self._holders.append(number)
            self._is_exclusive = want
        else:
            for part in parts_of(want):
                record = self.records.setdefault((part.table, part.key), {})
                if isinstance(part, Get):
                    columns = record if part.columns is None else part.columns
                    reply = {one: record[one] for one in columns if one in record}
                else:
                    merge(record, dict(part.cells))
        self.seen[number].append(None if reply is None else tuple(sorted(reply.items())))
        try:
            self._wants[number] = self._steps[number].send(reply)
        except StopIteration:
            self._wants[number] = None

    def _work(self, number: int, update: Update) -> Generator[Any, Any, None]:
        view = self.view
        old = yield Get(view.base, update.key, tuple(map(base_column, view.deciders)), 1)
        yield Put(view.base, update.key, ((base_column(update.column), update.cell),), 1)
        row = likely_row(view, old)
        for guess in guesses() if row is None else guesses(row):
            yield decide(view, [update])
            try:
                yield from propagate(view, [update], guess, 1, self._turn())
                break
            except NoLiveRowError:
                self._release(number)
        self.done.append(update)
        self._release(number)
        if not self._holders:
            judge(self.view, self.done, self.view_records())

    def _turn(self) -> TurnStamps:
        self._epoch += 1
        return self._stamps or TurnStamps(self._epoch)

    def _release(self, number: int) -> None:
        self._holders.remove(number)
        self._is_exclusive = False

    def view_records(self) -> dict[str, dict[StoredColumn, StoredCell]]:
        return {key: record for (table, key), record in self.records.items() if table == self.view.name}

    def state(self) -> object:
        records = tuple(sorted((place, tuple(sorted(record.items()))) for place, record in self.records.items()))
        return records.__repr__(), tuple(map(tuple, self.seen)).__repr__(), len(self.done)


def explore(updates: list[Update], view: VersionedView = VIEW, *, knows_rows: bool = False) -> int:
    """Try every interleaving; return how many different states there were."""
    seen: set[object] = set()
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        schedule = waiting.pop()
        store = OneReplica(updates, view, knows_rows=knows_rows)
        for number in schedule:
            store.step(number)
        # One way on is taken with this store; the others begin anew.
        while (state := store.state()) not in seen:
            seen.add(state)
            runnable = store.runnable()
            if not runnable:
                assert len(store.done) == len(updates)
                judge(view, updates, store.view_records())
                break
            waiting += [(*schedule, number) for number in runnable[1:]]
            schedule = (*schedule, runnable[0])
            store.step(runnable[0])
    return len(seen)


def updates_of(kinds: tuple[tuple[str, str | None], ...]) -> list[Update]:
    return [Update("ticket", "t", column, StoredCell(value, 10 + at)) for at, (column, value) in enumerate(kinds)]


@pytest.mark.parametrize("knows_rows", [False, True], ids=["reads", "knows"])
@pytest.mark.parametrize("first", KINDS, ids=lambda kind: f"{kind[0]}={kind[1]}")
def test_all_interleavings_of_three_updates(first: tuple[str, str | None], knows_rows: bool) -> None:
    # Schedules have every order, so timestamps need one.
    for others in itertools.product([KINDS[0], KINDS[3]] if QUICK else KINDS, repeat=2):
        assert explore(updates_of((first, *others)), knows_rows=knows_rows) > 10


@pytest.mark.parametrize("start", range(0, 1500, 500))
def test_random_schedules_with_losses_and_deaths(start: int) -> None:
    for seed in range(start, start + 500):
        simulate(seed)


def test_without_the_order_of_turns_what_the_dead_left_makes_views_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulation, "_stamps", lambda *_: TurnStamps(0))
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(500):
            simulate(seed)


def test_two_processes_without_leases_leave_views_wrong_for_ever() -> None:
    assert wrong_runs(has_leases=False) > 0


def test_a_process_that_never_looks_at_its_clock_leaves_views_wrong_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong_runs(has_leases=True) == 0
    monkeypatch.setattr(Process, "has_lost", property(lambda _: False, lambda *_: None), raising=False)
    assert wrong_runs(has_leases=True) > 0


def wrong_runs(*, has_leases: bool) -> int:
    """Return in how many of 238 runs two processes that write one record leave a view that a sweep does not mend."""
    wrong = 0
    for seed in range(238):
        rng = random.Random(seed)
        simulation = Simulation(
            seed, VIEW, random_updates(rng, 5), homes=2, expiry=0.05 if has_leases else 0.0, has_leases=has_leases
        )
        try:
            simulation.run()
            simulation.sweep()
            simulation.spread()
            judge(VIEW, simulation.done, simulation.records(VIEW.name), are_all_kept=False)
        except AssertionError:
            wrong += 1
    return wrong


@pytest.mark.parametrize(("first", "between"), [(("a", 1), ("c", 5)), (("a", 5), ("b", 3)), (("a", 5), ("a", 7))])
def test_a_pointer_that_a_dead_coordinator_left_at_one_replica_has_no_say_later(
    first: tuple[str, int], between: tuple[str, int]
) -> None:
    """With the timestamps of updates as those of pointers the first case had two live rows, the second a circle."""
    store = ThreeReplicas()
    updates = [Update("ticket", "t", "assigned", StoredCell(*cell)) for cell in (first, between, ("b", 9))]
    store.carry_out(propagate(VIEW, [updates[0]], ROOT, 2, store.turn()), [0, 1, 2])
    # The row b, and then `a -> b` at one replica.
    store.carry_out(propagate(VIEW, [updates[2]], row_of("a"), 2, store.turn()), [0, 1, 2], dies_at_put=2)
    store.carry_out(propagate(VIEW, [updates[1]], row_of("a"), 2, store.turn()), [0, 1])
    store.carry_out(heal(VIEW, "t", row_of("b"), 2, store.turn()), [1, 2])
    store.carry_out(propagate(VIEW, [updates[2]], row_of("a"), 2, store.turn()), [1, 2])
    assert rows_in(VIEW, store.records()) == (view_of(VIEW, updates), [])


def test_below_a_majority_views_may_be_wrong_for_ever() -> None:
    wrong = 0
    for seed in range(400):
        rng = random.Random(seed)
        simulation = Simulation(seed, VIEW, random_updates(rng, 5), replicas=3, quorum=1)
        try:
            simulation.run()
            judge(VIEW, simulation.done, simulation.records(VIEW.name))
        except AssertionError:
            wrong += 1
    assert wrong > 0


def test_a_read_finds_all_live_rows_of_a_key_and_no_stale_one() -> None:
    updates = [
        Update("ticket", "1", "assigned", StoredCell("ray", 1)),
        Update("ticket", "2", "assigned", StoredCell("ray", 2)),
        Update("ticket", "2", "assigned", StoredCell("cy", 3)),
        Update("ticket", "4", "assigned", StoredCell("ray", 4)),
        Update("ticket", "4", "status", StoredCell("open", 5)),
        Update("ticket", "5", "assigned", StoredCell("ray", 6)),
        Update("ticket", "5", "assigned", StoredCell(None, 7)),
    ]
    simulation = Simulation(1, VIEW, updates)
    simulation.run()
    steps = get_view(VIEW, "ray", 2)
    request = next(steps)
    assert isinstance(request, Get)
    record = simulation.replicas[0][request.table, request.key]
    with pytest.raises(StopIteration) as stop:
        steps.send(record)
    assert stop.value.value == {"1": {}, "4": {"status": StoredCell("open", 5)}}
