"""Bytes come out of the command line as text from which they can be told again."""

from __future__ import annotations

import base64
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pequod.cli.text import argument_bytes, bytes_of_json, escaped, json_bytes, json_line, unescaped


@given(st.binary())
def test_an_escaped_line_tells_the_bytes(data: bytes) -> None:
    line = escaped(data)
    assert "\t" not in line
    assert len(line.splitlines()) <= 1
    assert unescaped(line) == data


@given(st.binary())
def test_json_tells_the_bytes(data: bytes) -> None:
    shown = json.loads(json_line({"key": json_bytes(data)}))["key"]
    assert data == (shown.encode() if isinstance(shown, str) else base64.b64decode(shown["base64"]))
    assert bytes_of_json(shown) == data


@pytest.mark.parametrize("text", ["\\", "a\\", "\\q", "\\x1", "\\xg0", "\udcff"])
def test_what_is_no_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"backslash|UTF-8"):
        unescaped(text)


@pytest.mark.parametrize("value", [None, 1, [], {}, {"base64": 1}, {"base64": "AA"}, {"base64": "A!=="}, "\ud800"])
def test_what_is_no_json_of_bytes_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="base64"):
        bytes_of_json(value)


@given(st.binary())
def test_an_argument_is_taken_byte_for_byte(data: bytes) -> None:
    assert argument_bytes(os.fsdecode(data)) == data


def test_readable_text_stays_as_it_is() -> None:
    assert escaped("t|zoë|0100 \N{WHALE}".encode()) == "t|zoë|0100 \N{WHALE}"
