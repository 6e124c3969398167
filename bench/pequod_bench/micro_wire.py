"""Micro benchmarks of the wire: the client's and the server's halves alone, and both with gRPC between them.

Every scan is an incremental check of Twip: three rows of 100 bytes at the end of a timeline that is up to date.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import cache, partial
from itertools import count
from typing import Final, NamedTuple

from grpc import aio
from pequod_grammar import parse
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest, GetRequest, ScanRequest
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server.execute import Executor

from pequod.client import AsyncClient, Result
from pequod.client.columns import Columns
from pequod.client.columns import decode as decode_reply
from pequod.engine import Engine
from pequod_bench import keys
from pequod_bench.micro_frame import Samples, Scale, Workload, clock

#: Timelines, all of one poster with so many posts.
_USERS: Final = 1_000
_POSTS: Final = 20
_TWEET: Final = b"v" * 66
#: Commands of a sample in the halves alone.
_RUN: Final = 256

#: Different batches of checks that are sent in turn.
_TURNS: Final = 16

#: Runs one sample and returns the number of its operations.
Step = Callable[["Wire", int], Awaitable[int]]


@cache
def _checks(turn: int, size: int) -> Columns:
    """Return checks of users who differ from turn to turn; made once, so that this is not what is timed."""
    columns = Columns()
    for i in range(size):
        user = (turn + i * 7919) % _USERS
        columns.scan(keys.timeline_first(user, _POSTS - 3), keys.timeline_last(user))
    return columns


def _fill(columns: Columns) -> Columns:
    for user in range(_USERS):
        columns.put(keys.subscription_key(user, 1), keys.FOLLOWS)
    for tick in range(_POSTS):
        columns.put(keys.post_key(1, tick), _TWEET)
    for user in range(_USERS):
        columns.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
    return columns


def _executor() -> Executor:
    engine = Engine()
    engine.add_joins(parse(keys.PUSH_JOIN))
    executor = Executor(engine, 1, commands_max=1 << 20, reply_bytes_max=1 << 26, rows_max=1 << 20)
    executor.execute(_fill(Columns()).message(0))
    return executor


def encode(_: Scale) -> Samples:
    """Make a message of 256 checks and serialise it."""
    for number in count():
        columns = _checks(number % _TURNS, _RUN)
        begun = clock()
        columns.message(number).SerializeToString()
        yield _RUN, clock() - begun


def decode(_: Scale) -> Samples:
    """Parse a reply of 256 checks and take it apart."""
    columns = _checks(0, _RUN)
    (reply,) = _executor().execute(columns.message(0))
    data = reply.SerializeToString()
    kinds = bytes(columns.kinds)
    while True:
        begun = clock()
        decode_reply(kinds, ExecuteReply.FromString(data))
        yield _RUN, clock() - begun


def serve(columns: Callable[[int], Columns]) -> Callable[[Scale], Samples]:
    """Return what parses messages of 256 commands, runs them on the engine and serialises the replies."""

    def samples(_: Scale) -> Samples:
        executor = _executor()
        for number in count():
            data = columns(number % _TURNS).message(number).SerializeToString()
            begun = clock()
            (reply,) = executor.execute(ExecuteRequest.FromString(data))
            reply.SerializeToString()
            yield _RUN, clock() - begun

    return samples


@cache
def _gets(turn: int) -> Columns:
    columns = Columns()
    for i in range(_RUN):
        columns.get(keys.subscription_key((turn + i * 7919) % _USERS, 1))
    return columns


@cache
def _puts(turn: int) -> Columns:
    columns = Columns()
    for i in range(_RUN):
        # Other values with each turn, or nothing would change.
        columns.put(b"x|%08d" % i, b"%d" % turn + _TWEET)
    return columns


async def _execute(size: int, wire: Wire, number: int) -> int:
    await _send(wire, number, size)
    return size


async def _pipeline(wire: Wire, number: int) -> int:
    await asyncio.gather(*(_send(wire, number + i, _RUN) for i in range(4)))
    return 4 * _RUN


def _send(wire: Wire, number: int, size: int) -> asyncio.Future[list[Result]]:
    batch = wire.client.batch()
    checks = _checks(number % _TURNS, size)
    batch.kinds, batch.arguments = checks.kinds, checks.arguments
    return batch.send()


async def _get(wire: Wire, number: int) -> int:
    await wire.client.get(keys.post_key(1, number % _POSTS))
    return 1


async def _gather(wire: Wire, number: int) -> int:
    await asyncio.gather(*(wire.client.get(keys.post_key(1, (number + i) % _POSTS)) for i in range(1000)))
    return 1000


async def _scan_all(wire: Wire, _: int) -> int:
    rows = 0
    async for _row in wire.client.scan_iter(b"t|", b"t}"):
        rows += 1
    return rows


async def _unary_get(wire: Wire, number: int) -> int:
    await wire.stub.Get(GetRequest(key=keys.post_key(1, number % _POSTS)))
    return 1


async def _unary_scan(wire: Wire, number: int) -> int:
    first, last = _checks(number % _TURNS, 1).arguments
    async for _chunk in wire.stub.Scan(ScanRequest(first=first, last=last)):
        pass
    return 1


class Row(NamedTuple):
    """A row that needs a server."""

    name: str
    operation: str
    step: Step


#: With a server.
OVER_THE_WIRE: Final = (
    Row("unary Get", "a call, one after the other", _unary_get),
    Row("unary Scan", "a check, one after the other", _unary_scan),
    Row("client.get", "a call, one after the other", _get),
    Row("client.get, 1,000 at once", "a call", _gather),
    *(
        Row(f"Execute, {size} a message", "a check, one message at a time", partial(_execute, size))
        for size in (1, 16, 256)
    ),
    Row("Execute, 4 x 256 at once", "a check", _pipeline),
    Row("client.scan_iter", f"a row of {_USERS * _POSTS:,}", _scan_all),
)


class Wire:
    """A client's loop and connections: one for all rows, since gRPC serves one loop a process without complaint."""

    def __init__(self, target: str) -> None:
        self._runner = asyncio.Runner()
        self.client = AsyncClient(target)
        self._channel = self._runner.run(_channel(target))
        self.stub = PequodStub(self._channel)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close the connections and the loop."""
        self._runner.run(self.client.close())
        self._runner.run(self._channel.close())
        self._runner.close()

    def workloads(self) -> Iterator[Workload]:
        """Fill the server, which must be empty, and yield the rows."""
        self._runner.run(self._fill())
        for name, operation, step in OVER_THE_WIRE:
            yield Workload(name, operation, partial(self._samples, step))

    async def _fill(self) -> None:
        await self.client.add_join(keys.PUSH_JOIN)
        batch = self.client.batch()
        _fill(batch)
        await batch.send()

    def _samples(self, step: Step, _: Scale) -> Samples:
        for number in count():
            yield self._runner.run(_timed(step(self, number)))


async def _timed(step: Awaitable[int]) -> tuple[int, int]:
    begun = clock()
    operations = await step
    return operations, clock() - begun


async def _channel(target: str) -> aio.Channel:
    return aio.insecure_channel(target)


#: Without a server.
HALVES: Final = (
    Workload("client: encode", "a check in a message of 256", encode),
    Workload("client: decode", "a check in a reply to 256", decode),
    Workload("server: checks", "a check in a message of 256", serve(partial(_checks, size=_RUN))),
    Workload("server: gets", "a get in a message of 256", serve(_gets)),
    Workload("server: puts", "a put in a message of 256", serve(_puts)),
)
