"""Adds: an engine adds as the model does, exactly, refuses what is no number, and a store in the process tells sums."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pequod_grammar import parse

import pequod
from pequod.engine import ComputedKeyError, Engine, LimitExceededError
from pequod.engine.testing import NaiveModel
from pequod.errors import InvalidDeltaError, NotNumberError, SumTooLongError
from pequod.language.decimals import added

KARMA = parse("total|<user> = sum paid|<user>|<order>")
KEYS = st.sampled_from([b"paid|ann|1", b"paid|ann|2", b"loose"])
TEXTS = st.sampled_from([b"", b"x", b"1e3", b"-", b".", b"1.", b"+.5", b"-0", b"007", b"9" * 64, b"9" * 65, b"0" * 65])
NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda number: f"{number:f}".encode()[:64])


@given(st.lists(st.tuples(st.sampled_from(["put", "add", "add"]), KEYS, TEXTS | NUMBERS)))
@example([("add", b"loose", b"9" * 64), ("add", b"loose", b"1"), ("add", b"loose", b"-.5")])
def test_an_engine_adds_what_the_model_adds_and_joins_follow(steps: list[tuple[str, bytes, bytes]]) -> None:
    engine, model = Engine(), NaiveModel()
    engine.add_joins(KARMA)
    for spec in KARMA:
        model.add(spec)
    for call, key, number in steps:
        if call == "put":
            engine.put(key, number)
            model.put(key, number)
        else:
            revision, total = engine.revision, None
            try:
                total = engine.add(key, number)
            except (InvalidDeltaError, NotNumberError, SumTooLongError):
                assert engine.revision == revision
            assert total == model.add_to(key, number)
        rows = engine.scan(b"", None)
        assert list(zip(*rows, strict=True)) == model.scan(b"", None)


def test_what_is_refused_is_refused_by_name_and_unchanged() -> None:
    engine = Engine(value_bytes_max=70)
    engine.add_joins(KARMA)
    engine.put(b"n|1", b"twelve")
    engine.put(b"n|2", b"9" * 64)
    with pytest.raises(NotNumberError, match="is no number, so nothing was added"):
        engine.add(b"n|1", b"1")
    with pytest.raises(SumTooLongError, match="more than 64 bytes"):
        engine.add(b"n|2", b"1")
    with pytest.raises(InvalidDeltaError, match="is no number that can be added"):
        engine.add(b"n|3", b"one")
    with pytest.raises(ComputedKeyError):
        engine.add(b"total|ann", b"1")
    assert engine.base_rows() == ([b"n|1", b"n|2"], [b"twelve", b"9" * 64])
    with pytest.raises(LimitExceededError):
        Engine(value_bytes_max=3).add(b"n|1", b"1000")


def test_sums_are_exact_and_have_one_text() -> None:
    assert added(b"k", b"0.1", b"0.2") == b"0.3"
    assert added(b"k", b"1.50", b"0") == b"1.5"
    assert added(b"k", b"-1", b"1") == b"0"
    small = b"0." + b"0" * 61 + b"1"
    assert added(b"k", b"1", small) == b"1" + small[1:]
    assert added(b"k", b"1" + small[1:], b"-1") == small


def test_a_store_in_the_process_tells_sums() -> None:
    with pequod.open() as client:
        assert client.add("n", 5) == b"5"
        assert client.add("n", -7) == b"-2"
        assert client.add("n", Decimal("0.10")) == b"-1.9"
        assert client.add("n", "2") == b"0.1"
        assert client.add("n", Decimal("1E+3")) == b"1000.1"
        batch = client.batch()
        batch.add("m", 1)
        batch.add("m", b"1")
        batch.add("m", "one")
        batch.get("m")
        results = list(batch.send())
        assert (results[:2], results[3]) == ([b"1", b"2"], b"2")
        assert isinstance(results[2], InvalidDeltaError)
        for wrong in (0.5, True, None):
            with pytest.raises(TypeError, match="what is added is an int"):
                client.add("n", wrong)  # type: ignore[arg-type]
