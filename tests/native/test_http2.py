"""Connections of the native core: bytes in, events out, bytes out, with frames by hand."""

import random
import re
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from pequod.native import core
from pequod.native.http2 import EventKind, NativeSession, new_session, why_absent
from tests.native import shaken
from tests.native.shaken import shake
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
    bodies_in,
    call,
    fields_in,
    frame,
    frames_in,
    heads,
    message,
    setting,
)

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
MESSAGE_MAX, HEADERS_MAX = 1 << 20, 2000
HELLO = PREFACE + frame(SETTINGS, 0, 0)
GET = heads("Get")
OPENED, READABLE, DRAINED, CLOSED = EventKind


@pytest.fixture(autouse=True, scope="module")
def library() -> None:
    """Have the library loaded, whichever tests run."""
    assert why_absent() is None


@pytest.fixture
def session() -> Iterator[NativeSession]:
    made = new_session(MESSAGE_MAX, HEADERS_MAX, 100)
    made.receive(HELLO)
    made.output(1 << 20)
    yield made
    made.close()
    assert (made.stream_count, made.unread_bytes, made.unsent_bytes, made.held_bytes, made.header_bytes) == (0,) * 5


def events_of(session: NativeSession, data: bytes) -> list[tuple[int, int, Any]]:
    return [event for event in session.receive(data) if event is not None]


def test_a_call_opens_with_its_headers_is_read_and_answered(session: NativeSession) -> None:
    ((kind, stream, headers),) = events_of(session, call(1, GET, message(b"request")))
    assert (kind, stream) == (OPENED, 1)
    assert dict(headers)[b":path"] == b"/pequod.v1.Pequod/Get"
    assert session.take(1) == b"request"
    assert session.take(1) is False
    assert session.finish(1, None, b"reply") == 10
    out = session.output(1 << 20)
    assert bodies_in(out)[1] == message(b"reply")
    assert fields_in(out)[1] == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-accept-encoding": "identity, deflate, gzip",
        "grpc-status": "0",
    }
    assert session.events() == [(CLOSED, 1, 0)]


def test_a_status_without_a_reply_is_one_frame(session: NativeSession) -> None:
    events_of(session, call(1, GET, message(b"")))
    session.finish(1, [(b"grpc-status", b"5"), (b"grpc-message", b"no")], None)
    out = session.output(1 << 20)
    assert [kind for kind, *_ in frames_in(out)] == [HEADERS]
    assert fields_in(out)[1]["grpc-status"] == "5"


def test_a_status_before_the_request_has_come_ends_the_stream(session: NativeSession) -> None:
    events_of(session, frame(HEADERS, END_HEADERS, 1, GET) + frame(DATA, 0, 1, message(b"a" * 100)[:50]))
    assert session.unread_bytes == 50
    session.finish(1, [(b"grpc-status", b"8")], None)
    assert session.unread_bytes == 0
    assert [kind for kind, *_ in frames_in(session.output(1 << 20))] == [HEADERS, RESET]
    assert session.stream_count == 0


def test_what_comes_on_a_stream_that_is_ignored_is_not_kept(session: NativeSession) -> None:
    body = message(b"a" * 100)
    events_of(session, frame(HEADERS, END_HEADERS, 1, GET) + frame(DATA, 0, 1, body[:50]))
    session.ignore(1)
    assert (session.unread_bytes, session.held_bytes) == (0, 0)
    assert events_of(session, frame(DATA, END_STREAM, 1, body[50:])) == []
    assert (session.unread_bytes, session.held_bytes) == (0, 0)
    assert session.take(1) is False
    session.finish(1, [(b"grpc-status", b"8")], None)
    assert [kind for kind, *_ in frames_in(session.output(1 << 20))] == [HEADERS]


def test_a_message_is_told_of_once_it_is_there_as_a_whole(session: NativeSession) -> None:
    events_of(session, frame(HEADERS, END_HEADERS, 1, GET))
    assert session.take(1) is None
    long = bytes(range(256)) * 200
    data = message(long) + message(b"next", flag=1)
    assert events_of(session, frame(DATA, 0, 1, data[:16384])) == []
    assert events_of(session, frame(DATA, 0, 1, data[16384:32768])) == []
    assert events_of(session, frame(DATA, 0, 1, data[32768:49152])) == []
    assert events_of(session, frame(DATA, END_STREAM, 1, data[49152:])) == [(READABLE, 1, None)]
    assert session.take(1) == long
    assert session.take(1) == (b"next",)
    assert session.take(1) is False


def test_a_long_message_may_begin_behind_a_short_one(session: NativeSession) -> None:
    long = bytes(range(256)) * 100
    data = message(b"short") + message(long) + message(b"last")
    events_of(session, frame(HEADERS, END_HEADERS, 1, GET) + frame(DATA, 0, 1, data[:10_000]))
    assert session.take(1) == b"short"
    events_of(session, frame(DATA, 0, 1, data[10_000:20_000]))
    events_of(session, frame(DATA, END_STREAM, 1, data[20_000:]))
    assert [session.take(1), session.take(1), session.take(1)] == [long, b"last", False]


def test_a_message_beyond_the_limit_is_refused_by_its_length(session: NativeSession) -> None:
    events_of(session, frame(HEADERS, END_HEADERS, 1, GET))
    assert session.take(1) is None
    assert events_of(session, frame(DATA, 0, 1, b"\0\0\x20\0\0")) == [(READABLE, 1, None)]
    assert session.take(1) == 1 << 21


def test_a_window_is_given_back_when_a_message_is_taken_and_a_long_one_is_let_in(session: NativeSession) -> None:
    def updates() -> dict[int, int]:
        found: dict[int, int] = {}
        for kind, _, stream, payload in frames_in(session.output(1 << 20)):
            if kind == WINDOW_UPDATE:
                found[stream] = found.get(stream, 0) + int.from_bytes(payload, "big")
        return found

    part = bytes(16383)
    begun = message(bytes(500_000))[:5]
    events_of(session, frame(HEADERS, END_HEADERS, 1, GET) + frame(DATA, 0, 1, begun + part[5:]))
    for _ in range(3):
        events_of(session, frame(DATA, 0, 1, part))
    assert (session.held_bytes, session.unread_bytes) == (4 * 16383,) * 2
    assert 1 not in updates(), "nobody wants it yet"
    assert session.take(1) is None
    assert session.held_bytes == 0
    assert updates()[1] >= 500_005 - 65_535, "all of it may come"


def updates_in(data: bytes) -> dict[int, int]:
    """Return by how much the windows of streams are opened."""
    found: dict[int, int] = {}
    for kind, _, stream, payload in frames_in(data):
        if kind == WINDOW_UPDATE:
            found[stream] = found.get(stream, 0) + int.from_bytes(payload, "big")
    return found


@pytest.fixture
def narrow() -> Iterator[NativeSession]:
    """A connection whose streams have a window of 4 KiB."""
    made = new_session(MESSAGE_MAX, HEADERS_MAX, 100, 4096)
    made.receive(HELLO)
    assert setting(INITIAL_WINDOW, 4096) in made.output(1 << 20)
    yield made
    made.close()
    assert (made.unread_bytes, made.held_bytes) == (0, 0)


def test_a_window_of_our_own_holds_once_the_client_has_heard_of_it(narrow: NativeSession) -> None:
    body = message(bytes(9995))
    narrow.receive(frame(SETTINGS, ACK, 0))
    events_of(narrow, frame(HEADERS, END_HEADERS, 1, GET) + frame(DATA, 0, 1, body[:4096]))
    assert 1 not in updates_in(narrow.output(1 << 20)), "nobody wants it yet"
    assert narrow.take(1) is None
    # What was sent, and the rest of the message.
    assert updates_in(narrow.output(1 << 20))[1] >= 10_000 - 4096
    assert events_of(narrow, frame(DATA, END_STREAM, 1, body[4096:])) == [(READABLE, 1, None)]
    assert narrow.take(1) == bytes(9995)
    narrow.receive(frame(HEADERS, END_HEADERS, 3, GET) + frame(DATA, 0, 3, bytes(4097)))
    assert any(kind in (RESET, GOAWAY) for kind, *_ in frames_in(narrow.output(1 << 20)))


def test_what_a_client_sends_before_it_has_heard_of_the_window_is_taken(narrow: NativeSession) -> None:
    body = message(bytes(29_995))
    events_of(narrow, frame(HEADERS, END_HEADERS, 1, GET))
    events_of(narrow, frame(DATA, 0, 1, body[:16_000]))
    events_of(narrow, frame(DATA, 0, 1, body[16_000:20_000]) + frame(SETTINGS, ACK, 0))
    assert narrow.take(1) is None
    # The client takes its window for used up, by 15,904 bytes.
    assert updates_in(narrow.output(1 << 20))[1] >= 30_000 - 4096
    assert events_of(narrow, frame(DATA, END_STREAM, 1, body[20_000:])) == [(READABLE, 1, None)]
    assert narrow.take(1) == bytes(29_995)


def test_a_message_that_is_wanted_when_the_client_hears_of_the_window_is_let_in(narrow: NativeSession) -> None:
    body = message(bytes(29_995))
    events_of(narrow, frame(HEADERS, END_HEADERS, 1, GET) + frame(DATA, 0, 1, body[:1000]))
    assert narrow.take(1) is None
    narrow.output(1 << 20)
    narrow.receive(frame(SETTINGS, ACK, 0))
    # 65,535 less 61,439, and 1,000 are used up.
    assert updates_in(narrow.output(1 << 20))[1] >= 30_000 - 4096
    assert events_of(narrow, frame(DATA, 0, 1, body[1000:17_000])) == []
    assert events_of(narrow, frame(DATA, END_STREAM, 1, body[17_000:])) == [(READABLE, 1, None)]
    assert narrow.take(1) == bytes(29_995)


def test_a_message_that_nobody_wants_stays_out_though_the_client_hears_of_the_window(narrow: NativeSession) -> None:
    body = message(bytes(29_995))
    events_of(narrow, frame(HEADERS, END_HEADERS, 1, GET) + frame(DATA, 0, 1, body[:1000]))
    narrow.receive(frame(SETTINGS, ACK, 0))
    assert 1 not in updates_in(narrow.output(1 << 20))
    assert narrow.held_bytes == 1000
    assert narrow.take(1) is None
    assert updates_in(narrow.output(1 << 20))[1] >= 30_000 - 4096
    assert events_of(narrow, frame(DATA, 0, 1, body[1000:17_000])) == []
    assert events_of(narrow, frame(DATA, END_STREAM, 1, body[17_000:])) == [(READABLE, 1, None)]
    assert narrow.take(1) == bytes(29_995)


def test_a_long_message_takes_no_more_than_twice_what_has_come_of_it(session: NativeSession) -> None:
    begun = message(bytes(MESSAGE_MAX))[:1000]
    tracemalloc.start()
    try:
        for stream in range(1, 101, 2):
            session.receive(frame(HEADERS, END_HEADERS, stream, GET) + frame(DATA, 0, stream, begun))
        traced, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert session.unread_bytes == 50_000
    assert traced < 1 << 20


def test_a_connection_holds_no_more_than_two_windows_while_nobody_reads(session: NativeSession) -> None:
    sent = 0
    for stream in range(1, 199, 2):
        session.receive(frame(HEADERS, END_HEADERS, stream, GET))
        session.receive(frame(DATA, 0, stream, bytes(16384)) * 3)
        sent += 3 * 16384
        if any(kind == GOAWAY for kind, *_ in frames_in(session.output(1 << 20))):
            break
    else:
        raise AssertionError("a client that sends beyond its window is sent away")
    assert sent <= (2 << 20) + (64 << 10)


def test_what_a_client_does_not_let_in_waits_and_tells_when_it_has_gone() -> None:
    session = new_session(MESSAGE_MAX, HEADERS_MAX, 100)
    session.receive(PREFACE + frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW, 10)))
    session.receive(call(1, GET, message(b"")))
    assert session.send(1, bytes(20)) == 25
    assert session.unsent_bytes == 25
    session.output(1 << 20)
    assert session.unsent_bytes == 15
    assert session.when_drained(1)
    session.receive(frame(WINDOW_UPDATE, 0, 1, (100).to_bytes(4, "big")))
    session.output(1 << 20)
    assert (DRAINED, 1, None) in session.events()
    assert not session.when_drained(1)
    session.send(1, bytes(200))
    session.reset(1, 8)
    assert session.unsent_bytes == 0
    session.close()


def test_a_call_that_is_reset_before_anybody_knew_is_none(session: NativeSession) -> None:
    assert events_of(session, call(1, GET, message(b"")) + frame(RESET, 0, 1, (8).to_bytes(4, "big"))) == []
    events_of(session, call(3, GET, message(b"")))
    assert events_of(session, frame(RESET, 0, 3, (8).to_bytes(4, "big"))) == [(CLOSED, 3, 8)]


def test_headers_beyond_the_limit_are_not_kept(session: NativeSession) -> None:
    block = heads("Get", *((f"x-{number}", "y" * 100) for number in range(30)))
    assert events_of(session, call(1, block, message(b""))) == [(OPENED, 1, None)]
    assert session.header_bytes <= HEADERS_MAX


def test_headers_without_an_end_end_the_connection(session: NativeSession) -> None:
    # Some libraries raise, others say it to the client.
    with pytest.raises(ConnectionError):
        session.receive(frame(HEADERS, 0, 1, GET))
        for _ in range(30):
            session.receive(frame(CONTINUATION, 0, 1, b"\0\x01a\x01b"))
        assert any(kind == GOAWAY for kind, *_ in frames_in(session.output(1 << 20)))
        raise ConnectionError


def test_answers_that_nobody_takes_end_the_connection(session: NativeSession) -> None:
    with pytest.raises(ConnectionError):
        session.receive(frame(PING, 0, 0, bytes(8)) * 3000)


def test_what_is_no_http2_ends_the_connection() -> None:
    session = new_session(MESSAGE_MAX, HEADERS_MAX, 100)
    with pytest.raises(ConnectionError):
        session.receive(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


def test_a_token_may_end_in_a_space(session: NativeSession) -> None:
    ((_, _, headers),) = events_of(session, call(1, heads("Get", ("authorization", "Bearer x ")), message(b"")))
    assert dict(headers)[b"authorization"] == b"Bearer x "


def test_the_end_of_a_connection_is_said_and_waited_for(session: NativeSession) -> None:
    events_of(session, call(1, GET, message(b"")))
    session.say_last(True)
    session.say_last(False)
    session.finish(1, None, b"")
    kinds = [kind for kind, *_ in frames_in(session.output(1 << 20))]
    assert kinds.count(GOAWAY) == 2
    session.ping()
    assert any((kind, flags) == (PING, 0) for kind, flags, *_ in frames_in(session.output(1 << 20)))
    session.receive(frame(PING, ACK, 0, bytes(8)))


def test_initial_metadata_come_before_the_reply(session: NativeSession) -> None:
    events_of(session, call(1, GET, message(b"")))
    assert session.begin(1, [(b"x-mine", b"1")])
    assert not session.begin(1, [(b"x-mine", b"2")])
    assert fields_in(session.output(1 << 20))[1]["x-mine"] == "1"


@pytest.mark.parametrize("seed", range(20))
def test_bytes_in_any_cut_give_the_same_calls(seed: int) -> None:
    rnd = random.Random(seed)
    requests = {number * 2 + 1: rnd.randbytes(rnd.choice([0, 3, 2000, 40_000])) for number in range(20)}
    data = bytearray(HELLO)
    for stream, request in requests.items():
        # Every other one is said to be compressed.
        body = message(request, flag=stream // 2 % 2)
        data += frame(HEADERS, END_HEADERS, stream, GET)
        for at in range(0, len(body), 16384):
            last = at + 16384 >= len(body)
            data += frame(DATA, END_STREAM if last else 0, stream, body[at : at + 16384])
    session = new_session(MESSAGE_MAX, HEADERS_MAX, 100)
    taken = {}
    while data:
        size = rnd.choice([1, 5, 9, 100, 10_000, 70_000])
        events = events_of(session, bytes(data[:size]))
        del data[:size]
        for kind, stream, _ in events:
            if kind != CLOSED and (found := session.take(stream)) is not None:
                assert isinstance(found, tuple) == bool(stream // 2 % 2)
                taken[stream] = found[0] if isinstance(found, tuple) else found
                session.finish(stream, None, b"")
        session.output(1 << 20)
    assert taken == requests
    assert (session.unread_bytes, session.held_bytes, session.stream_count) == (0, 0, 0)
    session.close()


def test_as_many_connections_are_shaken_as_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    shaken.main(["--executions", "8", "--processes", "2", "--seed", "7"])
    assert re.fullmatch(r"8 executions in \d+ s: nothing was found\n", capsys.readouterr().out)


def test_a_connection_that_is_not_as_it_must_be_is_named_by_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(seed: int, _engine: object) -> None:
        assert seed != 3

    monkeypatch.setattr(shaken, "shake", fails)
    with pytest.raises(AssertionError) as told:
        shaken.main(["--executions", "10"])
    assert told.value.__notes__ == ["by the seed 3, with an engine that has seen those from 0 on"]


def test_damaged_bytes_and_calls_in_any_order_leave_nothing() -> None:
    for seed in range(500):
        shake(seed)
