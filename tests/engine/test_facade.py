"""Calls of the engine that servers make, and what few reads and writes come to."""

from __future__ import annotations

import pytest
from pequod_grammar import parse

from pequod.engine import (
    FLAVOUR,
    PINNED,
    BackedKeyError,
    Change,
    Changes,
    ComputedKeyError,
    Engine,
    InvalidKeyError,
    InvalidPieceError,
    JoinError,
    LimitExceededError,
    MissingError,
    Operator,
    Piece,
    Range,
    change_bytes,
)
from pequod.engine.base.rows import SortedRows
from pequod.engine.joins.aggregates import make_aggregate
from pequod.engine.joins.batches import Batch, apply_batch
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.joins.watches import Watch
from pequod.engine.shown import splits
from pequod.language.ranges import within
from pequod.native import parse_batch
from tests.engine.joins import TIMELINE, put_all


def _engine(joins: str, **options: object) -> Engine:
    engine = Engine(**options)  # type: ignore[arg-type]
    engine.add_joins(parse(joins))
    return engine


def _copies() -> tuple[Engine, InstalledJoin, Context]:
    engine = _engine("t|<u>|<t:3>|<p> = check s|<u>|<p> copy p|<p>|<t:3>")
    put_all(engine, {"s|ann|bob": "1", "p|bob|100": "a"})
    engine.scan(b"t|ann|", b"t|ann}")
    (join,) = engine._catalog
    return engine, join, join.contexts[b"t|ann|"]


def test_what_is_loaded_can_be_asked() -> None:
    engine = _engine("t|<u>|<x> = copy p|<u>|<x>; u|<u>|<x> = copy t|<u>|<x>; v|<x> = copy w|<x>", backed=[b"p", b"p"])
    engine.load(b"p|bob|", b"p|bob}", [(b"p|bob|1", b"x")])
    engine.put(b"w|1", b"y")
    assert engine.part_of(b"p|bob|1") == Range(b"p|bob|", b"p|bob}")
    assert (engine.part_of(b"p|liz|1"), engine.part_of(b"w|1")) == (None, None)
    assert engine.is_loaded(b"p|bob|7")
    assert not engine.is_loaded(b"p|liz|7")
    assert engine.base_rows().keys == [b"p|bob|1", b"w|1"]
    assert [engine.reads_backed(first, None) for first in (b"p|", b"u|", b"v|")] == [True, True, False]
    assert engine.row_bytes([(b"p|1", b"x")]) > 4
    assert not engine.is_timed


def test_a_batch_is_native_where_the_engine_is() -> None:
    batch = parse_batch(b"", 1, 1, 1 << 20)
    assert (batch is not None) == (FLAVOUR == "native")


def test_whose_a_key_is_is_said_as_a_put_would() -> None:
    engine = _engine("t|<u>|<x> = copy p|<u>|<x>", backed=[b"p"], key_bytes_max=8)
    assert engine.owned_by_database(b"p|1")
    assert not engine.owned_by_database(b"t|loose")
    assert not engine.owned_by_database(b"loose")
    assert not engine.owned_by_database(b"x|1")
    with pytest.raises(ComputedKeyError):
        engine.owned_by_database(b"t|a|b")
    with pytest.raises(InvalidKeyError):
        engine.owned_by_database(b"")
    with pytest.raises(LimitExceededError):
        engine.owned_by_database(b"123456789")
    with pytest.raises(BackedKeyError):
        engine.put_all([b"p|1"], [b""])
    engine.load(b"p|", b"p}", [])
    engine.put_all([b"t|1", b"t|2"], [b"", b""])
    assert engine.scan(b"t|", b"t}").keys == [b"t|1", b"t|2"]


def test_a_large_value_from_the_database_is_weighed_sooner() -> None:
    engine = Engine(backed=[b"p"], memory_limit=1 << 30)
    engine.load(b"p|", b"p}", [])
    due = engine.ledger.weigh_at
    assert engine.apply(b"p|1", b"x" * 100_000)
    assert engine.ledger.weigh_at < due
    with pytest.raises(LimitExceededError):
        engine.refuse_rows(1 << 31)


def test_evicting_ahead_says_when_the_goal_is_reached() -> None:
    engine = _engine(TIMELINE, memory_limit=1 << 30)
    for user in range(100):
        engine.put(b"s|%03d|bob" % user, b"1")
    engine.put(b"p|bob|0000000100", b"Hi")
    for user in range(100):
        engine.scan(b"t|%03d|" % user, b"t|%03d}" % user)
    engine.weigh()
    held_bytes = engine.ledger.total_bytes
    assert engine.evict_ahead(held_bytes // 2, 2000)
    assert engine.ledger.total_bytes < held_bytes
    assert not engine.evict_ahead(held_bytes * 2, 2000)
    assert engine.evict(10) >= 10
    engine._check()
    unlimited = Engine()
    unlimited.put(b"x|1", b"1")
    unlimited.weigh()
    unlimited.weigh()
    assert unlimited.statistics().memory.stored_bytes > 0


def test_what_is_pinned_can_be_dropped_all_the_same() -> None:
    engine = _engine(TIMELINE, priorities={"t": PINNED}, memory_limit=1 << 30)
    put_all(engine, {"s|ann|bob": "1", "p|bob|0000000100": "Hi"})
    engine.scan(b"t|ann|", b"t|ann}")
    assert engine.evict(1) == 0
    assert engine.invalidate(b"t|", b"t}") == 1


def test_evicting_waits_after_it_looked_at_much_for_nothing() -> None:
    """What is watched may not go; to look at all of it for each read would be a waste."""
    engine = _engine("t|<u>|<x> = copy p|<u>|<x>", memory_limit=1 << 20)
    for user in range(40):
        engine.put(b"p|%02d|1" % user, b"x" * 8000)
        engine.scan(b"t|%02d|" % user, b"t|%02d}" % user)
    engine.watch(b"t|", b"t}", lambda: None)
    engine.ledger.limit(300_000)
    assert [engine._memory.make_room(1 << 20) for _ in range(4)] == [False] * 4
    assert len(engine.loaded()) == 0
    assert engine.statistics().joins["t"].contexts > 16


def test_a_read_evicts_what_was_held_when_it_was_tried_last() -> None:
    engine = _engine("t|<u>|<x> = copy p|<u>|<x>", memory_limit=1 << 20)
    for user in range(40):
        engine.put(b"p|%02d|1" % user, b"x")
        engine.scan(b"t|%02d|" % user, b"t|%02d}" % user)
    engine.put(b"p|new|1", b"x")
    watch = engine.watch(b"t|", b"t|40}", lambda: None)
    engine.weigh()
    engine.ledger.limit(engine.ledger.total_bytes - 1)
    assert not engine.make_room(), "all of it is watched"
    with pytest.raises(LimitExceededError, match="memory_limit"):
        engine.scan(b"t|new|", b"t|new}")
    engine.unwatch(watch)
    assert not engine.make_room(), "nothing is tried so soon again"
    assert engine.scan(b"t|new|", b"t|new}").values == [b"x"]
    engine._check()


def test_a_context_that_two_ways_depend_on_is_ranked_once() -> None:
    engine = _engine(
        "b|<u>|<x> = copy a|<u>|<x>; c|<u>|<x> = copy b|<u>|<x>; d|<u>|<x> = check b|<u>|<x> copy c|<u>|<x>"
    )
    engine.limit_memory(1 << 30)
    engine.put(b"a|1|2", b"x")
    assert engine.scan(b"d|1|", b"d|1}").keys == [b"d|1|2"]
    assert engine.evict(3) == 3


def test_a_watch_ends_when_its_join_is_computed_on_every_read() -> None:
    engine = _engine("t|<u>|<x> = copy a|<u>|<x>")
    engine.put(b"b|1|2", b"x")
    watch = engine.watch(b"t|", b"t}", lambda: None)
    engine.add_joins(parse("a|<u>|<x> = pull copy b|<u>|<x>"))
    engine.settle(watch)
    assert watch.ended is not None
    reason = watch.ended
    watch.end("twice")
    assert watch.ended == reason


def test_what_needs_more_than_is_loaded_says_so_through_other_joins() -> None:
    engine = _engine(
        """a|<u>|<t:3>|<p> = check s|<u>|<p> copy p|<p>|<t:3>; b|<u>|<t:3>|<p> = copy a|<u>|<t:3>|<p>;
        b|<u>|<p>|x = check s|<u>|<p> copy p|<p>|x""",
        backed=[b"p"],
    )
    engine.put(b"s|ann|bob", b"1")
    engine.load(b"p|bob|", b"p|bob}", [(b"p|bob|100", b"Hi")])
    assert engine.scan(b"b|ann|", b"b|ann}").keys == [b"b|ann|100|bob"]
    engine.put(b"s|ann|liz", b"1")
    for last in (b"b|ann}", b"b|ann|~"):
        with pytest.raises(MissingError):
            engine.scan(b"b|ann|", last)
    engine.load(b"p|liz|", b"p|liz}", [(b"p|liz|120", b"Ho")])
    assert engine.scan(b"b|ann|", b"b|ann}").keys == [b"b|ann|100|bob", b"b|ann|120|liz"]
    engine._check()


def test_copies_from_a_table_that_is_not_cut_are_found() -> None:
    engine = _engine("t|<u>|<t:3>|<p> = check s|<u>|<p> copy p|x|<p>|<t:3>")
    put_all(engine, {"s|ann|bob": "1", "s|ann|liz": "1", "p|x|bob|100": "a", "p|y|bob|100": "b", "p|x|liz|090": "c"})
    assert engine.scan(b"t|ann|", b"t|ann}").keys == [b"t|ann|090|liz", b"t|ann|100|bob"]


def test_rows_that_are_there_already_are_counted_once() -> None:
    engine, join, context = _copies()
    batch = Batch(2)
    batch.tails, batch.values = [b"200|liz"], [b"b"]
    for sign, count in ((1, 2), (1, 2), (-1, 1), (-1, 1)):
        apply_batch(context, sign, batch, None)
        assert len(context.rows) == engine.ledger.entry_count == count
    engine._writer._set(join, context, b"200|liz", None, 0)


def test_pieces_that_are_no_contributions_to_one_context_are_refused() -> None:
    engine = _engine("t|<u>|<x> = copy p|<u>|<x>; n|<u> = count v|<u>|<x>")
    copies = engine.backfills.begin("t", b"t|", None, engine.revision, level=1, record_bytes_max=1 << 20)
    with pytest.raises(InvalidPieceError, match="prefix"):
        engine.backfills.load(copies, [Piece(b"t|ann", b"t|ann\0", [], [])])
    counts = engine.backfills.begin("n", b"n|", None, engine.revision, level=0, record_bytes_max=1 << 20)
    with pytest.raises(InvalidPieceError, match="less than once"):
        engine.backfills.load(counts, [Piece(b"n|", b"n}", [b"ann"], [], [0])])
    engine.put(b"v|ann|1", b"")
    assert counts.changed_size()[0] == 1
    engine.backfills.end(counts, "done")
    assert counts.changed_size()[0] == 1


def test_a_contribution_that_comes_several_times_counts_so() -> None:
    total = make_aggregate(Operator.SUM)
    assert total.result(total.add(None, b"v|1", b"2", 3)) == b"6"


def test_a_key_that_stands_for_many_rows_is_one_split() -> None:
    assert splits.choose([(b"a", 2), (b"a", 2), (b"a", 2)], b"", 3) == [b"a"]


def test_a_row_is_replaced_if_it_is_there() -> None:
    rows = SortedRows()
    key = bytes(bytearray(b"a"))
    rows.put(key, b"1")
    assert rows.replace(b"a", b"2") is key
    assert rows.replace(b"b", b"2") is None
    assert rows.everything().values == [b"2"]


def test_a_prefix_narrows_a_range() -> None:
    assert within(b"t|ann|", b"t|ann|5", None) == (b"t|ann|5", b"t|ann}")


def test_changes_take_the_bytes_of_keys_and_old_values() -> None:
    changes = Changes()
    for change in (Change(b"k", b"old", b"n"), Change(b"k", None, b"n"), Change(b"k", b"n", None)):
        changes.append(change)
    kept, told = change_bytes(changes)
    assert kept > told == 3 * len(b"k") + len(b"old") + 3 * len(b"n")
    assert change_bytes(Changes()) == (0, 0)


def test_a_refusal_shows_the_part_of_a_long_line_that_it_is_about() -> None:
    text = "t|<user>|<time:10>|<poster> = " + "check s|<user>|<poster> " * 20 + "copi p|<poster>|<time:10>"
    with pytest.raises(JoinError) as error:
        parse(text)
    assert "…" in str(error.value)


def test_a_watch_is_told_by_its_own_methods() -> None:
    watch = Watch(b"a", None, lambda: None)
    watch.tell(Change(b"k", None, b"1"))
    assert watch.take() == [Change(b"k", None, b"1")]
