"""Rows to keys, and ranges of keys to conditions, against filtering all rows by their keys."""

from __future__ import annotations

import doctest
import sqlite3
import uuid

import pequod_server.backing.columns
import pequod_server.backing.mapping
import pequod_server.backing.values
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_server.backing import KeyRange, Mapping, MappingError, PackError, parse_mappings
from pequod_server.backing.columns import Between, Column, Padded, Plain, Text, Time, Uuid
from pequod_server.backing.rows import Clip, packed
from pequod_server.backing.sql import boxes_of, select
from pequod_server.backing.sqlite.dialect import SqliteDialect
from pequod_server.backing.values import Cell

# Letters around the delimiter, what sorts lowest and highest in UTF-8, and what is longer than a byte.
ALPHABET = "ab{}~\x01é\ud7ff\ue000\U0010ffff"
NAMES = st.text(ALPHABET, max_size=4)
BOUNDS = st.lists(
    st.sampled_from([b"a", b"b", b"|", b"}", b"{", b"0", b"1", b"05", b"\x00", b"\xff", b"\xc3", b"-", "é".encode()]),
    max_size=7,
).map(b"".join)


@pytest.mark.parametrize(
    "module", [pequod_server.backing.columns, pequod_server.backing.mapping, pequod_server.backing.values]
)
def test_examples_in_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def texts_of(column: Column) -> st.SearchStrategy[str]:
    match column:
        case Text():
            return NAMES
        case Uuid():
            return st.uuids().map(str)
        case Time():
            return st.integers(-1, 1200).map(lambda s: f"1970-01-01 00:{s // 60 % 60:02}:{s % 60:02}.5+00")
        case _:
            return st.integers(-5, 1200).map(str)


def value_of(column: Column, text: str) -> object:
    """What SQL orders by."""
    if isinstance(column, Padded):
        return int(text)
    if isinstance(column, Time):
        return text.replace("T", " ")
    return uuid.UUID(text).bytes if isinstance(column, Uuid) else text.encode()


@pytest.mark.parametrize("column", [Text(None), Text(3), Padded(3), Plain(), Uuid(None), Time(1_000_000, 4)], ids=repr)
@given(data=st.data())
def test_a_cut_splits_values_where_the_bound_splits_packed_bytes(column: Column, data: st.DataObject) -> None:
    text = data.draw(texts_of(column))
    near = data.draw(texts_of(column))
    bound = data.draw(st.one_of(BOUNDS, st.just(near.encode()), st.just(near.encode()[:3] + b"\x00")))
    try:
        is_above = column.pack(text) >= bound
    except PackError:
        return
    cut = column.cut(bound)
    if isinstance(column, Time):
        # Moments are compared as text here, so both need the same form.
        cut = None if cut is None else cut.replace("+00:00", ".0+00") if "." not in cut else cut
    assert is_above == (cut is not None and value_of(column, text) >= value_of(column, cut))  # type: ignore[operator]


@pytest.mark.parametrize("column", [Text(None), Text(3), Padded(3), Plain(), Uuid(None)], ids=repr)
@given(data=st.data())
def test_unpack_is_the_inverse_of_pack_and_of_nothing_else(column: Column, data: st.DataObject) -> None:
    text = data.draw(texts_of(column))
    try:
        bytes_ = column.pack(text)
    except PackError:
        return
    unpacked = column.unpack(bytes_)
    assert unpacked is not None
    assert column.pack(unpacked) == bytes_
    other = data.draw(BOUNDS)
    found = column.unpack(other)
    assert found is None or column.pack(found) == other


def test_a_second_is_every_moment_in_it() -> None:
    column = Time(1_000_000, 10)
    assert column.pack("2001-09-09 01:46:40.75+00") == b"1000000000"
    assert column.pack("2001-09-09 03:46:40+02:00") == b"1000000000"
    assert column.equal(b"1000000000") == Between("2001-09-09 01:46:40+00:00", "2001-09-09 01:46:41+00:00")
    assert column.equal(b"x") is None
    assert Time(1, 16).pack("2001-09-09 01:46:40.75") == b"1000000000750000"


SHAPES = [
    ("p|<a>|<n:2>", {"n": {"type": "integer"}}),
    ("p|<a>|x|<b>", {}),
    ("p|x<n:2><a>|<b>", {"n": {"type": "integer"}}),
    ("p|<n>|<a>", {"n": {"type": "integer"}}),
    ("p|<a>", {}),
    ("p|<a>|<b>|", {}),
    ("p|<a:2>|<b>", {}),
    ("p|<a>|<a>|<n:2>", {"n": {"type": "integer"}}),
    ("p|<a:2><b:2>", {}),
]
ROWS = st.lists(st.tuples(NAMES, NAMES, st.integers(-3, 120)), max_size=25)
#: Whether to try ranges that start and end at a key, too.
NEAR = st.booleans()
KEY_BOUNDS = st.one_of(BOUNDS.map(lambda tail: b"p|" + tail), BOUNDS)


@pytest.mark.parametrize(("keys", "slots"), SHAPES, ids=[keys for keys, _ in SHAPES])
@given(
    rows=ROWS,
    bounds=st.lists(st.tuples(KEY_BOUNDS, st.one_of(st.none(), KEY_BOUNDS)), min_size=1, max_size=4),
    data=st.data(),
)
def test_what_sql_selects_for_ranges_is_what_filtering_by_key_gives(
    keys: str,
    slots: dict[str, object],
    rows: list[tuple[str, str, int]],
    bounds: list[tuple[bytes, bytes | None]],
    data: st.DataObject,
) -> None:
    mapping = Mapping.parse({"keys": keys, "table": "things", "slots": slots, "value": "b"})
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE things (a TEXT, b TEXT, n INTEGER)")
    connection.executemany("INSERT INTO things VALUES (?, ?, ?)", rows)
    records = [dict(zip("abn", row, strict=True)) for row in rows]
    cells = [[Cell(str(record[name]), "text") for name in mapping.columns] for record in records]
    everything: list[tuple[bytes, bytes]] = list(packed(mapping, cells, lambda error: None))
    is_near: bool = data.draw(NEAR)
    if everything and is_near:
        key = data.draw(st.sampled_from(sorted(everything)))[0]
        cut = data.draw(st.integers(2, len(key)))
        bounds = [*bounds, (key, key + b"\x00"), (key[:cut], key + b"}"), (b"p|", key[:cut])]
    ranges = [KeyRange(first, last) for first, last in bounds]

    query = select(SqliteDialect(), mapping, boxes_of(mapping, ranges))
    found = connection.execute(query.text, query.parameters).fetchall() if query else []
    connection.close()
    clip = Clip(ranges)
    read = packed(mapping, [[Cell(str(v), "text") for v in row] for row in found], lambda error: None)
    selected = {(key, value) for key, value in read if clip.holds(key)}
    assert selected == {(key, value) for key, value in everything if any(one.holds(key) for one in ranges)}


def test_names_that_start_like_a_bound_are_found_where_the_delimiter_puts_them() -> None:
    """Every range between two keys, or pieces of keys, of names that are prefixes of each other."""
    mapping = Mapping.parse({"keys": "p|<a>|<b>", "table": "things"})
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE things (a TEXT, b TEXT)")
    rows = [(a, b) for a in ("a", "ab", "abc", "ab}", "a~", "b", "a}b") for b in ("x", "y")]
    connection.executemany("INSERT INTO things VALUES (?, ?)", rows)
    keys = sorted(f"p|{a}|{b}".encode() for a, b in rows)
    bounds = sorted({key[:cut] for key in keys for cut in range(2, len(key) + 1)})
    for at, first in enumerate(bounds):
        for last in bounds[at:]:
            query = select(SqliteDialect(), mapping, boxes_of(mapping, [KeyRange(first, last)]))
            found = connection.execute(query.text, query.parameters).fetchall() if query else []
            read = {f"p|{a}|{b}".encode() for a, b in found}
            assert {key for key in keys if first <= key < last} == {key for key in read if first <= key < last}
    connection.close()


def test_the_usual_ranges_are_one_stretch_of_an_index() -> None:
    mapping = Mapping.parse({"keys": "p|<poster>|<time:4>", "table": "posts", "slots": {"time": {"type": "integer"}}})

    def conditions(first: bytes, last: bytes) -> list[str]:
        return [repr(box.terms) for box in mapping.boxes(first, last)]

    assert conditions(b"p|bob|", b"p|bob}") == ["(Equal(value='bob'),)"]
    assert conditions(b"p|bob|0100", b"p|bob|0200") == ["(Equal(value='bob'), Between(low='100', high='200'))"]
    assert conditions(b"p|bob|0100", b"p|bob}") == ["(Equal(value='bob'), Between(low='100', high=None))"]
    assert conditions(b"p|bob|0100", b"p|bob|0100\x00") == ["(Equal(value='bob'), Equal(value='100'))"]
    assert conditions(b"p|", b"p}") == ["()"]
    assert conditions(b"q|", b"q}") == []


def test_columns_of_a_key_are_those_that_make_it() -> None:
    mapping = Mapping.parse({"keys": "p|<poster>|<time:4>", "table": "posts", "slots": {"time": {"type": "integer"}}})
    assert mapping.columns_of(b"p|bob|0100") == {"poster": "bob", "time": "100"}
    for key in (b"p|bob|100", b"p|bob|01x0", b"q|bob|0100", b"p|\xff|0100", b"p|bob|0100|"):
        assert mapping.columns_of(key) is None, key


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["bob", "12345"], "more than the 4 digits"),
        (["bob", "-1"], "negative"),
        (["b|b", "1"], "contains a `|`"),
        (["", "1"], "empty"),
        ([None, "1"], "NULL"),
    ],
)
def test_a_row_without_a_key_is_told_with_its_column(texts: list[str | None], reason: str) -> None:
    mapping = Mapping.parse({"keys": "p|<poster>|<time:4>", "table": "posts", "slots": {"time": {"type": "integer"}}})
    with pytest.raises(PackError, match=r"column (poster|time) of posts") as refused:
        mapping.key(texts)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "holds no mapping"),
        ("x = ", "is not TOML"),
        ("[[mapping]]\ntable = 't'", "`keys` is missing"),
        ("[[mapping]]\nkeys = 'p|<a>'", "`table` is missing"),
        ("[[mapping]]\nkeys = 'p|<a'\ntable = 't'", "not closed"),
        ("[[mapping]]\nkeys = 'p|a'\ntable = 't'", "has no slot"),
        ("[[mapping]]\nkeys = 'p|<a>x'\ntable = 't'", "never ends"),
        ("[[mapping]]\nkeys = 'p|<a>'\ntable = 't'\nkey = 1", "'key' is no setting"),
        ("[[mapping]]\nkeys = 'p|<a>'\ntable = 't'\nslots.b = 'b'", "no slot of the pattern"),
        ("[[mapping]]\nkeys = 'p|<a>'\ntable = 't'\nslots.a = { type = 'int' }", "'int' is no type"),
        ("[[mapping]]\nkeys = 'p|<a>'\ntable = 't'\nslots.a = { type = 'timestamp_s' }", "give <a> a width"),
        ("[[mapping]]\nkeys = 'p|<a:8>'\ntable = 't'\nslots.a = { type = 'uuid' }", "36"),
        ("[[mapping]]\nkeys = 'p|<a>|<b>'\ntable = 't'\nslots.a = 'b'", "same column"),
        ("[[mapping]]\nkeys = 'p|<a>'\ntable = 't'\nvalue = 3", "`value` is"),
        ("[[mapping]]\nkeys = 'p|<a>'\ntable = 't'\nvalue = ['b', 'b']", "twice"),
        ("[[mapping]]\nkeys = 'p|<a>'\ntable = 't'\nunique = 1", "true or false"),
        ("[[mapping]]\nkeys='p|<a>|<b>'\ntable='t'\n[[mapping]]\nkeys='p|x|<c>'\ntable='u'", "one relation only"),
    ],
)
def test_a_wrong_mapping_is_refused_with_what_to_do(text: str, reason: str) -> None:
    with pytest.raises(MappingError) as refused:
        parse_mappings(text)
    assert reason in str(refused.value)


def test_several_columns_are_one_json_object() -> None:
    mapping = Mapping.parse({"keys": "p|<a>", "table": "t", "value": ["b", "n", "x"]})
    record = [Cell("k", "text"), Cell('é"', "text"), Cell("1.50", "number"), Cell(None, "text")]
    assert list(packed(mapping, [record], lambda error: None)) == [(b"p|k", '{"b":"é\\"","n":1.50,"x":null}'.encode())]
