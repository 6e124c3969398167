"""What was dropped is told: which range, when, and what for."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, LimitExceededError, Reason
from pequod.engine.memory.story import STORY_MAX
from pequod.engine.writes import changes
from tests.engine.joins import TIMELINE

FIRST, LAST = b"t|ann|", b"t|ann}"


def _engine(join: str = TIMELINE) -> Engine:
    engine = Engine(backed=[b"p"])
    engine.add_joins(parse(join))
    engine.put(b"s|ann|bob", b"1")
    engine.load(b"p|", b"p}", [(b"p|bob|0100", b"Hi")])
    engine.tell_time(10.0)
    engine.scan(FIRST, LAST, now=10.0)
    return engine


CASES: dict[Reason, Callable[[Engine], object]] = {
    Reason.EVICTED: lambda engine: engine.evict(1),
    Reason.INVALIDATED: lambda engine: engine.invalidate(FIRST, LAST),
    Reason.JOINS: lambda engine: engine.drop_join("t"),
    Reason.FORGOTTEN: lambda engine: engine.forget(b"p|bob|", b"p|bob}"),
}


@pytest.mark.parametrize("reason", CASES)
def test_why_a_range_was_dropped_is_told(reason: Reason) -> None:
    engine = _engine()
    assert engine.dropped() == []
    CASES[reason](engine)
    told = {dropped.name: dropped for dropped in engine.dropped()}
    assert (told["t"].first, told["t"].last, told["t"].reason, told["t"].at_s) == (FIRST, LAST, reason, 10.0)
    if reason is Reason.FORGOTTEN:
        assert (told["p"].first, told["p"].last, told["p"].reason) == (b"p|bob|", b"p|bob}", reason)
    if reason is not Reason.JOINS:
        (explained,) = engine.explain_range(FIRST, LAST, now=12.5).dropped
        assert (explained.name, explained.first, explained.last) == ("t", FIRST, LAST)
        assert (explained.reason, explained.ago_s) == (reason.value, 2.5)
    assert engine.explain_range(b"t|bob|", b"t|bob}").dropped == ()
    assert engine.explain_range(LAST, FIRST).dropped == ()


def test_a_log_that_is_too_long_is_told() -> None:
    with patch.object(changes, "LOG_MAX", 2):
        engine = _engine()
    for poster in (b"eve", b"joe", b"liz"):
        engine.put(b"s|ann|" + poster, b"1")
    assert [dropped.reason for dropped in engine.dropped()] == [Reason.LOGGED]


def test_what_expired_and_what_was_widened_is_told() -> None:
    engine = _engine(TIMELINE.replace("check", "snapshot 5 check", 1))
    engine.scan(FIRST, LAST, now=20.0)
    assert [dropped.reason for dropped in engine.dropped()] == [Reason.EXPIRED]
    engine = _engine()
    engine.get(b"t|liz|0100|bob")
    engine.scan(b"t|liz|", b"t|liz}")
    assert [dropped.reason for dropped in engine.dropped()] == [Reason.WIDENED]


def test_parts_of_a_backed_table_that_memory_has_no_room_for_are_told() -> None:
    engine = _engine()
    engine.evict(10)
    assert {(dropped.name, dropped.reason) for dropped in engine.dropped()} == {
        ("t", Reason.EVICTED),
        ("p", Reason.EVICTED),
    }
    engine.limit_memory(20_000)
    before = engine.dropped()[-1].number
    with pytest.raises(LimitExceededError):
        engine.load(b"p|", b"p}", [(b"p|bob|%04d" % number, b"x" * 100) for number in range(1_000)])
    assert {dropped.reason for dropped in engine.dropped(before)} <= {Reason.EVICTED}


def test_who_asks_again_is_told_the_rest_and_that_some_is_lost() -> None:
    engine = _engine()
    for number in range(1, STORY_MAX + 11):
        engine.scan(FIRST, LAST)
        engine.invalidate(FIRST, LAST)
        (latest,) = engine.dropped(number - 1)
        assert latest.number == number
        assert engine.dropped(number) == []
    assert engine.dropped(3)[0].number == 11 > 3 + 1
    assert len(engine.dropped()) == STORY_MAX
    assert len(engine.explain_range(FIRST, LAST).dropped) == 20
    engine._check()
