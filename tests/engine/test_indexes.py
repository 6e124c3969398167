"""Indexes over records, and what is counted and shown of values that do not match."""

import tracemalloc

import orjson
import pytest

from pequod.engine import Engine, IndexExplanation, MisfitExplanation
from pequod.engine.joins.indexes import Index
from pequod.language import forms, many_records, parsing
from tests.engine.joins import BY_AUTHOR, REVIEW, engine_with, put_all, scan


class Parsed:
    """Counts how often values are parsed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for module in (parsing, many_records):
            monkeypatch.setattr(module, "loads", self)

    def __call__(self, value: bytes) -> object:
        self.count += 1
        return ORIGINAL(value)


ORIGINAL = orjson.loads


def test_a_value_is_parsed_once_for_all_joins_and_not_for_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = Parsed(monkeypatch)
    engine = engine_with(
        f"{BY_AUTHOR}; by_title|<title>|<id> = copy article|<id> with title = <title>; n|<id> = copy p|<id>"
    )
    put_all(engine, {"article|1": '{"author": "bob", "title": "Hi"}', "p|1": "x"})
    assert parsed.count == 0, "no join has read the table"
    scan(engine, "by_author|bob|")
    scan(engine, "by_title|Hi|")
    scan(engine, "n|")
    before = parsed.count
    # The core reads records without a parser, but for an escape in a name.
    engine.put(b"article|2", b'{"author": "bob", "title": "Ho", "\\u0061": 1}')
    assert parsed.count == before + 1
    engine.put(b"article|2", b'{"author": "bob", "title": "Hey", "\\u0061": 1}')
    assert parsed.count <= before + 3
    engine.put(b"p|2", b"{}")
    assert parsed.count <= before + 3


def test_an_old_value_is_not_parsed_if_the_index_has_what_it_showed_and_its_old_row_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed = Parsed(monkeypatch)
    engine = engine_with(BY_AUTHOR)
    scan(engine, "by_author|bob|")
    puts = [
        ("bob", "Hi", 1),
        ("bob", "Ho", 1),
        ("ann", "Ho", 1),
        ("a|b", "Ho", 1),
        ("ann", "Ho", 1),
        ("ann", "Hello", 1),
    ]
    for author, title, count in puts:
        before = parsed.count
        # With an escape in a name, for which the core needs a parser.
        record = b'{"author": "%b", "title": "%b", "\\u0061": 1}' % (author.encode(), title.encode())
        engine.put(b"article|1", record)
        assert parsed.count == before + count, (author, title)
        shown = {} if author == "a|b" else {f"by_author|{author}|1": f'{{"title":"{title}"}}'}
        assert scan(engine, "by_author|") == shown
        engine._check()


def test_elements_that_are_gone_are_taken_out_beside_one_that_stays() -> None:
    engine = engine_with("tagged|<tag>|<id> = copy post|<id> with tags[] = <tag>")
    scan(engine, "tagged|red|")
    put_all(engine, {"post|1": '{"tags": ["red", "new"]}'})
    assert list(scan(engine, "tagged|")) == ["tagged|new|1", "tagged|red|1"]
    put_all(engine, {"post|1": '{"tags": ["red"]}'})
    assert list(scan(engine, "tagged|")) == ["tagged|red|1"]


def test_what_is_copied_of_records_takes_the_memory_of_its_bytes() -> None:
    engine = engine_with("t|<a>|<id> = copy s|<id> with a = <a> as {a, b}; n|<a>|<id> = copy s|<id> with a = <a> as b")
    scan(engine, "t|x|")
    scan(engine, "n|x|")
    tracemalloc.start()
    try:
        for number in range(500):
            engine.put(b"s|%03d" % number, b'{"a": "x", "b": %d.5}' % number)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(scan(engine, "t|x|")) == len(scan(engine, "n|x|")) == 500
    # The printer's own buffers are 1 KB or 4 KB each.
    assert taken < 500 * 1000


def _indexes(engine: Engine) -> list[Index]:
    return list({id(index): index for join in engine._catalog for index in join.indexes if index is not None}.values())


def test_joins_that_see_the_same_share_one_index() -> None:
    engine = engine_with(
        "a|<x> = sum item|<id> with b = <x> as c; d|<y> = max item|<i> with b = <y> as c;"
        "e|<x>|<id> = copy item|<id> with b = <x> as d"
    )
    assert len(_indexes(engine)) == 2
    put_all(engine, {"item|1": '{"b": 1, "c": 2}'})
    assert scan(engine, "a|1") == {"a|1": "2"}
    assert [index.rows is not None for index in _indexes(engine)] == [True, False]
    assert scan(engine, "d|1") == {"d|1": "2"}
    engine.drop_join("a")
    assert engine.ledger.index_count == 1
    engine.drop_join("d")
    assert (engine.ledger.index_count, engine.ledger.index_bytes) == (0, 0)


def test_no_index_is_made_where_the_key_leads() -> None:
    engine = engine_with('t|<user>|<id> = copy p|<user>|<id> with kind = "x"; one|<id> = copy p|<id>|<x> with y exists')
    put_all(engine, {"p|bob|1": '{"kind": "x"}', "p|bob|2": '{"kind": "y"}'})
    assert list(scan(engine, "t|bob|")) == ["t|bob|1"]
    assert not any(index.rows for index in _indexes(engine))


def test_an_index_is_evicted_last_and_made_again() -> None:
    engine = engine_with(BY_AUTHOR)
    put_all(engine, {f"article|{number}": f'{{"author": "a{number}", "title": "t"}}' for number in range(50)})
    for number in range(50):
        scan(engine, f"by_author|a{number}|")
    assert engine.evict(50) == 50
    assert engine.ledger.index_count == 1
    assert engine.evict(1) == 1
    assert engine.ledger.index_count == 0
    engine.put(b"article|x", b'{"author": "a7", "title": "t"}')
    assert list(scan(engine, "by_author|a7|")) == ["by_author|a7|7", "by_author|a7|x"]


def test_an_index_that_does_not_fit_is_not_made() -> None:
    engine = engine_with("by|<a>|<id> = copy item|<id> with a = <a> as b")
    put_all(
        engine, {f"item|{number}": f'{{"a": {number % 7}, "b": 1, "rest": "{"x" * 150}"}}' for number in range(500)}
    )
    engine.weigh()
    stored_bytes = engine.statistics().memory.stored_bytes
    engine.limit_memory(stored_bytes + 40_000)
    assert len(scan(engine, "by|3|")) == 71
    assert engine.ledger.index_count == 0
    engine.limit_memory(2 * stored_bytes)
    assert len(scan(engine, "by|4|")) == 71
    assert engine.ledger.index_count == 1


def test_what_does_not_match_breaks_nothing_and_is_counted() -> None:
    engine = engine_with(BY_AUTHOR)
    scan(engine, "by_author|")
    values = ["", "x", "[]", "{}", '{"author": null}', '{"author": {}}', '{"author": "a|b"}', '{"author": []}']
    put_all(engine, {f"article|{number}": value for number, value in enumerate(values)})
    assert scan(engine, "by_author|") == {}
    (index,) = _indexes(engine)
    assert index.misfits == {
        forms.Misfit.NO_OBJECT: (3, b"article|2"),
        forms.Misfit.MISSING: (1, b"article|3"),
        forms.Misfit.NULL: (1, b"article|4"),
        forms.Misfit.OBJECT: (1, b"article|5"),
        forms.Misfit.DELIMITED: (1, b"article|6"),
        forms.Misfit.ARRAY: (1, b"article|7"),
    }


def test_explain_shows_the_index_and_what_does_not_match() -> None:
    engine = engine_with(REVIEW)
    check, copy = engine.explain_join("review").sources
    assert (check.reads, check.index, check.misfits) == ("item|<item>", None, ())
    assert (copy.reads, copy.narrowed_by, copy.binds) == ("review|<item>|", "date", ("id", "date"))
    assert copy.index == IndexExplanation("review|<item>|<date>|<id>", is_made=False)
    put_all(
        engine,
        {
            "item|tea": '{"visible": true}',
            "review|1": '{"item": "tea", "date": "d1"}',
            "review|2": '{"item": "tea"}',
            "review|3": '{"item": null, "date": "d1"}',
        },
    )
    assert len(scan(engine, "review|tea|")) == 1
    put_all(engine, {"review|4": '{"item": "rum"}', "review|5": "text", "item|tea": '{"visible": 0}'})
    check, copy = engine.explain_join("review").sources
    index = copy.index
    assert index is not None
    assert (index.is_made, index.rows, index.bytes) == (True, 1, engine.ledger.index_bytes)
    assert check.misfits == (MisfitExplanation("a field has another type than the literal", 1, b"item|tea"),)
    assert set(copy.misfits) == {
        MisfitExplanation("a field is missing", 2, b"review|4"),
        MisfitExplanation("a field is null", 1, b"review|3"),
        MisfitExplanation("the value is no JSON object", 1, b"review|5"),
    }
    statistics = engine.statistics()
    assert statistics.joins["review"].misfits == 5
    assert statistics.memory.index_bytes == engine.ledger.index_bytes > 0


def test_other_values_under_the_same_keys_weigh_what_they_did() -> None:
    # Arrays go the general way: one put shows several rows.
    engine = engine_with("tagged|<tag>|<id> = copy post|<id> with tags[] = <tag>")
    put_all(engine, {"post|1": '{"tags": ["red", "new"]}'})
    scan(engine, "tagged|red|")
    before = engine.ledger.index_bytes
    put_all(engine, {"post|1": '{"tags": ["new", "red"], "title": "Hi"}'})
    assert list(scan(engine, "tagged|red|").values()) == ['{"tags": ["new", "red"], "title": "Hi"}']
    assert engine.ledger.index_bytes == before


def test_records_under_keys_of_many_slots_are_seen() -> None:
    slots = "|".join(f"<s{number}>" for number in range(16))
    engine = engine_with(f"by|<author>|{slots} = copy r|{slots} with author = <author>")
    key = "|".join("abcdefghijklmnop")
    put_all(engine, {f"r|{key}": '{"author": "bob"}'})
    assert scan(engine, "by|bob|") == {f"by|bob|{key}": '{"author": "bob"}'}
    put_all(engine, {f"r|{key}": '{"author": "liz"}'})
    assert (scan(engine, "by|bob|"), list(scan(engine, "by|liz|"))) == ({}, [f"by|liz|{key}"])
