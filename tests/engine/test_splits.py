"""Split points cut a range into parts of about equal numbers of rows."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from pequod_grammar import parse

from pequod.engine import Engine
from pequod.engine.shown import splits

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


def parts(engine: Engine, first: bytes, last: bytes | None, count: int) -> list[int]:
    """Return the sizes of the parts, having seen that the splits are in order and in the range."""
    keys = engine.splits(first, last, count)
    assert len(keys) < count
    bounds = [first, *keys]
    assert all(a < b for a, b in pairwise(bounds))
    assert last is None or bounds[-1] < last or not keys
    ends: list[bytes | None] = [*bounds[1:], last]
    return [engine.count(start, stop) for start, stop in zip(bounds, ends, strict=True)]


def posts(engine: Engine, poster_count: int, post_count: int) -> None:
    for poster in range(poster_count):
        for time in range(post_count):
            engine.put(b"p|u%05d|%04d" % (poster, time), b"")


def test_a_table_of_one_list_is_cut_evenly() -> None:
    engine = Engine()
    posts(engine, 10, 500)
    assert all(1230 < size < 1270 for size in parts(engine, b"p|", b"p}", 4))


def test_groups_are_cut_inside_and_between() -> None:
    engine = Engine()
    engine.add_joins(parse(TIMELINE))
    posts(engine, 3, 3000)
    engine.put(b"p|u00000|9999", b"")
    assert all(1000 < size < 1250 for size in parts(engine, b"p|", b"p}", 8))


def test_one_group_that_has_nearly_everything_is_cut() -> None:
    engine = Engine()
    engine.add_joins(parse(TIMELINE))
    posts(engine, 500, 1)
    for time in range(10_000):
        engine.put(b"p|u00250|%04d" % time, b"")
    assert max(parts(engine, b"p|", b"p}", 10)) < 1200


def test_of_many_groups_some_are_looked_at() -> None:
    engine = Engine()
    engine.add_joins(parse(TIMELINE))
    posts(engine, 3 * splits.GROUPS_MAX, 2)
    assert max(parts(engine, b"p|", b"p}", 6)) < 1.1 * 6 * splits.GROUPS_MAX / 6


def test_what_is_materialised_is_cut_and_what_is_not_is_one_part() -> None:
    engine = Engine()
    engine.add_joins(parse(TIMELINE))
    posts(engine, 20, 50)
    for user in range(40):
        engine.put(b"s|r%02d|u%05d" % (user, user % 20), b"")
    assert engine.splits(b"t|", b"t}", 4) == []
    engine.scan(b"t|", b"t}")
    assert all(480 < size < 520 for size in parts(engine, b"t|", b"t}", 4))


def test_a_range_across_tables_and_loose_keys() -> None:
    engine = Engine()
    for number in range(1000):
        engine.put(b"a|%04d" % number, b"")
        engine.put(b"b%04d" % number, b"")
    assert parts(engine, b"", None, 2) == [1000, 1000]
    assert parts(engine, b"a|0500", b"b0500", 2) == [500, 500]


def test_little_or_nothing_gives_few_parts() -> None:
    engine = Engine()
    assert engine.splits(b"", None, 100) == []
    assert engine.splits(b"b", b"a", 100) == []
    engine.put(b"a|1", b"")
    engine.put(b"a|2", b"")
    assert engine.splits(b"", None, 1) == []
    assert parts(engine, b"a|", b"a}", 100) == [1, 1]


@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=2), st.integers(1, 9)), max_size=40, unique_by=lambda row: row[0]
    ),
    st.integers(1, 12),
)
def test_no_part_is_further_from_even_than_the_largest_sample(samples: list[tuple[bytes, int]], count: int) -> None:
    keys = splits.choose(samples, b"", count)
    assert keys == sorted(set(keys))
    assert len(keys) < count
    total, largest = sum(weight for _, weight in samples), max((weight for _, weight in samples), default=0)
    bounds: list[bytes | None] = [b"", *keys, None]
    for start, stop in pairwise(bounds):
        assert start is not None
        weight = sum(weight for key, weight in samples if start <= key and (stop is None or key < stop))
        assert weight <= total / count + largest
