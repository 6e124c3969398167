"""Connections of the native core from the client's side: bytes in, events out, bytes out, with frames by hand."""

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from pequod.native import core
from pequod.native.http2 import why_absent
from pequod.native.http2.client import ClientEvent, End, NativeClientSession, new_client_session
from tests.server.frames import (
    ACK,
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
    block,
    bodies_in,
    fields_in,
    frame,
    frames_in,
    message,
    setting,
)

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
MESSAGE_MAX, WINDOW = 1 << 20, 1 << 16
HELLO = frame(SETTINGS, 0, 0)
ALL = 1 << 24
DONE, MESSAGE, EMPTIED, ENDED, GREETED, LEAVING = ClientEvent
Event = tuple[int, int, Any]


BEGIN = block((":status", "200"), ("content-type", "application/grpc"), ("grpc-accept-encoding", "identity"))
WELL = block(("grpc-status", "0"))


def made(window: int = WINDOW) -> NativeClientSession:
    assert why_absent() is None
    return new_client_session(b"cache:7744", b"pequod/1", MESSAGE_MAX, is_secure=False, window_bytes=window)


@pytest.fixture
def session() -> Iterator[NativeClientSession]:
    session = made()
    assert session.receive(HELLO) == [(GREETED, 0, None)]
    session.output(ALL)
    yield session
    session.close()
    assert (session.stream_count, session.unread_bytes, session.unsent_bytes) == (0, 0, 0)
    assert session.is_over


def unary(session: NativeClientSession, request: bytes = b"request") -> int:
    return session.open(b"/s/Get", None, None, request, True)


def stream(session: NativeClientSession, request: bytes | None = None) -> int:
    return session.open(b"/s/Watch", None, None, request, False)


def reply(number: int, body: bytes, last: bytes = WELL) -> bytes:
    """Return the frames of a whole reply."""
    begun = frame(HEADERS, END_HEADERS, number, BEGIN) + frame(DATA, 0, number, body)
    return begun + frame(HEADERS, END_HEADERS | END_STREAM, number, last)


def end_of(events: list[Event]) -> End:
    ((kind, _, detail),) = events
    assert kind == ENDED
    return End(*detail)


def updates_in(data: bytes) -> dict[int, int]:
    """Return by how much the windows of streams are opened."""
    found: dict[int, int] = {}
    for kind, _, number, payload in frames_in(data):
        if kind == WINDOW_UPDATE:
            found[number] = found.get(number, 0) + int.from_bytes(payload, "big")
    return found


def begun_in(data: bytes) -> list[int]:
    """Return the streams that begin."""
    return [number for kind, _, number, _ in frames_in(data) if kind == HEADERS]


def test_it_greets_with_its_settings_and_no_push() -> None:
    session = made()
    out = session.output(ALL)
    assert out.startswith(PREFACE)
    kind, _, _, payload = next(frames_in(out[len(PREFACE) :]))
    assert kind == SETTINGS
    assert setting(2, 0) in payload
    assert setting(INITIAL_WINDOW, WINDOW) in payload
    session.close()


def test_a_call_has_the_headers_of_grpc(session: NativeClientSession) -> None:
    metadata = [(b"authorization", b"Bearer x"), (b"x-b-bin", b"AAE")]
    number = session.open(b"/pequod.v1.Pequod/Get", b"1500m", metadata, b"request", True)
    out = session.output(ALL)
    assert fields_in(out)[number] == {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/pequod.v1.Pequod/Get",
        ":authority": "cache:7744",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "pequod/1",
        "grpc-accept-encoding": "identity, deflate, gzip",
        "grpc-timeout": "1500m",
        "authorization": "Bearer x",
        "x-b-bin": "AAE",
    }
    assert bodies_in(out)[number] == message(b"request")
    assert [flags & END_STREAM for kind, flags, *_ in frames_in(out) if kind == DATA][-1]


def test_the_end_of_a_call_that_went_well_is_its_message(session: NativeClientSession) -> None:
    first, second = unary(session), unary(session)
    session.output(ALL)
    assert session.receive(reply(second, message(b"two")) + reply(first, message(b""))) == [
        (DONE, second, b"two"),
        (DONE, first, b""),
    ]
    assert session.stream_count == 0


def test_a_reply_comes_in_any_cut(session: NativeClientSession) -> None:
    rnd = random.Random(5)
    long = bytes(range(256)) * 300
    for _ in range(20):
        number = unary(session)
        session.output(ALL)
        parts = [long[at : at + 16000] for at in range(0, len(long), 16000)]
        body = message(long)[:5] + parts[0]
        data = frame(HEADERS, END_HEADERS, number, BEGIN) + frame(DATA, 0, number, body)
        data += b"".join(frame(DATA, 0, number, part) for part in parts[1:])
        data += frame(HEADERS, END_HEADERS | END_STREAM, number, WELL)
        events, at = list[Event](), 0
        while at < len(data):
            size = rnd.choice([1, 5, 300, 20_000])
            events += session.receive(data[at : at + size])
            at += size
        assert events == [(DONE, number, long)]
        session.output(ALL)


def test_a_status_has_its_text_and_its_metadata(session: NativeClientSession) -> None:
    number = unary(session)
    session.output(ALL)
    only = block(
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", "5"),
        ("grpc-message", "no %25"),
        ("grpc-status-details-bin", "AAE"),
    )
    end = end_of(session.receive(frame(HEADERS, END_HEADERS | END_STREAM, number, only)))
    assert end == End(5, b"no %25", [(b"grpc-status-details-bin", b"AAE")], [], 200, -1, 1, 0, 0)


def test_a_reply_that_is_not_as_usual_ends_with_all_that_came(session: NativeClientSession) -> None:
    def ended(body: bytes, last: bytes = WELL, begin: bytes = BEGIN) -> End:
        number = unary(session)
        session.output(ALL)
        data = frame(HEADERS, END_HEADERS, number, begin) + frame(DATA, 0, number, body)
        return end_of(session.receive(data + frame(HEADERS, END_HEADERS | END_STREAM, number, last)))

    assert ended(message(b"a") + message(b"b")).rest == [b"a", b"b"]
    assert ended(b"").rest == []
    cut = ended(message(b"a") + message(b"abc")[:6])
    assert (cut.rest, cut.is_cut) == ([b"a"], 1)
    packed = block((":status", "200"), ("content-type", "application/grpc+proto"), ("grpc-encoding", "gzip"))
    assert ended(message(b"zip", flag=1), begin=packed).rest == [(b"zip", b"gzip")]
    assert {ended(message(b"a"), block(("grpc-status", text))).status for text in ("x", "", "0000")} == {2}
    assert ended(message(b"a"), block(("x-more", "1"))).status == -1
    assert ended(message(b"a"), block(("grpc-status", "0"), ("x-more", "1"))).fields == [(b"x-more", b"1")]


def test_metadata_beyond_the_limit_is_not_kept(session: NativeClientSession) -> None:
    number = unary(session)
    session.output(ALL)
    many = block(("grpc-status", "9"), *[(f"x-{at}", "v" * 2000) for at in range(9)])
    end = end_of(session.receive(reply(number, message(b"a"), many)))
    assert (end.is_overlong, end.fields) == (1, [])


def test_what_is_no_grpc_is_not_kept(session: NativeClientSession) -> None:
    number = unary(session)
    session.output(ALL)
    page = block((":status", "502"), ("content-type", "text/html"))
    events = session.receive(frame(HEADERS, END_HEADERS, number, page) + frame(DATA, 0, number, b"<html>" * 100))
    assert (events, session.unread_bytes) == ([], 0)
    end = end_of(session.receive(frame(DATA, END_STREAM, number, b"</html>")))
    assert (end.status, end.http_status, end.is_grpc, end.rest) == (-1, 502, 0, [])


def test_a_reset_ends_a_call_with_its_code(session: NativeClientSession) -> None:
    number = unary(session)
    session.output(ALL)
    end = end_of(session.receive(frame(RESET, 0, number, (11).to_bytes(4, "big"))))
    assert (end.status, end.code) == (-1, 11)
    assert session.stream_count == 0


def test_a_server_that_leaves_ends_the_calls_that_it_does_not_take(session: NativeClientSession) -> None:
    taken, refused = unary(session), unary(session)
    session.output(ALL)
    bye = frame(GOAWAY, 0, 0, taken.to_bytes(4, "big") + bytes(4))
    events = session.receive(bye)
    assert (LEAVING, 0, None) in events
    assert end_of([event for event in events if event[0] == ENDED]).code == 7
    assert [number for kind, number, _ in events if kind == ENDED] == [refused]
    assert unary(session) == 0
    assert session.receive(reply(taken, message(b"late"))) == [(DONE, taken, b"late")]
    session.output(ALL)
    assert session.is_over


def test_messages_of_a_stream_come_when_they_are_wanted(session: NativeClientSession) -> None:
    number = stream(session, b"request")
    session.output(ALL)
    assert session.take(number) is None
    assert session.receive(frame(HEADERS, END_HEADERS, number, BEGIN)) == []
    data = message(b"one") + message(b"two") + message(b"three", flag=1)
    assert session.receive(frame(DATA, 0, number, data[:-1])) == [(MESSAGE, number, b"one")]
    assert session.take(number) == b"two"
    assert session.take(number) is None
    assert session.receive(frame(DATA, 0, number, data[-1:])) == [(MESSAGE, number, (b"three", b""))]
    session.receive(frame(DATA, 0, number, message(b"four")))
    end = end_of(session.receive(frame(HEADERS, END_HEADERS | END_STREAM, number, WELL)))
    assert (end.status, end.rest) == (0, [b"four"])
    assert session.take(number) is False


def test_a_window_is_given_back_when_a_message_is_taken() -> None:
    session = made(40_000)
    session.receive(HELLO + frame(SETTINGS, ACK, 0))
    number = stream(session, b"")
    session.output(ALL)
    parts = [message(bytes(9995)) for _ in range(4)]
    session.receive(frame(HEADERS, END_HEADERS, number, BEGIN))
    for part in parts:
        session.receive(frame(DATA, 0, number, part))
    assert number not in updates_in(session.output(ALL)), "nobody wants it yet"
    assert [session.take(number) for _ in range(2)] == [bytes(9995)] * 2
    assert updates_in(session.output(ALL))[number] == 20_000
    assert [session.take(number) for _ in range(3)] == [bytes(9995), bytes(9995), None]
    assert updates_in(session.output(ALL))[number] == 20_000
    session.receive(frame(DATA, 0, number, bytes(16384)))
    session.receive(frame(DATA, 0, number, bytes(16384)))
    session.close()


def test_a_stream_that_nobody_reads_keeps_no_other_waiting() -> None:
    session = made(1 << 20)
    session.receive(HELLO + frame(SETTINGS, ACK, 0))
    session.output(ALL)
    numbers = [stream(session, b"") for _ in range(8)]
    session.output(ALL)
    for number in numbers:
        session.receive(frame(HEADERS, END_HEADERS, number, BEGIN))
        for _ in range(63):
            session.receive(frame(DATA, 0, number, bytes(16384)))
        assert set(updates_in(session.output(ALL))) <= {0}, "that of the connection"
    assert session.unread_bytes == 8 * 63 * 16384 > 4 << 20
    session.close()


def test_a_message_beyond_the_limit_is_told_by_its_length(session: NativeClientSession) -> None:
    numbers = unary(session), stream(session, b""), stream(session, b"")
    session.output(ALL)
    assert session.take(numbers[1]) is None
    for number in numbers:
        session.receive(frame(HEADERS, END_HEADERS, number, BEGIN))
    head = b"\0\0\x20\0\0"
    assert session.receive(frame(DATA, 0, numbers[0], head)) == [(MESSAGE, numbers[0], 1 << 21)]
    assert session.receive(frame(DATA, 0, numbers[1], head)) == [(MESSAGE, numbers[1], 1 << 21)]
    session.receive(frame(DATA, 0, numbers[2], message(b"a") + head))
    assert [session.take(numbers[2]), session.take(numbers[2])] == [b"a", 1 << 21]
    end = end_of(session.receive(frame(DATA, END_STREAM, numbers[2], b"more")))
    assert end.rest == [1 << 21]


def test_what_a_server_does_not_let_in_waits_and_tells_when_it_has_gone() -> None:
    session = made()
    session.receive(frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW, 10)))
    number = stream(session)
    assert session.send(number, bytes(20)) == 25
    session.output(ALL)
    assert session.unsent_bytes == 15
    assert session.when_emptied(number)
    session.receive(frame(WINDOW_UPDATE, 0, number, (100).to_bytes(4, "big")))
    session.output(ALL)
    assert (EMPTIED, number, None) in session.events()
    assert not session.when_emptied(number)
    session.send(number, b"last")
    session.finish(number)
    assert session.send(number, b"more") == -1
    out = session.output(ALL)
    assert bodies_in(out)[number] == message(b"last")
    assert [flags & END_STREAM for kind, flags, *_ in frames_in(out) if kind == DATA][-1]
    session.close()


def test_the_end_of_a_server_that_waits_for_more_ends_the_request(session: NativeClientSession) -> None:
    number = stream(session)
    session.send(number, b"request")
    session.output(ALL)
    session.receive(frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW, 0)))
    session.send(number, b"more")
    assert end_of(session.receive(reply(number, b""))).status == 0
    assert session.send(number, b"more") == -1
    assert [kind for kind, *_ in frames_in(session.output(ALL)) if kind != SETTINGS] == [RESET]
    assert session.stream_count == 0


def test_the_end_before_all_of_a_long_request_has_gone_leaves_nothing() -> None:
    session = made()
    session.receive(frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW, 100)))
    number = unary(session, bytes(1000))
    session.output(ALL)
    session.receive(reply(number, b"", block(("grpc-status", "8"))))
    assert [kind for kind, *_ in frames_in(session.output(ALL))] == [RESET]
    assert (session.stream_count, session.unsent_bytes) == (0, 0)
    session.close()


def test_a_call_that_is_given_up_is_told_no_more(session: NativeClientSession) -> None:
    sent, unsent = unary(session), stream(session, bytes(100))
    session.output(ALL)
    queued = unary(session, bytes(1000))
    for number in (sent, unsent, queued):
        session.reset(number, 8)
    assert session.unsent_bytes == 0
    out = list(frames_in(session.output(ALL)))
    assert [(kind, number) for kind, _, number, _ in out] == [(RESET, sent), (RESET, unsent)], "and never begun"
    assert session.receive(reply(sent, message(b"late"))) == []
    assert session.events() == []
    assert session.stream_count == 0


def test_calls_beyond_what_a_server_takes_wait_and_may_be_given_up() -> None:
    session = made()
    session.receive(frame(SETTINGS, 0, 0, setting(3, 1)))
    session.output(ALL)
    first, second, third = unary(session), unary(session), unary(session)
    assert begun_in(session.output(ALL)) == [first]
    session.reset(second, 8)
    assert session.receive(reply(first, message(b"1"))) == [(DONE, first, b"1")]
    assert begun_in(session.output(ALL)) == [third]
    assert session.receive(reply(third, message(b"3"))) == [(DONE, third, b"3")]
    assert (session.stream_count, session.events()) == (0, [])
    session.close()


def test_an_interim_response_is_none(session: NativeClientSession) -> None:
    number = unary(session)
    session.output(ALL)
    interim = frame(HEADERS, END_HEADERS, number, block((":status", "103")))
    assert session.receive(interim + reply(number, message(b"a"))) == [(DONE, number, b"a")]


def test_pings_are_answered_and_sent(session: NativeClientSession) -> None:
    session.receive(frame(PING, 0, 0, b"abcdefgh"))
    assert list(frames_in(session.output(ALL))) == [(PING, ACK, 0, b"abcdefgh")]
    session.ping()
    assert list(frames_in(session.output(ALL))) == [(PING, 0, 0, bytes(8))]


def test_what_is_no_http_ends_the_connection() -> None:
    session = made()
    with suppress(ConnectionError):
        session.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
    session.output(ALL)
    assert session.is_over
    session.close()


def test_arguments_that_cannot_be_are_refused(session: NativeClientSession) -> None:
    wrong: Any = "text"
    with pytest.raises(TypeError):
        session.open(wrong, None, None, None, True)
    with pytest.raises(TypeError):
        session.open(b"/s/Get", None, [(b"a",)], None, True)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        session.send(stream(session), wrong)
    with pytest.raises(TypeError):
        session.take(wrong)
