"""Bytes come out of the command line as text from which they can be told again."""

from __future__ import annotations

import base64
import json
import os

from hypothesis import given
from hypothesis import strategies as st

from pequod.cli.text import argument_bytes, escaped, json_bytes, json_line


@given(st.binary())
def test_an_escaped_line_tells_the_bytes(data: bytes) -> None:
    line = escaped(data)
    assert "\t" not in line
    assert len(line.splitlines()) <= 1
    assert unescaped(line) == data


def unescaped(line: str) -> bytes:
    """Read an escaped line back, the plain way."""
    out, i = bytearray(), 0
    while i < len(line):
        if line[i] != "\\":
            out += line[i].encode()
            i += 1
        elif line[i + 1] == "x":
            out.append(int(line[i + 2 : i + 4], 16))
            i += 4
        else:
            out += {"\\": b"\\", "t": b"\t", "n": b"\n", "r": b"\r"}[line[i + 1]]
            i += 2
    return bytes(out)


@given(st.binary())
def test_json_tells_the_bytes(data: bytes) -> None:
    shown = json.loads(json_line({"key": json_bytes(data)}))["key"]
    assert data == (shown.encode() if isinstance(shown, str) else base64.b64decode(shown["base64"]))


@given(st.binary())
def test_an_argument_is_taken_byte_for_byte(data: bytes) -> None:
    assert argument_bytes(os.fsdecode(data)) == data


def test_readable_text_stays_as_it_is() -> None:
    assert escaped("t|zoë|0100 \N{WHALE}".encode()) == "t|zoë|0100 \N{WHALE}"
