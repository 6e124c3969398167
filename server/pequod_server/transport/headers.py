"""The headers of a call and the trailers of its reply, as gRPC writes them over HTTP/2.

>>> trailers_of(grpc.StatusCode.NOT_FOUND, "100 % gone", ())
[(b'grpc-status', b'5'), (b'grpc-message', b'100 %25 gone')]
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote

import grpc

from pequod.native.http2 import Fields

Metadata = Sequence[tuple[str, str | bytes]]

_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT: Final = re.compile(rb"(\d{1,8})([HMSmun])")
#: Fields of gRPC's or HTTP's own, which are no metadata.
_HIDDEN: Final = frozenset(
    {b":method", b":scheme", b":authority", b"te", b"grpc-accept-encoding", b"grpc-message-type", b"content-length"}
)
#: All that may stand in a message as it is: printable ASCII but for the percent sign.
_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_IS_PLAIN: Final = re.compile(r"[ -$&-~]*")


class Opening:
    """How a call begins."""

    __slots__ = ("encoding", "metadata", "method", "refusal", "timeout_s")

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        self.method = ""
        #: How long the client waits; None: for ever.
        self.timeout_s: float | None = None
        #: How messages are compressed that are.
        self.encoding = ""
        #: Why this is no call; empty if it is one.
        self.refusal = "" if fields else "its headers are too long"
        metadata: list[tuple[str, str | bytes]] = []
        for name, value in fields:
            if name in _HIDDEN:
                continue
            if name == b":path":
                self.method = value.decode("latin-1")
            elif name == b"content-type":
                # Other kinds of calls, such as those of browsers, would begin here.
                if not value.startswith(b"application/grpc") or value.startswith(b"application/grpc-web"):
                    self.refusal = f"it is no gRPC but {value.decode('latin-1')}"
            elif name == b"grpc-timeout":
                self.timeout_s = _seconds(value)
            elif name == b"grpc-encoding":
                self.encoding = value.decode("latin-1")
            elif name.endswith(b"-bin"):
                self._add_bytes(metadata, name.decode("latin-1"), value)
            else:
                metadata.append((name.decode("latin-1"), text_of(value)))
        self.metadata = tuple(metadata)

    def _add_bytes(self, metadata: list[tuple[str, str | bytes]], name: str, value: bytes) -> None:
        try:
            # Several values of one name may stand in one field.
            metadata += [(name, binascii.a2b_base64(part + b"=" * (-len(part) % 4))) for part in value.split(b",")]
        except binascii.Error:
            self.refusal = f"the metadata {name} are not base64"


def text_of(value: bytes) -> str:
    """Return the text of a field: UTF-8, or Latin-1 where it is none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _seconds(value: bytes) -> float | None:
    found = _TIMEOUT.fullmatch(value)
    return None if found is None else int(found[1]) * _UNITS[found[2]]


def fields_of(metadata: Iterable[tuple[str, str | bytes]]) -> Fields:
    """Return metadata as fields."""
    fields = []
    for name, value in metadata:
        data = value.encode() if isinstance(value, str) else value
        if name.endswith("-bin"):
            data = binascii.b2a_base64(data, newline=False).rstrip(b"=")
        fields.append((name.lower().encode("latin-1"), data))
    return fields


def trailers_of(code: grpc.StatusCode, details: str, metadata: Metadata) -> Fields:
    """Return the status of a call and its trailing metadata as fields."""
    fields = [(b"grpc-status", b"%d" % code.value[0])]
    if details:
        text = details if _IS_PLAIN.fullmatch(details) else quote(details, safe=_PLAIN, errors="replace")
        fields.append((b"grpc-message", text.encode()))
    return fields + fields_of(metadata)
