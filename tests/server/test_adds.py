"""Adds over the wire: sums in batches, in pieces, by calls and in transactions, refusals, and rights."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer

import pequod
from pequod.client import AsyncClient, Client
from pequod.commands.kinds import ABSENT, ADD, FAILED, GET, OK, PUT, REMOVE
from pequod.errors import InvalidDeltaError, NotNumberError, SumTooLongError
from pequod.interface.transaction_parts import TransactionCommand
from tests.server import roles
from tests.server.plain import joined, pieces_of
from tests.server.roles import As

# Fixtures of this module.
access_file, server, stub = roles.access_file, roles.server, roles.stub


async def test_a_batch_tells_sums_and_refuses_what_is_no_number(stub: Any, server: PequodServer) -> None:
    server.engine.put(b"p|text", b"twelve")
    kinds = bytes([ADD, ADD, ADD, ADD, GET])
    arguments = [b"p|x", b"5", b"p|x", b"-0.5", b"p|text", b"1", b"p|x", b"one", b"p|x"]
    request = pb.ExecuteRequest(batch=5, kinds=kinds, arguments=arguments)
    reply = joined(await pieces_of(As(stub, "root").Execute(), request))
    assert list(reply.statuses) == [OK, OK, FAILED, FAILED, OK]
    assert list(reply.values) == [b"5", b"4.5", b"4.5"]
    assert [error.reason for error in reply.errors] == ["NotNumberError", "InvalidDeltaError"]
    assert server.engine.get(b"p|text") == b"twelve"


async def test_sums_that_come_in_several_pieces_are_added_once(stub: Any, server: PequodServer) -> None:
    # Plain integers run natively, decimals in Python.
    for first in (1, 0.5):
        key = b"p|%r" % first
        server.engine.put(key, b"%r" % first)
        request = pb.ExecuteRequest(batch=5, kinds=bytes([ADD]) * 60, arguments=[key, b"1000000"] * 60)
        pieces = await pieces_of(As(stub, "root").Execute(), request)
        assert len(pieces) > 5
        assert list(joined(pieces).values) == [b"%r" % (first + 1000000 * at) for at in range(1, 61)]
        assert server.engine.get(key) == b"%r" % (first + 60000000)


async def test_a_call_tells_the_sum(stub: Any, server: PequodServer) -> None:
    calls = As(stub, "root")
    assert (await calls.Add(pb.AddRequest(key=b"p|x", delta=b"7"))).value == b"7"
    reply = await calls.Add(pb.AddRequest(key=b"p|x", delta=b"-10"))
    assert (reply.value, reply.header.revision) == (b"-3", server.engine.revision)
    for delta, code in ((b"", grpc.StatusCode.INVALID_ARGUMENT), (b"9" * 64, grpc.StatusCode.OUT_OF_RANGE)):
        server.engine.put(b"p|x", b"9" * 64)
        with pytest.raises(aio.AioRpcError) as refused:
            await calls.Add(pb.AddRequest(key=b"p|x", delta=delta))
        assert refused.value.code() is code


async def test_an_add_needs_the_right_to_read(stub: Any, server: PequodServer) -> None:
    arguments = [b"s|ann|n", b"1", b"p|ann|n", b"1", b"t|ann|n", b"1"]
    request = pb.ExecuteRequest(batch=5, kinds=bytes([ADD, ADD, ADD]), arguments=arguments)
    reply = joined(await pieces_of(As(stub, "web").Execute(), request))
    assert list(reply.statuses) == [FAILED, OK, FAILED]
    assert [error.facts["right"] for error in reply.errors] == ["read", "write"]
    for key in (b"s|ann|n", b"t|ann|n"):
        with pytest.raises(aio.AioRpcError) as refused:
            await As(stub, "web").Add(pb.AddRequest(key=key, delta=b"1"))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert server.engine.get(b"s|ann|n") is None


async def test_a_client_tells_sums(server: PequodServer) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}", token="root") as client:  # type: ignore[attr-defined]
        assert await client.add("p|n", 5) == b"5"
        session = client.session()
        assert await session.add("p|n", "-0.5") == b"4.5"
        await client.put("p|n", "text")
        with pytest.raises(NotNumberError) as refused:
            await client.add("p|n", 1)
        assert refused.value.key == b"p|n"
        batch = client.batch()
        batch.add("p|m", 1)
        batch.add("p|n", 1)
        sums = list(await batch.send())
        assert sums[0] == b"1"
        assert isinstance(sums[1], NotNumberError)


def columns(*commands: tuple[int, bytes, bytes]) -> pb.CommandColumns:
    """Return commands of one key, and of a second argument where it is not empty."""
    arguments = [argument for _, key, second in commands for argument in (key, second) if argument]
    return pb.CommandColumns(kinds=bytes(kind for kind, _, _ in commands), arguments=arguments)


async def test_a_plain_client_is_told_the_sums_of_a_transaction(stub: Any, server: PequodServer) -> None:
    calls = As(stub, "root")
    transfer = columns((ADD, b"p|ann", b"-30"), (ADD, b"p|bob", b"30"), (GET, b"p|ann", b""), (REMOVE, b"p|cat", b""))
    asked = pb.TransactionRequest(
        compare_keys=[b"p|ann"], compare_operators=b"\6", compare_values=[b"29"], then=transfer
    )
    server.engine.put_all([b"p|ann", b"p|bob"], [b"50", b"8.25"])
    reply = await calls.Transaction(asked)
    assert (reply.held, list(reply.statuses), list(reply.values)) == (
        True,
        [OK, OK, OK, ABSENT],
        [b"20", b"38.25", b"20"],
    )
    assert reply.header.revision == server.engine.revision
    assert not (await calls.Transaction(asked)).held
    server.engine.put_all([b"p|text", b"p|long"], [b"twelve", b"9" * 64])
    before = server.engine.revision
    for refused, code in (
        (columns((ADD, b"p|ann", b"1"), (ADD, b"p|text", b"1")), grpc.StatusCode.FAILED_PRECONDITION),
        (columns((PUT, b"p|ann", b"1"), (ADD, b"p|long", b"1")), grpc.StatusCode.OUT_OF_RANGE),
        (columns((ADD, b"p|ann", b"1"), (ADD, b"p|bob", b"one")), grpc.StatusCode.INVALID_ARGUMENT),
    ):
        with pytest.raises(aio.AioRpcError) as error:
            await calls.Transaction(pb.TransactionRequest(then=refused))
        assert error.value.code() is code
    with pytest.raises(aio.AioRpcError) as error:
        # Also a list that would not run.
        await calls.Transaction(pb.TransactionRequest(otherwise=columns((ADD, b"p|ann", b"1e3"))))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (server.engine.get(b"p|ann"), server.engine.revision) == (b"20", before)


async def test_an_add_of_either_list_needs_the_rights_to_read_and_to_write(stub: Any, server: PequodServer) -> None:
    """The role `web` writes subscriptions alone, reads timelines alone, and reads and writes posts."""
    calls = As(stub, "web")
    assert (await calls.Transaction(pb.TransactionRequest(then=columns((ADD, b"p|n", b"1"))))).values == [b"1"]
    for key, right in ((b"s|ann|n", "read"), (b"t|ann|n", "write")):
        commands = columns((ADD, b"p|n", b"1"), (ADD, key, b"1"))
        for request in (pb.TransactionRequest(then=commands), pb.TransactionRequest(otherwise=commands)):
            with pytest.raises(aio.AioRpcError) as refused:
                await calls.Transaction(request)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert f"'{right}'" in (refused.value.details() or ""), right
    assert server.engine.get(b"p|n") == b"1"


async def test_both_clients_add_in_transactions(server: PequodServer) -> None:
    address = f"127.0.0.1:{server.port}"  # type: ignore[attr-defined]
    async with AsyncClient(address, token="root") as client:
        await client.multi_put({"p|ann": "50", "p|text": "twelve", "p|long": "9" * 64})
        adds: list[TransactionCommand] = [pequod.Add("p|ann", -30), pequod.Add("p|bob", "30.5"), pequod.Get("p|ann")]
        done = await client.transaction([pequod.value_of("p|ann") > 29], adds)
        assert done == (True, [b"20", b"30.5", b"20"])
        session = client.session()
        assert (await session.transaction([], [pequod.Put("p|bob", "1"), pequod.Add("p|bob", 1)])).outcomes == [
            None,
            b"2",
        ]
        for add, error in (
            (pequod.Add("p|text", 1), NotNumberError),
            (pequod.Add("p|long", 1), SumTooLongError),
            (pequod.Add("p|ann", "one"), InvalidDeltaError),
        ):
            with pytest.raises(error):
                await client.transaction([], [pequod.Remove("p|ann"), add])
        with pytest.raises(TypeError, match="what is added is an int, a Decimal"):
            await client.transaction([], [pequod.Add("p|ann", 0.5)])  # type: ignore[arg-type]

    def waiting() -> None:
        with Client(address, token="root") as client:
            assert client.transaction([], [pequod.Add("p|ann", 1), pequod.Add("p|ann", "-.5")]) == (
                True,
                [b"21", b"20.5"],
            )

    await asyncio.to_thread(waiting)


async def test_racing_transfers_by_adds_keep_the_sum(server: PequodServer) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}", token="root") as client:  # type: ignore[attr-defined]
        await client.multi_put({"p|a": "20", "p|b": "20"})
        pairs = [("p|a", "p|b", 7), ("p|b", "p|a", 3)] * 10
        done = await asyncio.gather(
            *(
                client.transaction([pequod.value_of(one) > n - 1], [pequod.Add(one, -n), pequod.Add(two, n)])
                for one, two, n in pairs
            )
        )
        values = [int(value or b"") for value in await client.multi_get(["p|a", "p|b"])]
        assert sum(values) == 40
        assert min(values) >= 0
        moved = [n if one == "p|a" else -n for (one, _, n), outcome in zip(pairs, done, strict=True) if outcome]
        assert values[0] == 20 - sum(moved)
