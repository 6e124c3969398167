"""What any consumer of Kafka sees: topics of committed records, read from their beginnings to their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient


async def topics(brokers: str) -> dict[str, int]:
    """Return the numbers of partitions of all topics that are not Kafka's own."""
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
    try:
        await admin.start()
        found = await admin.describe_topics()
    finally:
        await admin.close()
    return {one["topic"]: len(one["partitions"]) for one in found if not one["topic"].startswith("__")}


async def committed(brokers: str) -> dict[str, dict[bytes, bytes | None]]:
    """Return the last committed value of each key of each topic."""
    places = [TopicPartition(name, one) for name, count in (await topics(brokers)).items() for one in range(count)]
    found: dict[str, dict[bytes, bytes | None]] = {place.topic: {} for place in places}
    if not places:
        return found
    consumer = AIOKafkaConsumer(bootstrap_servers=brokers, isolation_level="read_committed", enable_auto_commit=False)
    try:
        await consumer.start()
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        for place, end in (await consumer.end_offsets(places)).items():
            while (position := await consumer.position(place)) < end:
                records = (await consumer.getmany(place, timeout_ms=200)).get(place, [])
                # What came after the end belongs to a later look: part of a transaction may be there.
                found[place.topic].update((one.key, one.value) for one in records if one.offset < end)
                stable = consumer.last_stable_offset(place)
                if not records and stable is not None and position >= stable:
                    # A transaction is open, behind which nothing is shown.
                    break
    finally:
        await consumer.stop()
    return found


async def fenced(brokers: str, ids: Sequence[str]) -> None:
    """Take transactional ids, as another process would."""
    for name in ids:
        producer = AIOKafkaProducer(bootstrap_servers=brokers, transactional_id=name)
        try:
            await producer.start()
        finally:
            await producer.stop()


async def delete_topics(brokers: str) -> None:
    """Delete all topics, and wait until they are gone."""
    end_s = asyncio.get_running_loop().time() + 60
    while found := list(await topics(brokers)):
        assert asyncio.get_running_loop().time() < end_s, found
        admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
        await admin.start()
        await admin.delete_topics(found)
        await admin.close()
