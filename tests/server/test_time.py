"""Snapshots are no older than they say when they are read, however long a batch or a call takes."""

import asyncio
from itertools import count
from typing import Any

from grpc import aio
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import ServerConfig
from pequod_server.steps.executor import Executor

from pequod.commands.kinds import COUNT, GET, PUT, SCAN
from pequod.engine import Engine
from tests.server.plain import outcomes_of, pieces_of
from tests.server.serving import connect, serving

#: How many posts a count over the pull join reads, and how many counts take longer than a snapshot's age.
POSTS, COUNTS = 500, 400
AGE_S = 0.1
SLOW = "slow|<x> = pull copy p|<x>"


def test_each_command_of_a_batch_is_run_at_its_own_time() -> None:
    engine = Engine()
    engine.add_joins(parse("karma|<a> = snapshot 2 count vote|<a>|<id>; page|<a> = copy karma|<a>"))
    seconds = count()
    executor = Executor(
        engine, 1, commands_max=100, reply_bytes_max=1000, rows_max=10, clock=lambda: float(next(seconds))
    )
    kinds, arguments = b"", list[bytes]()
    for number in range(10):
        kinds += bytes([PUT, GET, SCAN])
        arguments += [b"vote|ann|%d" % number, b"", b"karma|ann", b"page|", b"page}"]
    outcomes = outcomes_of(kinds, executor.execute(pb.ExecuteRequest(kinds=kinds, arguments=arguments)))
    # A second goes by with each command; the votes come at 1, 4, 7 ...
    for number in range(10):
        _, got, page = outcomes[3 * number : 3 * number + 3]
        for time, shown in ((3 * number + 2, got), (3 * number + 3, dict(page or ())[b"page|ann"])):  # type: ignore[arg-type]
            assert int(shown) >= (time - 2 + 2) // 3, f"read at {time}, two seconds old at most"  # type: ignore[arg-type]


def test_the_clock_is_not_read_for_each_command_where_nothing_depends_on_it() -> None:
    engine = Engine()
    seconds = count()
    executor = Executor(
        engine, 1, commands_max=100, reply_bytes_max=1000, rows_max=10, clock=lambda: float(next(seconds))
    )
    executor.execute(pb.ExecuteRequest(kinds=bytes([GET] * 50), arguments=[b"a"] * 50))
    assert next(seconds) == 1
    (karma,) = engine.add_joins(parse("karma|<a> = snapshot 2 count vote|<a>|<id>"))
    assert engine.is_timed
    engine.drop_join(karma.name)
    assert not engine.is_timed


async def _stub(engine: Engine, channel: aio.Channel) -> Any:
    stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
    await stub.AddJoin(pb.AddJoinRequest(text=f"karma|<a> = snapshot {AGE_S} count vote|<a>|<id>; {SLOW}"))
    for number in range(POSTS):
        engine.put(b"p|%03d" % number, b"")
    await stub.Put(pb.PutRequest(key=b"vote|ann|1"))
    assert (await stub.Get(pb.GetRequest(key=b"karma|ann"))).value == b"1"
    return stub


async def test_a_snapshot_that_expires_while_a_batch_runs_is_read_anew() -> None:
    engine = Engine()
    async with serving(ServerConfig(listen="127.0.0.1:0"), engine) as port, connect(port) as channel:
        stub = await _stub(engine, channel)
        kinds = bytes([GET, PUT] + [COUNT] * COUNTS + [GET])
        arguments = [b"karma|ann", b"vote|ann|2", b"", *[b"slow|", b"slow}"] * COUNTS, b"karma|ann"]
        loop = asyncio.get_running_loop()
        call, begun_s = stub.Execute(), loop.time()
        outcomes = outcomes_of(kinds, await pieces_of(call, pb.ExecuteRequest(kinds=kinds, arguments=arguments)))
        assert loop.time() - begun_s > AGE_S, "the machine is so fast that nothing is shown: raise COUNTS"
        assert outcomes[-1] == b"2"
        await call.done_writing()


async def test_a_snapshot_that_expires_while_many_values_are_read_is_read_anew() -> None:
    engine = Engine()
    async with serving(ServerConfig(listen="127.0.0.1:0"), engine) as port, connect(port) as channel:
        stub = await _stub(engine, channel)
        await stub.AddJoin(pb.AddJoinRequest(text="sum|<a> = pull count p|<x> check s|<a>|<b>"))
        for number in range(COUNTS):
            engine.put(b"s|%03d|" % number + b"b", b"")
        await asyncio.sleep(AGE_S)
        keys = [b"karma|ann", *[b"sum|%03d" % number for number in range(COUNTS)], b"karma|ann"]
        assert (await stub.Get(pb.GetRequest(key=b"karma|ann"))).value == b"1"
        await stub.Put(pb.PutRequest(key=b"vote|ann|2"))
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        reply = await stub.MultiGet(pb.MultiGetRequest(keys=keys))
        assert loop.time() - begun_s > AGE_S, "the machine is so fast that nothing is shown: raise COUNTS"
        assert reply.values[-1] == b"2"
