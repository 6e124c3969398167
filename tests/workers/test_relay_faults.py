"""Reads go on at a worker that passes them on, whatever becomes of the others: right, or ended at their deadlines."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub

from pequod.cluster.rendezvous import owners
from tests.workers.conftest import Workers

IDS: Final = ("w0", "w1", "w2")
USERS: Final = [b"user%d" % number for number in range(24)]
#: What a call of gRPC's Python client says if it ends by its deadline.
LATE: Final = grpc.StatusCode.DEADLINE_EXCEEDED


def owner_of(user: bytes) -> str:
    return owners(b"t|" + user + b"|", [(name, 1.0) for name in IDS])[0]


@pytest.fixture
def server() -> Iterator[Workers]:
    with Workers(3) as server:
        yield server


@asynccontextmanager
async def stub_at(server: Workers, name: str) -> AsyncIterator[Any]:
    """Return a stub on a connection to one worker."""
    async with aio.insecure_channel(server.target) as channel:
        stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
        async for reply in stub.FollowCluster(pb.FollowClusterRequest(once=True)):
            (address,) = (one.address for one in reply.servers if one.id == name)
    async with aio.insecure_channel(address) as channel:
        yield PequodStub(channel)  # type: ignore[no-untyped-call]


def key_of(user: bytes, at: int) -> bytes:
    return b"t|%b|%010d|bob" % (user, at)


async def scanned(stub: Any, user: bytes) -> list[bytes]:
    request = pb.ScanRequest(first=b"t|" + user + b"|", last=b"t|" + user + b"}")
    return [value async for chunk in stub.Scan(request) for value in chunk.values]


async def fill(stub: Any) -> None:
    """Have timelines that are computed at their workers."""
    for user in USERS:
        await stub.Put(pb.PutRequest(key=b"s|%b|bob" % user, value=b"1"))
    for at in range(4):
        await stub.Put(pb.PutRequest(key=b"p|bob|%010d" % at, value=b"post %d" % at))
    for user in USERS:
        assert len(await scanned(stub, user)) == 4


async def read_at_random(stub: Any, chosen: random.Random, timeout_s: float | None = None) -> None:
    """Make one call, whose reply is what the joins give."""
    user, at = chosen.choice(USERS), chosen.randrange(5)
    wanted = b"post %d" % at if at < 4 else None
    match chosen.randrange(5):
        case 0 | 1:
            reply = await stub.Get(pb.GetRequest(key=key_of(user, at)), timeout=timeout_s)
            assert (reply.value if reply.HasField("value") else None) == wanted
        case 2:
            reply = await stub.MultiGet(pb.MultiGetRequest(keys=[key_of(user, at), key_of(user, 0)]), timeout=timeout_s)
            assert [one if there else None for one, there in zip(reply.values, reply.present, strict=True)] == [
                wanted,
                b"post 0",
            ]
        case 3:
            reply = await stub.Count(
                pb.CountRequest(first=key_of(user, 1), last=b"t|" + user + b"}"), timeout=timeout_s
            )
            assert reply.count == 3
        case _:
            request = pb.ScanRequest(first=key_of(user, 0), last=key_of(user, at), keys_only=True)
            keys = [key async for chunk in stub.Scan(request, timeout=timeout_s) for key in chunk.keys]
            assert keys == [key_of(user, one) for one in range(min(at, 4))]


async def test_random_reads_are_right_while_the_worker_that_answers_them_is_killed(server: Workers) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    over = asyncio.Event()
    async with stub_at(server, "w1") as stub:
        await fill(stub)

        async def read(number: int) -> int:
            chosen, count = random.Random(seed + number), 0
            while not over.is_set():
                await read_at_random(stub, chosen)
                count += 1
            return count

        reads = [asyncio.ensure_future(read(number)) for number in range(16)]
        for _ in range(3):
            await asyncio.sleep(0.3)
            server.kill_worker("w2")
            await asyncio.to_thread(server.hear, "a worker serves again")
        over.set()
        assert min(await asyncio.gather(*reads)) > 0


async def test_reads_of_a_worker_that_is_stopped_end_at_their_deadlines_or_are_done_here(server: Workers) -> None:
    theirs = next(user for user in USERS if owner_of(user) == "w2")
    async with stub_at(server, "w1") as stub:
        await fill(stub)
        for _ in range(3):
            assert (await stub.Get(pb.GetRequest(key=key_of(theirs, 1)))).value == b"post 1"
        pid = server.pids["w2"]
        os.kill(pid, signal.SIGSTOP)
        try:
            began_s = time.monotonic()
            calls = [stub.Get(pb.GetRequest(key=key_of(theirs, at % 4)), timeout=0.4) for at in range(20)]
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert time.monotonic() - began_s >= 0.39
            assert {one.code() for one in found if isinstance(one, aio.AioRpcError)} == {LATE}
            assert all(isinstance(one, aio.AioRpcError) for one in found)
            # In the end this worker computes them, and keeps them.
            reply = await stub.Get(pb.GetRequest(key=key_of(theirs, 1)), timeout=30)
            assert reply.value == b"post 1"
        finally:
            os.kill(pid, signal.SIGCONT)
        chosen = random.Random(7)
        for _ in range(200):
            await read_at_random(stub, chosen, 30)


async def test_random_reads_at_a_worker_that_passes_on_are_those_at_the_owner_while_it_is_slow(
    server: Workers,
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    over = asyncio.Event()
    async with stub_at(server, "w1") as passing, stub_at(server, "w2") as owning:
        await fill(passing)
        pid = server.pids["w2"]

        async def read(stub: Any) -> int:
            chosen, count = random.Random(seed), 0
            while not over.is_set():
                try:
                    await read_at_random(stub, chosen, 0.25)
                except aio.AioRpcError as error:
                    assert error.code() is LATE, error
                count += 1
            return count

        reads = [asyncio.ensure_future(read(stub)) for stub in (passing, passing, owning)]
        try:
            for pause_s in (0.01, 0.05, 0.2, 0.5, 1.5, 0.02, 0.3):
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(pause_s)
                os.kill(pid, signal.SIGCONT)
                await asyncio.sleep(0.1)
        finally:
            os.kill(pid, signal.SIGCONT)
        over.set()
        assert min(await asyncio.gather(*reads)) > 0
        for stub in (passing, owning):
            for user in USERS:
                assert await scanned(stub, user) == [b"post %d" % at for at in range(4)]
