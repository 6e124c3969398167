"""Puts that many joins read, and copies that watches follow: told natively, and as Python tells them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from pequod_grammar import parse

from pequod.engine import Change, Engine
from tests.native.core import hot

assert hot.INTERFACE

READERS = 20


def _engine(joins: str) -> Engine:
    engine = Engine()
    engine.add_joins(parse(joins))
    for poster in (b"ann", b"bob"):
        engine.put(b"p|%s|01" % poster, b"first")
    for join in engine.joins():
        table = join.name.encode()
        engine.scan(table + b"|", table + b"}")
    return engine


def _called(run: Callable[[], object]) -> list[str]:
    """Run a command; return the functions of Python that the core called."""
    called = list[str]()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        run()
    finally:
        sys.setprofile(None)
    return called


def _called_by_put(engine: Engine, key: bytes, value: bytes) -> list[str]:
    return _called(lambda: engine.put(key, value))


def test_a_put_that_many_joins_read_is_native() -> None:
    engine = _engine("; ".join(f"v{number}|<a>|<b> = copy p|<a>|<b>" for number in range(READERS)))
    assert "base_changed" not in _called_by_put(engine, b"p|ann|02", b"second")
    for number in range(READERS):
        assert engine.get(b"v%d|ann|02" % number) == b"second"
    engine._check()


@pytest.mark.parametrize("keep", ["", " keep last 2 of <reader>"])
def test_a_row_that_goes_out_of_timelines_is_taken_out_natively(keep: str) -> None:
    engine = Engine()
    engine.add_joins(parse(f"t|<reader>|<time>|<poster> = check s|<reader>|<poster> copy p|<poster>|<time>{keep}"))
    for reader in (b"liz", b"max"):
        engine.put(b"s|%s|ann" % reader, b"")
    engine.put_all([b"p|ann|%02d" % time for time in range(60)], [b"post"] * 60)
    for reader in (b"liz", b"max"):
        engine.scan(b"t|%s|" % reader, b"t|%s}" % reader)
    # Of a timeline that keeps its last rows, these are far below what it knows.
    for time in range(20):
        called = _called(partial(engine.remove, b"p|ann|%02d" % time))
        assert "base_changed" not in called
    for time in (59, 20, 58):
        engine.remove(b"p|ann|%02d" % time)
    for reader in (b"liz", b"max"):
        left = engine.scan(b"t|%s|" % reader, b"t|%s}" % reader).keys
        assert [key.split(b"|")[2] for key in left] == [b"%02d" % time for time in range(56 if keep else 21, 58)]
    engine._check()


def test_one_reader_of_many_that_is_pythons_leaves_all_to_python() -> None:
    joins = [f"v{number}|<a>|<b> = copy p|<a>|<b>" for number in range(READERS)]
    engine = _engine("; ".join([*joins, "n|<a> = max p|<a>|<b>"]))
    assert "base_changed" in _called_by_put(engine, b"p|ann|02", b"second")
    assert [engine.get(b"v%d|ann|02" % number) for number in (0, READERS - 1)] == [b"second"] * 2
    assert engine.get(b"n|ann") == b"second"


def test_counts_are_native_from_a_groups_second_row_on() -> None:
    engine = _engine("n|<a> = count p|<a>|<b>; v|<a>|<b> = copy p|<a>|<b>")
    assert "base_changed" not in _called_by_put(engine, b"p|ann|02", b"second")
    assert "base_changed" not in _called_by_put(engine, b"p|ann|02", b"another value, which no count looks at")
    assert engine.get(b"n|ann") == b"2"
    assert "base_changed" in _called_by_put(engine, b"p|cid|01", b"a group begins")
    assert engine.get(b"n|cid") == b"1"
    engine.remove(b"p|ann|01")
    engine.remove(b"p|ann|02")
    assert (engine.get(b"n|ann"), engine.get(b"n|bob")) == (None, b"1")
    engine._check()


def test_a_count_up_to_where_a_read_has_asked_leaves_others_alone() -> None:
    engine = Engine()
    engine.add_joins(parse("n|<a> = count p|<a>|<b>"))
    for poster in (b"ann", b"bob"):
        engine.put_all([b"p|%s|%02d" % (poster, at) for at in range(3)], [b""] * 3)
    assert engine.scan(b"n|", b"n|b").values == [b"3"]
    engine.put(b"p|bob|04", b"")
    engine.put(b"p|ann|04", b"")
    engine._check()
    assert engine.scan(b"n|", b"n}").values == [b"4", b"4"]


def test_watches_and_joins_are_told_of_counts_from_value_to_value() -> None:
    engine = _engine("n|<a> = count p|<a>|<b>; top|<points:i64>|<a> = copy n|<a> with . = <points:i64>")
    watches = [(table, engine.watch(table + b"|", table + b"}", lambda: None)) for table in (b"n", b"top")]
    seen = {}
    for table, watch in watches:
        engine.settle(watch)
        seen[table] = dict(zip(*engine.scan(table + b"|", table + b"}"), strict=True))
    random = Random(2)
    called = set[str]()
    for _ in range(300):
        key = b"p|%s|%02d" % (random.choice([b"ann", b"bob", b"c"]), random.randrange(6))
        called |= {"removed"} if random.random() < 0.4 and engine.remove(key) else set(_called_by_put(engine, key, b""))
        for table, watch in watches if random.random() < 0.3 else ():
            for change in engine.settle(watch):
                assert seen[table].get(change.key) == change.old
                if change.new is None:
                    del seen[table][change.key]
                else:
                    seen[table][change.key] = change.new
            assert seen[table] == dict(zip(*engine.scan(table + b"|", table + b"}"), strict=True))
    assert {"tell_changed", "base_changed", "removed"} <= called
    engine._check()


@pytest.mark.parametrize("bounds", [(b"t|", b"t}"), (b"t|", b"t|b"), (b"", None)])
def test_copies_that_watches_alone_follow_are_native_and_told_from_value_to_value(
    bounds: tuple[bytes, bytes | None],
) -> None:
    engine = _engine("t|<b>|<a> = copy p|<a>|<b>")
    watch = engine.watch(*bounds, lambda: None)
    engine.settle(watch)
    rows = dict(zip(*engine.scan(*bounds), strict=True))
    for run in (lambda: engine.put(b"p|ann|02", b"second"), lambda: engine.remove(b"p|ann|02")):
        # A watch of everything follows the posts as well.
        assert {"base_changed", "tell_computed"} & set(_called(run)) == (
            {"base_changed", "tell_computed"} if bounds == (b"", None) else set()
        )
    random = Random(1)
    for _ in range(200):
        key = b"p|%s|%02d" % (random.choice([b"ann", b"bob", b"c"]), random.randrange(4))
        if random.random() < 0.3:
            engine.remove(key)
        else:
            engine.put(key, random.choice([b"x", b"y", b""]))
        if random.random() < 0.2:
            for change in engine.settle(watch):
                assert rows.get(change.key) == change.old
                rows[change.key] = change.new or b""
                if change.new is None:
                    del rows[change.key]
            assert sorted(rows.items()) == list(zip(*engine.scan(*bounds), strict=True))
    engine._check()
    engine.unwatch(watch)
    assert "tell_computed" not in _called_by_put(engine, b"p|ann|09", b"z")


def test_counts_that_watches_alone_follow_are_told_natively() -> None:
    engine = _engine("n|<a> = count p|<a>|<b>")
    watch = engine.watch(b"n|", b"n}", lambda: None)
    called = _called_by_put(engine, b"p|ann|02", b"second")
    assert not {"tell_changed", "base_changed"} & set(called)
    engine.remove(b"p|ann|01")
    assert engine.settle(watch) == [Change(b"n|ann", b"1", b"2"), Change(b"n|ann", b"2", b"1")]
    engine._check()


def test_a_value_that_is_put_again_is_told_to_nobody() -> None:
    engine = _engine("t|<b>|<a> = copy p|<a>|<b>")
    watch = engine.watch(b"t|", b"t}", lambda: None)
    engine.settle(watch)
    engine.put(b"p|ann|01", b"first")
    assert engine.settle(watch) == []
    engine.put(b"p|ann|01", b"other")
    assert engine.settle(watch) == [Change(b"t|01|ann", b"first", b"other")]


@pytest.mark.parametrize("more", ["u|<b>|<a> = copy t|<b>|<a>", "t|<b>|<c> = copy q|<b>|<c>"])
def test_copies_that_others_follow_or_hide_are_pythons(more: str) -> None:
    engine = _engine(f"t|<b>|<a> = copy p|<a>|<b>; {more}")
    watch = engine.watch(b"t|", b"t}", lambda: None)
    engine.settle(watch)
    assert "base_changed" in _called_by_put(engine, b"p|ann|02", b"second")
    assert engine.settle(watch) == [Change(b"t|02|ann", None, b"second")]
    engine._check()


def test_a_watch_is_told_of_rows_that_follow_from_values() -> None:
    engine = _engine("n|<a> = count p|<a>|<b>; r|<n:i64>|<a> = copy n|<a> with . = <n:i64>")
    watch = engine.watch(b"r|", b"r}", lambda: None)
    engine.settle(watch)
    engine.put(b"p|ann|02", b"second")
    told = [(change.key[-4:], change.old, change.new) for change in engine.settle(watch)]
    assert told == [(b"|ann", b"1", None), (b"|ann", None, b"2")]
