"""Writes under a condition over the wire: statuses and values in batches, in pieces, by calls, and with few rights."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer

from pequod.client import AsyncClient
from pequod.commands.kinds import ABSENT, FAILED, GET, OK, PUT_IF, REMOVE_IF, UNMET
from pequod.language.conditions import IF_ABSENT, IF_PRESENT, MET, Unmet, if_value
from tests.server import roles
from tests.server.plain import joined, pieces_of
from tests.server.roles import As

# Fixtures of this module.
access_file, server, stub = roles.access_file, roles.server, roles.stub
IS_ABSENT, IS_PRESENT, HAS_VALUE = 1, 2, 3


async def _execute(stream: Any, kinds: list[int], arguments: list[bytes], numbers: list[int]) -> pb.ExecuteReply:
    request = pb.ExecuteRequest(batch=5, kinds=bytes(kinds), arguments=arguments, numbers=numbers)
    return joined(await pieces_of(stream, request))


async def test_a_batch_says_of_each_condition_whether_it_held(stub: Any) -> None:
    kinds = [PUT_IF, PUT_IF, PUT_IF, PUT_IF, REMOVE_IF, REMOVE_IF, PUT_IF, GET]
    arguments = [b"p|x", b"1", b"", b"p|x", b"2", b"", b"p|y", b"2", b"", b"p|x", b"2", b"1"]
    arguments += [b"p|y", b"", b"p|x", b"1", b"p|x", b"3", b"", b"p|x"]
    numbers = [IS_ABSENT, 0, IS_ABSENT, 0, IS_PRESENT, 0, HAS_VALUE, 0, HAS_VALUE, HAS_VALUE, 9, 0]
    reply = await _execute(As(stub, "root").Execute(), kinds, arguments, numbers)
    assert list(reply.statuses) == [OK, UNMET, ABSENT, OK, ABSENT, UNMET, FAILED, OK]
    assert list(reply.values) == [b"1", b"2", b"2"]
    (error,) = reply.errors
    assert (error.reason, dict(error.facts)) == ("InvalidConditionError", {"number": "9"})


async def test_present_values_that_are_too_long_for_a_piece_come_in_several(stub: Any, server: PequodServer) -> None:
    keys = [b"p|%d" % number for number in range(20)]
    for key in keys:
        server.engine.put(key, key * 12)
    arguments = [argument for key in keys for argument in (key, b"new", b"")]
    kinds = [PUT_IF] * len(keys)
    request = pb.ExecuteRequest(batch=5, kinds=bytes(kinds), arguments=arguments, numbers=[IS_ABSENT, 0] * len(keys))
    pieces = await pieces_of(As(stub, "root").Execute(), request)
    assert len(pieces) > 5
    reply = joined(pieces)
    assert list(reply.statuses) == [UNMET] * len(keys)
    assert list(reply.values) == [key * 12 for key in keys]


async def test_a_condition_needs_the_right_to_read(stub: Any, server: PequodServer) -> None:
    stream = As(stub, "web").Execute()
    arguments = [b"s|ann|bob", b"2", b"", b"s|ann|liz", b"1", b"", b"p|bob|0001", b"2", b"", b"s|ann|bob", b"guess"]
    reply = await _execute(
        stream, [PUT_IF, PUT_IF, PUT_IF, REMOVE_IF], arguments, [IS_ABSENT, 0, IS_ABSENT, 0, IS_ABSENT, 0, HAS_VALUE]
    )
    assert list(reply.statuses) == [FAILED, FAILED, UNMET, FAILED]
    assert {error.facts["right"] for error in reply.errors} == {"read"}
    assert list(reply.values) == [b"value of p|bob|0001"]
    for request in (
        pb.WriteIfRequest(key=b"s|ann|bob", value=b"2", condition=IS_ABSENT),
        pb.WriteIfRequest(key=b"t|ann|1", value=b"2", condition=IS_ABSENT),
    ):
        with pytest.raises(aio.AioRpcError) as refused:
            await As(stub, "web").WriteIf(request)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert server.engine.get(b"s|ann|bob") == b"value of s|ann|bob"
    assert server.engine.get(b"s|ann|liz") is None


async def test_a_call_tells_the_present_value(stub: Any, server: PequodServer) -> None:
    calls = As(stub, "root")
    first = await calls.WriteIf(pb.WriteIfRequest(key=b"p|x", value=b"1", condition=IS_ABSENT))
    assert (first.met, first.HasField("present")) == (True, False)
    revision = server.engine.revision
    second = await calls.WriteIf(pb.WriteIfRequest(key=b"p|x", value=b"2", condition=IS_ABSENT))
    assert (second.met, second.present) == (False, b"1")
    assert second.header.revision == revision, "nothing was written"
    gone = await calls.WriteIf(pb.WriteIfRequest(key=b"p|x", condition=HAS_VALUE, expected=b"1"))
    assert gone.met
    assert server.engine.get(b"p|x") is None
    with pytest.raises(aio.AioRpcError) as refused:
        await calls.WriteIf(pb.WriteIfRequest(key=b"p|x", value=b"2"))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_client_tells_what_came_of_conditions(server: PequodServer) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}", token="root") as client:  # type: ignore[attr-defined]
        assert await client.put("p|x", "1", condition=IF_ABSENT) == MET
        assert await client.put("p|x", "2", condition=IF_ABSENT) == Unmet(b"1")
        session = client.session()
        assert await session.put("p|x", "2", condition=if_value("1")) == MET
        batch = client.batch()
        batch.remove("p|x", condition=if_value("1"))
        batch.remove("p|x", condition=IF_PRESENT)
        batch.put("p|x", "3", condition=IF_PRESENT)
        batch.get("p|x")
        assert list(await batch.send()) == [Unmet(b"2"), MET, Unmet(None), None]
