"""Ranges of indexes that a database is searched for: which rows are there, for how long, and what is asked again."""

from __future__ import annotations

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, LimitExceededError, MissingError, Range, SearchRange
from pequod.engine.writes.forgetter import FORGOTTEN_MAX
from tests.engine.searching import answer, find

JOINS = """
by_author|<author>|<id> = copy article|<id> with author = <author> as title;
number|<author> = count article|<id> with author = <author>;
by_price|<price:2>|<id> = copy article|<id> with price = <price:2> as title;
"""
ROWS = {
    b"article|1": b'{"author":"bob","price":7,"title":"Hi"}',
    b"article|2": b'{"author":"ann","price":7,"title":"Ho"}',
    b"article|3": b'{"author":"bob","price":9,"title":"Ha"}',
}


def searching() -> Engine:
    engine = Engine(backed=[b"article"], can_search=lambda _: True)
    engine.add_joins(parse(JOINS))
    return engine


def read(engine: Engine, prefix: bytes, rows: dict[bytes, bytes] = ROWS) -> dict[bytes, bytes]:
    """Read a range, and load what it lacks."""
    for _ in range(4):
        try:
            found = engine.scan(prefix, prefix[:-1] + b"}")
            break
        except MissingError as error:
            for one in error.ranges:
                engine.load(*one, [row for row in rows.items() if one.first <= row[0] < one.last])
            for search in error.searches:
                answer(engine, search, rows.items())
            engine._check()
    else:
        raise AssertionError("it lacks something for ever")
    engine._check()
    return dict(zip(found.keys, found.values, strict=True))


def lacking(engine: Engine, prefix: bytes) -> tuple[SearchRange, ...]:
    with pytest.raises(MissingError) as caught:
        engine.scan(prefix, prefix[:-1] + b"}")
    assert not caught.value.ranges
    return caught.value.searches


def there(engine: Engine) -> list[bytes]:
    """Return the keys of the rows that are there."""
    return engine._store.tables[b"article"].slice(b"article|", b"article}").keys


def test_a_read_by_a_field_lacks_a_range_of_the_index() -> None:
    engine = searching()
    (found,) = lacking(engine, b"by_author|bob|")
    assert (found.first, found.last) == (b"article|bob|", b"article|bob}")
    assert dict(found.search.fields).values() and found.search.keys == Range(b"article|", b"article}")
    assert read(engine, b"by_author|bob|") == {b"by_author|bob|1": b"Hi", b"by_author|bob|3": b"Ha"}
    assert there(engine) == [b"article|1", b"article|3"]
    assert engine.base_rows().keys == [], "no range of keys is loaded"
    assert engine.get(b"number|bob") == b"2", "joins that ask for the same share what is found"


def test_changes_move_rows_into_searched_ranges_and_out_of_them() -> None:
    engine = searching()
    read(engine, b"by_author|bob|")
    assert engine.is_followed(b"article|9")
    assert engine.apply(b"article|2", b'{"author":"bob","price":7,"title":"Ho"}')
    assert not engine.apply(b"article|4", b'{"author":"liz","price":7,"title":"He"}')
    assert engine.apply(b"article|1", b'{"author":"liz","price":7,"title":"Hi"}')
    assert engine.apply(b"article|3", None)
    engine._check()
    assert read(engine, b"by_author|bob|", {}) == {b"by_author|bob|2": b"Ho"}
    assert there(engine) == [b"article|2"]


def test_a_row_stays_until_no_searched_range_shows_it() -> None:
    engine = searching()
    read(engine, b"by_author|bob|")
    engine.limit_memory(1 << 30)
    read(engine, b"by_price|07|")
    assert there(engine) == [b"article|1", b"article|2", b"article|3"]
    for shown, left in ((b"article|bob|", [b"article|1", b"article|2"]), (b"article|07|", [])):
        for one in engine._directory.by_name[b"article"].searched:
            for part in one.presence.over(shown, shown[:-1] + b"}"):
                engine._backed.evict(part)
                engine._check()
        assert there(engine) == left


def test_forgetting_keys_forgets_what_was_searched_for() -> None:
    engine = searching()
    read(engine, b"by_author|bob|")
    # A change may have been missed: row 2 is bob's now.
    engine.forget(b"article|2", b"article|3")
    assert there(engine) == []
    assert engine.ledger.index_count == 0, "an index without rows is of no use"
    changed = ROWS | {b"article|2": ROWS[b"article|1"]}
    assert list(read(engine, b"by_author|bob|", changed)) == [
        b"by_author|bob|1",
        b"by_author|bob|2",
        b"by_author|bob|3",
    ]
    while engine.forget_some(b"article|2", b"article|3"):
        engine._check()
    assert there(engine) == []


def test_what_many_read_of_a_search_is_forgotten_piece_by_piece() -> None:
    engine = searching()
    engine.add_joins(parse("feed|<u>|<author>|<id> = check s|<u>|<author> copy article|<id> with author = <author>"))
    read(engine, b"by_author|bob|")
    for user in range(FORGOTTEN_MAX):
        engine.put(b"s|%04d|bob" % user, b"1")
        assert len(engine.scan(b"feed|%04d|" % user, b"feed|%04d}" % user).keys) == 2
    pieces = 0
    while engine.forget_some(b"article|1", b"article|2"):
        pieces += 1
        engine._check()
    assert pieces >= 2
    assert there(engine) == []
    assert len(read(engine, b"feed|0007|", {b"article|2": ROWS[b"article|1"]})) == 1


def test_nothing_is_searched_for_where_all_rows_are_loaded() -> None:
    engine = searching()
    engine.load(b"article|", b"article}", ROWS.items())
    assert list(engine.scan(b"by_author|bob|", b"by_author|bob}").keys) == [b"by_author|bob|1", b"by_author|bob|3"]
    assert engine.loaded() == [Range(b"article|", b"article}")]
    # Rows that a searched range shows outlast the range of keys.
    assert read(engine, b"by_author|") | read(engine, b"by_price|07|", {}) == {
        b"by_author|ann|2": b"Ho",
        b"by_author|bob|1": b"Hi",
        b"by_author|bob|3": b"Ha",
        b"by_price|07|1": b"Hi",
        b"by_price|07|2": b"Ho",
    }


def test_an_abandoned_search_leaves_nothing() -> None:
    engine = searching()
    (found,) = lacking(engine, b"by_author|bob|")
    rows = find(found, ROWS.items())
    engine.load_found(found, rows[:1])
    engine.evict(100)
    assert there(engine) == [b"article|1"], "what arrives is not evicted"
    engine._check()
    engine.abandon_search(found)
    engine._check()
    assert there(engine) == []
    assert lacking(engine, b"by_author|bob|") == (found,)


def test_rows_that_were_found_wait_for_their_read_until_it_is_given_up() -> None:
    engine = searching()
    (found,) = lacking(engine, b"by_author|bob|")
    answer(engine, found, ROWS.items())
    assert engine.evict(2) == 0
    engine.release_found(found)
    assert engine.evict(2) == 2
    assert there(engine) == []


def test_a_search_without_memory_is_refused() -> None:
    engine = searching()
    (found,) = lacking(engine, b"by_author|bob|")
    engine.limit_memory(engine.ledger.total_bytes + 500)
    large = {b"article|%d" % number: b'{"author":"bob","title":"%s"}' % (b"x" * 200) for number in range(10)}
    with pytest.raises(LimitExceededError):
        answer(engine, found, large.items())
    engine._check()
    assert there(engine) == []


def test_rows_go_with_the_last_join_that_searches_for_them() -> None:
    engine = searching()
    read(engine, b"by_author|bob|")
    engine.drop_join("by_author")
    engine._check()
    assert there(engine) == [b"article|1", b"article|3"], "they are counted"
    engine.drop_join("number")
    engine._check()
    assert there(engine) == []
    (found,) = lacking(searching(), b"by_author|bob|")
    engine.load_found(found, ROWS.items())
    engine.note_searched(found)
    engine.abandon_search(found)
    assert there(engine) == [], "it comes too late"


def test_what_was_read_where_all_rows_are_loaded_goes_with_them() -> None:
    engine = searching()
    engine.load(b"article|", b"article}", ROWS.items())
    assert read(engine, b"by_author|bob|") == {b"by_author|bob|1": b"Hi", b"by_author|bob|3": b"Ha"}
    engine.forget(b"article|", b"article}")
    assert not engine.apply(b"article|1", None)
    assert read(engine, b"by_author|bob|", {b"article|3": ROWS[b"article|3"]}) == {b"by_author|bob|3": b"Ha"}


def test_loaded_keys_that_look_like_plain_ones_say_nothing() -> None:
    engine = searching()
    engine.load(b"article|a", b"article|c", [])
    assert lacking(engine, b"by_author|bob|")
    assert len(read(engine, b"by_author|bob|")) == 2
    part = engine._backed.part_of(b"article|b")
    assert part is not None
    computed = engine.statistics().joins["by_author"].computed_ranges
    engine._backed.evict(part)
    assert len(read(engine, b"by_author|bob|")) == 2
    assert engine.statistics().joins["by_author"].computed_ranges == computed, "it does not depend on these keys"


def test_one_row_is_searched_for_as_well() -> None:
    engine = searching()
    with pytest.raises(MissingError) as caught:
        engine.get(b"by_author|bob|1")
    assert not caught.value.ranges
    (found,) = caught.value.searches
    assert (found.first, found.last) == (b"article|bob|1", b"article|bob|1\0")
    answer(engine, found, ROWS.items())
    assert engine.get(b"by_author|bob|1") == b"Hi"
    assert there(engine) == [b"article|1"]


def test_all_rows_are_asked_for_by_their_keys() -> None:
    engine = searching()
    with pytest.raises(MissingError) as caught:
        engine.scan(b"by_author|", b"by_author}")
    assert (caught.value.ranges, caught.value.searches) == ((Range(b"article|", b"article}"),), ())


def test_many_rows_of_a_search_are_evicted_in_parts() -> None:
    engine = searching()
    rows = {b"article|%04d" % number: ROWS[b"article|1"] for number in range(1_200)}
    read(engine, b"by_author|bob|", rows)
    searched = [one for one in engine._directory.by_name[b"article"].searched if one.presence]
    assert len(searched) == 2, "those who are copied, and those who are counted"
    for one in searched:
        parts = list(one.presence)
        assert len(parts) > 1
        engine._backed.evict(parts[0])
        engine._check()
    assert 0 < len(there(engine)) < len(rows)
    assert len(read(engine, b"by_author|bob|", rows)) == len(rows)
