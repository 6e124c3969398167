"""Connections of a client shaken: damaged bytes of a server in any cut, and any calls in between."""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final

from pequod.native.http2.client import NativeClientSession, new_client_session
from tests.server.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    PING,
    RESET,
    SETTINGS,
    WINDOW_UPDATE,
    block,
    frame,
    message,
    setting,
)

_OK = (":status", "200"), ("content-type", "application/grpc")
_BLOCKS = [
    block(*_OK),
    block(*_OK, ("grpc-encoding", "gzip"), ("x-a", "b")),
    block(*_OK, ("grpc-status", "5"), ("grpc-message", "no"), ("x-b-bin", "AAE")),
    block(("grpc-status", "0")),
    block(("grpc-status", "0"), ("x-long", "v" * 20_000)),
    block((":status", "404"), ("content-type", "text/html")),
    block((":status", "103")),
]


#: How many frames the collections of both sides have.
FRAMES: Final = 4_000
#: What messages are cut out of: to draw the bytes of each takes half of the time of an execution.
_NOISE = random.Random(0).randbytes(1 << 18)


def noise(rnd: random.Random, size: int) -> bytes:
    """Return bytes of any kind."""
    start = rnd.randrange(len(_NOISE) - size)
    return _NOISE[start : start + size]


def _frames(rnd: random.Random) -> bytes:
    """Return frames that a server may send, and some that none may."""
    stream = rnd.choice([1, 3, 5, 7, 9, 2, 0, 99])
    body = message(noise(rnd, rnd.choice([0, 3, 300, 17_000, 70_000])), flag=rnd.choice([0, 0, 0, 1]))
    headers = rnd.choice(_BLOCKS)
    cut = rnd.randrange(len(headers))
    last = rnd.choice([0, END_STREAM])
    if len(headers) > 16_000:
        return frame(HEADERS, last, stream, headers[:16_000]) + frame(
            CONTINUATION, END_HEADERS, stream, headers[16_000:]
        )
    made: list[Callable[[], bytes]] = [
        lambda: frame(HEADERS, END_HEADERS, stream, _BLOCKS[0]),
        lambda: frame(HEADERS, END_HEADERS, stream, _BLOCKS[0]) + frame(DATA, 0, stream, body[:16_000]),
        lambda: frame(HEADERS, END_HEADERS | END_STREAM, stream, _BLOCKS[3]),
        lambda: frame(HEADERS, END_HEADERS | last, stream, headers),
        lambda: b"".join(frame(DATA, 0, stream, body[at : at + 16_000]) for at in range(0, len(body), 16_000)),
        lambda: frame(DATA, last, stream, body[: rnd.randrange(200)]),
        lambda: frame(HEADERS, last, stream, headers[:cut]) + frame(CONTINUATION, END_HEADERS, stream, headers[cut:]),
        lambda: frame(RESET, 0, stream, rnd.choice([0, 7, 8]).to_bytes(4, "big")),
        lambda: frame(WINDOW_UPDATE, 0, stream, rnd.choice([1, 70_000, 1 << 30]).to_bytes(4, "big")),
        lambda: frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW, rnd.choice([0, 10, 70_000]))),
        lambda: frame(SETTINGS, 0, 0, setting(3, rnd.choice([0, 1, 100]))),
        lambda: frame(PING, 0, 0, bytes(8)),
        lambda: frame(GOAWAY, 0, 0, rnd.choice([0, 3, 2**31 - 1]).to_bytes(4, "big") + bytes(4)),
        lambda: frame(rnd.randrange(12), rnd.randrange(256), stream, rnd.randbytes(rnd.randrange(20))),
    ]
    return rnd.choice(made)()


@cache
def _collection() -> list[bytes]:
    """Return frames to send: to make those of each connection takes most of the time of an execution."""
    rnd = random.Random(0)
    return [_frames(rnd) for _ in range(FRAMES)]


def _call(session: NativeClientSession, rnd: random.Random) -> None:
    """Do anything that a caller may do."""
    stream = rnd.choice([1, 3, 5, 7, 9, 11])
    match rnd.randrange(8):
        case 0 | 1:
            first = rnd.choice([None, b"", bytes(300), bytes(100_000)])
            timeout, metadata = rnd.choice([None, b"1S"]), rnd.choice([None, [(b"x-a", b"b")]])
            session.open(b"/s/Call", timeout, metadata, first, rnd.random() < 0.5)
        case 2 | 3:
            session.take(stream)
        case 4:
            session.send(stream, noise(rnd, rnd.choice([0, 5, 40_000])))
        case 5:
            session.finish(stream)
        case 6:
            session.reset(stream, 8)
        case 7:
            session.when_emptied(stream)
            if rnd.random() < 0.1:
                rnd.choice([session.ping, session.terminate])()


def shake_client(seed: int) -> None:
    """Shake one connection.

    Raises:
        AssertionError: A sum does not end at nothing.
    """
    rnd = random.Random(seed)
    limit, window = rnd.choice([100, 50_000, 1 << 20]), rnd.choice([4096, 1 << 20])
    session = new_client_session(b"x", b"shaken", limit, is_secure=False, window_bytes=window)
    data = bytearray(frame(SETTINGS, 0, 0) + b"".join(rnd.choices(_collection(), k=rnd.randrange(30))))
    for _ in range(rnd.choice([0, 0, 1, 5])):
        data[rnd.randrange(len(data))] = rnd.randrange(256)
    for _ in range(rnd.randrange(6)):
        _call(session, rnd)
    with suppress(ConnectionError):
        session.output(1 << 20)
        while data:
            size = rnd.choice([1, 9, 100, 5000, 70_000])
            session.receive(bytes(data[:size]))
            del data[:size]
            for _ in range(rnd.randrange(4)):
                _call(session, rnd)
            if rnd.random() < 0.7:
                session.output(rnd.choice([1, 1000, 1 << 20]))
    session.close()
    assert (session.stream_count, session.unread_bytes, session.unsent_bytes) == (0, 0, 0), seed
