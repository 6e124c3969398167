"""Calls of one command and batches are run by the same steps: the same answers, and the same errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.rpc import error_details_pb2
from grpc import StatusCode, aio
from grpc_status import rpc_status
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server.database.flights import ROUNDS_MAX
from pequod_server.steps.executor import Executor

from pequod.commands.kinds import COUNT, GET, PUT, REMOVE
from pequod.engine import Engine, MissingError
from pequod.freshness import NO_TIMELINE, Mark, Token
from tests.backing.test_loader import FOLLOWING, Setting, serving
from tests.server.plain import Outcome, outcomes_of, pieces_of
from tests.server.serving import connect

#: A base key, keys of the database that are there and that are not, a computed one, none at all, one that is too long.
KEYS = [b"k|1", b"p|bob|0100", b"p|bob|0900", b"t|ann|0100|bob", b"", b"k|" + b"1" * 5000]
LOST = bytes(Token({Mark(b"database", NO_TIMELINE): 7}))
LEVELS = [
    None,
    pb.Freshness(max_age_ms=60_000),
    pb.Freshness(latest=True),
    pb.Freshness(after=b"no token"),
    pb.Freshness(after=LOST, wait_ms=10),
]


class Doors:
    """The two ways of one command into a server."""

    def __init__(self, setting: Setting, stub: Any) -> None:
        self.setting = setting
        self._stub = stub
        self._stream = stub.Execute()

    async def batch(self, kinds: bytes, arguments: list[bytes], level: pb.Freshness | None = None) -> list[Outcome]:
        request = pb.ExecuteRequest(kinds=kinds, arguments=arguments, freshness=level)
        return outcomes_of(kinds, await pieces_of(self._stream, request))

    async def call(self, kind: int, key: bytes, level: pb.Freshness | None = None) -> Any:
        """Return what a call of one command gives; of one that fails, the reason."""
        try:
            if kind == GET:
                reply = await self._stub.Get(pb.GetRequest(key=key, freshness=level))
                return reply.value if reply.HasField("value") else None
            if kind == COUNT:
                return (await self._stub.Count(pb.CountRequest(first=key, last=key + b"~", freshness=level))).count
            if kind == PUT:
                await self._stub.Put(pb.PutRequest(key=key, value=b"new"))
                return None
            return (await self._stub.Remove(pb.RemoveRequest(key=key))).removed
        except aio.AioRpcError as error:
            status = rpc_status.from_call(error)
            info = error_details_pb2.ErrorInfo()
            status.details[0].Unpack(info)
            return info.reason


@pytest.fixture(params=["write-through", "write-around"])
async def doors(request: pytest.FixtureRequest) -> AsyncIterator[Doors]:
    async with (
        serving(FOLLOWING, backing_mode=request.param) as setting,
        connect(int(setting.target.rpartition(":")[2])) as channel,
    ):
        yield Doors(setting, PequodStub(channel))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: "any" if level is None else level.WhichOneof("level"))
async def test_a_call_of_one_command_answers_as_a_batch_of_one(doors: Doors, level: pb.Freshness | None) -> None:
    for key in KEYS:
        for kind in (GET, COUNT):
            arguments = [key] if kind == GET else [key, key + b"~"]
            # Each comes first once: what it loads is there for the other one.
            called = await doors.call(kind, key, level)
            assert [called] == await doors.batch(bytes([kind]), arguments, level), (kind, key)
    for key in KEYS:
        for kind in (PUT, REMOVE, REMOVE):
            arguments = [key, b"new"] if kind == PUT else [key]
            before = await doors.batch(bytes([kind]), arguments)
            if kind == PUT or before != [True]:
                assert [await doors.call(kind, key)] == before, key


async def test_what_follows_a_load_that_fails_waits_for_a_commit_that_is_half_applied(doors: Doors) -> None:
    setting = doors.setting
    (loader,) = setting.server.databases.all
    assert await doors.call(GET, b"p|bob|0100") == b"Hi"
    async with setting.store.held("load"):
        running = asyncio.create_task(doors.batch(bytes([GET, GET]), [b"p|liz|0110", b"p|bob|0100"]))
        await asyncio.sleep(0.1)
        setting.store.fail("load")
        loader.gate.close()
    await asyncio.sleep(0.1)
    assert not running.done(), "the second read would show a part of the commit"
    loader.gate.open()
    assert await running == ["BackingUnavailableError", b"Hi"]


async def test_many_keys_are_read_at_one_moment_however_many_have_to_be_loaded(doors: Doors) -> None:
    keys = [b"k|1", b"p|bob|0100", b"p|liz|0110", b"p|none|0100"]
    reply = await doors._stub.MultiGet(pb.MultiGetRequest(keys=keys))
    assert (list(reply.values), list(reply.present)) == ([b"", b"Hi", b"Ho", b""], [False, True, True, False])
    assert len(doors.setting.loads) == 1
    doors.setting.store.fail("load")
    with pytest.raises(aio.AioRpcError) as caught:
        await doors._stub.MultiGet(pb.MultiGetRequest(keys=[*keys, b"p|joe|0100"]))
    assert caught.value.code() is StatusCode.UNAVAILABLE


def test_a_range_that_is_forgotten_as_fast_as_it_is_loaded_fails_the_command_that_needs_it() -> None:
    executor = Executor(Engine(backed=[b"p"]), 1, commands_max=10, reply_bytes_max=1000, rows_max=10)
    kinds = bytes([GET, PUT])
    steps = executor.steps(pb.ExecuteRequest(kinds=kinds, arguments=[b"p|bob|0100", b"k|1", b"1"]))
    step, loads = steps.run(), 0
    while isinstance(step, MissingError):
        loads += 1
        step = steps.go_on()
    assert loads == ROUNDS_MAX * len(kinds)
    assert isinstance(step, pb.ExecuteReply)
    assert outcomes_of(kinds, [step]) == ["BackingUnavailableError", None]
