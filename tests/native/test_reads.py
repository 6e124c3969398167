"""Reads of a socket: hot calls that come alone are answered at once, and all else is told to Python."""

from collections.abc import Iterator
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.once.memory import RequestIds

from pequod.engine import Engine
from pequod.native import core
from pequod.native.http2 import EventKind, HotLimits, NativeSession, new_hot_calls, new_session, why_absent
from tests.native.runs import Turn
from tests.server.frames import (
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    bodies_in,
    call,
    frame,
    heads,
    message,
)

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
GET = message(pb.GetRequest(key=b"x|1").SerializeToString())


class Wire:
    """A connection as the event loop reads for it."""

    def __init__(self, *, slow_s: float = 1e9, has_turn: bool = True) -> None:
        assert why_absent() is None
        engine = Engine()
        engine.put(b"x|1", b"one")
        self.calls = new_hot_calls(engine, 7, HotLimits(100, 100, 1 << 20, 1 << 20), slow_s, RequestIds())
        self.session: NativeSession = new_session(1 << 20, 4000, 1000)
        self.session.use_hot(self.calls, False)
        self.buffer = memoryview(bytearray(1 << 16))
        #: A `HotTurn`, mostly.
        self.turn: Any = Turn()
        self.written: list[bytes] = []
        self.rest: list[Any] = []
        turn = (lambda: self.turn) if has_turn else None
        self.session.attach(self.buffer, turn, self.written.append, self.rest.append, 100, 1 << 18, 1 << 16)
        self.read(PREFACE + frame(SETTINGS, 0, 0))
        self.session.output(1 << 20)
        self.rest.clear()
        self.session.is_calm = True

    def read(self, data: bytes) -> None:
        """Have the event loop read."""
        self.session.buffer(-1)[: len(data)] = data
        self.session.updated(len(data))

    def get(self, *streams: int) -> None:
        """Read some calls."""
        self.read(b"".join(call(stream, heads("Get"), GET) for stream in streams))


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.session.close()


def test_hot_calls_that_come_alone_are_answered_by_one_write(wire: Wire) -> None:
    assert wire.session.read_s > 0
    wire.get(1, 3, 5)
    wire.get(7)
    assert [list(bodies_in(data)) for data in wire.written] == [[1, 3, 5], [7]]
    reply = pb.GetReply.FromString(bodies_in(wire.written[1])[7][5:])
    assert reply.value == b"one"
    assert wire.rest == []
    assert (wire.session.hot_answered, wire.session.total_bytes) == (4, 0)


def test_what_has_no_hot_calls_and_makes_nothing_to_send_is_not_told(wire: Wire) -> None:
    wire.read(frame(WINDOW_UPDATE, 0, 0, (100).to_bytes(4, "big")))
    assert (wire.written, wire.rest) == ([], [])


def test_output_that_is_no_reply_is_told(wire: Wire) -> None:
    wire.read(frame(PING, 0, 0, bytes(8)))
    assert (wire.written, wire.rest) == ([], [None])


def test_calls_that_come_with_others_are_left_to_python(wire: Wire) -> None:
    wire.read(call(1, heads("Get"), GET) + call(3, heads("Stats"), message(b"")))
    assert (wire.written, wire.rest, wire.session.hot_count) == ([], [None], 1)
    assert [event[:2] for event in wire.session.events() if event] == [(EventKind.OPENED, 3)]


def test_a_call_that_is_not_quick_is_left_to_python_behind_the_replies_of_others(wire: Wire) -> None:
    wire.read(call(1, heads("Get"), GET) + call(3, heads("Get"), message(b"")))
    assert [list(bodies_in(data)) for data in wire.written] == [[1]]
    assert wire.rest == [None]
    assert [event[:2] for event in wire.session.events() if event] == [(EventKind.OPENED, 3)]


def test_a_connection_that_is_not_calm_leaves_all_to_python(wire: Wire) -> None:
    wire.session.is_calm = False
    wire.get(1)
    assert (wire.written, wire.rest, wire.session.hot_count) == ([], [None], 1)


def test_calls_that_may_not_be_hot_now_are_left_to_python(wire: Wire) -> None:
    wire.turn = None
    wire.get(1)
    assert (wire.written, wire.rest, wire.session.hot_count) == ([], [None], 1)
    without = Wire(has_turn=False)
    without.get(1)
    assert (without.written, without.rest, without.session.hot_count) == ([], [None], 1)
    without.session.close()


def test_more_calls_than_may_run_are_left_to_python_with_the_replies_of_those_that_ran(wire: Wire) -> None:
    wire.get(*range(1, 300, 2))
    assert (wire.written, wire.session.hot_count) == ([], 50)
    assert [ran[0] for ran in wire.rest] == [100]
    assert len(bodies_in(wire.session.output(1 << 20))) == 100


def test_bytes_that_python_has_not_noted_are_told(wire: Wire) -> None:
    wire.session.noted_bytes = 1
    wire.get(1)
    assert (len(wire.written), wire.rest) == (1, [None])


def test_a_run_that_is_to_be_noted_comes_before_its_replies() -> None:
    wire = Wire(slow_s=0.0)
    wire.get(1)
    assert wire.written == []
    ((answered, ((_, _, fields, request),), *_),) = wire.rest
    assert (answered, request) == (1, GET[5:])
    assert (b":path", b"/pequod.v1.Pequod/Get") in fields
    assert list(bodies_in(wire.session.output(1 << 20))) == [1]
    wire.session.close()


def test_what_is_no_http_2_is_told_as_an_error() -> None:
    wire = Wire()
    wire.read(b"\xff" * 100)
    wire.read(b"\xff" * 100)
    assert any(isinstance(error, ConnectionError) or error is None for error in wire.rest)
    assert wire.written == []
    stranger = new_session(1 << 20, 4000, 1000)
    told: list[Any] = []
    stranger.attach(wire.buffer, None, told.append, told.append, 1, 1, 1)
    wire.buffer[:18] = b"GET / HTTP/1.1\r\n\r\n"
    stranger.updated(18)
    assert [type(error) for error in told] == [ConnectionError]
    for one in (wire.session, stranger):
        one.close()


def test_an_error_of_what_holds_is_the_event_loops(wire: Wire) -> None:
    wire.turn = 1, 2
    wire.get(1)
    assert [type(error) for error in wire.rest] == [TypeError]
    failing: Any = {}.popitem
    wire.session.attach(wire.buffer, failing, wire.written.append, wire.rest.append, 1, 1 << 18, 1 << 16)
    with pytest.raises(KeyError):
        wire.get(3)


def test_a_connection_that_closes_while_it_writes_calls_nobody_any_more() -> None:
    wire = Wire()
    wire.session.attach(
        wire.buffer, lambda: wire.turn, lambda _: wire.session.close(), wire.rest.append, 100, 1 << 18, 1 << 16
    )
    wire.get(1)
    wire.session.updated(9)
    assert wire.rest == []
    with pytest.raises(RuntimeError, match="does not stand"):
        wire.session.buffer(-1)


def test_a_read_that_fills_the_buffer_is_read_to_its_last_byte(wire: Wire) -> None:
    last = call(1, heads("Get"), GET)
    left = len(wire.buffer) - len(last)
    while left:
        # Frames of a kind that nobody knows are passed over.
        data = frame(200, 0, 0, bytes(min(left, 1 << 14) - 9))
        left -= len(data)
        last = data + last
    wire.read(last)
    assert [list(bodies_in(data)) for data in wire.written] == [[1]]


def test_more_bytes_than_the_buffer_has_are_none(wire: Wire) -> None:
    wire.session.updated(len(wire.buffer) + 1)
    assert (wire.written, wire.rest) == ([], [])
