"""Files of views, and rows as cells of columns."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pequod_views import DurableView, ViewFileError, parse_views
from pequod_views.errors import UnfitError
from pequod_views.kinds import KINDS, parse_json

VIEW = '[[view]]\nname = "karma"\nkeys = "karma|<author>"\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[view]", "not TOML"),
        ("server = 'x'", "has no view"),
        ("servers = 'x'", "'servers' is no setting"),
        ("server = 7\n" + VIEW, "`server` is a text"),
        (VIEW + VIEW, "two views have one name"),
        (VIEW + VIEW.replace('"karma"', '"other"', 1) + "table = 'karma'", "two views have one table"),
        ('[[view]]\nkeys = "a|<b>"', "`name` is a name"),
        ('[[view]]\nname = "a"', "name its range"),
        (VIEW + "first = 'z'", "is empty"),
        (VIEW + "first = 7", "`first` is a key"),
        (VIEW + "parts = 0", "`parts` is a number"),
        (VIEW + "parts = true", "`parts` is a number"),
        (VIEW + "log = 1", "`log` is true or false"),
        (VIEW + "slots.voter = 'x'", "no slot of `keys`"),
        (VIEW + "slots = 3", "`slots` is a table"),
        (VIEW + "fields = 3", "`fields` is a table"),
        (VIEW + "value = 3", "value is the name of a column"),
        (VIEW + "value = { type = 'money' }", "'money' is no type"),
        (VIEW + "value = 'author'", "two columns are named 'author'"),
        (VIEW + "value = 'pequod_key'", "two columns are named 'pequod_key'"),
        (VIEW + "table = 'a.b.c'", "`table` is a name"),
        (VIEW.replace("<author>", "<author"), "`keys`:"),
        (VIEW.replace('"karma|<author>"', "3"), "`keys` is a pattern"),
        (VIEW + "colour = 'red'", "'colour' is no setting"),
    ],
)
def test_a_malformed_file_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ViewFileError) as error:
        parse_views(text)
    assert reason in str(error.value)


def test_bounds_narrow_the_range_of_a_pattern() -> None:
    view = DurableView.parse({"name": "p", "keys": "p|<who>|<time:3>", "first": "p|b", "last": "p|c|05"})
    assert (view.first, view.last) == (b"p|b", b"p|c|05")
    assert DurableView.parse({"name": "p", "keys": "p|<who>"}).last == b"p}"
    assert view.row(b"p|b|1234", b"") is None


def test_the_fingerprint_changes_with_what_decides_the_rows() -> None:
    base: dict[str, Any] = {"name": "p", "keys": "p|<who>", "value": "body"}
    prints = {
        DurableView.parse({**base, **more}).fingerprint
        for more in ({}, {"table": "q"}, {"last": "p|x"}, {"value": "text"}, {"slots": {"who": False}})
    }
    assert len(prints) == 5
    assert DurableView.parse({**base, "parts": 9, "log": True}).fingerprint == DurableView.parse(base).fingerprint


def test_fields_of_a_record_are_columns_and_absent_ones_are_null() -> None:
    fields = {"title": "title", "score": {"column": "score", "type": "numeric"}, "tags": {"type": "json"}}
    view = DurableView.parse({"name": "a", "keys": "a|<id>", "fields": fields})
    assert view.row(b"a|7", b'{"title": "Hi", "score": 1.50, "tags": ["x"]}') == (
        b"a|7",
        "7",
        "Hi",
        Decimal("1.50"),
        '["x"]',
    )
    assert view.row(b"a|7", b'{"title": null}') == (b"a|7", "7", None, None, None)
    for value in (b"[]", b"null", b"{", b'{"title": 3}', b'{"score": NaN}'):
        with pytest.raises(UnfitError):
            view.row(b"a|7", value)
    with pytest.raises(UnfitError, match="2048 at most"):
        view.row(b"a|" + b"x" * 3000, b"{}")


@pytest.mark.parametrize(
    ("kind", "data", "cell"),
    [
        ("text", "caf\u00e9".encode(), "caf\u00e9"),
        ("bytes", b"\xff\0", b"\xff\0"),
        ("integer", b"-9223372036854775808", -(1 << 63)),
        ("numeric", b"1.50", Decimal("1.50")),
        ("float", b".5", 0.5),
        ("boolean", b"1", True),
        ("json", b'{"a": [1, 2.5e3]}', '{"a": [1, 2.5e3]}'),
        ("timestamp_s", b"0", datetime(1970, 1, 1, tzinfo=UTC)),
        ("timestamp_us", b"0000000001000001", datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)),
        ("uuid", b"00000000-0000-0000-0000-000000000001", UUID(int=1)),
    ],
)
def test_bytes_become_cells(kind: str, data: bytes, cell: object) -> None:
    assert KINDS[kind].of_bytes(data) == cell


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("text", b"\xff"),
        ("text", b"a\0b"),
        ("integer", b"9223372036854775808"),
        ("integer", b"1.0"),
        ("integer", b""),
        ("numeric", b"1e5"),
        ("numeric", b"NaN"),
        ("numeric", b"9" * 1001),
        ("float", b"9" * 400),
        ("boolean", b"yes"),
        ("json", b'"\\u0000"'),
        ("json", b'"\\ud800"'),
        ("json", b"1e9999"),
        ("json", b"[" * 5000),
        ("timestamp_s", b"999999999999"),
        ("uuid", b"1"),
    ],
)
def test_what_no_database_takes_does_not_fit(kind: str, data: bytes) -> None:
    with pytest.raises(UnfitError):
        KINDS[kind].of_bytes(data)


@pytest.mark.parametrize(
    ("kind", "text", "cell"),
    [
        ("integer", b"7", 7),
        ("numeric", b"1.10", Decimal("1.10")),
        ("float", b"2", 2.0),
        ("boolean", b"true", True),
        ("bytes", b'"x"', b"x"),
        ("timestamp_s", b"1", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ],
)
def test_members_become_cells(kind: str, text: bytes, cell: object) -> None:
    assert KINDS[kind].of_json(parse_json(text)) == cell


@pytest.mark.parametrize(
    ("kind", "text"),
    [("integer", b"true"), ("integer", b"1.0"), ("numeric", b"1e2000"), ("boolean", b"1"), ("text", b'"\\u0000"')],
)
def test_members_of_another_type_do_not_fit(kind: str, text: bytes) -> None:
    with pytest.raises(UnfitError):
        KINDS[kind].of_json(parse_json(text))
