"""Batches of clients natively and by protobuf: the same bytes, and the same results or none natively."""

import sys
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from pequod_proto.pequod_pb2 import CommandError, ExecuteReply

from pequod.client.columns import Columns, Reply, decode_reply
from pequod.commands.kinds import (
    ABSENT,
    COUNT,
    FAILED,
    GET,
    GIVES,
    KINDS,
    OK,
    PART,
    PUT,
    SCAN,
    UNMET,
    Gives,
)
from pequod.engine import Rows
from tests.native.core import hot

COMMANDS = st.lists(st.sampled_from([kind.code for kind in KINDS]), max_size=8).map(bytes)
#: By what a command gives, the statuses that it may have beside that it is done.
STATUSES = {Gives.VALUE: [ABSENT], Gives.WAS_THERE: [ABSENT], Gives.MET: [ABSENT, UNMET]}
BYTES = st.binary(max_size=6) | st.binary(min_size=120, max_size=140)
NUMBERS = st.integers(0, 5) | st.integers(0, 2**64 - 1)


@given(st.integers(0, 2**64 - 1), COMMANDS, st.lists(BYTES, max_size=8), st.lists(NUMBERS, max_size=8))
def test_a_request_has_the_bytes_of_protobuf(
    batch: int, kinds: bytes, arguments: list[bytes], numbers: list[int]
) -> None:
    columns = Columns()
    columns.kinds, columns.arguments, columns.numbers = bytearray(kinds), arguments, numbers
    encoded = hot.encode_request(batch, columns.kinds, arguments, numbers)
    assert encoded == columns.message(batch).SerializeToString()


@pytest.mark.parametrize(
    "columns", [(-1, b"", [], []), (2**64, b"", [], []), (0, b"", [None], []), (0, b"", ["a"], []), (0, b"", [], [-1])]
)
def test_a_request_that_protobuf_refuses_is_refused(columns: tuple[int, bytes, list[bytes], list[int]]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        hot.encode_request(*columns)


@st.composite
def replies(draw: st.DrawFn) -> tuple[bytes, ExecuteReply]:
    """Return kinds, and a reply that fits them."""
    kinds = draw(COMMANDS)
    reply = ExecuteReply(batch=draw(NUMBERS), server_id=draw(NUMBERS), revision=draw(NUMBERS))
    statuses = bytearray()
    for kind in kinds:
        gives = GIVES[kind]
        statuses.append(draw(st.sampled_from([OK, *STATUSES.get(gives, [])])))
        if statuses[-1] == UNMET or (gives is Gives.VALUE and statuses[-1] == OK):
            reply.values.append(draw(BYTES))
        elif gives is Gives.COUNT or (gives is Gives.REMAINING and statuses[-1] == OK):
            reply.counts.append(draw(NUMBERS))
        elif gives is Gives.ROWS:
            rows = draw(st.lists(st.tuples(BYTES, BYTES), max_size=3))
            reply.counts.append(len(rows))
            reply.keys.extend(key for key, _ in rows)
            reply.values.extend(value for _, value in rows)
    reply.statuses = bytes(statuses)
    reply.token = draw(BYTES)
    if draw(st.booleans()):
        reply.age_ms = draw(NUMBERS)
    return kinds, reply


@given(replies())
@example((bytes([PUT]), ExecuteReply(batch=2, statuses=bytes([OK]), server_id=7)))
def test_a_reply_that_fits_is_taken_apart(drawn: tuple[bytes, ExecuteReply]) -> None:
    kinds, reply = drawn
    native = hot.decode_whole(kinds, reply.SerializeToString())
    python = decode_reply(kinds, reply)
    if any(GIVES[kind] is Gives.REMAINING for kind in kinds):
        assert native is None, "Python makes the time that a key has left"
        return
    assert native == python
    assert type(native) is Reply
    assert [type(result) for result in native.results] == [type(result) for result in python.results]
    assert [type(result) for result in native.results] == [
        type(result) for result in decode_reply(kinds, reply).results
    ]


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Return kinds, and a reply with bytes changed, taken out, put in, and another one behind it."""
    kinds, reply = draw(replies())
    if draw(st.booleans()):
        reply.more = draw(st.booleans())
        statuses = [OK, ABSENT, FAILED, PART, UNMET, 7]
        reply.statuses = bytes(draw(st.lists(st.sampled_from(statuses), min_size=len(kinds), max_size=len(kinds))))
        reply.errors.extend(CommandError(code=3) for _ in range(draw(st.integers(0, 2))))
    message = bytearray(reply.SerializeToString())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(message)))
        message[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    kinds = draw(st.just(kinds) | COMMANDS | st.binary(max_size=3))
    return kinds, bytes(message) + draw(st.just(b"") | replies().map(lambda drawn: drawn[1].SerializeToString()))


@given(messages())
@example((b"", b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
@example((b"\x07", b"\x12\x01\x00\x2a\x80\x80\x80\x80\x10"))
@example((b"\x04", b"\x12\x01\x00\x2a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
@example((b"", b"\x39\x00"))
@example((b"", b"\x08"))
def test_any_bytes_are_taken_apart_as_python_does_it_or_left_to_it(drawn: tuple[bytes, bytes]) -> None:
    kinds, message = drawn
    native = hot.decode_whole(kinds, message)
    if native is None:
        return
    try:
        reply = ExecuteReply.FromString(message)
    except DecodeError:
        pytest.fail("protobuf refuses it")
    assert not reply.more
    assert native == decode_reply(kinds, reply)


def test_no_reference_is_kept() -> None:
    kinds = bytes([GET, SCAN, PUT, COUNT])
    reply = ExecuteReply(batch=1, statuses=bytes(4), keys=[b"k" * 50], values=[b"v" * 50, b"w" * 50], counts=[1, 7])
    message = reply.SerializeToString()
    key, number = b"k" * 60, 1 << 50
    arguments = [key, key]
    calls: list[Callable[[], object]] = [
        lambda: hot.decode_whole(kinds, message),
        lambda: hot.decode_whole(kinds, message[:-3]),
        lambda: hot.decode_whole(kinds, b"\x0f"),
        lambda: hot.encode_request(1, kinds, arguments, [number]),
    ]
    before = [sys.getrefcount(one) for one in (kinds, message, key, number, Rows, Reply, None)]
    blocks = sys.getallocatedblocks()
    for _ in range(200):
        for call in calls:
            call()
    after = [sys.getrefcount(one) for one in (kinds, message, key, number, Rows, Reply, None)]
    assert all(abs(late - early) < 50 for early, late in zip(before, after, strict=True))
    assert sys.getallocatedblocks() - blocks < 100
