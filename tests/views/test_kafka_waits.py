"""Waits for clients of Kafka end, whatever the clients make of it, and no connection is lost."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError
from pequod_views.targets.kafka_waits import KafkaClient, KafkaWaits

from tests.views.kafka_broker import Kafka


@pytest.fixture
async def waits() -> AsyncIterator[KafkaWaits]:
    made = KafkaWaits()
    yield made
    await made.ended()


async def test_a_call_that_takes_its_cancellation_for_something_else_is_left_behind(waits: KafkaWaits) -> None:
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    late = asyncio.create_task(waits.within(stubborn(), 0.05))
    cancelled = asyncio.create_task(waits.within(stubborn()))
    await asyncio.sleep(0)
    cancelled.cancel()
    done, _ = await asyncio.wait([late, cancelled], timeout=10)
    released.set()
    assert done == {late, cancelled}
    with pytest.raises(TimeoutError, match=r"nothing came for 0\.05 s"):
        await late
    assert cancelled.cancelled()


async def test_a_call_that_is_cancelled_from_inside_is_an_error(waits: KafkaWaits) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(KafkaConnectionError, match="the client was closed"):
        await waits.within(cancelled())


async def test_what_a_call_comes_to_is_handed_on(waits: KafkaWaits) -> None:
    async def found() -> int:
        return 7

    async def failed() -> int:
        raise KeyError("topic")

    assert await waits.within(found()) == 7
    with pytest.raises(KeyError):
        await waits.within(failed())


@pytest.mark.parametrize(
    "make",
    [
        lambda address: AIOKafkaAdminClient(bootstrap_servers=address),
        lambda address: AIOKafkaConsumer(bootstrap_servers=address),
        lambda address: AIOKafkaProducer(bootstrap_servers=address, transactional_id="cut"),
    ],
    ids=["admin", "consumer", "producer"],
)
async def test_a_start_that_is_cancelled_at_any_moment_loses_no_connection(
    kafka: Kafka, waits: KafkaWaits, make: Callable[[str], KafkaClient]
) -> None:
    """A connection that is lost is a ResourceWarning, with which a test fails."""
    is_started = False
    steps = 1
    while not is_started:
        client = make(kafka.address)
        starting = asyncio.create_task(waits.started(client))
        for _ in range(steps):
            await asyncio.sleep(0.0002)
        is_started = starting.done()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        if is_started:
            waits.let_go(client)
        steps += 1
    await waits.ended()
    del client, starting
    gc.collect()
