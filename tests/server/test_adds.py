"""Adds over the wire: sums in batches, in pieces and by calls, refusals, and rights."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer

from pequod.client import AsyncClient
from pequod.commands.kinds import ADD, FAILED, GET, OK
from pequod.errors import NotNumberError
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
