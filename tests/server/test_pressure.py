"""Calls that wait for their requests while the process is beyond its limit of memory."""

import asyncio
import sys
from contextlib import suppress
from typing import Any

import pytest
from grpc import StatusCode
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.memory.admission import Admission
from pequod_server.memory.places import Places
from pequod_server.memory.pressure import Pressure
from pequod_server.ops.observe import BatchReply, BatchRequest

from pequod import AsyncClient
from pequod.commands.kinds import PUT
from pequod.engine import LimitExceededError
from tests.server.serving import connect

LIMIT = 1000
GIB = 1 << 30


async def _read(admission: Admission) -> None:
    async with admission.places.reading("peer"):
        await asyncio.Event().wait()


async def _late(admission: Admission, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(_read(admission)) for _ in range(count)]
    async with asyncio.timeout(10):
        while len(admission.places.late) < count:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
    return tasks


@pytest.mark.parametrize(("resident", "ended"), [(1000, 0), (1001, 7)])
async def test_the_oldest_late_calls_are_ended_beyond_the_limit(resident: int, ended: int) -> None:
    admission = Admission(ServerConfig(messages_bytes_max=3000, message_bytes_max=1000))
    admission.pressure = Pressure(LIMIT, 3, admission.places, lambda: resident)
    tasks = await _late(admission, 10)
    admission.pressure.look()
    await asyncio.wait(tasks, timeout=0.2)
    assert [task.done() for task in tasks] == [True] * ended + [False] * (10 - ended)
    for task in tasks[:ended]:
        with pytest.raises(LimitExceededError, match="memory_limit is 1000"):
            await task
    for task in tasks[ended:]:
        task.cancel()
    await asyncio.gather(*tasks[ended:], return_exceptions=True)
    assert all(task.cancelled() for task in tasks[ended:])
    assert not admission.places.late


@pytest.mark.parametrize(
    ("room_bytes", "pause_s"),
    [(-GIB, 0.01), (0, 0.01), (GIB // 25, 0.01), (GIB // 5, 0.05), (GIB, 0.1), (9 * GIB, 0.1)],
)
def test_a_process_far_below_its_limit_is_looked_at_more_seldom(room_bytes: int, pause_s: float) -> None:
    pressure = Pressure(10 * GIB, 1, Places(1, 1), lambda: 10 * GIB - room_bytes)
    assert pressure.pause_s() == pytest.approx(pause_s, rel=0.01)


async def test_without_a_limit_nobody_looks() -> None:
    pressure = Admission(ServerConfig(memory_limit="none")).pressure
    pressure.start()
    assert not pressure.looking.is_running
    await pressure.stop()


async def test_streams_between_two_batches_end_far_beyond_the_limit_and_clients_go_on() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", memory_limit="75%"))
    port = await server.start()
    pressure = server._admission.pressure
    async with AsyncClient(f"127.0.0.1:{port}") as client, connect(port) as channel:
        await client.put("a", "1")
        call: Any = PequodStub(channel).Execute()  # type: ignore[no-untyped-call]
        await call.write(pb.ExecuteRequest(kinds=bytes([PUT]), arguments=[b"b", b"2"]))
        assert (await call.read()).statuses == b"\0"
        pressure._limit_bytes, pressure._resident = LIMIT, lambda: 1031
        await asyncio.sleep(0.2)
        assert not call.done()
        pressure._resident = lambda: 1032
        async with asyncio.timeout(10):
            assert await call.code() is StatusCode.RESOURCE_EXHAUSTED
        assert "memory_limit" in await call.details()
        pressure._resident = lambda: 0
        async with asyncio.timeout(10):
            # This one may be on its way while the client hears of the end.
            with suppress(LimitExceededError):
                await client.put("a", "3")
            await client.put("a", "3")
        assert await client.get("a") == b"3"
    await server.close()


async def test_a_stream_waits_for_a_place_to_read_its_first_batch_in() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", messages_bytes_max=4000, message_bytes_max=1000))
    port = await server.start()
    pressure, places = server._admission.pressure, server._admission.places
    async with connect(port) as channel:
        stub = PequodStub(channel)  # type: ignore[no-untyped-call]
        silent: list[Any] = [stub.Execute() for _ in range(3)]
        async with asyncio.timeout(10):
            # One after another has the only place, for a moment.
            while len(places.late) < 3:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        for call in silent:
            await call.write(pb.ExecuteRequest(kinds=bytes([PUT]), arguments=[b"b", b"2"]))
            assert (await call.read()).statuses == b"\0"
        assert not places.late
        async with asyncio.timeout(10):
            # The last one has its reply a moment before its server waits for the next batch.
            while len(pressure.streams) < 3:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
    await server.close()


async def test_a_stream_that_waits_for_a_batch_holds_nothing_of_the_one_before() -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    held: list[tuple[BatchRequest, BatchReply]] = []
    server.instruments._batch_sinks.append(lambda request, reply, *_: held.append((request, reply)))
    port = await server.start()
    async with connect(port) as channel:
        call: Any = PequodStub(channel).Execute()  # type: ignore[no-untyped-call]
        await call.write(pb.ExecuteRequest(kinds=bytes([PUT]), arguments=[b"b", b"2"]))
        assert (await call.read()).statuses == b"\0"
        async with asyncio.timeout(10):
            while not server._admission.pressure.streams:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        pair = held.pop()
        # Held by the tuple, at one place or at both, by the name and as the argument.
        assert [sys.getrefcount(message) - [id(each) for each in pair].count(id(message)) for message in pair] == [2, 2]
    await server.close()


async def test_calls_beyond_those_that_fit_are_refused_while_the_process_is_too_large() -> None:
    resident = [LIMIT]
    places = Admission(ServerConfig()).places
    pressure = Pressure(LIMIT, 3, places, lambda: resident[0], calls_at_ease=10)
    assert pressure.refusal(1000) is None
    resident[0] = LIMIT + 1
    await asyncio.sleep(0.02)
    assert pressure.refusal(9) is None
    refusal = pressure.refusal(10)
    assert refusal is not None
    assert str(refusal) == (
        "memory_limit is 1000, and with this at least 1001 bytes would be in use; send or read less at a time, "
        "or raise memory_limit"
    )
    resident[0] = LIMIT
    await asyncio.sleep(0.02)
    assert pressure.refusal(10) is None
