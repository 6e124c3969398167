"""Writes under a condition: an engine does what the model does, and a store in the process tells what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_grammar import parse

import pequod
from pequod import native
from pequod.engine import ComputedKeyError, Engine, LimitExceededError
from pequod.engine.testing import NaiveModel
from pequod.language.conditions import (
    IF_ABSENT,
    IF_PRESENT,
    MET,
    Condition,
    IfValue,
    Unmet,
    coded,
    decoded,
    holds,
)
from pequod.language.errors import InvalidConditionError

KEYS = st.sampled_from([b"p|a|1", b"p|a|2", b"s|x|a", b"loose"])
VALUES = st.sampled_from([b"", b"1", b"2"])
CONDITIONS = st.just(IF_ABSENT) | st.just(IF_PRESENT) | VALUES.map(IfValue)
TIMELINE = parse("t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")


@given(st.lists(st.tuples(KEYS, VALUES | st.none(), CONDITIONS)))
def test_an_engine_writes_what_the_model_writes_and_joins_follow(
    steps: list[tuple[bytes, bytes | None, Condition]],
) -> None:
    engine, model = Engine(), NaiveModel()
    engine.add_joins(TIMELINE)
    for spec in TIMELINE:
        model.add(spec)
    for key, value, condition in steps:
        revision, present = engine.revision, engine.get(key)
        assert engine.write_if(key, value, condition) == model.write_if(key, value, condition)
        rows = engine.scan(b"", None)
        assert list(zip(*rows, strict=True)) == model.scan(b"", None)
        if not holds(condition, present) or value == present:
            assert engine.revision == revision, "the revision moves only if there is an effect"


@pytest.mark.parametrize("condition", [IF_ABSENT, IF_PRESENT, IfValue(b""), IfValue(b"x")])
def test_a_condition_is_the_same_on_the_wire(condition: Condition) -> None:
    assert decoded(*coded(condition)) == condition


def test_conditions_have_the_same_numbers_here_and_in_the_core() -> None:
    header = Path(native.__file__).with_name("verbs.hpp").read_text("utf-8")
    found = re.search(r"enum ConditionNumber : unsigned char \{ IF_ABSENT = (\d+), IF_PRESENT, IF_VALUE \};", header)
    assert found is not None
    numbers = [coded(condition)[0] for condition in (IF_ABSENT, IF_PRESENT, IfValue(b""))]
    assert numbers == [int(found[1]) + place for place in range(3)]


def test_a_number_that_is_no_condition_is_refused() -> None:
    with pytest.raises(InvalidConditionError, match="no condition 4"):
        decoded(4, b"")


def test_what_a_put_refuses_is_refused_whether_the_condition_holds_or_not() -> None:
    engine = Engine(value_bytes_max=3)
    engine.add_joins(TIMELINE)
    for condition in (IF_ABSENT, IF_PRESENT):
        with pytest.raises(ComputedKeyError):
            engine.write_if(b"t|x|1|a", b"1", condition)
        with pytest.raises(LimitExceededError):
            engine.write_if(b"p|a|1", b"long", condition)
    assert engine.scan(b"", None).keys == []


def test_a_store_in_the_process_tells_what_came_of_a_condition() -> None:
    with pequod.open() as client:
        assert client.put("user|ann", "1", condition=pequod.IF_ABSENT)
        taken = client.put("user|ann", "2", condition=pequod.IF_ABSENT)
        assert taken == Unmet(b"1")
        assert not taken
        assert client.put("user|bob", "2", condition=pequod.IF_PRESENT) == Unmet(None)
        assert client.put("user|ann", "2", condition=pequod.if_value("1")) == MET
        assert client.get("user|ann") == b"2"
        assert client.remove("user|ann", condition=pequod.if_value("1")) == Unmet(b"2")
        assert client.remove("user|ann", condition=pequod.if_value("2")) == MET
        batch = client.batch()
        batch.put("a", "1", condition=pequod.IF_ABSENT)
        batch.put("a", "2", condition=pequod.IF_ABSENT)
        batch.get("a")
        assert list(batch.send()) == [MET, Unmet(b"1"), b"1"]
