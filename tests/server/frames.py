"""Frames of HTTP/2 by hand, for clients that keep to nothing."""

import socket
import struct
from collections.abc import Iterator
from typing import Final

from hpack import Decoder, Encoder

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
#: Settings by their numbers.
INITIAL_WINDOW: Final = 4
SERVICE: Final = "/pequod.v1.Pequod/"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def setting(number: int, value: int) -> bytes:
    """Return what a frame of settings holds for one."""
    return struct.pack(">HI", number, value)


def block(*fields: tuple[str, str]) -> bytes:
    """Return headers or trailers; they need no table."""
    encoder = Encoder()
    encoder.header_table_size = 0
    return bytes(encoder.encode(fields))


def heads(method: str, *more: tuple[str, str]) -> bytes:
    """Return the headers of a call of our service, or of another's by its path; they need no table."""
    path = method if method.startswith("/") else SERVICE + method
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x")]
    fields += [("te", "trailers"), ("content-type", "application/grpc"), *more]
    return block(*fields)


def message(data: bytes, *, flag: int = 0) -> bytes:
    """Return a message as it stands in a stream."""
    return struct.pack(">BI", flag, len(data)) + data


def call(stream: int, block: bytes, body: bytes) -> bytes:
    """Return the frames of a whole call with one request."""
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, body)


def frames_in(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield kind, flags, stream and payload of each frame."""
    while len(data) >= 9:
        size = int.from_bytes(data[:3], "big")
        yield data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]
        data = data[9 + size :]


def fields_in(data: bytes) -> dict[int, dict[str, str]]:
    """Return the headers and trailers that each stream got, together."""
    decoder, found = Decoder(), dict[int, dict[str, str]]()
    for kind, _, stream, payload in frames_in(data):
        if kind == HEADERS:
            for name, value in decoder.decode(payload):
                found.setdefault(stream, {})[str(name)] = str(value)
    return found


def bodies_in(data: bytes) -> dict[int, bytes]:
    """Return the bytes of data that each stream got."""
    found: dict[int, bytes] = {}
    for kind, _, stream, payload in frames_in(data):
        if kind == DATA:
            found[stream] = found.get(stream, b"") + payload
    return found


class Stranger:
    """A connection that sends what it likes."""

    def __init__(self, target: str, settings: bytes = b"", *, greets: bool = True, buffer: int = 0) -> None:
        host, _, port = target.rpartition(":")
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(10)
        self.socket.connect((host, int(port)))
        if greets:
            self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, data: bytes) -> bool:
        """Send bytes; return whether the server still takes them."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def until_closed(self, seconds: float = 10) -> bytes:
        """Return what comes until the server closes the connection, or for so long."""
        received = bytearray()
        self.socket.settimeout(seconds)
        try:
            while part := self.socket.recv(1 << 16):
                received += part
        except OSError:
            pass
        return bytes(received)

    @property
    def is_closed(self) -> bool:
        """Whether the server has closed the connection."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        """Leave."""
        self.socket.close()
