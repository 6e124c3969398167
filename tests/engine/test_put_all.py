"""Many rows at once do what as many puts do."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_grammar import parse

from pequod.engine import ComputedKeyError, Engine, LimitExceededError
from pequod.engine.base import rows
from pequod.engine.testing import NaiveModel

JOINS = [
    "t|<user>|<time:1>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>",
    "n|<poster> = count p|<poster>|<time:1>",
]
KEYS = st.one_of(
    st.builds(
        lambda poster, time: b"p|%c|%c" % (poster, time), st.sampled_from(b"abc"), st.sampled_from(b"0123456789")
    ),
    st.builds(lambda user, poster: b"s|%c|%c" % (user, poster), st.sampled_from(b"xy"), st.sampled_from(b"abc")),
    st.sampled_from([b"p|a", b"p|", b"p", b"q", b"p|aa", b"s}", b"r|1", b"r|1|2"]),
)
BATCHES = st.lists(
    st.tuples(st.lists(st.tuples(KEYS, st.sampled_from([b"", b"1", b"2"])), max_size=30), st.booleans()), max_size=6
)


@pytest.fixture(autouse=True)
def _small_leaves() -> Iterator[None]:
    before = rows.set_leaf_max(4)
    yield
    rows.set_leaf_max(before)


@given(
    BATCHES,
    st.lists(st.sampled_from([b"t|x|", b"t|", b"n|", b"n|b"]), max_size=6),
    st.booleans(),
)
def test_it_is_as_many_puts(
    batches: list[tuple[list[tuple[bytes, bytes]], bool]], reads: list[bytes], is_joined: bool
) -> None:
    engine, one_by_one, model = Engine(), Engine(), NaiveModel()
    if is_joined:
        specs = [spec for text in JOINS for spec in parse(text)]
        engine.add_joins(specs)
        one_by_one.add_joins(specs)
        for spec in specs:
            model.add(spec)
    for number, (batch, is_sorted) in enumerate(batches):
        wanted = sorted(dict(batch).items()) if is_sorted else batch
        engine.put_all([key for key, _ in wanted], [value for _, value in wanted])
        for key, value in wanted:
            one_by_one.put(key, value)
            model.put(key, value)
        if number < len(reads):
            first = reads[number]
            assert engine.scan(first, first + b"\xff") == one_by_one.scan(first, first + b"\xff")
        engine._check()
        assert engine.revision == one_by_one.revision
    found = engine.scan(b"", None)
    assert found == one_by_one.scan(b"", None)
    assert list(zip(*found, strict=True)) == model.scan(b"", None)
    assert engine.count(b"", None) == one_by_one.count(b"", None)


def test_runs_go_between_rows_that_are_there() -> None:
    engine = Engine()
    engine.add_joins(parse(JOINS[0]))
    engine.put_all([b"p|a|1", b"p|a|9", b"p|c|5"], [b"", b"", b""])
    engine.put_all([b"p|a|%d" % number for number in range(2, 9)], [b"new"] * 7)
    engine.put_all([b"p|a|0", b"p|b|1", b"p|b|2", b"p|d|1"], [b""] * 4)
    engine._check()
    assert engine.count(b"p|", b"p}") == 14
    assert engine.count(b"p|a|", b"p|a}") == 10


def test_a_watch_is_told_of_each_row() -> None:
    engine = Engine()
    watch = engine.watch(b"p|a|", b"p|a}", lambda: None)
    engine.put_all([b"p|a|1", b"p|a|2", b"p|b|1"], [b"x", b"y", b"z"])
    assert [(change.key, change.new) for change in engine.settle(watch)] == [(b"p|a|1", b"x"), (b"p|a|2", b"y")]


def test_one_bad_row_among_ascending_ones_leaves_nothing_written() -> None:
    engine = Engine(value_bytes_max=3)
    engine.add_joins(parse(JOINS[1]))
    with pytest.raises(ComputedKeyError):
        engine.put_all([b"a|1", b"n|b", b"p|b|1"], [b"", b"", b""])
    with pytest.raises(LimitExceededError):
        engine.put_all([b"a|1", b"p|b|1"], [b"", b"long"])
    assert engine.count(b"", None) == 0


def test_a_backfill_records_what_they_replace() -> None:
    engine = Engine()
    engine.add_joins(parse("t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"))
    engine.put_all([b"p|bob|1", b"p|bob|2"], [b"one", b"two"])
    backfill = engine.backfills.begin("t", b"t|", None, engine.revision, level=None, record_bytes_max=1 << 20)
    engine.put_all([b"p|bob|2", b"p|bob|3"], [b"new", b"three"])
    engine.put_all([b"p|liz|1", b"p|liz|2"], [b"", b""])
    assert dict(backfill.record) == {b"p|bob|2": b"two", b"p|bob|3": None, b"p|liz|1": None, b"p|liz|2": None}
