"""Ranges of computed rows that take long: a read lacks them, and they are computed slice by slice."""

import pytest
from pequod_grammar import parse

from pequod.engine import UNLIMITED, Engine, LimitExceededError, MissingError, Uncomputed
from pequod.engine.reads import reach
from tests.engine.joins import TIMELINE, put_all

USERS = 100


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "SLICE_KEYS", 4)


def _engine(joins: str, memory_limit: int = UNLIMITED) -> Engine:
    engine = Engine(at_once=False, memory_limit=memory_limit)
    engine.add_joins(parse(joins))
    put_all(engine, {f"s|u{number:02}|bob": "1" for number in range(USERS)} | {"p|bob|0100": "Hi"})
    return engine


def _lacking(engine: Engine, first: bytes, last: bytes) -> Uncomputed:
    with pytest.raises(MissingError) as missing:
        engine.count(first, last)
    (lacking,) = missing.value.uncomputed
    assert missing.value.lacking == (lacking,)
    return lacking


def _compute(engine: Engine, lacking: Uncomputed) -> int:
    at: bytes | None = lacking.first
    slices = 0
    while at is not None:
        at = engine.compute_some(lacking, at, now=0.0)
        slices += 1
    return slices


def test_a_long_range_is_computed_in_slices_while_rows_change() -> None:
    engine = _engine(TIMELINE)
    lacking = _lacking(engine, b"t|", b"t}")
    assert lacking == Uncomputed(b"t|", b"t}")
    at = engine.compute_some(lacking, lacking.first, now=0.0)
    assert at is not None
    assert engine.statistics().joins["t"].rows_computed == 4
    put_all(engine, {"p|bob|0200": "more", "s|u00|liz": "1", "p|liz|0300": "Hi"})
    while at is not None:
        at = engine.compute_some(lacking, at, now=0.0)
    assert engine.count(b"t|", b"t}") == 2 * USERS + 1
    assert engine.scan(b"t|u00|", b"t|u00}").keys == [b"t|u00|0100|bob", b"t|u00|0200|bob", b"t|u00|0300|liz"]


def test_a_slice_lacks_the_long_ranges_below_it() -> None:
    # The order of its rows is not that of its source's keys.
    engine = _engine(f"{TIMELINE}; by|<poster>|<user>|<time:4> = copy t|<user>|<time:4>|<poster>")
    with pytest.raises(MissingError) as missing:
        engine.count(b"by|", b"by}")
    (lacking,) = missing.value.uncomputed
    assert lacking == Uncomputed(b"t|", b"t}")
    assert _compute(engine, lacking) == USERS // 4
    assert engine.count(b"by|", b"by}") == USERS


def test_a_read_for_which_memory_is_too_short_is_refused_and_pieces_of_it_are_not() -> None:
    engine = _engine(TIMELINE, memory_limit=300_000)
    put_all(engine, {f"p|bob|{time:04}": "Hi" for time in range(101, 200)})
    lacking = _lacking(engine, b"t|", b"t}")
    with pytest.raises(LimitExceededError):
        _compute(engine, lacking)
    pieces, first = [], b"t|"
    while keys := engine.scan(first, b"t}", limit=30).keys:
        pieces += keys
        first = keys[-1] + b"\0"
    assert pieces == [b"t|u%02d|%04d|bob" % (user, time) for user in range(USERS) for time in range(100, 200)]


def test_slices_that_are_gone_before_the_read_comes_again_are_computed_at_once_for_that_read_alone() -> None:
    engine = _engine(TIMELINE, memory_limit=10_000_000)
    _compute(engine, _lacking(engine, b"t|", b"t}"))
    for _ in range(2):
        assert not engine.evict_ahead(0, 10_000_000)
        assert engine.statistics().joins["t"].rows == 0
        if engine.statistics().joins["t"].rows_computed == USERS:
            assert engine.count(b"t|", b"t}") == USERS
    _lacking(engine, b"t|", b"t}")


def test_what_is_short_is_computed_at_once() -> None:
    engine = _engine(TIMELINE)
    assert engine.count(b"t|u01|", b"t|u01}") == 1
    assert engine.count(b"t|u05|", b"t|u07}") == 3
    assert Engine(at_once=True).count(b"t|", b"t}") == 0


def test_a_group_of_which_rows_are_kept_is_computed_at_once() -> None:
    engine = _engine("newest|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4> keep last 2")
    assert engine.count(b"newest|", b"newest}") == 2
    assert engine.statistics().joins["newest"].computed_ranges == 1


def test_a_limited_read_that_is_refused_once_does_not_ask_for_its_slices_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "SLICE_KEYS", 1)
    engine = Engine(at_once=False)
    engine.add_joins(
        parse(
            "y0|<x> = count q|<x>|<y>; y1|<x> = count s|<x>|<y>; y2|<x> = max p|<x>|<y>;"
            "u|<x:1> = pull count q|<x:1>|<y>; u|<x:1> = max p|<x:1>|<y>;"
            "w|<z>|<x:1> = check s|<z>|<n:i64> copy u|<x:1> with . = <n:i64>"
        )
    )
    put_all(engine, {"q|a|b": "-3", "q|~|a": "1e3", "q|~|b": "2", "q|b|a": "x", "q|||a": "9", "p|a|a": "0.5"})
    put_all(engine, {f"s|{key}": "x" for key in ("a|7fffffffffffffff", "a|8000000000000001", "b|8000000000000001")})
    put_all(engine, {"p|b|a": "1", "p|||a": "2", "p|c|a": "1", "p|b|ab": "1", "s|a|ab": "x", "s|b|~": "x"})
    refused = 0
    limits = range(engine.ledger.total_bytes, 60_000, 250)
    for limit in limits:
        engine.limit_memory(limit)
        try:
            _read_patiently(engine)
        except LimitExceededError:
            refused += 1
    assert 0 < refused < len(limits)


def _read_patiently(engine: Engine) -> None:
    """Read one row, and compute what that lacks, as a server does."""
    for _ in range(20):
        try:
            assert engine.scan(b"u|a", b"u|c", limit=2).values
        except MissingError as error:
            for index in error.indexes:
                while engine.index_some(index):
                    pass
            for lacking in error.uncomputed:
                _compute(engine, lacking)
        else:
            return
    raise AssertionError("the read never has what it lacks")
