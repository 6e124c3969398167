"""The structures by themselves: rows in leaves, tables in groups, pattern overlap, containing ranges."""

import doctest
import importlib
import itertools
import pkgutil
from collections.abc import Iterator
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pequod_grammar import parse
from pequod_grammar.patterns import parse_pattern

import pequod.engine
from pequod.answers.rows import Rows
from pequod.engine import Engine, Pattern, Slot, prefix_end
from pequod.engine.base import rows
from pequod.engine.base.range_map import RangeMap, Stretch
from pequod.engine.base.rows import SortedRows
from pequod.engine.base.store import Store
from pequod.engine.base.table import Cut, Table
from pequod.language.patterns import compile_matcher, may_overlap
from tests.engine.joins import engine_with, put_all, scan

KEYS = st.text(alphabet="ab|~", min_size=0, max_size=4).map(str.encode)
BOUNDS = st.tuples(KEYS, st.none() | KEYS)


@pytest.fixture
def small_leaves() -> Iterator[None]:
    before = rows.set_leaf_max(4)
    yield
    rows.set_leaf_max(before)


@pytest.mark.usefixtures("small_leaves")
@given(
    st.lists(st.tuples(st.sampled_from(["put", "remove"]), KEYS)), BOUNDS, st.none() | st.integers(0, 3), st.booleans()
)
def test_rows_are_a_sorted_dictionary(
    calls: list[tuple[str, bytes]], bounds: tuple[bytes, bytes | None], limit: int | None, reverse: bool
) -> None:
    found, expected = SortedRows(), dict[bytes, bytes]()
    for number, (call, key) in enumerate(calls):
        value = b"%d" % number
        if call == "put":
            assert found.put(key, value) == expected.get(key)
            expected[key] = value
        else:
            assert found.remove(key) == expected.pop(key, None)
        found._check()
    first, last = bounds
    inside = sorted(key for key in expected if first <= key and (last is None or key < last))
    wanted = inside[::-1][:limit] if reverse else inside[:limit]
    assert found.slice(first, last, limit, reverse=reverse) == (wanted, [expected[key] for key in wanted])
    assert found.count(first, last) == len(inside)
    later = sorted(key for key in expected if key >= first)[:limit]
    prefixed = [b"t|" + key for key in later]
    assert found.since(b"t|", b"t|" + first, limit) == (prefixed, [expected[key] for key in later])
    assert found.everything().keys == sorted(expected)
    assert len(found) == len(expected)
    assert bool(found) == bool(expected)
    assert all(found.get(key) == value for key, value in expected.items())


def test_rows_are_merged_into_sorted_rows(small_leaves: None) -> None:
    found = SortedRows()
    found.merge([], [])
    found.merge([b"d", b"e"], [b"4", b"5"])
    found.merge([b"f"], [b"6"])
    found.merge([b"a", b"e", b"z"], [b"1", b"50", b"26"])
    found.merge([b"b%d" % n for n in range(9)], [b""] * 9)
    found._check()
    assert found.get(b"e") == b"50"
    assert len(found) == 14


def test_rows_that_are_taken_out_at_the_front_are_in_short_leaves(small_leaves: None) -> None:
    found = SortedRows()
    keys = [b"%03d" % number for number in range(100)]
    for key in keys:
        found.put(key, b"")
    assert [len(leaf) for leaf, _ in found.leaves()] == [100], "appending never splits"
    for at, key in enumerate(keys):
        found.remove(key)
        found._check()
        assert max(len(leaf) for leaf, _ in found.leaves()) <= 4
        assert found.everything().keys == keys[at + 1 :]


@pytest.mark.parametrize("cut", [None, Cut(None), Cut(1), Cut(3)])
def test_a_cut_changes_nothing_but_the_speed(cut: Cut | None) -> None:
    random = Random(7)
    plain, table = Table(b"t|"), Table(b"t|")
    keys = [b"t|" + bytes(random.choices(b"ab|", k=random.randrange(5))) for _ in range(200)]
    for number, key in enumerate(keys):
        if number == 100:
            table.regroup(cut)
        for each in (plain, table):
            each.remove(key) if number % 3 == 2 else each.put(key, b"%d" % number)
        table._check()
    for first, last in itertools.product(keys[:40], keys[40:80]):
        for limit, reverse in [(None, False), (2, False), (2, True)]:
            assert table.slice(first, last, limit, reverse=reverse) == plain.slice(first, last, limit, reverse=reverse)
        assert table.count(first, last) == plain.count(first, last)
    for prefix in {key[:4] for key in keys}:
        assert table.slice_within(prefix, b"", None) == plain.slice(prefix, prefix_end(prefix))
        assert table.slice_within(prefix, b"a", b"b") == plain.slice(prefix + b"a", prefix + b"b")
    table.regroup(None)
    assert table.slice(b"", None) == plain.slice(b"", None)


@pytest.mark.parametrize("cut", [None, Cut(None), Cut(2), Cut(3)])
def test_what_a_table_calls_the_prefixes_of_groups_are_those_of_all_keys_that_begin_with_them(cut: Cut | None) -> None:
    table = Table(b"p|")
    table.regroup(cut)
    values = [bytes(value) for size in range(4) for value in itertools.product(b"a|", repeat=size)]
    for width, before, after in itertools.product([None, 1, 2], [b"p|", b"p|a", b"p||"], [b"|", b"", b"||"]):
        fitting = [value for value in values if (b"|" not in value if width is None else len(value) == width)]
        prefixes = [before + value + after for value in fitting if value]
        if table.is_cut_between(before, width, after):
            assert all(map(table.is_cut_at, prefixes)), (width, before, after)
        for prefix in filter(table.is_cut_at, prefixes):
            within = Table(b"p|")
            within.regroup(cut)
            for value in values:
                within.put(prefix + value, b"")
            assert within.group_count == 1
            assert not within.loose
    if cut is not None:
        assert table.is_cut_between(b"p|", None if cut.width is None else cut.width - 1, b"|"), "as it is cut"


def test_a_store_is_one_ordered_map() -> None:
    store = Store()
    for key in (b"a", b"a|x", b"a!|y", b"b|", b"b"):
        name, bar, _ = key.partition(b"|")
        store.table(name).put(key, b"v") if bar else store.loose.put(key, b"v")
    store._check()
    assert store.slice(b"", None).keys == [b"a", b"a!|y", b"a|x", b"b", b"b|"]
    assert store.slice(b"", None, 2, reverse=True).keys == [b"b|", b"b"]
    assert store.slice(b"a!", b"b", 1).keys == [b"a!|y"]
    assert store.count(b"a", b"b") == 3
    assert store.get(b"a") == store.get(b"a|x") == b"v"
    assert store.get(b"c") is store.get(b"c|") is None


PARTS: list[bytes | Slot] = [b"|", b"a", Slot("x"), Slot("y"), Slot("z", 1), Slot("x2", 2)]


def test_overlap_is_exact_over_all_short_keys() -> None:
    keys = [b"t|" + bytes(tail) for size in range(5) for tail in itertools.product(b"ab|", repeat=size)]
    patterns = {}
    for size in range(4):
        for parts in itertools.product(PARTS, repeat=size):
            pattern = Pattern((b"t|", *parts))
            slots = [part for part in parts if isinstance(part, Slot)]
            if len(set(slots)) == len(slots):
                match = compile_matcher(pattern).match
                patterns[pattern] = {key for key in keys if match(key)}
    chosen = Random(1).sample(list(patterns.items()), 60)
    for (a, keys_of_a), (b, keys_of_b) in itertools.product(chosen, repeat=2):
        if keys_of_a & keys_of_b:
            assert may_overlap(a, b), (str(a), str(b))
        elif len(a.parts) < 4 and len(b.parts) < 4:
            # So short that a key in common would be among the short keys.
            assert not may_overlap(a, b), (str(a), str(b))


class CountingTable(Table):
    """A table that notes the ranges that are read of it."""

    reads: list[bytes]

    def slice_within(self, prefix: bytes, first: bytes, last: bytes | None) -> Rows:
        found = super().slice_within(prefix, first, last)
        self.reads += found.keys
        return found

    def is_cut_between(self, before: bytes, width: int | None, after: bytes) -> bool:
        return False


FIXED = "t|<user:2>|<time:3>|<poster:2> = check s|<user>|<poster> copy p|<poster>|<time>"
#: (first, last) of a check, and the keys of p that can contribute: followed are bb and cc, posts at 100, 150, 200.
CONTAINING = [
    ("t|aa|", "t|aa}", {"bb100", "bb150", "bb200", "cc100", "cc150", "cc200"}),
    ("t|aa|150", "t|aa}", {"bb150", "bb200", "cc150", "cc200"}),
    ("t|aa|100", "t|aa|150", {"bb100", "cc100"}),
    ("t|aa|100|cc", "t|aa|150|cc", {"bb150", "cc100"}),
    ("t|aa|100|bb", "t|aa|150|bb", {"bb100", "cc100"}),
    ("t|aa|15", "t|aa|2", {"bb150", "cc150"}),
    ("t|aa|150|", "t|aa|150}", {"bb150", "cc150"}),
    ("t|aa|150|cc", "t|aa|150|dd", {"cc150"}),
    ("t|aa|150|cc", "t|aa|150|cc\0", {"cc150"}),
    ("t|a", "t|b", {"bb100", "bb150", "bb200", "cc100", "cc150", "cc200"}),
    ("t|aa|200|bc", "t|ab", {"cc200"}),
    ("t|aa|999", "t|aa}", set()),
    ("t|ab", "t|b", set()),
]


@pytest.mark.parametrize(("first", "last", "contributing"), CONTAINING)
def test_a_check_reads_no_post_that_it_need_not(first: str, last: str, contributing: set[str]) -> None:
    engine = engine_with(FIXED)
    put_all(engine, {f"s|aa|{poster}": "" for poster in ("bb", "cc")})
    put_all(engine, {f"p|{poster}|{time}": "" for poster in ("bb", "cc", "dd") for time in (100, 150, 200)})
    table = engine._store.tables[b"p"]
    counting = CountingTable(b"p|")
    counting.reads = []
    for key, value in zip(*table.slice(b"", None), strict=True):
        counting.put(key, value)
    join = next(iter(engine._catalog))
    join.source_tables[1] = counting
    shown = scan(engine, first, last)
    read = {key.decode()[2:].replace("|", "") for key in counting.reads}
    assert len(counting.reads) == len(read), "nothing is read twice"
    assert read == contributing
    assert {f"{key[-2:]}{key[-6:-3]}" for key in shown} == contributing


def _engine_modules() -> list[str]:
    return [f"pequod.engine.{module.name}" for module in pkgutil.iter_modules(pequod.engine.__path__)]


@pytest.mark.parametrize("name", [*_engine_modules(), "pequod_grammar"])
def test_the_examples_in_docstrings_are_true(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_explaining_and_counting() -> None:
    engine = Engine()
    engine.add_joins(
        parse(
            "t|<u>|<x>|<p> = check s|<u>|<p> copy p|<p>|<x>; k|<x> = snapshot 1 count p|<p>|<x>; "
            "l|<x> = pull copy k|<x>; m|<x> = copy l|<x>"
        )
    )
    put_all(engine, {"s|a|b": "", "p|b|1": "v"})
    absent = engine.explain_range(b"t|a|", b"t|a}")
    assert [part.state for part in absent.joins[0].parts] == ["absent"]
    assert absent.joins[0].next_read.startswith("compute 1 range")
    scan(engine, "t|a|1", "t|a|5")
    engine.put(b"s|a|c", b"")
    parts = engine.explain_range(b"t|a|", b"t|a}").joins[0].parts
    assert [part.state for part in parts] == ["absent", "logged", "absent"]
    assert parts[1].log_entries == 1
    assert parts[1].updaters == 2
    scan(engine, "t|a|")
    assert [part.state for part in engine.explain_range(b"t|a|", b"t|a}").joins[0].parts] == ["valid"]
    scan(engine, "k|", now=1.0)
    assert [part.state for part in engine.explain_range(b"k|", b"k}", now=2.5).joins[0].parts] == ["expired"]
    (pulled,) = engine.explain_range(b"l|", b"l}").joins
    assert pulled.parts[0].state == "computed on every read"
    assert engine.explain_range(b"z", b"a").joins == ()
    plan = engine.explain_join("t")
    assert [source.reads for source in plan.sources] == ["s|<u>|", "p|<p>|"]
    assert [source.narrowed_by for source in plan.sources] == [None, "x"]
    assert [source.upkeep.name for source in plan.sources] == ["LOGGED", "EAGER"]
    assert engine.explain_join("k").sources[0].upkeep.name == "AT_EXPIRY"
    assert engine.explain_join("m").maintenance.startswith("pull, because it reads 'l'")
    assert engine.explain_join("l").sources[0].computed_by == ("k",)
    statistics = engine.statistics()
    assert statistics.tables[b"p"].keys == 1
    assert (statistics.joins["t"].rows, statistics.joins["t"].log_applied) == (1, 1)


def test_patterns_parse_in_place() -> None:
    (spec,) = parse("o|<a> = copy x|<a>")
    span = spec.output.span
    assert span is not None
    assert str(parse_pattern("x|<a:3><b>", span)) == "x|<a:3><b>"


def test_a_sample_of_few_stretches_has_each_of_them_and_one_of_many_says_what_each_stands_for() -> None:
    stretches: RangeMap[Stretch] = RangeMap()
    for number in range(20):
        stretches.insert(Stretch(b"a|%02d" % number, b"a|%02d~" % number))
    for count in (20, 50):
        found = [(one.first, weight) for one, weight in stretches.some_over(b"a|", b"a}", count)]
        assert found == [(b"a|%02d" % number, 1) for number in range(20)]
    few = [weight for _, weight in stretches.some_over(b"a|", b"a}", 5)]
    assert (len(few) < 10, sum(few)) == (True, 20)
