"""Puts that many joins read, and copies that watches follow: told natively, and as Python tells them."""

from __future__ import annotations

import sys
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


def _called(engine: Engine, key: bytes, value: bytes) -> list[str]:
    """Put a row; return the functions of Python that the core called."""
    called = list[str]()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        engine.put(key, value)
    finally:
        sys.setprofile(None)
    return called


def test_a_put_that_many_joins_read_is_native() -> None:
    engine = _engine("; ".join(f"v{number}|<a>|<b> = copy p|<a>|<b>" for number in range(READERS)))
    assert "base_changed" not in _called(engine, b"p|ann|02", b"second")
    for number in range(READERS):
        assert engine.get(b"v%d|ann|02" % number) == b"second"
    engine._check()


def test_one_reader_of_many_that_is_pythons_leaves_all_to_python() -> None:
    joins = [f"v{number}|<a>|<b> = copy p|<a>|<b>" for number in range(READERS)]
    engine = _engine("; ".join([*joins, "n|<a> = count p|<a>|<b>"]))
    assert "base_changed" in _called(engine, b"p|ann|02", b"second")
    assert [engine.get(b"v%d|ann|02" % number) for number in (0, READERS - 1)] == [b"second"] * 2
    assert engine.get(b"n|ann") == b"2"


@pytest.mark.parametrize("bounds", [(b"t|", b"t}"), (b"t|", b"t|b"), (b"", None)])
def test_copies_that_watches_alone_follow_are_native_and_told_from_value_to_value(
    bounds: tuple[bytes, bytes | None],
) -> None:
    engine = _engine("t|<b>|<a> = copy p|<a>|<b>")
    watch = engine.watch(*bounds, lambda: None)
    engine.settle(watch)
    rows = dict(zip(*engine.scan(*bounds), strict=True))
    called = _called(engine, b"p|ann|02", b"second")
    assert "tell_computed" in called
    # A watch of everything follows the posts as well.
    assert ("base_changed" in called) == (bounds == (b"", None))
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
    assert "tell_computed" not in _called(engine, b"p|ann|09", b"z")


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
    assert "base_changed" in _called(engine, b"p|ann|02", b"second")
    assert engine.settle(watch) == [Change(b"t|02|ann", None, b"second")]
    engine._check()


def test_a_watch_is_told_of_rows_that_follow_from_values() -> None:
    engine = _engine("n|<a> = count p|<a>|<b>; r|<n:i64>|<a> = copy n|<a> with . = <n:i64>")
    watch = engine.watch(b"r|", b"r}", lambda: None)
    engine.settle(watch)
    engine.put(b"p|ann|02", b"second")
    told = [(change.key[-4:], change.old, change.new) for change in engine.settle(watch)]
    assert told == [(b"|ann", b"1", None), (b"|ann", None, b"2")]
