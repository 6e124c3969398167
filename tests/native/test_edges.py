"""Edges at which a slip of the native core shows: the first key or the last one, one byte more, one row more."""

import itertools

import pytest
from pequod_grammar import parse
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest
from pequod_server.access.grants import KeyRanges

from pequod.client.columns import decode_whole
from pequod.commands.kinds import COUNT, GET, OK, PUT, REMOVE, SCAN, SCAN_DOWN
from pequod.engine import Engine
from pequod.engine.base.rows import SortedRows
from pequod.engine.joins import collecting
from pequod.engine.joins.timeline import in_order
from pequod.engine.testing import NaiveModel
from tests.native.core import hot
from tests.native.quick import make_executor
from tests.native.test_collecting import JOINS
from tests.native.test_leaves import run

assert hot.INTERFACE

TIMELINE = JOINS["delimited"]


def timeline(*rows: bytes) -> Engine:
    """Return an engine with the timeline and some rows, whose values are their keys."""
    engine = Engine()
    engine.add_joins(parse(TIMELINE))
    for key in rows:
        engine.put(key, key)
    return engine


def batch_of(kinds: bytes, *arguments: bytes, reply_bytes_max: int = 1 << 20) -> "hot.Batch":
    message = ExecuteRequest(kinds=kinds, arguments=arguments).SerializeToString()
    batch = hot.Batch.parse(message, 100, 1000, reply_bytes_max)
    assert batch is not None
    return batch


def test_an_error_takes_room_of_a_reply() -> None:
    batch = batch_of(bytes([GET, GET]), b"a", b"b", reply_bytes_max=100)
    before = batch.room
    assert batch.failed(b"x" * 50)
    assert batch.room <= before - 50
    assert not batch.failed(b"x" * 50)


def test_a_number_above_64_bits_is_left_to_protobuf() -> None:
    for last, is_read in ((b"\x01", True), (b"\x02", False), (b"\x7f", False)):
        message = b"\x08" + b"\xff" * 9 + last
        assert (hot.Batch.parse(message, 100, 1000, 100) is not None) == is_read


@pytest.mark.parametrize(
    ("kind", "arguments", "is_within"),
    [
        (GET, (b"b",), True),
        (GET, (b"c\xff",), True),
        (GET, (b"d",), False),
        (GET, (b"a",), False),
        (SCAN, (b"b", b"d"), True),
        (SCAN, (b"b", b"d\0"), False),
        (SCAN, (b"d", b"e"), False),
        (SCAN, (b"e", b"d"), True),
        (SCAN, (b"b", b""), False),
    ],
)
def test_a_range_of_rights_ends_before_its_end(kind: int, arguments: tuple[bytes, ...], is_within: bool) -> None:
    ranges, nothing = KeyRanges([b"b", b"c"]), KeyRanges([])
    assert batch_of(bytes([kind]), *arguments).is_within(ranges.bounds, nothing.bounds) == is_within
    if kind == GET:
        assert batch_of(bytes([REMOVE]), *arguments).is_within(nothing.bounds, ranges.bounds) == is_within


def test_a_check_begins_at_its_first_row_and_not_behind_it() -> None:
    executor = make_executor(1 << 20, 1000, TIMELINE)
    run(executor, [(PUT, [b"s|a|b", b""], None)])
    keys = [b"t|a|%02d|b" % number for number in range(40)]
    for number in range(40):
        run(executor, [(PUT, [b"p|b|%02d" % number, b""], None), (SCAN, [b"t|a|", b"t|a}"], None)])
    for at, key in enumerate(keys):
        found = run(executor, [(SCAN, [key, b"t|a}"], None), (SCAN, [key + b"\0", b"t|a}"], None)])
        assert found == [[(each, b"") for each in keys[at:]], [(each, b"") for each in keys[at + 1 :]]]


def test_keys_that_go_on_behind_their_slots_are_in_no_timeline() -> None:
    rows = [b"s|a|b", b"s|a|b|c", b"s|a|", b"s|a|c", b"p|b|05", b"p|b|055", b"p|b|5", b"p|b|05|1", b"p|c|06", b"p|c|0"]
    engine = timeline(*rows)
    expected = ([b"t|a|05|b", b"t|a|06|c"], [b"p|b|05", b"p|c|06"])
    assert engine.scan(b"t|a|", b"t|a}") == expected
    assert engine.ledger.updater_bytes == timeline_bytes(*rows)
    engine.evict(10)
    assert engine.scan(b"t|a|", b"t|a|07") == expected
    engine.put(b"p|b|077", b"")
    engine.put(b"p|b|07", b"late")
    assert engine.scan(b"t|a|", b"t|a}").values == [*expected[1], b"late"]
    engine._check()


def test_a_written_key_that_goes_on_behind_its_slots_is_told_to_no_timeline() -> None:
    executor = make_executor(1 << 20, 1000, TIMELINE)
    keys = (b"s|a|b", b"p|b|05")
    run(executor, [(PUT, [key, b""], None) for key in keys])
    for _ in range(2):
        run(executor, [(SCAN, [b"t|a|", b"t|a}"], None)])
    more = (b"p|b|055", b"p|b|0", b"p|b|05|", b"p|b|", b"s|a|b|c", b"s|a|", b"p|b|06")
    run(executor, [(PUT, [key, b"more"], None) for key in more])
    assert run(executor, [(SCAN, [b"t|a|", b"t|a}"], None)]) == [[(b"t|a|05|b", b""), (b"t|a|06|b", b"more")]]
    executor.engine._check()


def timeline_bytes(*rows: bytes) -> int:
    """Return the bytes of ann's frames, as Python makes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "core", None)
        engine = timeline(*rows)
        engine.scan(b"t|a|", b"t|a}")
        return engine.ledger.updater_bytes


@pytest.mark.parametrize("join", ["t|<user>|<time:2>|<poster:1> = check s|<user>|<poster> copy p|<poster>|<time>"])
def test_a_check_waits_where_its_keys_fit_and_nowhere_else(join: str) -> None:
    def waiting(*rows: bytes) -> int:
        engine = Engine()
        engine.add_joins(parse(join))
        for key in rows:
            engine.put(key, b"")
        engine.scan(b"t|a|", b"t|a}")
        (one,) = engine._catalog
        (context,) = one.contexts.values()
        return context.updaters_count

    assert waiting(b"s|a|b", b"s|a|bb", b"s|a|") == waiting(b"s|a|b") == 2


def test_a_log_that_is_applied_natively_costs_what_it_does_in_python() -> None:
    def grown() -> tuple[int, int]:
        engine = timeline(b"s|a|b", b"p|b|05", b"p|cat|06", b"p|cat|07")
        engine.scan(b"t|a|", b"t|a}")
        engine.put(b"s|a|cat", b"")
        before = engine.ledger.row_bytes
        assert len(engine.scan(b"t|a|", b"t|a}").keys) == 3
        return engine.ledger.row_bytes - before, engine.ledger.updater_bytes

    native = grown()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "core", None)
        assert grown() == native
    assert native[0] > 0


def test_a_reply_with_values_of_no_command_is_left_to_python() -> None:
    kinds = bytes([GET, SCAN])
    right = ExecuteReply(statuses=bytes([OK, OK]), keys=[b"k"], values=[b"v", b"w"], counts=[1])
    assert decode_whole(kinds, right.SerializeToString()) is not None
    for columns in ({"values": [b"x"]}, {"keys": [b"x"]}, {"counts": [0]}):
        wrong = ExecuteReply(**columns)
        assert decode_whole(kinds, right.SerializeToString() + wrong.SerializeToString()) is None


def test_a_context_takes_writes_from_its_first_key_on_and_up_to_its_end() -> None:
    engine = timeline(b"s|a|b", b"p|b|03", b"p|b|07")
    assert len(engine.scan(b"t|a|02|b", b"t|a|08|b").keys) == 2
    for time, is_within in ((b"01", False), (b"02", True), (b"08", False), (b"09", False), (b"05", True)):
        before = engine.ledger.entry_count
        engine.put(b"p|b|" + time, b"new")
        assert engine.ledger.entry_count - before == is_within, time
        engine._check()
    assert engine.scan(b"t|a|", b"t|a}").keys == [b"t|a|0%d|b" % time for time in (1, 2, 3, 5, 7, 8, 9)]


def test_a_context_of_several_ranges_does_not_answer_for_what_is_between_them() -> None:
    executor = make_executor(1 << 20, 1000, TIMELINE)
    rows = (b"s|a|b", b"p|b|01", b"p|b|04", b"p|b|06")
    run(executor, [(PUT, [key, b""], None) for key in rows])
    pieces = [(b"t|a|00", b"t|a|02"), (b"t|a|05", b"t|a}"), (b"t|a|05", b"t|a}")]
    for first, last in pieces:
        (found,) = run(executor, [(SCAN, [first, last], None)])
        assert isinstance(found, list)
        assert len(found) == 1
    run(executor, [(PUT, [b"p|b|03", b""], None), (PUT, [b"p|b|07", b""], None)])
    expected = [(b"t|a|0%d|b" % time, b"") for time in (1, 3, 4, 6, 7)]
    assert run(executor, [(SCAN, [b"t|a|00", b"t|a}"], None)]) == [expected]
    executor.engine._check()


def test_a_range_over_several_tables_or_groups_shows_all_of_them() -> None:
    executor, model = make_executor(1 << 20, 1000), NaiveModel()
    for key in (b"k|1", b"k|2", b"l|1", b"p|a|01", b"p|a}x|02", b"p|a}|03", b"p|b|04"):
        model.put(key, b"")
        run(executor, [(PUT, [key, b""], None)])
    bounds = [b"k|", b"k|2", b"k}", b"k~", b"l|2", b"p|a|", b"p|a}", b"p|a~", b"p|b", b"p|b}", b"q"]
    for first in bounds:
        for last in bounds:
            expected = model.scan(first, last)
            commands = [(SCAN, [first, last], None), (SCAN_DOWN, [first, last], 0), (COUNT, [first, last], None)]
            assert run(executor, commands) == [expected, expected[::-1], len(expected)], (first, last)


def test_a_key_that_is_just_the_prefix_of_its_group_is_found() -> None:
    executor = make_executor(1 << 20, 1000, "y|<a:3> = count p|<a>|<b>")
    keys = [b"p|abc|", b"p|abc|d", b"p|abc", b"p|ab"]
    for key in keys:
        executor.engine.put(key, key)
    assert run(executor, [(GET, [key], None) for key in keys]) == keys
    assert run(executor, [(PUT, [b"p|abc|", b"new"], None), (REMOVE, [b"p|abc|"], None), (GET, [b"p|abc|"], None)]) == [
        True,
        True,
        None,
    ]
    executor.engine._check()


def test_floors_and_samples_of_few_rows() -> None:
    rows = SortedRows()
    assert rows.floor_key(b"b") is None
    rows.put(b"b", b"")
    assert [rows.floor_key(key) for key in (b"a", b"b", b"c")] == [None, b"b", b"b"]
    rows.put(b"d", b"")
    assert [rows.floor_key(key) for key in (b"c", b"d", b"e")] == [b"b", b"d", b"d"]
    rows.put(b"e", b"")
    assert list(rows.sample(b"", None, 2)) == [(b"b", 2), (b"e", 1)]


def test_a_run_that_ends_at_the_first_key_of_the_next_leaf_is_merged_with_it() -> None:
    before = hot.set_leaf_max(4)
    try:
        rows = hot.SortedRows()
        for number in (5, 1, 9, 3, 7, 11, 2, 8, 4, 10, 6, 0):
            rows.put(b"%02d" % number, b"old")
        leaves = [keys for keys, _ in rows.leaves()]
        assert len(leaves) > 2
        for one, following in itertools.pairwise(leaves):
            run_keys = [one[-1] + b"x", following[0]]
            assert not rows.insert(run_keys, [b"new", b"new"]), "the last one is there"
            rows.merge(run_keys, [b"new", b"new"])
            rows._check()
            assert rows.get(following[0]) == b"new"
            assert rows.insert([one[-1] + b"y", one[-1] + b"z"], [b"", b""]), "nothing is between them"
            rows._check()
    finally:
        hot.set_leaf_max(before)


def test_the_key_at_the_end_of_a_loaded_range_is_not_loaded() -> None:
    engine = Engine(backed=[b"p"])
    engine.load(b"p|b|02", b"p|b|05", [])
    changes = [(b"p|b|0%d" % time, b"x") for time in (1, 2, 4, 5, 6)]
    for key, value in changes:
        engine.apply_some([(key, value)], 0, 100)
    assert engine.base_rows().keys == [b"p|b|02", b"p|b|04"]
    engine._check()


def test_of_equal_tails_the_last_one_stays() -> None:
    assert in_order([b"b", b"a", b"b", b"a", b"b"], [b"1", b"2", b"3", b"4", b"5"]) == ([b"a", b"b"], [b"4", b"5"])


#: What the quick ways of an engine take.
QUICK_WAYS: dict[str, tuple[object, ...]] = {
    "_put_quick": (b"a|1", b"one"),
    "_put_for_quick": (b"a|1", b"one", 1000),
    "_remove_quick": (b"a|1",),
    "_expire_quick": (7,),
    "_get_quick": (b"a|1", 0.0),
    "_scan_quick": (b"a|", b"a}", None, False, 0.0),
}


def test_an_engine_without_its_parts_takes_no_quick_way() -> None:
    assert {name for name, one in vars(hot.HotEngine).items() if callable(one) and name[1:2] != "_"} == set(QUICK_WAYS)
    bare = Engine.__new__(Engine)
    for name, arguments in QUICK_WAYS.items():
        with pytest.raises(TypeError, match="an engine has its parts"):
            getattr(bare, name)(*arguments)


def test_how_many_keys_are_to_expire_is_a_number() -> None:
    engine = Engine()
    for wrong in ("seven", None, 1.5):
        with pytest.raises(TypeError, match="integer"):
            engine._expire_quick(wrong)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        engine._expire_quick(1 << 70)
    assert engine._expire_quick(7) == (0, None)
