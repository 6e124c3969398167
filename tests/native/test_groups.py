"""The groups of a table, native and in Python: the same rows by prefix, and the same order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pequod.engine.base import groups
from pequod.engine.base.groups import FRESH_MAX, Groups
from pequod.engine.base.table import Cut, Table
from pequod.native import core

_PREFIXES = st.lists(st.binary(min_size=1, max_size=3), unique=True, max_size=40)


@given(_PREFIXES, st.data())
def test_a_group_is_found_and_has_its_place_in_the_order_until_it_goes(
    prefixes: list[bytes], data: st.DataObject
) -> None:
    held = Groups()
    model: dict[bytes, bytes] = {}
    for prefix in prefixes:
        held.make(prefix).put(prefix + b"|", b"1")
        model[prefix] = prefix + b"|"
        if data.draw(st.booleans()):
            assert list(held.order) == sorted(model)
        if data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.sampled_from(sorted(model)))
            held.remove(gone)
            del model[gone]
            assert held.get(gone) is None
        held._check()
        assert len(held) == len(model)
    assert {prefix: list(rows.everything().keys) for prefix, rows in held.items()} == {
        prefix: [key] for prefix, key in model.items()
    }
    assert list(held.order) == sorted(model)


def test_many_new_groups_get_their_places_before_there_are_more() -> None:
    held = Groups()
    for at in range(FRESH_MAX + 1):
        held.make(b"%05d" % at).put(b"%05d|" % at, b"1")
    assert not held.fresh
    held._check()


def test_a_table_reads_its_groups_in_order_while_new_ones_come() -> None:
    table = Table(b"p|")
    table.regroup(Cut(2))
    for at in range(99, 9, -1):
        table.put(b"p|%d|1" % at, b"x")
        if at % 7 == 0:
            assert table.slice(b"p|", b"p}", 3).keys == [b"p|%d|1" % each for each in range(at, min(at + 3, 100))]
    table.remove(b"p|50|1")
    assert table.slice(b"p|49", b"p|52").keys == [b"p|49|1", b"p|51|1"]
    assert table.count(b"p|", b"p}") == 89
    table._check()


def test_native_and_python_groups_have_one_bound() -> None:
    assert core is None or core.FRESH_MAX == FRESH_MAX


def test_a_native_group_that_is_not_there_is_not_taken_out() -> None:
    held = groups.HotGroups()
    with pytest.raises(KeyError):
        held.take_out(b"p|bob|")
