"""Damaged messages: what protobuf refuses is refused before any command runs, and counted as protobuf reads it.

Messages are changed at random, with a seed: their bytes, and how tags, lengths and numbers are written.
"""

from random import Random
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from pequod_proto import pequod_pb2 as pb
from pequod_server import ServerConfig
from pequod_server.steps.executor import Executor
from pequod_server.steps.quick import run_quick
from pequod_server.wire.contents import Contents
from pequod_server.wire.tally import BYTES, FIELDS, MESSAGE, _CountedMessage, _DamagedError, _TooManyError

from pequod.commands.kinds import COUNT, GET, PUT, REMOVE, SCAN, SCAN_LIMIT
from pequod.engine import Engine, PequodError
from pequod.native import core, parse_batch

CONFIG = ServerConfig(listen="127.0.0.1:0")
MESSAGES = 24_000
#: Each of these, where it is written at more than its shortest length: 5 bytes is what protobuf takes of a length.
LENGTHS: tuple[int | None, ...] = (None, None, None, None, 2, 5, 6, 10, 11)
#: The same where there are many, so that one in three messages has a length that protobuf refuses.
FEW_LENGTHS: tuple[int | None, ...] = (None,) * 60 + (2, 5, 5, 5, 6, 10, 11)
#: Messages whose fields are of all kinds, and in one another; none has strings, the one thing that is not looked at.
TYPES: list[type[Message]] = [
    pb.ExecuteRequest,
    pb.PeerLoadRequest,
    pb.GetRequest,
    pb.MultiGetRequest,
    pb.PeerWriteRequest,
]


def varint(draw: Random, number: int, lengths: tuple[int | None, ...] = LENGTHS) -> bytes:
    """Write a number, now and then with more bytes than it needs."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    length = draw.choice(lengths)
    while length is not None and len(data) < length:
        data[-1] |= 0x80
        data.append(draw.choice((0, 0, 0, 1, 2)) if len(data) == 9 else 0)
    return bytes(data)


def field(draw: Random, depth: int = 0) -> bytes:
    """Write a field that may be known or not, right or not."""
    number = draw.choice((0, *range(1, 10), *range(1, 10), 12, 31, 32, 100, (1 << 29) - 1, 1 << 29))
    wire = draw.choice((0, 0, 1, 2, 2, 2, 2, 3, 4, 5, 6, 7))
    tag = varint(draw, number << 3 | wire)
    if wire == 0:
        return tag + varint(draw, draw.choice((0, 1, 5, 127, 128, (1 << 32) - 1, 1 << 32, (1 << 64) - 1)))
    if wire == 1:
        return tag + draw.randbytes(8)
    if wire == 2:
        inside = b"".join(field(draw, depth + 1) for _ in range(draw.randrange(3))) if depth < 3 else draw.randbytes(3)
        size = len(inside) + draw.choice((0,) * 12 + (1, (1 << 31) - 1, 1 << 32))
        return tag + varint(draw, size) + inside
    if wire == 3:
        inside = b"".join(field(draw, depth + 1) for _ in range(draw.randrange(2))) if depth < 3 else b""
        groups = draw.choice((1,) * 8 + (99, 100, 101))
        return tag * groups + inside + varint(draw, number << 3 | 4, (None,)) * groups
    return tag + draw.randbytes(4 if wire == 5 else 0)


def batch_of(draw: Random) -> list[bytes]:
    """Return the fields of a batch that writes, and may read more than a reply has room for."""
    kinds = bytes(draw.choice((PUT, PUT, REMOVE, GET, COUNT, SCAN, SCAN_LIMIT)) for _ in range(draw.randrange(1, 5)))
    kinds = bytes([PUT]) + kinds
    arguments = [b"k|%d" % draw.randrange(9) for kind in kinds for _ in range(1 if kind in (GET, REMOVE) else 2)]
    arguments = [b"" if draw.random() < 0.1 else one for one in arguments]
    fields = [
        b"\x12" + varint(draw, len(kinds), FEW_LENGTHS) + kinds,
        *[b"\x1a" + varint(draw, len(one), FEW_LENGTHS) + one for one in arguments],
        *[b"\x20" + varint(draw, draw.randrange(3), FEW_LENGTHS) for kind in kinds if kind == SCAN_LIMIT],
    ]
    if draw.random() < 0.3:
        fields.insert(draw.randrange(len(fields) + 1), b"\x08" + varint(draw, draw.randrange(300), FEW_LENGTHS))
    if draw.random() < 0.2:
        fields.append(b"\x42" + varint(draw, 2, FEW_LENGTHS) + b"00")
    if draw.random() < 0.1:
        fields.append(b"\x2a" + varint(draw, 2, FEW_LENGTHS) + b"\x10\x01")
    return fields


def message_of(draw: Random) -> bytes:
    """Return the bytes of a batch that were changed, or fields of any kind."""
    kind = draw.random()
    if kind < 0.2:
        return b"".join(field(draw) for _ in range(draw.randrange(4)))
    fields = batch_of(draw)
    if kind < 0.6:
        return b"".join(fields)
    if kind < 0.75:
        fields.insert(draw.randrange(len(fields) + 1), field(draw))
    message = bytearray(b"".join(fields))
    if kind < 0.9:
        for _ in range(draw.randrange(1, 3)):
            at = draw.randrange(len(message))
            message[at : at + draw.randrange(2)] = draw.choice((b"", draw.randbytes(1), b"\x80", b"\xff"))
        return bytes(message)
    return bytes(message[: draw.randrange(len(message))])


def taken(message_type: type[Message], message: bytes) -> Any:
    try:
        return message_type.FromString(message)
    except DecodeError:
        return None


def test_the_native_core_takes_no_message_that_protobuf_refuses() -> None:
    draw, accepted, refused = Random(38), 0, 0
    for _ in range(MESSAGES):
        message = message_of(draw)
        batch, request = parse_batch(message, 100, 1000, 1 << 20), taken(pb.ExecuteRequest, message)
        refused += request is None
        if batch is None:
            continue
        assert request is not None, message.hex()
        assert batch.kinds == request.kinds, message.hex()
        assert [batch.argument(at) for at in range(batch.argument_count)] == request.arguments, message.hex()
        assert (batch.trace_parent, batch.trace_state) == (request.trace_parent, request.trace_state)
        accepted += 1
    assert refused > MESSAGES // 8, "enough are damaged"
    assert core is None or accepted > MESSAGES // 8, "enough are not"


def test_a_message_that_is_refused_has_applied_nothing() -> None:
    draw, engine, refused, applied = Random(6), Engine(), 0, 0
    # So small that nearly each batch which reads comes to its end in Python, from the message that protobuf reads.
    executor = Executor(engine, 1, commands_max=100, reply_bytes_max=20, rows_max=2)
    contents = Contents(pb.ExecuteRequest, CONFIG)
    for number in range(9):
        engine.put(b"k|%d" % number, b"")
    for _ in range(MESSAGES):
        message, before = message_of(draw), engine.revision
        try:
            if run_quick(executor, message) is None:
                executor.execute(contents.message(message))
        except (DecodeError, PequodError):
            assert engine.revision == before, message.hex()
            refused += 1
        else:
            assert taken(pb.ExecuteRequest, message) is not None, message.hex()
            applied += engine.revision > before
    engine._check()
    assert min(refused, applied) > MESSAGES // 8


def counted(contents: Contents, message: bytes) -> list[int] | None:
    """Count with the twin in Python."""
    found = _CountedMessage(message, contents._layout, contents._most)
    try:
        found.count(0, len(message), 0, 0)
    except _DamagedError:
        return None
    except _TooManyError:
        pass
    return found.counts


@pytest.mark.parametrize("message_type", TYPES)
def test_a_message_is_counted_if_and_only_if_protobuf_takes_it(message_type: type[Message]) -> None:
    draw, contents, accepted = Random(1), Contents(message_type, CONFIG), 0
    for _ in range(MESSAGES // len(TYPES)):
        message = b"".join(field(draw) for _ in range(draw.randrange(4))) if draw.random() < 0.6 else message_of(draw)
        counts, request = contents.counts(message), taken(message_type, message)
        assert (counts is None) == (request is None), message.hex()
        assert counts == counted(contents, message), message.hex()
        if counts is not None and request is not None:
            accepted += 1
            columns = [len(getattr(request, name)) for name, _ in contents.columns]
            assert counts[1:] == columns, message.hex()
    assert accepted > MESSAGES // len(TYPES) // 8


@pytest.mark.skipif(core is None, reason="it is of the native core")
def test_what_is_counted_by_is_of_these_types() -> None:
    assert core is not None
    layout = bytes(16)
    wrong: list[tuple[object, ...]] = [
        (),
        (b"", layout),
        ("", layout, (1,)),
        (bytearray(), layout, (1,)),
        (b"", bytearray(layout), (1,)),
        (b"", layout, [1]),
        (b"", layout, (1,) * 1000),
    ]
    for arguments in wrong:
        with pytest.raises(TypeError, match="tally takes a message, a layout, and a tuple"):
            core.tally(*arguments)


@pytest.mark.skipif(core is None, reason="it is of the native core")
def test_a_layout_that_leads_out_of_itself_or_round_is_refused() -> None:
    assert core is not None
    plain = bytes([BYTES, 1, 0]) * FIELDS
    # A message of that type within a message.
    message, other = b"\x3a\x02\x3a\x00", b"\x3a\x02\x0a\x00"

    def holding(shape: int, slot: int, kind: int) -> bytes:
        return plain[: 7 * 3] + bytes([shape, slot, kind]) + plain[8 * 3 :]

    assert core.tally(other, holding(MESSAGE, 1, 1) + plain, (9, 9)) == [0, 2]
    for layout in (
        holding(MESSAGE, 1, 0) + plain,
        plain + holding(MESSAGE, 1, 1),
        plain + holding(MESSAGE, 1, 0),
        holding(MESSAGE, 1, 2) + plain,
        plain + holding(BYTES, 1, 2),
        holding(BYTES, 2, 0),
        b"",
    ):
        with pytest.raises(ValueError, match="the layout is damaged"):
            core.tally(message, layout, (9, 9))
