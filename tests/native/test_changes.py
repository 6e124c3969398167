"""What watches are told natively, and what Python makes of the same."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_server.calls.revision_changes import RevisionChanges
from pequod_server.calls.told_columns import add_columns

from pequod.engine import Change, Changes, Engine, Expired, ToldLane, take_runs
from pequod.engine.joins.told import PythonChanges, PythonLane, python_take_runs
from pequod.engine.joins.watches import FEW, Watch
from tests.native.core import hot

VALUES = (None, b"", b"v", b"long" * 60)


def random_changes(seed: int) -> list[Change]:
    random = Random(seed)
    kinds = [Change] * 5 + [Expired]
    return [
        random.choice(kinds)(b"k" * random.choice([1, 9, 130]), random.choice(VALUES), random.choice(VALUES))
        for _ in range(random.choice([0, 1, 3, 40]))
    ]


@pytest.mark.parametrize("seed", range(60))
def test_changes_are_what_they_are_in_python(seed: int) -> None:
    python = PythonChanges()
    native: Any = hot.Changes()
    for change in random_changes(seed):
        for changes in (python, native):
            changes.append(change)
            changes.tell(b"told", change.old, change.new)
    assert list(native) == list(python)
    assert list(map(type, native)) == list(map(type, python))
    assert len(native) == len(python)
    assert native.text_bytes() == python.text_bytes()
    assert native.part(len(python) // 3, len(python)) == python.part(len(python) // 3, len(python))


@pytest.mark.parametrize("seed", range(60))
def test_their_bytes_are_the_message(seed: int) -> None:
    """A reader of protobuf finds what Python would have written, range by range, in whatever order it was told."""
    random, woken = Random(seed), list[int]()
    native: Any = hot.Changes()
    python: Any = PythonChanges()
    pairs: list[tuple[Any, Any]] = [(ToldLane, native), (PythonLane, python)]
    lanes = [[lane(changes, number * 77, woken, list) for number in range(9)] for lane, changes in pairs]
    for beat in range(3):
        for change in random_changes(3 * seed + beat):
            number, how = random.randrange(9), random.randrange(8)
            for side in lanes:
                if how == 0:
                    side[number].tell(change.key, change.old, change.new)
                else:
                    side[number].append(change)
            if how == 1:
                # One that has to be settled is taken alone.
                taken = [side[number].take() for side in lanes]
                assert taken[0] == taken[1]
                assert list(map(type, taken[0])) == list(map(type, taken[1]))
        told: list[Any] = [hot.take_runs({}, woken, native), python_take_runs({}, woken, python)]
        mine, its = told
        assert mine is not None
        assert its is not None
        assert not len(native)
        assert sorted(mine.runs()) == sorted(its.runs())
        assert by_range(mine) == by_range(its)
        assert mine.text_bytes() == its.text_bytes()
        head = pb.WatchRangesReply(header=pb.Header(revision=7), ended=[3], reasons=["gone"])
        encoded = pb.WatchRangesReply.FromString(hot.encode_changes(head.SerializeToString(), mine))
        add_columns(head, RevisionChanges(0, 7, mine, 0, 0, b""))
        assert encoded == head


def by_range(changes: Any) -> dict[int, list[Change]]:
    found, start = dict[int, list[Change]](), 0
    for number, count in changes.runs():
        found[number] = changes.part(start, start + count)
        start += count
    assert start == len(changes)
    return found


def test_what_does_not_fit_is_refused() -> None:
    changes: Any = hot.Changes()
    names: Any = ["no number"]
    for wrong in ((b"k", None), (b"k", "text", None), [b"k", None, None], ("k", None, None)):
        with pytest.raises(TypeError):
            changes.append(wrong)
    with pytest.raises(TypeError):
        changes.tell(b"k", 1, None)
    changes.tell(b"k", None, b"v")
    for number in (-1, 1 << 70):
        with pytest.raises(OverflowError):
            changes.begin_run(number)
    with pytest.raises(TypeError):
        changes.begin_run(1 << 40)
    with pytest.raises(IndexError):
        changes[1]
    with pytest.raises(TypeError):
        changes.part(0, 2)
    with pytest.raises(TypeError):
        hot.take_runs({}, names, changes)
    assert hot.take_runs({}, [1], changes) is None
    lane: Any = ToldLane(changes, 3, [], list)
    with pytest.raises(TypeError):
        lane.append(names)
    lane.changes = None
    with pytest.raises(TypeError):
        lane.take()
    assert list(changes) == [Change(b"k", None, b"v")]


def _watched(
    ranges: list[tuple[bytes, bytes | None]],
) -> tuple[Engine, dict[int, Watch], list[int], list[int], Changes]:
    engine = Engine()
    engine.add_joins(parse("t|<b>|<a> = copy p|<a>|<b>"))
    for number in range(5):
        engine.put(b"p|ann|%d" % number, b"first")
    woken, calls, told = list[int](), list[int](), Changes()
    watches = {
        number: engine.watch(*bounds, ToldLane(told, number, woken, lambda: calls.append(len(told))))
        for number, bounds in enumerate(ranges)
    }
    return engine, watches, woken, calls, told


def test_watches_are_told_of_their_ranges_alone_and_call_once() -> None:
    ranges: list[tuple[bytes, bytes | None]] = [
        (b"t|", b"t|1|ann"),
        (b"t|1|ann", b"t|3"),
        (b"t|3", b"t}"),
        (b"s", b"t|2|ann\0"),
    ]
    engine, watches, woken, calls, told = _watched(ranges)
    for number in range(5):
        engine.put(b"p|ann|%d" % number, b"second")
    assert len(calls) == 1
    runs = take_runs(dict(watches), woken, told)
    assert runs is not None
    assert not woken
    assert not told
    found = {number: [change.key for change in changes] for number, changes in by_range(runs).items()}
    assert found == {
        0: [b"t|0|ann"],
        1: [b"t|1|ann", b"t|2|ann"],
        2: [b"t|3|ann", b"t|4|ann"],
        3: [b"t|0|ann", b"t|1|ann", b"t|2|ann"],
    }
    # They have their turn again.
    engine.remove(b"p|ann|0")
    assert len(calls) == 2
    again = take_runs(dict(watches), woken, told)
    assert again is not None
    assert list(again) == [Change(b"t|0|ann", b"second", None)] * 2
    assert sorted(again.runs()) == [(0, 1), (3, 1)]
    engine._check()


def test_nothing_is_taken_while_one_has_to_be_settled() -> None:
    engine, watches, woken, _, told = _watched([(b"t|", b"t|2"), (b"t|2", b"t}")])
    engine.put(b"p|ann|0", b"second")
    engine.invalidate(b"t|", b"t}")
    engine.put(b"p|ann|3", b"second")
    assert take_runs(dict(watches), woken, told) is None
    assert python_take_runs(dict(watches), woken, PythonChanges()) is None
    assert 1 in woken
    assert engine.settle(watches[0]) == [Change(b"t|0|ann", b"first", b"second")]
    # Its rows were lost, and are back now: they are told once.
    assert engine.settle(watches[1]) == [Change(b"t|3|ann", b"first", b"second")]
    engine.put(b"p|ann|0", b"third")
    watches[0].end("a reason")
    assert take_runs(dict(watches), [0], told) is None
    assert told


class NoWatch:
    """An object of no kind of watch that has the attributes of one, where the core would find them in a watch."""

    #: In this order: the names of slots are laid out as they sort.
    __slots__ = ("a_first", "b_last", "c_changes", "d_stale", "e_lost", "f_ended", "g_waker", "h_awake", "i_room")

    def __init__(self, watch: Watch) -> None:
        self.a_first, self.b_last, self.c_changes = watch.first, watch.last, watch.changes
        self.d_stale, self.e_lost, self.f_ended = watch.stale, watch.lost, watch.ended
        self.g_waker = watch.waker


def test_what_is_no_watch_is_not_taken_for_one() -> None:
    engine, watches, _, _, told = _watched([(b"t|", b"t}")])
    engine.put(b"p|ann|0", b"second")
    no_watches: dict[int, Any] = {0: NoWatch(watches[0])}
    assert take_runs(no_watches, [0], told) is None
    taken = take_runs(dict(watches), [0], told)
    assert taken is not None
    assert list(taken) == [Change(b"t|0|ann", b"first", b"second")]


@pytest.mark.parametrize("count", [FEW, FEW + 1])
def test_many_watches_of_a_table_are_told_the_same(count: int) -> None:
    engine, watches, _, calls, told = _watched([(b"t|%d" % (number % 5), b"t}") for number in range(count)])
    engine.put(b"p|ann|2", b"second")
    assert calls
    assert sorted(told.runs()) == [(number, 1) for number in range(count) if number % 5 <= 2]
    for number, _ in told.runs():
        assert engine.settle(watches[number]) == [Change(b"t|2|ann", b"first", b"second")]
    engine._check()
    for watch in watches.values():
        engine.unwatch(watch)
    engine.put(b"p|ann|2", b"third")
    assert not any(watch.take() for watch in watches.values())
    engine._check()
