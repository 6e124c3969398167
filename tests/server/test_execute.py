"""Batches as columns: what each kind takes and gives, and what is refused."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer, ServerConfig

from pequod.commands.kinds import ABSENT, COUNT, FAILED, GET, OK, PART, PUT, REMOVE, SCAN, SCAN_DOWN, SCAN_LIMIT
from tests.server.plain import outcomes_of, pieces_of


async def _pieces(
    stub: Any, kinds: bytes, arguments: list[bytes], numbers: tuple[int, ...] = ()
) -> list[pb.ExecuteReply]:
    call = stub.Execute()
    pieces = await pieces_of(call, pb.ExecuteRequest(batch=7, kinds=kinds, arguments=arguments, numbers=numbers))
    await call.done_writing()
    assert await call.read() is aio.EOF
    return pieces


async def _execute(
    stub: Any, kinds: list[int], arguments: list[bytes], numbers: tuple[int, ...] = ()
) -> pb.ExecuteReply:
    (reply,) = await _pieces(stub, bytes(kinds), arguments, numbers)
    return reply


async def test_every_kind_of_command_is_answered(stub: Any, server: PequodServer) -> None:
    kinds = [PUT, PUT, PUT, GET, GET, SCAN, SCAN, SCAN_LIMIT, SCAN_DOWN, SCAN_DOWN, COUNT, COUNT, REMOVE, REMOVE]
    arguments = [b"a", b"1", b"b", b"2", b"c", b"3", b"b", b"no", b"a", b"c", b"b", b""]
    arguments += [b"", b"", b"", b"", b"", b"c", b"a", b"c", b"", b"", b"a", b"a"]
    reply = await _execute(stub, kinds, arguments, (2, 1, 0))
    assert list(reply.statuses) == [OK, OK, OK, OK, ABSENT, OK, OK, OK, OK, OK, OK, OK, OK, ABSENT]
    assert list(reply.counts) == [2, 2, 2, 1, 2, 2, 3]
    assert list(reply.keys) == [b"a", b"b", b"b", b"c", b"a", b"b", b"c", b"b", b"a"]
    assert list(reply.values) == [b"2", b"1", b"2", b"2", b"3", b"1", b"2", b"3", b"2", b"1"]
    assert (reply.batch, reply.revision) == (7, server.engine.revision)
    assert reply.server_id == server.service.server_id


async def test_sizes_beyond_the_limits_are_refused_alone_among_quick_commands(stub: Any, server: PequodServer) -> None:
    """Commands on a table that no join reads or computes run natively, where the engine does."""
    config = ServerConfig()
    longest_key, longest_value = b"k|".ljust(config.key_bytes_max, b"z"), b"v" * config.value_bytes_max
    commands: list[tuple[int, bytes, bytes | None]] = [
        (PUT, b"k|1", b"one"),
        (PUT, longest_key + b"z", b"no"),
        (PUT, longest_key, b"long"),
        (PUT, b"k|2", longest_value + b"v"),
        (GET, b"k|2", None),
        (PUT, b"", b"no"),
        (GET, b"", None),
        (REMOVE, longest_key + b"z", None),
        (COUNT, b"k|", b"k}"),
        (PUT, b"k|1", b"two"),
        (GET, b"k|1", None),
        (SCAN_LIMIT, b"k|", b"k}"),
        (SCAN_DOWN, b"k|", b"k}"),
        (SCAN, b"k|2", b"k|1"),
        (REMOVE, b"k|1", None),
        (REMOVE, b"k|1", None),
        (PUT, b"k|3", longest_value),
        (GET, b"k|3", None),
    ]
    kinds = bytes([kind for kind, *_ in commands])
    arguments = [argument for _, *both in commands for argument in both if argument is not None]
    found = outcomes_of(kinds, await _pieces(stub, kinds, arguments, (1, 1)))
    limit, key = "LimitExceededError", "InvalidKeyError"
    rows = [[(b"k|1", b"two")], [(longest_key, b"long")], []]
    assert found[:8] == [None, limit, None, limit, None, key, None, limit]
    assert found[8:] == [2, None, b"two", *rows, True, False, None, longest_value]
    assert server.engine.base_rows().keys == [b"k|3", longest_key]


async def test_a_command_that_fails_does_not_stop_the_others(stub: Any) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text="o|<a> = copy x|<a>"))
    reply = await _execute(stub, [PUT, PUT, PUT, SCAN], [b"x|1", b"v", b"o|1", b"no", b"", b"no", b"o|", b"o}"])
    assert list(reply.statuses) == [OK, FAILED, FAILED, OK]
    assert [error.reason for error in reply.errors] == ["ComputedKeyError", "InvalidKeyError"]
    assert reply.errors[0].code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    assert dict(reply.errors[0].facts) == {"key_hex": b"o|1".hex(), "join": "o"}
    assert list(reply.keys) == [b"o|1"]


@pytest.mark.parametrize(
    ("kinds", "arguments", "numbers", "message"),
    [
        ([PUT], [b"k"], (), "take 2 arguments, not 1"),
        ([PUT, GET], [b"k", b"v", b"k", b"k"], (), "take 3 arguments, not 4"),
        ([SCAN_LIMIT], [b"", b""], (), "take 1 numbers, not 0"),
        ([SCAN], [b"", b""], (1,), "take 0 numbers, not 1"),
        ([PUT, 99], [b"k", b"v"], (), "no command of kind 99"),
        ([0], [], (), "no command of kind 0"),
    ],
)
async def test_columns_that_do_not_fit_end_the_stream_and_change_nothing(
    stub: Any, server: PequodServer, kinds: list[int], arguments: list[bytes], numbers: tuple[int, ...], message: str
) -> None:
    call = stub.Execute()
    await call.write(pb.ExecuteRequest(kinds=bytes(kinds), arguments=arguments, numbers=numbers))
    with pytest.raises(aio.AioRpcError, match=message) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert server.engine.revision == 0


async def test_long_scans_go_on_in_the_next_piece(stub: Any) -> None:
    for number in range(60):
        await stub.Put(pb.PutRequest(key=b"x|%02d" % number, value=b"*" * 96))
    kinds = bytes([SCAN, PUT, SCAN])
    pieces = await _pieces(stub, kinds, [b"x|", b"x}", b"x|60", b"", b"x|", b"x}"])
    assert [list(piece.statuses) for piece in pieces] == [
        [PART],
        [PART],
        [PART],
        [OK, OK],
        [PART],
        [PART],
        [PART],
        [OK],
    ]
    assert [list(piece.counts) for piece in pieces] == [[18], [18], [18], [6], [18], [18], [18], [7]], (
        "2,000 bytes in all, 8 of them for each row beside keys and values"
    )
    assert [piece.more for piece in pieces] == [True] * 7 + [False]
    assert [piece.revision for piece in pieces] == [60] * 3 + [61] * 5
    before, _, after = outcomes_of(kinds, pieces)
    assert before == [(b"x|%02d" % number, b"*" * 96) for number in range(60)]
    assert after == [*before, (b"x|60", b"")]


async def test_long_scans_with_a_limit_go_on_until_it_is_met(stub: Any) -> None:
    for number in range(60):
        await stub.Put(pb.PutRequest(key=b"x|%02d" % number, value=b"*" * 96))
    kinds = bytes([SCAN_DOWN, SCAN_LIMIT, SCAN_LIMIT, SCAN_DOWN])
    pieces = await _pieces(stub, kinds, [b"x|", b"x}"] * 4, (30, 2, 18, 0))
    assert [list(piece.counts) for piece in pieces] == [[18], [12, 2], [18], [18], [18], [18], [6]]
    rows = [(b"x|%02d" % number, b"*" * 96) for number in range(60)]
    assert outcomes_of(kinds, pieces) == [rows[:-31:-1], rows[:2], rows[:18], rows[::-1]]


async def test_a_scan_of_many_small_rows_lets_others_have_their_turn(stub: Any, server: PequodServer) -> None:
    for number in range(50):
        server.engine.put(b"x|%02d" % number, b"")
    pieces = await _pieces(stub, bytes([GET, SCAN, SCAN_LIMIT]), [b"a", b"x|", b"x}", b"x|", b"x}"], (20,))
    assert [list(piece.counts) for piece in pieces] == [[20], [20], [10, 20]], "`rows_max` is 20"
    assert [list(piece.statuses) for piece in pieces] == [[ABSENT, PART], [PART], [OK, OK]]


async def test_a_scan_that_fits_into_one_message_is_not_cut(stub: Any, server: PequodServer) -> None:
    for number in range(15):
        server.engine.put(b"x|%02d" % number, b"*" * 88)
    pieces = await _pieces(stub, bytes([SCAN] * 3), [b"x|", b"x}"] * 3)
    assert [(list(piece.statuses), list(piece.counts)) for piece in pieces] == [([OK], [15])] * 3


async def test_streams_live_side_by_side(stub: Any) -> None:
    async def run(name: int) -> None:
        call = stub.Execute()
        for number in range(50):
            key = b"k%d|%03d" % (name, number)
            await call.write(
                pb.ExecuteRequest(batch=number, kinds=bytes([PUT, GET]), arguments=[key, b"%d" % number, key])
            )
            reply = await call.read()
            assert (reply.batch, list(reply.values)) == (number, [b"%d" % number])
        await call.done_writing()

    await asyncio.gather(*map(run, range(5)))


async def test_reads_that_do_not_fit_come_in_the_next_piece(stub: Any, server: PequodServer) -> None:
    for number in range(4):
        server.engine.put(b"k%d" % number, b"v" * 1500)
    kinds = bytes([GET, GET, SCAN, PUT, SCAN_DOWN, GET])
    pieces = await _pieces(stub, kinds, [b"k0", b"k1", b"k", b"k1", b"k9", b"1", b"k", b"l", b"k9"], (1,))
    assert [list(piece.statuses) for piece in pieces] == [[OK], [OK], [OK, OK, OK, OK]]
    value = b"v" * 1500
    assert outcomes_of(kinds, pieces) == [value, value, [(b"k0", value)], None, [(b"k9", b"1")], b"1"]


async def test_a_row_is_not_cut_however_large(stub: Any, server: PequodServer) -> None:
    for number in range(3):
        server.engine.put(b"k%d" % number, b"v" * 5000)
    kinds = bytes([SCAN, SCAN_LIMIT, GET, GET])
    pieces = await _pieces(stub, kinds, [b"k", b"l", b"k", b"l", b"k1", b"k0"], (1,))
    assert [list(piece.keys) for piece in pieces] == [[b"k0"], [b"k1"], [b"k2"], [b"k0"], [], []]
    assert [list(piece.statuses) for piece in pieces] == [[PART], [PART], [OK], [OK], [OK], [OK]]


async def test_many_failures_come_in_pieces_too(stub: Any) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text="o|<a> = copy x|<a>"))
    kinds = bytes([PUT]) * 100
    pieces = await _pieces(stub, kinds, [b"o|1", b"no"] * 100)
    assert outcomes_of(kinds, pieces) == ["ComputedKeyError"] * 100
    assert len(pieces) > 5
    assert all(piece.ByteSize() < 2500 for piece in pieces)
