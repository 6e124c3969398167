"""Indexes made slice by slice: what a slice looks at, and that half an index changes no answer."""

import gc
from collections.abc import Callable

import orjson
import pytest
from pequod_grammar import parse

from pequod.engine import Backfill, Engine, LimitExceededError, MissingError, Unindexed
from pequod.engine.joins import indexes, record_parser
from pequod.language import many_records, records
from tests.engine.joins import put_all, scan

BY = "by|<a>|<id> = copy item|<id> with a = <a> as b"
#: Rows of the table, and of a slice.
COUNT, SLICE = 100, 8


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "SLICE_ROWS", SLICE)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every value that is parsed."""
    seen: list[bytes] = []

    def loads(value: bytes) -> object:
        seen.append(value)
        return orjson.loads(value)

    _parse_by(monkeypatch, loads)
    return seen


def _parse_by(monkeypatch: pytest.MonkeyPatch, loads: Callable[[bytes], object]) -> None:
    """Have every value parsed by a function."""
    for module, name in ((records, "read_json"), (many_records, "read_json"), (record_parser, "read_json")):
        monkeypatch.setattr(module, name, loads)
    # The quick way of many records has orjson itself.
    monkeypatch.setattr(many_records, "loads", loads)


def _engine(joins: str = BY, count: int = COUNT) -> Engine:
    engine = Engine(at_once=False)
    engine.add_joins(parse(joins))
    put_all(engine, {f"item|{number:03}": f'{{"a": {number % 7}, "b": {number}}}' for number in range(count)})
    return engine


def _lacking(read: Callable[[], object]) -> Unindexed:
    with pytest.raises(MissingError) as caught:
        read()
    assert not (caught.value.ranges or caught.value.searches)
    (lacking,) = caught.value.indexes
    return lacking


def _begun(engine: Engine, slices: int = 4) -> Unindexed:
    """Have a part of the index made, and return what is left."""
    lacking = _lacking(lambda: engine.scan(b"by|3|", b"by|3}"))
    for _ in range(slices):
        assert engine.index_some(lacking)
        engine._check()
    return lacking


def _finish(engine: Engine, lacking: Unindexed) -> None:
    while engine.index_some(lacking):
        engine._check()
    engine._check()


def _expected(engine: Engine) -> dict[str, str]:
    at_once = Engine()
    at_once.add_joins(parse(BY))
    put_all(at_once, scan(engine, "item|"))
    return scan(at_once, "by|")


def test_no_slice_looks_at_more_rows_than_one_may(parsed: list[bytes]) -> None:
    engine = _engine()
    lacking = _lacking(lambda: engine.scan(b"by|3|", b"by|3}"))
    assert not parsed, "a read that lacks an index looks at no row"
    slices = 0
    while True:
        before = len(parsed)
        is_more = engine.index_some(lacking)
        assert len(parsed) - before <= SLICE
        slices += 1
        if not is_more:
            break
    assert len(parsed) == COUNT
    assert slices == COUNT // SLICE + 1
    assert scan(engine, "by|") == _expected(engine)


def test_no_slice_looks_at_more_bytes_than_one_may_and_a_row(
    monkeypatch: pytest.MonkeyPatch, parsed: list[bytes]
) -> None:
    monkeypatch.setattr(indexes, "SLICE_BYTES", 1000)
    engine = Engine(at_once=False)
    engine.add_joins(parse(BY))
    sizes = [10, 600, 600, 5000, 10, 10, 10, 999, 2]
    for number, size in enumerate(sizes):
        engine.put(b"item|%d" % number, b'{"a":"x","b":1,"c":"%b"}' % (b"c" * size))
    lacking = _lacking(lambda: engine.scan(b"by|x|", b"by|x}"))
    is_more = True
    while is_more:
        del parsed[:]
        is_more = engine.index_some(lacking)
        assert sum(map(len, parsed[:-1])) < 1000
    assert len(scan(engine, "by|x|")) == len(sizes)


def test_a_long_record_is_parsed_once_and_freed_in_a_turn_of_its_own(parsed: list[bytes]) -> None:
    engine = Engine(at_once=False)
    engine.add_joins(parse(BY))
    arrays = b",".join([b"[]"] * 100_000)
    # The core does without a parser, but for an escape in a name. Of the field, one value is as usual, one has to be
    # looked at again, and one fits no slot.
    for number, field in enumerate((b'"x"', b"7", b"[]")):
        engine.put(b"item|%d" % number, b'{"a":%b,"b":1,"\\u0063":[%b]}' % (field, arrays))
    lacking = _lacking(lambda: engine.scan(b"by|", b"by}"))
    turns = []
    is_more = True
    while is_more:
        del parsed[:]
        is_more = engine.index_some(lacking)
        turns.append(len(parsed))
    assert turns == [1, 0, 1, 0, 1, 0, 0]
    assert [*scan(engine, "by|")] == ["by|7|1", "by|x|0"]


def test_long_records_that_are_put_between_slices_do_not_hold_up_the_index() -> None:
    engine = _engine()
    lacking = _begun(engine)
    for number in range(4 * COUNT):
        # A row that the slices have passed, so that the index looks at the change.
        engine.put(b"item|000", b'{"a":%d,"b":1,"c":"%b"}' % (number, b"c" * 300_000))
        if not engine.index_some(lacking):
            break
    else:
        pytest.fail("the index is not made while long records are put")
    assert scan(engine, "by|") == _expected(engine)


def test_a_small_index_is_made_by_the_read() -> None:
    engine = _engine(count=SLICE)
    assert list(scan(engine, "by|3|")) == ["by|3|003"]


def test_reads_of_all_rows_lack_a_large_index_too() -> None:
    engine = _engine(f"{BY}; all|<a>|<id> = pull copy item|<id> with a = <a> as b")
    for first, last in ((b"by|", b"by}"), (b"all|", b"all}"), (b"", None)):
        _lacking(lambda first=first, last=last: engine.scan(first, last))  # type: ignore[misc]
        _lacking(lambda first=first, last=last: engine.count(first, last))  # type: ignore[misc]


@pytest.mark.parametrize("slices", [1, 4, 12])
def test_rows_that_change_around_the_reached_place_are_in_the_index(slices: int) -> None:
    engine = _engine()
    lacking = _begun(engine, slices)
    for number in range(0, COUNT, 3):
        engine.put(b"item|%03d" % number, b'{"a": 3, "b": "new"}')
    for number in range(1, COUNT, 3):
        engine.remove(b"item|%03d" % number)
    put_all(engine, {"item|0000": '{"a": 3, "b": 1}', "item|9": '{"a": 3, "b": 2}', "item|050x": "no record"})
    engine._check()
    _finish(engine, lacking)
    assert scan(engine, "by|") == _expected(engine)


def test_changes_reach_what_was_read_before_the_index_was_evicted() -> None:
    engine = _engine()
    _finish(engine, _lacking(lambda: engine.scan(b"by|3|", b"by|3}")))
    before = scan(engine, "by|3|")
    (index,) = {index for join in engine._catalog for index in join.indexes if index is not None}
    index.drop()
    lacking = _lacking(lambda: engine.scan(b"by|4|", b"by|4}"))
    engine.index_some(lacking)
    # One on each side of the place that is reached.
    put_all(engine, {"item|000": '{"a": 3, "b": 0}', "item|099": '{"a": 3, "b": 1}'})
    assert scan(engine, "by|3|") == before | {"by|3|000": "0", "by|3|099": "1"}


def test_a_join_that_sees_the_same_goes_on_with_the_index_and_the_last_takes_it_along() -> None:
    engine = _engine()
    lacking = _begun(engine)
    engine.add_joins(parse("d|<a>|<id> = copy item|<id> with a = <a> as b"))
    engine.drop_join("by")
    assert engine.ledger.index_count == 1
    assert engine.index_some(lacking)
    engine.drop_join("d")
    assert (engine.ledger.index_count, engine.ledger.index_bytes) == (0, 0)
    assert not engine.index_some(lacking), "nothing is left to make"
    engine._check()


def test_an_index_that_does_not_fit_is_refused_by_name_and_leaves_nothing() -> None:
    engine = _engine()
    engine.weigh()
    engine.limit_memory(engine.ledger.stored_bytes + 3000)
    lacking = _lacking(lambda: engine.scan(b"by|3|", b"by|3}"))
    with pytest.raises(LimitExceededError, match="memory_limit"):
        _finish(engine, lacking)
    assert (engine.ledger.index_count, engine.ledger.index_bytes) == (0, 0)
    engine.limit_memory(1 << 20)
    _finish(engine, lacking)
    assert scan(engine, "by|") == _expected(engine)


def test_who_makes_an_index_is_told_that_it_was_evicted_meanwhile() -> None:
    engine = _engine()
    lacking = _begun(engine)
    for _ in range(2000):
        engine.count(b"item|0", b"item|1", now=0.0)
        engine.scan(b"by|", b"by|")
    engine.evict(1)
    assert engine.ledger.index_count == 0
    with pytest.raises(LimitExceededError, match="memory_limit"):
        engine.index_some(lacking)
    _finish(engine, lacking)
    assert scan(engine, "by|") == _expected(engine)


def test_a_forgotten_range_takes_half_an_index_along() -> None:
    engine = Engine(backed=[b"item"], at_once=False)
    engine.add_joins(parse(BY))
    rows = [(b"item|%03d" % number, b'{"a": %d, "b": %d}' % (number % 7, number)) for number in range(COUNT)]
    engine.load(b"item|", b"item}", rows)
    _begun(engine)
    engine.forget(b"item|050", b"item|060")
    assert engine.ledger.index_count == 0
    with pytest.raises(MissingError) as caught:
        engine.scan(b"by|3|", b"by|3}")
    assert [tuple(one) for one in caught.value.ranges] == [(b"item|050", b"item|060")]
    engine.load(b"item|050", b"item|060", rows[50:60])
    _finish(engine, _lacking(lambda: engine.scan(b"by|3|", b"by|3}")))
    assert len(scan(engine, "by|")) == COUNT


def test_a_watch_begins_once_its_index_is_made() -> None:
    engine = _engine()
    _finish(engine, _lacking(lambda: engine.watch(b"by|3|", b"by|3}", lambda: None)))
    watch = engine.watch(b"by|3|", b"by|3}", lambda: None)
    engine.put(b"item|x", b'{"a": 3, "b": 1}')
    assert [change.key for change in engine.settle(watch)] == [b"by|3|x"]


def test_a_backfill_begins_once_the_indexes_that_it_needs_are_made() -> None:
    joins = "t|<u>|<id> = check s|<u>|<a> copy item|<id> with a = <a>"
    engine = _engine(joins)
    engine.put(b"s|ann|3", b"")

    def begin() -> Backfill:
        return engine.backfills.begin("t", b"", None, engine.revision, level=None, record_bytes_max=1 << 20)

    _finish(engine, _lacking(begin))
    backfill = begin()
    engine.backfills.end(backfill, "done")


def test_the_collector_rests_while_records_are_parsed_and_goes_on_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states: list[bool] = []

    def loads(value: bytes) -> object:
        states.append(gc.isenabled())
        return orjson.loads(value)

    _parse_by(monkeypatch, loads)
    engine = _engine(count=0)
    scan(engine, "by|3|")
    large = b'{"a": 3, "b": 1, "c": [' + b",".join([b"[]"] * 10_000) + b"]}"
    engine.put(b"item|1", large)
    engine.put(b"item|2", large[:-1])
    engine.drop_join("by")
    engine.add_joins(parse(BY))
    assert list(scan(engine, "by|3|")) == ["by|3|1"]
    assert states
    assert not any(states)
    assert gc.isenabled()


def test_a_dropped_join_leaves_no_parsed_record_behind() -> None:
    def list_count() -> int:
        gc.collect()
        return sum(type(thing) is list for thing in gc.get_objects())

    engine = _engine(count=0)
    scan(engine, "by|3|")
    before = list_count()
    engine.put(b"item|1", b'{"a": 3, "b": 1, "c": [' + b",".join([b"[]"] * 10_000) + b"]}")
    engine.drop_join("by")
    assert list_count() < before + 1000
