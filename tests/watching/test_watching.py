"""Watches over cut connections do what they promise, and the judge of it finds what they must not do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from pequod_bench.systems.server import started_server

from tests.watching.__main__ import run
from tests.watching.history import History, Recorder
from tests.watching.judge import wrong

HISTORIES = 60


def test_watches_are_ordered_unique_reliable_atomic_resumable_and_bookmarkable() -> None:
    with started_server() as (target, _):
        count = asyncio.run(run(target, HISTORIES, seed=1))
    assert count.histories == HISTORIES
    assert count.resumed > HISTORIES


@cache
def recorded() -> list[History]:
    async def record(target: str) -> list[History]:
        async with Recorder(target, Random(2)) as recorder:
            return await recorder.record_some([str(number) for number in range(20)])

    with started_server() as (target, _):
        return asyncio.run(record(target))


def leave_out_a_change(history: History) -> None:
    next(event for event in reversed(history.watches[0].events) if event.changes).changes.pop()


def tell_an_event_twice(history: History) -> None:
    events = history.watches[0].events
    at = next(number for number, event in enumerate(events) if event.changes)
    events.insert(at + 1, events[at])


def tell_a_value_again(history: History) -> None:
    events = [event for event in history.watches[0].events if any(change.new for change in event.changes)]
    events[-1].changes.extend(change for change in events[0].changes if change.new)


def turn_two_events_round(history: History) -> None:
    events = history.watches[1].events
    first, other = [number for number, event in enumerate(events) if event.changes][:2]
    events[first], events[other] = events[other], events[first]


def tell_another_watch_less(history: History) -> None:
    events = [event for event in history.watches[1].events if event.changes]
    events[0].changes.pop(0)


def split_a_transaction(history: History) -> None:
    events = history.watches[0].events
    for at, event in enumerate(events):
        values = [change.new for change in event.changes if change.new]
        for write in history.writes:
            if len([value for value in write.rows.values() if value in values and value is not None]) > 1:
                events[at : at + 1] = [
                    replace(event, revision=event.revision - 1, changes=event.changes[:-1]),
                    replace(event, changes=event.changes[-1:]),
                ]
                return


def promise_too_much(history: History) -> None:
    events = history.watches[0].events
    at = next(number for number, event in reversed([*enumerate(events)]) if any(change.new for change in event.changes))
    events.insert(at, replace(events[at], revision=events[at].revision, changes=[]))
    events[at + 1] = replace(events[at + 1], revision=events[at + 1].revision + 1)


def count_too_late(history: History) -> None:
    events = history.watches[4].events
    at = next(
        number
        for number, event in enumerate(events)
        if event.changes and event.revision == _told(history, event.revision)
    )
    events[at + 1 : at + 1] = [replace(events[at], revision=events[at].revision + 1)]
    events[at] = replace(events[at], changes=[])


def _told(history: History, revision: int) -> int:
    return next((event.revision for event in history.watches[0].events if event.revision == revision), -1)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (leave_out_a_change, "reliable"),
        (tell_an_event_twice, "ordered"),
        (tell_a_value_again, "reliable"),
        (turn_two_events_round, "ordered"),
        (tell_another_watch_less, "reliable"),
        (split_a_transaction, "atomic"),
        (promise_too_much, "bookmarkable"),
        (count_too_late, "atomic"),
    ],
)
def test_the_judge_finds(fault: Callable[[History], None], found: str) -> None:
    histories = deepcopy(recorded())
    assert [wrong(history) for history in histories] == [None] * len(histories)
    names = set()
    for history in histories:
        fault(history)
        names.add(str(wrong(history)).partition(":")[0])
    assert found in names
