"""Ways through the engine that few reads take, each reached on purpose."""

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, JoinError, Span
from pequod.engine.writes.changes import LOG_MAX
from pequod.language.narrowing import fixed_width, refine
from tests.engine.joins import TIMELINE, engine_with, put_all, scan


def test_a_pull_join_over_a_stale_join_starts_again() -> None:
    engine = engine_with(TIMELINE + "; o|<user>|<time:4>|<poster> = pull copy t|<user>|<time>|<poster>")
    put_all(engine, {"s|ann|bob": "", "p|bob|0001": "Hi", "p|liz|0002": "Ho"})
    assert len(scan(engine, "o|ann|")) == 1
    put_all(engine, {"s|ann|liz": ""})
    assert scan(engine, "o|ann|") == {"o|ann|0001|bob": "Hi", "o|ann|0002|liz": "Ho"}


def test_a_snapshot_of_a_pull_join_of_a_snapshot() -> None:
    engine = engine_with("a|<x> = snapshot 1 copy b|<x>; c|<x> = pull copy a|<x>; d|<x> = snapshot 5 copy c|<x>")
    put_all(engine, {"b|1": "old"})
    assert scan(engine, "d|", now=0.0) == {"d|1": "old"}
    put_all(engine, {"b|1": "new"})
    assert scan(engine, "c|", now=2.0) == {"c|1": "new"}
    assert scan(engine, "d|", now=2.0) == {"d|1": "old"}
    assert scan(engine, "d|", now=5.1) == {"d|1": "new"}


def test_a_join_over_a_snapshot_expires_in_all_its_ranges() -> None:
    engine = engine_with("k|<x> = snapshot 1 copy b|<x>; o|<n>|<x> = check r|<n>|<x> copy k|<x>")
    put_all(engine, {"b|a": "1", "b|b": "1", "r|1|a": "", "r|1|b": ""})
    assert scan(engine, "o|1|a", "o|1|a~", now=0.0) == {"o|1|a": "1"}
    put_all(engine, {"b|a": "2", "b|b": "2"})
    assert scan(engine, "o|1|b", "o|1|b~", now=2.0) == {"o|1|b": "2"}
    assert scan(engine, "o|1|", now=2.0) == {"o|1|a": "2", "o|1|b": "2"}


def test_a_log_that_needs_a_stale_source_starts_again() -> None:
    engine = engine_with(
        TIMELINE + "; f|<fan>|<time:4>|<user>|<poster> = check l|<fan>|<user> copy t|<user>|<time>|<poster>"
    )
    put_all(engine, {"l|zoe|ann": "", "s|ann|bob": "", "p|bob|0001": "Hi"})
    assert scan(engine, "t|liz|") == {}
    assert scan(engine, "f|zoe|") == {"f|zoe|0001|ann|bob": "Hi"}
    put_all(engine, {"s|liz|bob": "", "l|zoe|liz": ""})
    assert scan(engine, "f|zoe|") == {"f|zoe|0001|ann|bob": "Hi", "f|zoe|0001|liz|bob": "Hi"}


def test_what_is_stale_by_one_source_goes_stale_by_another() -> None:
    engine = engine_with(
        TIMELINE + "; f|<fan>|<time:4>|<user>|<poster> = check l|<fan>|<user> copy t|<user>|<time>|<poster>"
    )
    put_all(engine, {"l|zoe|ann": "", "l|zoe|liz": "", "p|bob|0001": "Hi", "p|joe|0002": "Ho"})
    assert scan(engine, "f|zoe|") == {}
    engine.put(b"s|ann|bob", b"")
    engine.put(b"s|liz|joe", b"")
    assert scan(engine, "f|zoe|") == {"f|zoe|0001|ann|bob": "Hi", "f|zoe|0002|liz|joe": "Ho"}


def test_a_log_fills_ranges_and_not_the_holes_between_them() -> None:
    engine = engine_with(TIMELINE)
    put_all(engine, {"s|ann|bob": "", **{f"p|{poster}|{n:04}": "v" for poster in ("bob", "liz") for n in range(10)}})
    assert len(scan(engine, "t|ann|0001", "t|ann|0003")) == 2
    assert len(scan(engine, "t|ann|0006", "t|ann|0008")) == 2
    put_all(engine, {"s|ann|liz": ""})
    assert len(scan(engine, "t|ann|0001", "t|ann|0003")) == 4
    put_all(engine, {"p|bob|0004": "changed", "p|liz|0007": "changed"})
    assert engine.statistics().joins["t"].rows == 8
    assert scan(engine, "t|ann|0004", "t|ann|0005") == {"t|ann|0004|bob": "changed", "t|ann|0004|liz": "v"}
    assert scan(engine, "t|ann|0007", "t|ann|0008")["t|ann|0007|liz"] == "changed"
    assert len(scan(engine, "t|ann|")) == 20


def test_a_log_of_an_aggregate_fills_ranges_and_not_holes() -> None:
    engine = engine_with("n|<a>|<b> = check s|<a>|<c> count p|<c>|<b>|<d>")
    put_all(engine, {f"p|{c}|{b}|{d}": "" for c in "xy" for b in range(5) for d in range(2)} | {"s|1|x": ""})
    assert scan(engine, "n|1|1", "n|1|2") == {"n|1|1": "2"}
    assert scan(engine, "n|1|3", "n|1|4") == {"n|1|3": "2"}
    put_all(engine, {"s|1|y": ""})
    assert scan(engine, "n|1|1", "n|1|2") == {"n|1|1": "4"}
    engine.remove(b"s|1|x")
    assert scan(engine, "n|1|") == {f"n|1|{b}": "2" for b in range(5)}


@pytest.mark.parametrize(
    ("join", "rest"),
    [(TIMELINE, ""), ("t|<user>|<time>|<list>|<poster> = check s|<user>|<poster>|<list> copy p|<poster>|<time>", "|x")],
    ids=["native frames", "values beside the keys of frames"],
)
def test_following_and_unfollowing_for_long_leaves_no_updaters(join: str, rest: str) -> None:
    engine = engine_with(join)
    assert scan(engine, "t|ann|") == {}
    for number in range(60):
        put_all(engine, {f"s|ann|{number}{rest}": "", f"p|{number}|0001": "v"})
        assert len(scan(engine, "t|ann|")) == 1
        engine.remove(f"s|ann|{number}{rest}".encode())
        assert scan(engine, "t|ann|") == {}
    (context,) = engine._catalog.find("t").contexts.values()
    assert len(context.updaters) < 40
    assert engine.statistics().joins["t"].updaters == 1


def test_copies_whose_keys_do_not_fit_are_passed_over() -> None:
    engine = engine_with(TIMELINE)
    put_all(engine, {"s|ann|bob": "", "s|ann|bob|x": "", "s|ann|liz": ""})
    engine.put(b"s|ann|", b"")
    put_all(engine, {"p|bob|0001": "v", "p|bob|01": "short", "p|bob|00001": "long", "p|liz|0003": "late"})
    assert scan(engine, "t|ann|0001", "t|ann|0002") == {"t|ann|0001|bob": "v"}
    assert scan(engine, "t|ann|") == {"t|ann|0001|bob": "v", "t|ann|0003|liz": "late"}


def test_copies_of_two_slots_are_clipped_in_the_second() -> None:
    engine = engine_with("o|<a>|<x:1><y:1>|<b> = check s|<a>|<b> copy p|<b>|<x:1><y:1>")
    put_all(engine, {"s|1|k": "", **{f"p|k|{x}{y}": "v" for x in "ab" for y in "ab"}})
    assert list(scan(engine, "o|1|ab", "o|1|bb")) == ["o|1|ab|k", "o|1|ba|k"]
    assert len(scan(engine, "o|1|")) == 4


def test_a_copy_below_a_check_that_does_not_lead_to_it() -> None:
    engine = engine_with("o|<a>|<b>|<x:1> = check s|<a>|<b> copy p|<a>|<x:1>")
    put_all(engine, {"s|1|k": "", "s|1|l": "", "p|1|z": "v"})
    assert list(scan(engine, "o|1|")) == ["o|1|k|z", "o|1|l|z"]


def test_a_copy_below_a_check_of_another_slot_of_its_prefix() -> None:
    engine = engine_with("o|<a>|<x:1>|<b>|<c> = check s|<a>|<b> check r|<a>|<c> copy p|<b>|<x:1>")
    put_all(engine, {"s|1|k": "", "r|1|m": "", "r|1|n": "", "p|k|z": "v"})
    assert list(scan(engine, "o|1|")) == ["o|1|z|k|m", "o|1|z|k|n"]


def test_a_join_has_three_sources() -> None:
    engine = engine_with("o|<a>|<x:1>|<b>|<c> = check s|<a>|<b> check r|<b>|<c> copy p|<c>|<x:1>")
    put_all(engine, {"s|1|k": "", "s|1|l": "", "r|k|m": "", "r|l|m": "", "r|l|n": "", "p|m|z": "v", "p|n|y": "w"})
    assert list(scan(engine, "o|1|")) == ["o|1|y|l|n", "o|1|z|k|m", "o|1|z|l|m"]
    engine.remove(b"r|l|m")
    put_all(engine, {"r|k|n": ""})
    assert list(scan(engine, "o|1|")) == ["o|1|y|k|n", "o|1|y|l|n", "o|1|z|k|m"]


def test_equal_extremes_are_counted() -> None:
    engine = engine_with("e|<a> = max v|<a>|<b>")
    put_all(engine, {"v|1|1": "5", "v|1|2": "5", "v|1|3": "4"})
    assert engine.get(b"e|1") == b"5"
    engine.remove(b"v|1|1")
    assert engine.get(b"e|1") == b"5"
    engine.remove(b"v|1|2")
    assert engine.get(b"e|1") == b"4"


def test_a_computed_source_is_not_read_where_nothing_can_be() -> None:
    engine = engine_with("m|<b>|<a> = copy x|<a>|<b>; o|<a:1>|<n> = check s|<n> copy m|<n>|<a:1>")
    engine.put(b"s|q", b"")
    engine.put(b"x|\xff|q", b"v")
    assert engine.scan(b"o|\xff|r", b"o}").keys == []
    assert engine.scan(b"o|a|r", b"o|b|c").keys == []
    assert engine.scan(b"o|\xff|", b"o}").keys == [b"o|\xff|q"]


def test_narrowing_beyond_the_greatest_value_is_empty() -> None:
    assert refine(1, b"\xff|b", None, b"|a") is None
    assert refine(1, b"a|b", b"c", b"|a") == (b"b", b"c")
    assert fixed_width(1)(b"ab", b"\xffb") == (b"a", None)


def test_a_join_error_without_a_text_still_says_where() -> None:
    error = JoinError("reason", span=Span(0, 1, 3, 4))
    assert str(error) == "line 3, column 4: reason"
    assert str(error.with_text("a\nb\nabc^")) == "line 3, column 4: reason\n    abc^\n       ^"


def test_a_join_over_a_computed_source_that_a_later_join_also_computes() -> None:
    engine = Engine()
    engine.add_joins(parse("a|<x> = copy b|<x>; z|<x> = copy a|<x>"))
    put_all(engine, {"b|1": "b", "c|1": "c", "c|2": "c"})
    assert scan(engine, "z|") == {"z|1": "b"}
    engine.add_joins(parse("a|<x> = copy c|<x>"))
    assert scan(engine, "z|") == {"z|1": "b", "z|2": "c"}
    engine.remove(b"b|1")
    assert scan(engine, "z|") == {"z|1": "c", "z|2": "c"}
    with pytest.raises(JoinError):
        engine.add_joins(parse("b|<x> = copy z|<x>"))


def test_a_context_that_another_one_takes_along_is_computed_again() -> None:
    """What both read has changed so much that neither can log it."""
    engine = engine_with("c|<x:5> = check f|<g> copy e|<g>|<x>; t|<u>|<x:5> = check c|<x> copy d|<u>|<x>")
    for number in range(LOG_MAX + 1):
        engine.put(b"e|1|%05d" % number, b"1")
    put_all(engine, {"d|ann|00007": "a", "d|liz|00008": "b"})
    for user in ("ann", "liz"):
        assert scan(engine, f"t|{user}|") == {}
    engine.put(b"f|1", b"1")
    assert scan(engine, "t|") == {"t|ann|00007": "a", "t|liz|00008": "b"}
