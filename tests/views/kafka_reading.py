"""What any consumer of Kafka sees: topics of committed records, read from their beginnings to their ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import NodeNotReadyError
from pequod_views.targets.kafka_waits import KafkaWaits

#: A look at all topics, or a deletion of these, takes no longer.
_LOOK_S: Final = 60.0

Client = TypeVar("Client", AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer)


@asynccontextmanager
async def using(client: Client) -> AsyncIterator[Client]:
    """Start a client, and close it, whatever becomes of the broker."""
    waits = KafkaWaits()
    try:
        await waits.started(client)
        try:
            yield client
        finally:
            waits.let_go(client)
    finally:
        await waits.ended()


@asynccontextmanager
async def bounded(doing: str) -> AsyncIterator[list[str]]:
    """Fail clearly where a look stands still; the list that is yielded tells where it is."""
    where: list[str] = []
    try:
        async with asyncio.timeout(_LOOK_S):
            yield where
    except TimeoutError as error:
        raise AssertionError(f"{doing} took more than {_LOOK_S:g} s: {' '.join(where)}") from error


async def topics(brokers: str) -> dict[str, int]:
    """Return the numbers of partitions of all topics that are not Kafka's own.

    A broker that stood still is taken for dead by its controller a moment later, and lists no broker for a while.
    """
    async with bounded("listing topics"):
        while True:
            with suppress(NodeNotReadyError):
                async with using(AIOKafkaAdminClient(bootstrap_servers=brokers)) as admin:
                    found = await admin.describe_topics()
                return {one["topic"]: len(one["partitions"]) for one in found if not one["topic"].startswith("__")}
            await asyncio.sleep(0.05)


async def committed(brokers: str) -> dict[str, dict[bytes, bytes | None]]:
    """Return the last committed value of each key of each topic."""
    found = await records(brokers)
    return {topic: {one.key: one.value for one in some} for topic, some in found.items()}


async def records(brokers: str, *, waits: bool = False) -> dict[str, list[ConsumerRecord]]:
    """Return the committed records of each topic.

    Args:
        waits: Wait for the ends of transactions that are open, in place of stopping before them.
    """
    places = [TopicPartition(name, one) for name, count in (await topics(brokers)).items() for one in range(count)]
    found: dict[str, list[ConsumerRecord]] = {place.topic: [] for place in places}
    if not places:
        return found
    reading = AIOKafkaConsumer(bootstrap_servers=brokers, isolation_level="read_committed", enable_auto_commit=False)
    async with bounded("reading topics to their ends") as where, using(reading) as consumer:
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        for place, end in (await consumer.end_offsets(places)).items():
            where[:] = [f"{place} at its beginning, of {end}"]
            while (position := await consumer.position(place)) < end:
                where[:] = [f"{place} at {position} of {end}"]
                some = (await consumer.getmany(place, timeout_ms=200)).get(place, [])
                # What came after the end belongs to a later look: part of a transaction may be there.
                found[place.topic] += [one for one in some if one.offset < end]
                stable = consumer.last_stable_offset(place)
                if not waits and not some and stable is not None and position >= stable:
                    # A transaction is open, behind which nothing is shown.
                    break
    return found


async def policies(brokers: str, names: Sequence[str]) -> dict[str, str]:
    """Return the cleanup.policy of topics."""
    wanted = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    async with bounded("asking for settings"), using(AIOKafkaAdminClient(bootstrap_servers=brokers)) as admin:
        resources = [one for answer in await admin.describe_configs(wanted) for one in answer.resources]
    return {one[3]: {entry[0]: entry[1] for entry in one[4]}["cleanup.policy"] for one in resources}


async def fenced(brokers: str, ids: Sequence[str]) -> None:
    """Take transactional ids, as another process would."""
    for name in ids:
        async with using(AIOKafkaProducer(bootstrap_servers=brokers, transactional_id=name)):
            pass


async def delete_topics(brokers: str) -> None:
    """Delete all topics, and wait until they are gone."""
    async with bounded("deleting topics") as where:
        while found := list(await topics(brokers)):
            where[:] = found
            async with using(AIOKafkaAdminClient(bootstrap_servers=brokers)) as admin:
                await admin.delete_topics(found)
