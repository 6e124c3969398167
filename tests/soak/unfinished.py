"""Connections that speak HTTP/2 by themselves: they begin calls and send nothing more, or all but the last byte."""

import socket
import struct
import time
from contextlib import suppress
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_ACK, _END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE: Final = 4
_FRAME_BYTES_MAX: Final = 16384


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + body


def _heads(target: str, path: str) -> bytes:
    """Return the headers of a call, as literals that are in no table."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": target}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    return b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in fields.items()
    )


class Bodiless:
    """A connection that begins calls whose messages never come; it reads nothing."""

    def __init__(self, target: str, path: str) -> None:
        host, _, port = target.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0) + _frame(_SETTINGS, _ACK, 0))
        self._block = _heads(target, path)
        self.begun = 0

    def begin(self, count: int, first_bytes: bytes = b"") -> None:
        """Begin calls.

        Args:
            first_bytes: What comes of each message.
        """
        frames = []
        for number in range(self.begun, self.begun + count):
            frames.append(_frame(_HEADERS, _END_HEADERS, 2 * number + 1, self._block))
            if first_bytes:
                frames.append(_frame(_DATA, 0, 2 * number + 1, first_bytes))
        self._socket.sendall(b"".join(frames))
        self.begun += count

    def close(self) -> None:
        """Leave."""
        self._socket.close()


class Unfinished:
    """Calls on one connection.

    Args:
        size: How long each message is said to be; a byte less is sent.
    """

    def __init__(self, target: str, path: str, size: int, count: int) -> None:
        host, _, port = target.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._received = b""
        self._window, self._stream_window = 65535, 65535
        #: By stream: what is left to be sent, and how many bytes the server takes now.
        self._whole = 4 + size
        self._left = {number * 2 + 1: self._whole for number in range(count)}
        self._windows = dict.fromkeys(self._left, 65535)
        block = _heads(target, path)
        begun = [_frame(_HEADERS, _END_HEADERS, stream, block) for stream in self._left]
        self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0, 0) + b"".join(begun))
        self._beginning = struct.pack(">BI", 0, size)

    def send(self, seconds: float) -> None:
        """Send as much as the server takes, for as long."""
        end_s = time.monotonic() + seconds
        with suppress(ConnectionError, TimeoutError):
            while (left_s := end_s - time.monotonic()) > 0:
                is_stuck = sum(self._send_some(stream) for stream in tuple(self._left)) == 0
                self._socket.settimeout(left_s if is_stuck else 0.0005)
                with suppress(TimeoutError, BlockingIOError):
                    data = self._socket.recv(1 << 16)
                    if not data:
                        return
                    self._received += data
                self._socket.settimeout(max(left_s, 1))
                self._take_frames()

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def _send_some(self, stream: int) -> bool:
        left = self._left.get(stream, 0)
        size = min(left, self._windows[stream], self._window, _FRAME_BYTES_MAX)
        if size < min(left, 5) or not size:
            return False
        body = (self._beginning if left == self._whole else b"").ljust(size, b"\0")
        self._socket.sendall(_frame(_DATA, 0, stream, body))
        self._left[stream] = left - size
        self._windows[stream] -= size
        self._window -= size
        return True

    def _take_frames(self) -> None:
        while len(self._received) >= 9:
            length = int.from_bytes(self._received[:3], "big")
            if len(self._received) < 9 + length:
                return
            kind, flags = self._received[3:5]
            stream = int.from_bytes(self._received[5:9], "big")
            body, self._received = self._received[9 : 9 + length], self._received[9 + length :]
            self._take(kind, flags, stream, body)

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for number, value in struct.iter_unpack(">HI", body):
                if number == _INITIAL_WINDOW_SIZE:
                    self._windows = {at: window + value - self._stream_window for at, window in self._windows.items()}
                    self._stream_window = value
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW_UPDATE:
            (size,) = struct.unpack(">I", body)
            if stream:
                self._windows[stream] += size
            else:
                self._window += size
        elif kind in (_HEADERS, _RESET) and stream in self._left:
            # The server has ended the call: it sends no headers before the message is there.
            del self._left[stream]
