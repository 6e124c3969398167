"""Writes that look at the present value first, in native batches: done there, or nothing has changed."""

from __future__ import annotations

from pequod_proto.pequod_pb2 import ExecuteRequest
from pequod_server.access.grants import KeyRanges

from pequod.commands.kinds import ABSENT, ADD, DECIDED, FAILED, KINDS, OK, PUT_IF, REMOVE, REMOVE_IF, UNMET
from tests.native.core import hot
from tests.native.quick import make_executor, quick_pieces, request_of, runs_without_python


def test_writes_under_a_condition_are_quick_and_see_the_writes_of_their_batch() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.engine.put(b"k|20", b"old")
    revision = executor.engine.revision
    # In their order: key and value, expected value, and 1 absent, 2 present, 3 of this value.
    puts = [
        (PUT_IF, b"k|20", b"new", b"", 1),
        (PUT_IF, b"k|10", b"1", b"", 1),
        (PUT_IF, b"k|10", b"2", b"", 2),
        (PUT_IF, b"k|10", b"3", b"1", 3),
        (PUT_IF, b"k|10", b"3", b"2", 3),
        (PUT_IF, b"k|15", b"3", b"", 2),
    ]
    removes = [
        (REMOVE_IF, b"k|20", b"", 1),
        (REMOVE_IF, b"k|20", b"new", 3),
        (REMOVE_IF, b"k|20", b"old", 3),
        (REMOVE_IF, b"k|20", b"old", 3),
        (REMOVE_IF, b"k|20", b"", 1),
    ]
    assert runs_without_python(executor, *puts, *removes)
    assert executor.engine.base_rows() == ([b"k|10"], [b"3"])
    assert executor.engine.revision == revision + 4
    executor.engine.put(b"k|20", b"old")
    request = request_of(*puts, *removes)
    executor.engine.remove(b"k|10")
    (reply,) = quick_pieces(executor, request.SerializeToString())
    assert reply.statuses == bytes([UNMET, OK, OK, UNMET, OK, ABSENT, UNMET, UNMET, OK, ABSENT, OK])
    assert list(reply.values) == [b"old", b"2", b"old", b"old"]


def test_a_present_value_that_a_condition_tells_is_that_of_its_key() -> None:
    executor = make_executor(1 << 20, 1000)
    present = {b"k|%02d" % number: b"%d" % number for number in range(0, 40, 2)}
    executor.engine.put_all(list(present), list(present.values()))
    # So many that their places are looked up in advance; then a removal moves all that follow.
    keys = sorted(present)
    request = ExecuteRequest(kinds=bytes([REMOVE, *[PUT_IF] * (len(keys) - 1)]), arguments=keys[:1])
    for key in keys[1:]:
        request.arguments.extend([key, b"new", b""])
        request.numbers.extend([1, 0])
    (reply,) = quick_pieces(executor, request.SerializeToString())
    assert reply.statuses == bytes([OK, *[UNMET] * (len(keys) - 1)])
    assert list(reply.values) == [present[key] for key in keys[1:]]


def test_a_condition_is_not_quick_where_a_put_is_not() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.engine.put(b"k|10", b"1")
    assert not runs_without_python(executor, (PUT_IF, b"k|10", b"v" * 61, b"", 1)), "too long, met or not"
    assert not runs_without_python(executor, (PUT_IF, b"k|10", b"2", b"", 4)), "no condition"
    assert not runs_without_python(executor, (REMOVE_IF, b"k|10", b"", 0)), "no condition"
    executor.engine.watch(b"k|", b"k}", lambda: None)
    assert not runs_without_python(executor, (PUT_IF, b"k|10", b"2", b"", 2)), "Python tells the watch"
    assert executor.engine.base_rows() == ([b"k|10"], [b"1"])


def test_adds_of_integers_are_quick_and_see_the_writes_of_their_batch() -> None:
    executor = make_executor(1 << 20, 1000)
    executor.engine.put(b"k|20", b"-007")
    adds = [(ADD, b"k|10", b"+5"), (ADD, b"k|10", b"-12"), (ADD, b"k|20", b"0"), (ADD, b"k|30", b"9" * 18)]
    adds += [(ADD, b"k|30", b"9" * 18), (ADD, b"k|20", b"-" + b"9" * 18)]
    request = request_of(*adds)
    (reply,) = quick_pieces(executor, request.SerializeToString())
    assert reply.statuses == bytes(6)
    sums = [b"5", b"-7", b"-7", b"9" * 18, b"1" + b"9" * 17 + b"8", b"-1" + b"0" * 16 + b"06"]
    assert list(reply.values) == sums
    assert executor.engine.base_rows() == ([b"k|10", b"k|20", b"k|30"], [b"-7", sums[5], sums[4]])
    assert runs_without_python(executor, *adds[:2])


def test_adds_of_other_numbers_are_pythons() -> None:
    executor = make_executor(1 << 20, 1000)
    for value in (b"0.5", b"1.", b"1" * 19, b"", b"-", b"x", b"1 ", b" 1", b"1e3"):
        executor.engine.put(b"k|10", value)
        assert not runs_without_python(executor, (ADD, b"k|10", b"1")), value
        assert not runs_without_python(executor, (ADD, b"k|20", value)), value
    assert executor.engine.base_rows() == ([b"k|10"], [b"1e3"]), "nothing was done by halves"
    request = request_of((ADD, b"k|20", b"0.5"), (ADD, b"k|20", b"1"), (ADD, b"k|10", b"1"), (ADD, b"k|20", b"x"))
    (reply,) = quick_pieces(executor, request.SerializeToString())
    assert (reply.statuses, list(reply.values)) == (bytes([OK, OK, FAILED, FAILED]), [b"0.5", b"1.5"])
    assert [error.reason for error in reply.errors] == ["NotNumberError", "InvalidDeltaError"]


def test_an_add_is_done_once_where_the_reply_has_no_room_for_its_sum() -> None:
    for room in range(1, 90):
        executor = make_executor(room, 1000)
        executor.engine.put(b"k|10", b"1")
        executor.engine.put(b"k|20", b"0.5")
        adds = [(ADD, b"k|10", b"1"), (ADD, b"k|20", b"1")] * 6
        pieces = quick_pieces(executor, request_of(*adds).SerializeToString())
        values = [value for piece in pieces for value in piece.values]
        assert values == [sum_of for at in range(2, 8) for sum_of in (b"%d" % at, b"%d.5" % (at - 1))], room
        assert b"".join(piece.statuses for piece in pieces) == bytes(12)
        assert executor.engine.base_rows().values == values[-2:]


def test_what_tells_a_value_is_for_those_who_may_read_it() -> None:
    own, nothing = KeyRanges([b"k|"]).bounds, KeyRanges([]).bounds
    for kind in KINDS:
        if not kind.is_write:
            continue
        arguments, numbers = [b"k|1"] * len(kind.arguments), [1] * len(kind.numbers)
        request = ExecuteRequest(kinds=bytes([kind.code]), arguments=arguments, numbers=numbers)
        batch = hot.Batch.parse(request.SerializeToString(), 1, 1, 1)
        assert batch is not None
        assert batch.is_within(own, own)
        assert not batch.is_within(own, nothing)
        assert batch.is_within(nothing, own) is (kind.code not in DECIDED), kind.name
