"""Metadata and deadlines as fields of headers, as gRPC writes them over HTTP/2.

>>> fields_of([("X-Name", "ann"), ("x-raw-bin", b"!!")])
[(b'x-name', b'ann'), (b'x-raw-bin', b'ISE')]
>>> metadata_of([(b"x-name", b"ann"), (b"x-raw-bin", b"ISE")])
[('x-name', 'ann'), ('x-raw-bin', b'!!')]
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final

from pequod.native.http2 import Fields

Metadata = Sequence[tuple[str, str | bytes]]

#: A timeout has at most eight digits: microseconds, milliseconds, seconds.
_UNITS: Final = ((1e6, b"u"), (1e3, b"m"), (1.0, b"S"))
_NUMBER_MAX: Final = 99_999_999


def fields_of(metadata: Iterable[tuple[str, str | bytes]]) -> Fields:
    """Return metadata as fields."""
    fields = []
    for name, value in metadata:
        data = value.encode() if isinstance(value, str) else value
        if name.endswith("-bin"):
            data = binascii.b2a_base64(data, newline=False).rstrip(b"=")
        fields.append((name.lower().encode("latin-1"), data))
    return fields


def metadata_of(fields: Fields) -> list[tuple[str, str | bytes]]:
    """Return fields as metadata; what should be bytes and is no base64 is left out."""
    found: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if not name.endswith(b"-bin"):
            found.append((name.decode("latin-1"), text_of(value)))
            continue
        try:
            found += [(name.decode("latin-1"), data) for data in bytes_of(value)]
        except binascii.Error:
            continue
    return found


def text_of(value: bytes) -> str:
    """Return the text of a field: UTF-8, or Latin-1 where it is none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def bytes_of(value: bytes) -> list[bytes]:
    """Return the bytes of a field in base64: several values of one name may stand in one field.

    Raises:
        binascii.Error: They are none.
    """
    return [binascii.a2b_base64(part + b"=" * (-len(part) % 4)) for part in value.split(b",")]


def timeout_of(seconds: float) -> bytes:
    """Return a timeout as its header has it, rounded up.

    >>> timeout_of(1.5), timeout_of(0), timeout_of(3600), timeout_of(1e6), timeout_of(1e20)
    (b'1500000u', b'0u', b'3600000m', b'1000000S', b'99999999S')
    """
    for scale, unit in _UNITS:
        number = ceil(max(seconds, 0.0) * scale)
        if number <= _NUMBER_MAX:
            return b"%d%b" % (number, unit)
    return b"%d%b" % (_NUMBER_MAX, _UNITS[-1][1])
