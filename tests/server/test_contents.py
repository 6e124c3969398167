"""What a request may hold: nothing on the wire makes a server hold many times the bytes that it was sent."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError, Message
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.contract import LEVELS_MAX
from pequod_server import ServerConfig
from pequod_server.freshness import demands
from pequod_server.memory.admission import SMALL_BYTES
from pequod_server.wire.contents import BOUNDS, NOT_KNOWN_MAX, Contents, may_be_many
from pequod_server.wire.undecodable import request_type

from pequod.commands.kinds import GET, PUT, SCAN
from pequod.engine import PequodError
from pequod.errors import BadRequestError, LimitExceededError
from tests.server.serving import connect, serving

METHODS = [
    f"/{service.full_name}/{method.name}"
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
CONFIG = ServerConfig(listen="127.0.0.1:0")
MIB = 1 << 20


def types_in(descriptor: Any) -> Iterator[Any]:
    yield descriptor
    for field in descriptor.fields:
        if field.message_type is not None:
            yield from types_in(field.message_type)


def varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def sized(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


@pytest.mark.parametrize("method", METHODS)
def test_all_that_may_be_many_in_a_request_has_a_bound(method: str) -> None:
    message_type = request_type(method)
    many = [
        (one.name, field.name)
        for one in types_in(message_type.DESCRIPTOR)
        for field in one.fields
        if may_be_many(field)
    ]
    assert all(name in BOUNDS.get(type_name, {}) for type_name, name in many)
    assert Contents(message_type, CONFIG)
    if many:
        with pytest.raises(LookupError, match=many[0][1]):
            Contents(message_type, CONFIG, {})


def test_no_bound_is_of_a_field_that_is_not_there() -> None:
    for name, fields in BOUNDS.items():
        assert set(fields) <= set(pb.DESCRIPTOR.message_types_by_name[name].fields_by_name)


def entry_of(field: Any) -> bytes:
    """Return an entry of a column, as short as can be: a number in a column of one, or nothing."""
    return sized(field.number, b"\1" if field.is_packed else b"")


#: Columns of single bytes, whose entries are not empty.
BYTES = {("ExecuteRequest", "kinds"), ("CommandColumns", "kinds"), ("TransactionRequest", "compare_operators")}
#: Entries of each column of each request, plain, packed and in a message of its own; and of no known field.
FULL: list[tuple[type[Message], bytes]] = [
    *[
        (getattr(pb, name), entry_of(getattr(pb, name).DESCRIPTOR.fields_by_name[column]))
        for name, columns in BOUNDS.items()
        for column in columns
        if (name, column) not in BYTES and name not in ("PeerFeedHello", "ExplainRequest", "InvalidateRequest")
    ],
    (pb.ExecuteRequest, b"\x20\1"),
    (pb.TransactionRequest, sized(2, bytes(1000))),
    (pb.TransactionRequest, sized(4, sized(1, bytes(1000)))),
    (pb.TransactionRequest, sized(4, b"") + sized(5, sized(2, b""))),
    (pb.ExecuteRequest, sized(4, bytes(1000))),
    (pb.ExecuteRequest, sized(6, bytes(1000))),
    (pb.LoadBackfillRequest, sized(10, bytes(1000))),
    (pb.PeerFeedRequest, sized(1, sized(6, b""))),
    (pb.ExplainRequest, sized(1, b"") + sized(2, b"")),
    (pb.GetRequest, sized(100, b"")),
    (pb.GetRequest, b"\xa3\x06\xa4\x06"),
    (pb.GetRequest, sized(2, b"\x40\1") + b"\x40\1"),
]


@pytest.mark.parametrize(("message_type", "entry"), FULL)
def test_a_request_with_too_many_entries_is_refused(message_type: type[Message], entry: bytes) -> None:
    message = entry * (2 * MIB // len(entry))
    assert message_type.FromString(message), "protobuf takes it"
    with pytest.raises((LimitExceededError, BadRequestError)):
        Contents(message_type, CONFIG).message(message)


def test_entries_up_to_the_bound_are_taken() -> None:
    count = CONFIG.batch_commands_max
    batch = pb.ExecuteRequest(
        kinds=bytes([SCAN]) * count, arguments=[b""] * 2 * count, fresh_levels=[pb.Freshness(latest=True)] * count
    )
    assert Contents(pb.ExecuteRequest, CONFIG).message(batch.SerializeToString()) == batch
    keys = pb.MultiGetRequest(keys=[b"k"] * count)
    assert Contents(pb.MultiGetRequest, CONFIG).message(keys.SerializeToString()) == keys
    later = pb.GetRequest.FromString(sized(100, b"k" * 20_000) + sized(101, b"") * 100)
    assert Contents(pb.GetRequest, CONFIG).message(later.SerializeToString()) == later


def test_a_refusal_names_the_column_and_its_bound() -> None:
    count = CONFIG.batch_commands_max
    for message, refusal in (
        (pb.MultiGetRequest(keys=[b"k"] * (count + 1)), "batch_commands_max is 100000, and this needs 100001"),
        (pb.ExecuteRequest(kinds=bytes(count + 9)), "batch_commands_max is 100000, and this needs 100009"),
        (pb.ExecuteRequest(kinds=b"\1" * 8, numbers=[1] * SMALL_BYTES), "numbers .* more than the 8 kinds"),
        (pb.PeerLoadRequest(next=[pb.PeerNextGroups()] * 20_000), "next may have 16384 entries"),
    ):
        with pytest.raises(PequodError, match=refusal):
            Contents(type(message), CONFIG).message(message.SerializeToString())
    with pytest.raises(BadRequestError, match=f"more than {NOT_KNOWN_MAX} fields"):
        Contents(pb.GetRequest, CONFIG).message(sized(100, b"") * (NOT_KNOWN_MAX + 1))
    with pytest.raises(DecodeError):
        Contents(pb.GetRequest, CONFIG).message(sized(100, b"") * SMALL_BYTES + b"\x0f")


def peak_bytes() -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


#: As many empty messages, each of two bytes, as a message of 4 MiB holds; protobuf and Python make 480 MiB of them.
EMPTY_MESSAGES = b"\x3a\0" * (2 * MIB - 1000)


@pytest.mark.parametrize(
    "method", ["/pequod.v1.Pequod/Execute", "/pequod.v1.PequodPeer/Load", "/pequod.v1.PequodPeer/Loads"]
)
async def test_a_message_of_empty_messages_takes_no_more_than_its_bytes(method: str) -> None:
    async with serving(CONFIG) as port, connect(port) as typed:
        channel: Any = typed
        assert await channel.unary_unary("/pequod.v1.Pequod/Get")(b"")
        forget_peak()
        before_bytes = peak_bytes()
        call = channel.stream_stream(method)()
        await call.write(EMPTY_MESSAGES)
        await call.done_writing()
        with pytest.raises(aio.AioRpcError) as refused:
            while await call.read() is not aio.EOF:
                pass
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "entries" in (refused.value.details() or "")
        # Copies in gRPC's buffers of client and server, which are both here.
        assert peak_bytes() - before_bytes < 64 * MIB


async def test_a_batch_asks_for_a_bounded_number_of_different_levels() -> None:
    async with serving(CONFIG) as port, connect(port) as typed:
        channel: Any = typed
        for count, code in ((LEVELS_MAX, grpc.StatusCode.OK), (LEVELS_MAX + 1, grpc.StatusCode.INVALID_ARGUMENT)):
            request = pb.ExecuteRequest(
                kinds=bytes([GET]) * (count + 1),
                arguments=[b"k"] * (count + 1),
                fresh_commands=range(count + 1),
                fresh_levels=[pb.Freshness(max_age_ms=max(number, 1)) for number in range(count + 1)],
            )
            call = channel.stream_stream("/pequod.v1.Pequod/Execute")(iter([request.SerializeToString()]))
            with contextlib.suppress(aio.AioRpcError):
                await call.read()
                assert await call.read() is aio.EOF
            assert await call.code() is code


async def test_no_level_is_kept_that_is_longer_than_any_has_to_be() -> None:
    demands._known.cache_clear()
    async with serving(CONFIG) as port, connect(port) as typed:
        channel: Any = typed
        call = channel.stream_stream("/pequod.v1.Pequod/Execute")()
        for number in range(3):
            # Said again and again, which protobuf takes for once.
            level = pb.Freshness(latest=True).SerializeToString() * (MIB + number)
            request = pb.ExecuteRequest(kinds=bytes([PUT, GET]), arguments=[b"k", b"v", b"k"]).SerializeToString()
            await call.write(request + sized(5, level))
            assert pb.ExecuteReply.FromString(await call.read()).values == [b"v"]
        await call.done_writing()
    assert demands._known.cache_info().currsize == 0
