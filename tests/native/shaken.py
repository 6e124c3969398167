"""Connections of HTTP/2 shaken: damaged bytes in any cut, and any calls in between.

    python -m tests.native.shaken --seconds 60

It is for builds with sanitizers (`make test-sanitised`), which tell of any byte that is read or written elsewhere.
"""

import argparse
import random
import time
from collections.abc import Callable

from pequod.native.http2 import new_session, why_absent
from tests.server.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    PING,
    PREFACE,
    RESET,
    SETTINGS,
    WINDOW_UPDATE,
    call,
    frame,
    heads,
    message,
    setting,
)

_BLOCKS = [heads("Get"), heads("Execute", ("authorization", "Bearer x"), ("x-b-bin", "AAE"))]


def _frames(rnd: random.Random) -> bytes:
    """Return frames that a client may send, and some that none may."""
    stream = rnd.choice([1, 3, 5, 7, 2, 0, 99])
    body = message(rnd.randbytes(rnd.choice([0, 3, 300, 17_000, 70_000])), flag=rnd.choice([0, 0, 0, 1]))
    block = rnd.choice(_BLOCKS)
    cut = rnd.randrange(len(block))
    made: list[Callable[[], bytes]] = [
        lambda: call(stream, block, body[:16_000]),
        lambda: frame(HEADERS, END_HEADERS, stream, block),
        lambda: b"".join(frame(DATA, 0, stream, body[at : at + 16_000]) for at in range(0, len(body), 16_000)),
        lambda: frame(DATA, END_STREAM, stream, body[: rnd.randrange(200)]),
        lambda: frame(HEADERS, 0, stream, block[:cut]) + frame(CONTINUATION, END_HEADERS, stream, block[cut:]),
        lambda: frame(HEADERS, END_HEADERS | END_STREAM, stream, block),
        lambda: frame(RESET, 0, stream, (8).to_bytes(4, "big")),
        lambda: frame(WINDOW_UPDATE, 0, stream, rnd.choice([1, 70_000, 1 << 30]).to_bytes(4, "big")),
        lambda: frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW, rnd.choice([0, 10, 70_000]))),
        lambda: frame(SETTINGS, ACK, 0),
        lambda: frame(PING, 0, 0, bytes(8)),
        lambda: frame(GOAWAY, 0, 0, bytes(8)),
        lambda: frame(rnd.randrange(12), rnd.randrange(256), stream, rnd.randbytes(rnd.randrange(20))),
    ]
    return rnd.choice(made)()


def shake(seed: int) -> None:
    """Shake one connection.

    Raises:
        AssertionError: A sum does not end at nothing.
    """
    rnd = random.Random(seed)
    session = new_session(rnd.choice([100, 50_000, 1 << 20]), 500, rnd.choice([2, 100]), rnd.choice([4096, 65_535]))
    data = bytearray(PREFACE + frame(SETTINGS, 0, 0) + b"".join(_frames(rnd) for _ in range(rnd.randrange(30))))
    for _ in range(rnd.choice([0, 0, 1, 5])):
        data[rnd.randrange(len(data))] = rnd.randrange(256)
    trailers = [(b"grpc-status", b"5"), (b"grpc-message", b"no")]
    try:
        while data:
            size = rnd.choice([1, 9, 100, 5000, 70_000])
            session.receive(bytes(data[:size]))
            del data[:size]
            for _ in range(rnd.randrange(4)):
                stream = rnd.choice([1, 3, 5, 7, 11])
                match rnd.randrange(9):
                    case 0 | 1:
                        session.take(stream)
                    case 2:
                        session.send(stream, rnd.randbytes(rnd.choice([0, 5, 40_000])))
                    case 3:
                        session.finish(stream, rnd.choice([None, trailers]), rnd.choice([None, bytes(20_000)]))
                    case 4:
                        session.reset(stream, 8)
                    case 5:
                        session.begin(stream, [(b"x-a", b"b")])
                    case 6:
                        session.when_drained(stream)
                        if rnd.random() < 0.3:
                            session.ignore(stream)
                    case 7:
                        session.say_last(rnd.random() < 0.5)
                    case 8:
                        session.ping()
            if rnd.random() < 0.7:
                session.output(rnd.choice([1, 1000, 1 << 20]))
            assert 0 <= session.held_bytes <= session.unread_bytes
    except ConnectionError:
        pass
    session.close()
    assert (session.stream_count, session.unread_bytes, session.unsent_bytes, session.held_bytes) == (0, 0, 0, 0), seed
    assert session.header_bytes == 0, seed


def main() -> None:
    """Shake for some time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    options = parser.parse_args()
    assert why_absent() is None
    end_s, seed = time.monotonic() + options.seconds, options.seed
    while time.monotonic() < end_s:
        shake(seed)
        seed += 1
    print(f"{seed - options.seed} connections")


if __name__ == "__main__":
    main()
