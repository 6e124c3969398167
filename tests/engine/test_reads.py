"""What one call of the engine is, and what reads remember of the contexts that answered them."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, MissingError, Reason, Rows
from pequod.engine.joins import hits
from pequod.engine.joins.contexts import Context
from pequod.engine.read import Read
from tests.engine.joins import NEWP, TIMELINE

PAGE_FIRST, PAGE_LAST = b"page|bob|1|", b"page|bob|1|}"


def _page() -> Engine:
    engine = Engine()
    engine.add_joins(parse(NEWP))
    engine.put(b"article|bob|1", b"Sun")
    engine.put(b"comment|bob|1|7|ann", b"Yes")
    for voter in (b"ann", b"liz"):
        engine.put(b"vote|bob|1|" + voter, b"1")
    return engine


def _timeline() -> Engine:
    engine = Engine(backed=[b"b"])
    engine.add_joins(parse(TIMELINE))
    engine.put(b"s|ann|bob", b"1")
    engine.put(b"p|bob|0100", b"Hi")
    return engine


def _missing_scan(engine: Engine) -> object:
    with pytest.raises(MissingError):
        return engine.scan(b"b|", b"b}")
    return None


CALLS: list[tuple[str, Callable[[Engine], object]]] = [
    ("first scan", lambda engine: engine.scan(b"t|ann|", b"t|ann}")),
    ("fresh scan", lambda engine: engine.scan(b"t|ann|", b"t|ann}")),
    ("log", lambda engine: engine.put(b"s|ann|liz", b"1")),
    ("stale scan", lambda engine: engine.scan(b"t|ann|", b"t|ann}")),
    ("bounded scan", lambda engine: engine.scan(b"t|ann|0000", b"t|ann|0101")),
    ("reverse scan", lambda engine: engine.scan(b"t|ann|", b"t|ann}", reverse=True)),
    ("whole scan", lambda engine: engine.scan(b"s", b"u", limit=1)),
    ("get", lambda engine: engine.get(b"t|ann|0100|bob")),
    ("count", lambda engine: engine.count(b"t|", b"t}")),
    ("missing", _missing_scan),
    ("load", lambda engine: engine.load(b"b|", b"b}", [(b"b|1", b"1")])),
    ("loaded", lambda engine: engine.scan(b"b|", b"b}")),
    ("watch", lambda engine: engine.settle(engine.watch(b"t|ann|", b"t|ann}", lambda: None))),
    ("evict", lambda engine: engine.evict(1)),
]


def test_each_call_is_one_read() -> None:
    engine = _timeline()
    for name, call in CALLS:
        before = engine._reads.number
        call(engine)
        # `watch` is two calls.
        assert engine._reads.number - before == {"log": 0, "watch": 2}.get(name, 1), name


def test_settling_many_lost_ranges_is_one_read() -> None:
    engine = _timeline()
    watch = engine.watch(b"t|", b"t}", lambda: None)
    for user in (b"ann", b"liz"):
        engine.put(b"s|" + user + b"|bob", b"2")
    engine.invalidate(b"t|", b"t}")
    before = engine._reads.number
    engine.settle(watch)
    assert engine._reads.number == before + 1


def test_what_a_read_lacked_is_not_told_by_the_next() -> None:
    engine = Engine(backed=[b"p", b"q"])
    for table in (b"p", b"q"):
        with pytest.raises(MissingError) as caught:
            engine.scan(table + b"|", table + b"}")
        assert [missing.first for missing in caught.value.ranges] == [table + b"|"]


def test_a_view_answers_any_part_of_its_range_up_to_its_end() -> None:
    engine = _page()
    whole = engine.scan(PAGE_FIRST, PAGE_LAST)
    view = engine._hits.by_last[PAGE_LAST]
    assert len(view.contexts) == 4
    for start in range(len(whole.keys)):
        rows = engine.scan(whole.keys[start], PAGE_LAST)
        assert rows == Rows(whole.keys[start:], whole.values[start:])
        backwards = engine.scan(whole.keys[start], PAGE_LAST, limit=1, reverse=True)
        assert backwards == Rows(whole.keys[-1:], whole.values[-1:])
    assert engine._hits.by_last[PAGE_LAST] is view
    engine.put(b"comment|bob|1|0|liz", b"No")
    assert len(engine.scan(PAGE_FIRST, PAGE_LAST).keys) == len(whole.keys) + 1
    assert engine._hits.by_last[PAGE_LAST] is view


def test_a_view_shows_the_rows_that_clients_write_between_computed_ones() -> None:
    engine = _page()
    engine.scan(PAGE_FIRST, PAGE_LAST)
    engine.put(b"page|bob|1|b", b"own")
    assert b"page|bob|1|b" in engine.scan(PAGE_FIRST, PAGE_LAST).keys
    timeline = _timeline()
    timeline.scan(b"t|ann|", b"t|ann}")
    timeline.put(b"t|ann|x", b"own")
    for reverse in (False, True):
        assert len(timeline.scan(b"t|ann|", b"t|ann}", reverse=reverse).keys) == 2


@pytest.mark.parametrize("make", [_page, _timeline])
def test_a_context_takes_its_view_with_it(make: Callable[[], Engine]) -> None:
    engine = make()
    first, last = (PAGE_FIRST, PAGE_LAST) if make is _page else (b"t|ann|", b"t|ann}")
    before = engine.scan(first, last)
    assert last in engine._hits.by_last
    engine.evict(1)
    assert not engine._hits.by_last
    assert engine.scan(first, last) == before
    assert last in engine._hits.by_last
    engine.drop_join(engine.joins()[0].name)
    assert not engine._hits.by_last


def test_views_of_several_contexts_are_few() -> None:
    engine = _page()
    with patch.object(hits, "VIEWS_MAX", 3):
        engine.limit_memory(1 << 40)
    for number in range(10):
        for _ in range(2):
            engine.scan(b"page|bob|%d|" % number, b"page|bob|%d|}" % number)
        assert 1 <= len(engine._hits.by_last) <= 3
        engine._check()
    with patch.object(hits, "VIEWS_MAX", 0):
        engine.limit_memory(1 << 30)
    assert not engine._hits.by_last
    engine.scan(PAGE_FIRST, PAGE_LAST)
    assert not engine._hits.by_last


def test_a_context_that_another_drops_answers_no_more() -> None:
    """Bringing one context of a view up to date may drop another one: then the read is done from the start."""
    engine = _page()
    engine.scan(PAGE_FIRST, PAGE_LAST)
    view = engine._hits.by_last[PAGE_LAST]
    refresh, last = engine._reader.refresh, view.contexts[-1]

    def refresh_and_drop(context: Context, read: Read) -> bool:
        engine._writer.drop(view.contexts[0], Reason.INVALIDATED)
        return refresh(context, read)

    engine._writer._mark_stale(last)
    with patch.object(type(engine._reader), "refresh", lambda _, context, read: refresh_and_drop(context, read)):
        assert not engine._reader.answer(view.contexts, engine._reads.begin())
    assert len(engine.scan(PAGE_FIRST, PAGE_LAST).keys) == 3
