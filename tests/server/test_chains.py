"""Chains of joins as long as they may be: every read of them is answered, and no longer ones are taken."""

from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import COUNT, GET, PUT, SCAN
from pequod.language.cycles import NESTING_MAX


def _join(at: int) -> str:
    return f"t{at + 1}|<a> = copy t{at}|<a> with k = 1"


async def test_the_longest_chain_is_read_cold_by_every_call(stub: Any) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text=";".join(map(_join, range(NESTING_MAX)))))
    await stub.Put(pb.PutRequest(key=b"t0|x", value=b'{"k":1}'))
    last = b"t%d|" % NESTING_MAX

    async def invalidate() -> None:
        await stub.Invalidate(pb.InvalidateRequest(range=pb.Range(first=b"t")))

    assert (await stub.Get(pb.GetRequest(key=last + b"x"))).value == b'{"k":1}'
    await invalidate()
    assert (await stub.Count(pb.CountRequest(first=last, last=last[:-1] + b"}"))).count == 1
    await invalidate()
    call = stub.Execute()
    arguments = [last + b"x", last, last[:-1] + b"}", b"t0|y", b'{"k":1}', last, last[:-1] + b"}"]
    await call.write(pb.ExecuteRequest(kinds=bytes([GET, COUNT, PUT, SCAN]), arguments=arguments))
    reply = await call.read()
    assert not reply.errors
    assert list(reply.keys) == [last + b"x", last + b"y"]
    await call.done_writing()
    watch = stub.Watch(pb.WatchRequest(first=last, last=last[:-1] + b"}", rows=True))
    assert len((await watch.read()).keys) == 2
    watch.cancel()
    explained = await stub.Explain(pb.ExplainRequest(join=f"t{NESTING_MAX}"))
    assert explained.HasField("join")
    await stub.DropJoin(pb.DropJoinRequest(name="t1"))


async def test_a_longer_chain_is_refused_and_says_how_long_it_may_be(stub: Any) -> None:
    text = ";".join(map(_join, range(NESTING_MAX + 1)))
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.AddJoin(pb.AddJoinRequest(text=text))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"{NESTING_MAX} are allowed" in (caught.value.details() or "")
    assert not (await stub.ListJoins(pb.ListJoinsRequest())).joins
