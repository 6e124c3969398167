"""A join that is prepared beside another waits until it is put in its place, as in a cluster."""

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, Replacement, UnknownJoinError
from tests.engine.joins import TIMELINE, engine_with, put_all, scan
from tests.engine.test_replacing import COUNT, MUTED, SUM, _go_on, _timelines


def _prepare(engine: Engine, name: str, text: str) -> Replacement:
    (spec,) = parse(text)
    replacement = engine.prepare_replacement(name, spec)
    assert not replacement.is_built, "nothing is done yet"
    _go_on(engine)
    return replacement


def test_a_prepared_join_waits_and_is_built_where_reads_come_meanwhile() -> None:
    engine = _timelines()
    replacement = _prepare(engine, "t", MUTED)
    assert (replacement.is_built, replacement.is_in_place, replacement.ranges_built) == (True, False, 3)
    put_all(engine, {"s|u9|bob": "", "mute|u9|bob": ""})
    assert len(scan(engine, "t|u9|")) == 5
    _go_on(engine)
    assert replacement.ranges_built == 4
    revision = engine.revision
    engine.put_in_place(replacement)
    engine._check()
    assert engine.revision == revision + 1
    computed = engine._reads.rows_computed
    assert scan(engine, "t|u9|") == {}
    assert len(scan(engine, "t|u1|")) == 5
    assert engine._reads.rows_computed == computed
    _go_on(engine)
    assert not engine.replace_some()


def test_a_join_is_put_in_its_place_before_it_is_built() -> None:
    engine = _timelines()
    (spec,) = parse(MUTED)
    put_all(engine, {"mute|u1|bob": ""})
    engine.put_in_place(engine.prepare_replacement("t", spec))
    assert [len(scan(engine, f"t|u{number}|")) for number in range(3)] == [5, 0, 5]
    _go_on(engine)
    assert str(engine.replaced_spec("t")) == str(parse(TIMELINE)[0])


def test_what_a_join_was_before_the_start_can_be_told() -> None:
    engine = engine_with(SUM)
    (before,) = parse(COUNT)
    with pytest.raises(UnknownJoinError):
        engine.remember_replaced("t", before)
    engine.remember_replaced("karma", before)
    assert engine.replaced_spec("karma") == before
