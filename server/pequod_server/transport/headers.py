"""The headers of a call and the trailers of its reply, as gRPC writes them over HTTP/2.

>>> trailers_of(grpc.StatusCode.NOT_FOUND, "100 % gone", ())
[(b'grpc-status', b'5'), (b'grpc-message', b'100 %25 gone')]
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

import grpc

from pequod.native.http2 import Fields
from pequod.wire.metadata import Metadata, bytes_of, fields_of, text_of

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
            metadata += [(name, data) for data in bytes_of(value)]
        except binascii.Error:
            self.refusal = f"the metadata {name} are not base64"


def _seconds(value: bytes) -> float | None:
    found = _TIMEOUT.fullmatch(value)
    return None if found is None else int(found[1]) * _UNITS[found[2]]


def trailers_of(code: grpc.StatusCode, details: str, metadata: Metadata) -> Fields:
    """Return the status of a call and its trailing metadata as fields."""
    fields = [(b"grpc-status", b"%d" % code.value[0])]
    if details:
        text = details if _IS_PLAIN.fullmatch(details) else quote(details, safe=_PLAIN, errors="replace")
        fields.append((b"grpc-message", text.encode()))
    return fields + fields_of(metadata)
