"""A join takes the place of another: refused or whole, at one revision, and as warm as reads had the other."""

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, JoinError, NotReplaceableError, Replacement, UnknownJoinError, Watch
from pequod.engine.reads import building
from tests.engine.joins import TIMELINE, engine_with, put_all, scan

COUNT = "karma|<author> = count vote|<author>|<id>"
SUM = "karma|<author> = sum vote|<author>|<id>"
#: Posts of everybody whom somebody follows, but not of those whom they mute.
MUTED = f"{TIMELINE} unless mute|<user>|<poster>"
VOTES = {"vote|ann|1": "5", "vote|ann|2": "2", "vote|bob|1": "4"}


def _begin(engine: Engine, name: str, text: str) -> Replacement:
    (spec,) = parse(text)
    return engine.begin_replacement(name, spec)


def _replace(engine: Engine, name: str, text: str) -> Replacement:
    replacement = _begin(engine, name, text)
    _go_on(engine)
    return replacement


def _go_on(engine: Engine) -> None:
    while engine.replace_some():
        engine._check()


def _build(engine: Engine, replacement: Replacement) -> None:
    """Build all that there is to build, up to the switch, exclusively."""
    assert engine._building is not None
    while engine._building.build_some(0.0):
        engine._check()
    assert not replacement.is_in_place


def _timelines(users: int = 3) -> Engine:
    engine = engine_with(TIMELINE)
    put_all(engine, {f"p|bob|{time:04}": f"post {time}" for time in range(5)})
    put_all(engine, {f"s|u{number}|bob": "" for number in range(users)})
    for number in range(users):
        scan(engine, f"t|u{number}|")
    return engine


def test_a_join_takes_the_place_of_another_at_one_revision() -> None:
    engine = engine_with(COUNT)
    put_all(engine, VOTES)
    assert scan(engine, "karma|") == {"karma|ann": "2", "karma|bob": "1"}
    before = engine.revision
    replacement = _begin(engine, "karma", SUM)
    assert scan(engine, "karma|") == {"karma|ann": "2", "karma|bob": "1"}
    assert engine.revision == before
    _go_on(engine)
    assert replacement.is_in_place
    assert engine.revision == before + 1
    assert scan(engine, "karma|") == {"karma|ann": "7", "karma|bob": "4"}
    assert [(join.name, str(join.spec)) for join in engine.joins()] == [("karma", SUM)]


def test_a_join_over_values_that_another_computes_follows_when_that_one_is_replaced() -> None:
    engine = engine_with(f"{COUNT}; top|<points>|<author> = copy karma|<author> with . = <points>")
    put_all(engine, VOTES)
    assert scan(engine, "top|") == {"top|1|bob": "1", "top|2|ann": "2"}
    _replace(engine, "karma", SUM)
    engine._check()
    assert scan(engine, "top|") == {"top|4|bob": "4", "top|7|ann": "7"}


def test_ranges_that_were_read_are_computed_before_the_switch() -> None:
    engine = _timelines()
    put_all(engine, {"mute|u1|bob": ""})
    replacement = _replace(engine, "t", MUTED)
    assert (replacement.ranges_built, replacement.ranges_expected) == (3, 3)
    computed = engine._reads.rows_computed
    assert len(scan(engine, "t|u0|")) == len(scan(engine, "t|u2|")) == 5
    assert scan(engine, "t|u1|") == {}
    assert engine._reads.rows_computed == computed


@pytest.mark.parametrize("rows", [1, 2, 512])
def test_large_ranges_are_built_in_pieces(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "ROWS_A_STEP", rows)
    engine = engine_with(COUNT)
    put_all(engine, {f"vote|{author}|1": "3" for author in "abcde"})
    scan(engine, "karma|")
    _begin(engine, "karma", SUM)
    assert engine._building is not None
    steps = 0
    while engine._building.build_some(0.0):
        engine._check()
        steps += 1
    assert steps > 5 / rows
    _go_on(engine)
    computed = engine._reads.rows_computed
    assert scan(engine, "karma|") == {f"karma|{author}": "3" for author in "abcde"}
    assert engine._reads.rows_computed == computed


def test_writes_between_the_steps_are_in_the_rows_after_the_switch() -> None:
    engine = _timelines()
    replacement = _begin(engine, "t", MUTED)
    engine.put(b"p|bob|0007", b"before")
    _build(engine, replacement)
    put_all(engine, {"p|bob|0008": "after", "s|u0|liz": "", "p|liz|0001": "hello", "mute|u1|bob": ""})
    engine.remove(b"s|u2|bob")
    assert len(scan(engine, "t|u1|")) == 7, "reads see the old rows"
    _go_on(engine)
    assert replacement.is_in_place
    assert scan(engine, "t|u0|", "t|u0|0003") == {
        "t|u0|0000|bob": "post 0",
        "t|u0|0001|bob": "post 1",
        "t|u0|0001|liz": "hello",
        "t|u0|0002|bob": "post 2",
    }
    assert len(scan(engine, "t|u0|")) == 8
    assert scan(engine, "t|u1|") == scan(engine, "t|u2|") == {}


def test_ranges_that_are_first_read_while_it_is_built_are_built_too() -> None:
    engine = _timelines()
    put_all(engine, {"s|late|bob": ""})
    replacement = _begin(engine, "t", MUTED)
    assert engine.replace_some()
    scan(engine, "t|late|")
    _build(engine, replacement)
    _go_on(engine)
    computed = engine._reads.rows_computed
    assert len(scan(engine, "t|late|")) == 5
    assert engine._reads.rows_computed == computed


@pytest.mark.parametrize("rows", [1, 2, 512])
@pytest.mark.parametrize("cut", ["0000", "0003"])
def test_of_a_join_that_keeps_some_rows_whole_groups_are_built(
    rows: int, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "ROWS_A_STEP", rows)
    engine = engine_with(TIMELINE)
    put_all(engine, {f"p|bob|{time:04}": f"post {time}" for time in range(6)})
    put_all(engine, {"s|ann|bob": "", "s|liz|bob": ""})
    # A part of each timeline alone.
    scan(engine, f"t|ann|{cut}", "t|ann|0005")
    scan(engine, f"t|liz|{cut}", "t|liz|0005")
    _replace(engine, "t", f"{TIMELINE} keep last 2 of <user>")
    assert list(scan(engine, "t|ann|")) == ["t|ann|0004|bob", "t|ann|0005|bob"]
    computed = engine._reads.rows_computed
    assert list(scan(engine, "t|liz|")) == ["t|liz|0004|bob", "t|liz|0005|bob"]
    assert engine._reads.rows_computed == computed
    _replace(engine, "t", TIMELINE)
    assert len(scan(engine, "t|liz|")) == 6


def test_a_watch_is_told_the_difference() -> None:
    engine = engine_with(COUNT)
    put_all(engine, {**VOTES, "vote|liz|1": "1"})
    watch = engine.watch(b"karma|", b"karma}", lambda: None)
    _replace(engine, "karma", SUM)
    assert _told(engine, watch) == [(b"karma|ann", b"2", b"7"), (b"karma|bob", b"1", b"4")]
    engine.put(b"vote|bob|2", b"1")
    assert _told(engine, watch) == [(b"karma|bob", b"4", b"5")]
    assert watch.ended is None


def _told(engine: Engine, watch: Watch) -> list[tuple[bytes, bytes | None, bytes | None]]:
    changes = engine.settle(watch)
    engine._check()
    return [tuple(change) for change in changes]  # type: ignore[misc]


def test_a_watch_ends_where_the_new_join_cannot_be_watched() -> None:
    engine = engine_with(COUNT)
    watch = engine.watch(b"karma|", b"karma}", lambda: None)
    _replace(engine, "karma", "karma|<author> = pull sum vote|<author>|<id>")
    assert _told(engine, watch) == []
    assert watch.ended is not None
    assert "computed on every read" in watch.ended


def test_joins_above_follow() -> None:
    engine = engine_with(f"{COUNT}; best|<author> = copy karma|<author>")
    put_all(engine, VOTES)
    assert scan(engine, "best|") == {"best|ann": "2", "best|bob": "1"}
    replacement = _begin(engine, "karma", SUM)
    _build(engine, replacement)
    assert scan(engine, "best|") == {"best|ann": "2", "best|bob": "1"}
    _go_on(engine)
    assert scan(engine, "best|") == {"best|ann": "7", "best|bob": "4"}
    engine.put(b"vote|ann|1", b"1")
    assert scan(engine, "best|") == {"best|ann": "3", "best|bob": "4"}


def test_a_join_above_that_read_the_old_one_alone_loses_its_rows() -> None:
    engine = engine_with("t|<x>|a = copy p|<x>; v|<x> = copy t|<x>|a; w|<x> = copy t|<x>|b")
    put_all(engine, {"p|1": "one"})
    assert (scan(engine, "v|"), scan(engine, "w|")) == ({"v|1": "one"}, {})
    replacement = _begin(engine, "t", "t|<x>|b = copy p|<x>")
    while not replacement.is_in_place:
        engine.replace_some()
    assert (scan(engine, "v|"), scan(engine, "w|")) == ({}, {"w|1": "one"})


def test_of_two_joins_over_one_key_the_place_decides() -> None:
    engine = engine_with("first|<x> = copy a|<x>; first|<y> = copy b|<y>")
    put_all(engine, {"a|1": "of a", "b|1": "of b", "c|1": "of c"})
    _replace(engine, "first", "first|<x> = copy c|<x>")
    assert scan(engine, "first|") == {"first|1": "of c"}
    assert [join.name for join in engine.joins()] == ["first", "first.2"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("other|<author> = sum vote|<author>|<id>", "computes keys of another table"),
        ("karma|<author> = copy best|<author>", "would read its own output"),
        ("karma|<author> = max vote|<author>|<id>", "is installed already"),
        ("karma|<author>|<id> = copy vote|<author>|<id>", "which a client has written"),
        ("karma|<author>|<nowhere> = sum vote|<author>|<id>", "nowhere"),
    ],
)
def test_what_cannot_take_the_place_is_refused_and_changes_nothing(text: str, reason: str) -> None:
    engine = engine_with(f"{COUNT}; best|<author> = copy karma|<author>; karma|<author> = max vote|<author>|<id>")
    put_all(engine, {**VOTES, "karma|ann|note": "by hand"})
    scan(engine, "karma|")
    before = engine.joins(), engine.revision
    with pytest.raises(JoinError, match=reason):
        _begin(engine, "karma", text)
    engine._check()
    assert (engine.joins(), engine.revision, engine.replacement) == (*before, None)


def test_a_join_that_an_earlier_one_hides_is_refused() -> None:
    engine = engine_with("t|<x> = count a|<x>|<y>; t|<x> = copy b|<x>")
    with pytest.raises(JoinError, match=r"nothing of it would be shown: the join 't'"):
        _begin(engine, "t.2", "t|<z> = sum a|<z>|<y>")


def test_keys_that_clients_write_meanwhile_end_it() -> None:
    engine = engine_with("t|<x>|a = copy p|<x>")
    put_all(engine, {"p|1": "one"})
    replacement = _begin(engine, "t", "t|<x>|b = copy p|<x>")
    engine.put(b"t|2|b", b"by a client")
    with pytest.raises(JoinError, match="which a client has written"):
        _go_on(engine)
    engine._check()
    assert not replacement.is_in_place
    assert "which a client has written" in str(replacement.ended)
    assert scan(engine, "t|") == {"t|1|a": "one", "t|2|b": "by a client"}


def test_one_replacement_at_a_time() -> None:
    engine = engine_with(f"{COUNT}; {TIMELINE}")
    _begin(engine, "karma", SUM)
    with pytest.raises(NotReplaceableError, match="'karma' is under way"):
        _begin(engine, "t", MUTED)
    with pytest.raises(UnknownJoinError):
        _begin(engine, "nobody", SUM)


def test_beginning_again_changes_nothing() -> None:
    engine = engine_with(COUNT)
    replacement = _begin(engine, "karma", SUM)
    assert _begin(engine, "karma", SUM) is replacement
    _go_on(engine)
    revision = engine.revision
    assert _begin(engine, "karma", SUM).is_in_place
    assert engine.replacement is None
    assert engine.revision == revision
    assert str(engine.replaced_spec("karma")) == COUNT


def test_a_cancelled_replacement_leaves_nothing() -> None:
    engine = _timelines()
    before = engine.ledger.computed_bytes
    replacement = _begin(engine, "t", MUTED)
    _build(engine, replacement)
    assert engine.ledger.computed_bytes > before
    engine.end_replacement(replacement, "cancelled")
    engine._check()
    assert replacement.ended == "cancelled"
    assert engine.ledger.computed_bytes == before
    assert not engine.replace_some()
    engine.put(b"mute|u0|bob", b"")
    assert len(scan(engine, "t|u0|")) == 5


def test_dropping_the_join_ends_its_replacement() -> None:
    engine = engine_with(COUNT)
    replacement = _begin(engine, "karma", SUM)
    engine.drop_join("karma")
    engine._check()
    assert replacement.ended == "the join was dropped"
    assert engine.joins() == []
    assert not engine.replace_some()


def test_joins_that_would_make_a_circle_with_the_new_one_are_refused_meanwhile() -> None:
    engine = engine_with(COUNT)
    _begin(engine, "karma", "karma|<author> = sum best|<author>|<id>")
    with pytest.raises(JoinError, match="would read its own output"):
        engine.add_joins(parse("best|<author>|<id> = copy karma|<author> check q|<id>"))
    with pytest.raises(JoinError, match="about to take the place of the join 'karma'"):
        engine.add_joins(parse("karma|<author> = sum best|<author>|<id>"))
    engine.add_joins(parse("best|<author>|<id> = copy vote|<author>|<id>"))
    put_all(engine, VOTES)
    _go_on(engine)
    assert scan(engine, "karma|") == {"karma|ann": "7", "karma|bob": "4"}


def test_the_text_before_is_known_until_the_join_is_dropped() -> None:
    engine = engine_with(COUNT)
    with pytest.raises(NotReplaceableError, match="no earlier text"):
        engine.replaced_spec("karma")
    _replace(engine, "karma", SUM)
    assert str(engine.replaced_spec("karma")) == COUNT
    _replace(engine, "karma", COUNT)
    assert str(engine.replaced_spec("karma")) == SUM
    engine.drop_join("karma")
    engine.add_joins(parse(COUNT))
    with pytest.raises(NotReplaceableError):
        engine.replaced_spec("karma")


def test_building_ends_where_memory_does() -> None:
    engine = _timelines(200)
    engine.limit_memory(engine.ledger.total_bytes + 2_000)
    replacement = _begin(engine, "t", MUTED)
    _build(engine, replacement)
    assert 0 < replacement.ranges_built < 200
    _go_on(engine)
    assert engine.ledger.total_bytes <= engine.ledger.limit_bytes
    assert all(len(scan(engine, f"t|u{number}|")) == 5 for number in range(200))


def test_what_was_read_last_is_built_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_LATELY", (2, 1_000))
    engine = _timelines(9)
    scan(engine, "t|u7|")
    replacement = _begin(engine, "t", MUTED)
    assert engine.replace_some()
    assert list(replacement.new.contexts) == [b"t|u7|"]


def test_the_old_rows_are_dropped_some_at_a_time() -> None:
    engine = _timelines(200)
    replacement = _begin(engine, "t", MUTED)
    while not replacement.is_in_place:
        assert engine.replace_some()
    left = [len(replacement.old.contexts)]
    while engine.replace_some():
        engine._check()
        left.append(len(replacement.old.contexts))
    assert left[0] == 200
    assert left[-1] == 0
    assert len(left) > 3
    assert engine._catalog.gone == []
