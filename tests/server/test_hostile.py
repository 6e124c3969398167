"""Clients that abuse HTTP/2, by hand: the native transport keeps its memory, and serves others meanwhile."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import grpc
import pytest
from pequod_proto import pequod_pb2 as pb

from pequod.native.http2 import why_absent
from tests.forked import started_server
from tests.server.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW,
    PING,
    RESET,
    SERVICE,
    SETTINGS,
    WINDOW_UPDATE,
    Stranger,
    call,
    fields_in,
    frame,
    frames_in,
    heads,
    message,
    setting,
)

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")
MIB = 1 << 20
LIMIT_MIB = 256
#: What the server may grow by: a share of its limit, within which it holds all that waits.
GROWTH_BYTES_MAX = 64 * MIB
#: Another's call may take so long while the abuse goes on, on a machine that has nothing else to do.
OTHERS_S_MAX = 2.0
GET = message(pb.GetRequest(key=b"d|000").SerializeToString())
SCAN = message(pb.ScanRequest(first=b"d|", last=b"d}").SerializeToString())
CANCEL = (8).to_bytes(4, "big")


@pytest.fixture(scope="module")
def target() -> Iterator[tuple[str, int]]:
    flags = ("--transport", "native", "--memory-limit", f"{LIMIT_MIB}MiB", "--keepalive-s", "0")
    with started_server(*flags) as (target, pid):
        with grpc.insecure_channel(target) as channel:
            put: Any = channel.unary_unary(SERVICE + "Put")
            for number in range(100):
                put(pb.PutRequest(key=b"d|%03d" % number, value=bytes(10_000)).SerializeToString())
        yield target, pid


def resident(pid: int, field: str = "VmRSS") -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field)]
    return int(line.split()[1]) << 10


class Others:
    """A client that goes on with its own calls; at the end all must have been answered in time."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])
        self._get: Any = self._channel.unary_unary(SERVICE + "Get")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go)
        self.longest_s = 0.0
        self.failures: list[str] = []
        self.count = 0

    def _go(self) -> None:
        while not self._is_over.is_set():
            begun_s = time.monotonic()
            try:
                self._get(pb.GetRequest(key=b"d|000").SerializeToString(), timeout=10)
            except grpc.RpcError as error:
                self.failures.append(f"{error.code()} {error.details()}")
            self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
            self.count += 1
            self._is_over.wait(0.005)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._channel.close()


def rapid_reset(method: str, body: bytes) -> Callable[[str], None]:
    def abuse(target: str) -> None:
        stranger, block = Stranger(target), heads(method)
        for first in range(1, 20_001, 200):
            frames = b"".join(
                call(stream, block, body) + frame(RESET, 0, stream, CANCEL) for stream in range(first, first + 200, 2)
            )
            if not stranger.send(frames):
                break
        stranger.close()

    return abuse


def late_reset(target: str) -> None:
    """Reset calls once they have begun."""
    stranger, block = Stranger(target), heads("Watch")
    for first in range(1, 4001, 200):
        streams = range(first, first + 200, 2)
        stranger.send(b"".join(call(stream, block, message(b"")) for stream in streams))
        time.sleep(0.01)
        stranger.send(b"".join(frame(RESET, 0, stream, CANCEL) for stream in streams))
    stranger.close()


def flood(kind: int, payload: bytes) -> Callable[[str], None]:
    def abuse(target: str) -> None:
        stranger = Stranger(target)
        stranger.socket.settimeout(3)
        for _ in range(500):
            if not stranger.send(frame(kind, 0, 0, payload) * 200):
                break
        stranger.close()

    return abuse


def read_flood(target: str) -> None:
    """Send pings and read the answers, which no queue of the server bounds."""
    stranger = Stranger(target)
    for _ in range(50):
        if not stranger.send(frame(PING, 0, 0, bytes(8)) * 500):
            break
        with suppress(OSError):
            stranger.socket.recv(1 << 16)
    stranger.close()


def continuation_flood(target: str) -> None:
    stranger = Stranger(target)
    stranger.send(frame(HEADERS, 0, 1, heads("Get")))
    for _ in range(20_000):
        if not stranger.send(frame(CONTINUATION, 0, 1, b"\0\x01a\x01b" * 100)):
            break
    else:
        raise AssertionError("the connection goes on")
    stranger.close()


def huge_headers(target: str) -> None:
    stranger = Stranger(target)
    for stream in range(1, 401, 2):
        block = heads("Get", *((f"x-{number}", "y" * 1000) for number in range(32)))
        stranger.send(frame(HEADERS, 0, stream, block[:16000]) + frame(CONTINUATION, 0, stream, block[16000:32000]))
        stranger.send(frame(CONTINUATION, END_HEADERS, stream, block[32000:]))
        stranger.send(frame(DATA, 1, stream, GET))
    statuses = {fields.get("grpc-status") for fields in fields_in(stranger.until_closed(1)).values()}
    assert statuses == {"8"}
    stranger.close()


def window_of_nothing(target: str) -> None:
    """Ask for much, and let nothing in."""
    stranger, block = Stranger(target, setting(INITIAL_WINDOW, 0)), heads("Scan")
    for first in range(1, 10_001, 200):
        if not stranger.send(b"".join(call(stream, block, SCAN) for stream in range(first, first + 200, 2))):
            break
    time.sleep(1)
    stranger.close()


def never_reads(target: str) -> None:
    """Ask for much with the widest windows, and read nothing of the socket."""
    stranger, block = Stranger(target, setting(INITIAL_WINDOW, (1 << 31) - 1), buffer=4096), heads("Scan")
    stranger.send(frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
    stranger.socket.settimeout(1)
    for first in range(1, 40_001, 200):
        if not stranger.send(b"".join(call(stream, block, SCAN) for stream in range(first, first + 200, 2))):
            break
    stranger.close()


def half_requests(target: str) -> None:
    """Begin requests on many connections, fill what windows they have, and send no more."""
    strangers = [Stranger(target) for _ in range(30)]
    for stranger in strangers:
        stranger.socket.settimeout(1)
        for stream in range(1, 401, 2):
            begun = frame(HEADERS, END_HEADERS, stream, heads("MultiPut")) + frame(
                DATA, 0, stream, message(bytes(100_000))[:16000]
            )
            if not stranger.send(begun + frame(DATA, 0, stream, bytes(16000)) * 2):
                break
    time.sleep(0.5)
    for stranger in strangers:
        stranger.close()


def no_bodies(target: str) -> None:
    stranger, block = Stranger(target), heads("Get")
    for first in range(1, 16_001, 200):
        stranger.send(b"".join(frame(HEADERS, END_HEADERS, stream, block) for stream in range(first, first + 200, 2)))
    time.sleep(0.5)
    stranger.close()


def half_open(target: str) -> None:
    strangers = [Stranger(target, greets=bool(number % 2)) for number in range(500)]
    time.sleep(0.5)
    for stranger in strangers:
        stranger.close()


def no_http2(target: str) -> None:
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff" * 5000, b"\x16\x03\x01\x02\0\x01"):
        stranger = Stranger(target, greets=False)
        stranger.send(data)
        stranger.until_closed(1)
        stranger.close()


ABUSES: dict[str, Callable[[str], None]] = {
    "rapid-reset-of-gets": rapid_reset("Get", GET),
    "rapid-reset-of-watches": rapid_reset("Watch", message(b"")),
    "late-reset": late_reset,
    "pings": flood(PING, bytes(8)),
    "pings-read": read_flood,
    "settings": flood(SETTINGS, b""),
    "acknowledgements": flood(PING, b"x" * 8),
    "continuations": continuation_flood,
    "huge-headers": huge_headers,
    "window-of-nothing": window_of_nothing,
    "never-reads": never_reads,
    "half-requests": half_requests,
    "no-bodies": no_bodies,
    "half-open": half_open,
    "no-http2": no_http2,
}


@pytest.mark.parametrize("name", ABUSES)
def test_abuse_takes_little_memory_and_nobodys_turn(name: str, target: tuple[str, int]) -> None:
    address, pid = target
    before = resident(pid)
    with Others(address) as others:
        ABUSES[name](address)
    assert others.failures == []
    assert others.count > 0
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert others.longest_s < OTHERS_S_MAX * busy
    assert resident(pid) - before < GROWTH_BYTES_MAX
    assert resident(pid, "VmHWM") < 1.1 * LIMIT_MIB * MIB


def test_a_message_that_is_declared_too_long_is_refused_unread(target: tuple[str, int]) -> None:
    stranger = Stranger(target[0])
    stranger.send(frame(HEADERS, END_HEADERS, 1, heads("Put")) + frame(DATA, 0, 1, b"\0\x7f\xff\xff\xff"))
    found = fields_in(stranger.until_closed(2))[1]
    assert found["grpc-status"] == "8"
    assert found["grpc-message"].startswith("SERVER: Received message larger than max (2147483647 vs. ")
    stranger.close()


def test_a_client_is_asked_for_a_sign_of_life_and_closed_without_one() -> None:
    flags = ("--transport", "native", "--keepalive-s", "0.2", "--keepalive-timeout-s", "0.2")
    with started_server(*flags) as (address, _):
        stranger = Stranger(address)
        received = stranger.until_closed(20)
        assert stranger.is_closed
        assert any((kind, flags) == (PING, 0) for kind, flags, *_ in frames_in(received))
        answering = Stranger(address)
        end_s = time.monotonic() + 1.5
        answering.socket.settimeout(0.1)
        while time.monotonic() < end_s:
            with suppress(TimeoutError):
                for kind, flag, _, payload in frames_in(answering.socket.recv(1 << 16)):
                    if (kind, flag) == (PING, 0):
                        answering.send(frame(PING, ACK, 0, payload))
        answering.send(call(1, heads("Get"), GET))
        assert fields_in(answering.until_closed(0.3))[1]["grpc-status"] == "0"
        stranger.close()
        answering.close()


def test_a_client_that_stops_reading_is_told_of_the_end() -> None:
    with started_server("--transport", "native", "--drain-s", "0.2") as (address, _):
        stranger = Stranger(address)
        time.sleep(0.2)
    assert [kind for kind, *_ in frames_in(stranger.until_closed(2))].count(GOAWAY) == 2
    stranger.close()


def test_a_client_that_says_goodbye_is_closed(target: tuple[str, int]) -> None:
    stranger = Stranger(target[0])
    stranger.send(frame(GOAWAY, 0, 0, bytes(8)))
    stranger.until_closed(10)
    assert stranger.is_closed
    stranger.close()
