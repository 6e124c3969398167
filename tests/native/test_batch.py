"""Native batches beside protobuf: of any bytes both read the same, or the native one leaves them to protobuf."""

import hypothesis.strategies as st
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from pequod_proto.pequod_pb2 import CommandError, ExecuteReply, ExecuteRequest
from pequod_server.access.grants import KeyRanges
from pequod_server.steps.executor import check_columns

from pequod.commands.columns import commands
from pequod.commands.kinds import (
    ARGUMENT_COUNTS,
    COUNT,
    DECIDED,
    GET,
    NAMES,
    NUMBER_COUNTS,
    PUT,
    RANGES,
    REMOVE,
    SCAN,
    SCAN_DOWN,
    SCAN_LIMIT,
    WRITES,
)
from pequod.engine import Engine
from pequod.errors import BadRequestError
from tests.native.core import hot

ENOUGH = 1 << 30
BYTES = st.binary(max_size=6) | st.binary(min_size=120, max_size=140)
NUMBERS = st.integers(0, 5) | st.integers(0, 2**64 - 1)


@st.composite
def requests(draw: st.DrawFn) -> ExecuteRequest:
    kinds = draw(st.lists(st.sampled_from(sorted(NAMES)), max_size=8))
    return ExecuteRequest(
        batch=draw(NUMBERS),
        kinds=bytes(kinds),
        arguments=[draw(BYTES) for kind in kinds for _ in range(ARGUMENT_COUNTS[kind])],
        numbers=[draw(NUMBERS) for kind in kinds for _ in range(NUMBER_COUNTS[kind])],
        trace_parent=draw(BYTES),
        trace_state=draw(BYTES),
    )


def parse(message: bytes) -> "hot.Batch | None":
    return hot.Batch.parse(message, 100, 1000, ENOUGH)


def read(batch: "hot.Batch", count: int) -> tuple[list[bytes], list[int]]:
    """Step through a batch; return the columns of its request as it reads them."""
    arguments, numbers = list[bytes](), list[int]()
    for kind in batch.kinds[:count]:
        command = batch.command()
        assert command[0] == kind
        arguments += [command[1], command[2], command[4]][: ARGUMENT_COUNTS[kind]]
        numbers += [command[3], command[5]][: NUMBER_COUNTS[kind]]
        batch.done()
    return arguments, numbers


@given(requests())
def test_every_request_that_fits_is_read(request: ExecuteRequest) -> None:
    batch = parse(request.SerializeToString())
    assert batch is not None
    assert batch.kinds == request.kinds
    assert read(batch, len(request.kinds)) == (list(request.arguments), list(request.numbers))
    assert (batch.trace_parent, batch.trace_state) == (request.trace_parent, request.trace_state)
    with pytest.raises(IndexError):
        batch.command()
    reply = ExecuteReply.FromString(batch.reply(2**63 - 1, 12))
    expected = ExecuteReply(batch=request.batch, statuses=bytes(len(request.kinds)), server_id=2**63 - 1, revision=12)
    assert reply == expected
    rest = ExecuteReply(more=True).SerializeToString()
    expected.more = True
    assert ExecuteReply.FromString(batch.reply(2**63 - 1, 12, rest)) == expected
    for wrong in ((), (1,), (1, 2, "text"), (1, 2, rest, rest)):
        with pytest.raises(TypeError, match="reply takes the server's id"):
            batch.reply(*wrong)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Requests with bytes changed, taken out, put in, and others behind them."""
    message = bytearray(draw(requests()).SerializeToString())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(message)))
        message[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(message) + draw(st.just(b"") | requests().map(ExecuteRequest.SerializeToString))


@given(messages())
@example(b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(b"\x1a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02")
@example(b"\x08")
def test_any_bytes_are_read_as_protobuf_reads_them_or_left_to_it(message: bytes) -> None:
    batch = parse(message)
    try:
        request = ExecuteRequest.FromString(message)
        check_columns(request.kinds, len(request.arguments), len(request.numbers))
    except (DecodeError, BadRequestError):
        assert batch is None
        return
    if batch is None:
        return
    assert batch.kinds == request.kinds
    assert read(batch, len(request.kinds)) == (list(request.arguments), list(request.numbers))
    assert (batch.trace_parent, batch.trace_state) == (request.trace_parent, request.trace_state)
    assert ExecuteReply.FromString(batch.reply(1, 1)).batch == request.batch


KEYS = st.text(alphabet="abc\0", max_size=3).map(str.encode)
SOME_RANGES = st.lists(KEYS, max_size=3).map(KeyRanges)


@given(st.lists(st.sampled_from(sorted(NAMES)), max_size=4), st.data(), SOME_RANGES, SOME_RANGES)
def test_a_batch_keeps_to_ranges_where_each_of_its_commands_does(
    kinds: list[int], data: st.DataObject, readable: KeyRanges, writable: KeyRanges
) -> None:
    arguments = [data.draw(KEYS) for kind in kinds for _ in range(ARGUMENT_COUNTS[kind])]
    numbers = [0 for kind in kinds for _ in range(NUMBER_COUNTS[kind])]
    request = ExecuteRequest(kinds=bytes(kinds), arguments=arguments, numbers=numbers)
    batch = parse(request.SerializeToString())
    assert batch is not None
    expected = [
        readable.covers(first, last or None)
        if kind in RANGES
        else (kind not in WRITES or writable.holds(first)) and (kind in WRITES - DECIDED or readable.holds(first))
        for _, kind, first, last in commands(request.kinds, arguments)
    ]
    assert batch.is_within(readable.bounds, writable.bounds) == all(expected)


def outcomes(kind: int) -> st.SearchStrategy[object]:
    failure = st.builds(CommandError, code=st.integers(0, 16), message=st.text(max_size=5))
    if kind in (PUT, REMOVE):
        return failure | st.booleans()
    if kind == GET:
        return failure | st.none() | BYTES
    if kind == COUNT:
        return failure | NUMBERS
    return failure | st.lists(st.tuples(BYTES, BYTES), max_size=4)


@given(st.data())
def test_a_reply_holds_what_came_of_the_commands(data: st.DataObject) -> None:
    request = data.draw(requests())
    batch = parse(request.SerializeToString())
    assert batch is not None
    statuses, expected = bytearray(len(request.kinds)), ExecuteReply(batch=request.batch, server_id=1, revision=2)
    for at, kind in enumerate(request.kinds):
        match data.draw(outcomes(kind)):
            case CommandError() as error:
                assert batch.failed(error.SerializeToString())
                expected.errors.append(error)
                statuses[at] = 2
            case bool(is_there):
                if is_there:
                    batch.done()
                else:
                    batch.absent()
                statuses[at] = not is_there
            case None:
                batch.absent()
                statuses[at] = 1
            case bytes(value):
                assert batch.value(value)
                expected.values.append(value)
            case int(count):
                batch.count(count)
                expected.counts.append(count)
            case list(rows):
                keys, values = [key for key, _ in rows], [value for _, value in rows]
                assert batch.rows(keys, values)
                expected.keys.extend(keys)
                expected.values.extend(values)
                expected.counts.append(len(rows))
    expected.statuses = bytes(statuses)
    assert ExecuteReply.FromString(batch.reply(1, 2)) == expected
    assert batch.row_count == len(expected.keys)


@given(st.lists(st.binary(max_size=600), min_size=1, max_size=8))
def test_a_reply_that_is_given_out_stays_as_it_is(values: list[bytes]) -> None:
    request = ExecuteRequest(batch=1, kinds=bytes([GET]) * len(values), arguments=[b"k"] * len(values))
    batch = parse(request.SerializeToString())
    assert batch is not None
    replies = []
    for value in values:
        assert batch.value(value)
        replies.append(batch.reply(1, 2))
    for count, reply in enumerate(replies, 1):
        assert list(ExecuteReply.FromString(reply).values) == values[:count]


def test_a_reply_that_has_no_room_takes_nothing_more() -> None:
    request = ExecuteRequest(kinds=bytes([SCAN, GET, PUT]), arguments=[b"a", b"b", b"c", b"d", b"e"])
    batch = hot.Batch.parse(request.SerializeToString(), 3, 1000, 30)
    assert batch is not None
    assert not batch.rows([b"a", b"b"], [b"1234567", b"7654321"]), "16 bytes each"
    assert batch.rows([b"a"], [b"1234567"])
    assert not batch.value(b"1234567"), "14 bytes are left"
    assert batch.value(b"123456")
    assert batch.room == 0
    assert not batch.failed(b"")
    reply = ExecuteReply.FromString(batch.reply(0, 0))
    assert (list(reply.keys), list(reply.values), reply.statuses) == ([b"a"], [b"1234567", b"123456"], b"\0\0\2")


@pytest.mark.parametrize("kind", [SCAN_LIMIT, SCAN_DOWN])
def test_a_batch_that_is_refused_is_left_to_python(kind: int) -> None:
    request = ExecuteRequest(kinds=bytes([kind]), arguments=[b"", b""], numbers=[3])
    message = request.SerializeToString()
    assert hot.Batch.parse(message, 1, 1, 1) is not None
    assert hot.Batch.parse(message, 0, 1, 1) is None, "too many commands"
    assert hot.Batch.parse(message, 1, 1, 0) is None, "no room for a reply"
    assert parse(ExecuteRequest(kinds=bytes([kind]), arguments=[b"", b""]).SerializeToString()) is None
    assert parse(ExecuteRequest(kinds=bytes([max(NAMES) + 1]), arguments=[b""]).SerializeToString()) is None
    with pytest.raises(TypeError):
        hot.Batch.parse(bytearray(message), 1, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        hot.Batch()


def test_a_batch_runs_on_an_engine_at_a_time_and_on_nothing_else() -> None:
    batch = parse(ExecuteRequest(kinds=bytes([PUT]), arguments=[b"a|1", b"one"]).SerializeToString())
    assert batch is not None
    engine, nothing = Engine(), object()
    engine.put(b"a|0", b"zero")
    wrong: list[tuple[object, ...]] = [(), (engine,), (engine, 1.0, 2.0), (nothing, 1.0), (1.0, engine)]
    for arguments in wrong:
        with pytest.raises(TypeError, match="run takes an engine and the time"):
            batch.run(*arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be real number"):
        batch.run(engine, "now")  # type: ignore[arg-type]
    assert (engine.revision, engine.get(b"a|1")) == (1, None)
    assert not batch.run(engine, 1.0)
    assert engine.get(b"a|1") == b"one"
