"""Topics of Kafka: made, dropped, looked at, and read to their ends.

A reader takes committed records alone. "To the latest" waits for transactions that are open; without it the reader
stops before the first of these.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, for_code

from pequod_views.errors import ViewFileError
from pequod_views.targets.kafka_address import KafkaAddress
from pequod_views.targets.kafka_refusal import why_not
from pequod_views.targets.kafka_waits import KafkaClient, KafkaWaits

# It tells of each attempt to reach a broker, ten a second; what comes of them is told once, by the target's errors.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

#: What a topic of rows has to have, and is made with. A tombstone stays for a day, for readers who are away.
_COMPACTED: Final = {"cleanup.policy": "compact"}
ROWS: Final = {**_COMPACTED, "delete.retention.ms": "86400000"}
#: Its moments are the brokers', by which leases run; it is compacted soon, since each process reads it as a whole.
LEDGER: Final = {
    **_COMPACTED,
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": "16777216",
}
_REQUEST_MS: Final = 10_000
_READ_MS: Final = 50
#: Transactions have records in the ledger for some milliseconds. One that has them for longer is in the way.
_BLOCKED_S: Final = 2.0
#: Longer transactions are undone by the brokers; one of a manager that died is undone by who takes its parts.
_TRANSACTION_MS: Final = 30_000
_RECORD_BYTES_MAX: Final = 32 << 20


Undo: TypeAlias = Callable[[set[str]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic; without a value it says that there is none."""

    key: bytes
    value: bytes | None
    headers: Mapping[str, bytes]


class KafkaConnections:
    """Makes clients of the brokers, and asks them about topics."""

    def __init__(self, address: KafkaAddress) -> None:
        self.waits = KafkaWaits()
        self._address = address
        self._settings: dict[str, Any] = {
            "client_id": "pequod views",
            "request_timeout_ms": _REQUEST_MS,
        }
        if address.mechanism is not None:
            self._settings |= {
                "sasl_mechanism": address.mechanism,
                "sasl_plain_username": address.user,
                "sasl_plain_password": address.password,
            }
        protocol = "PLAINTEXT" if address.ca is None else "SSL"
        self._settings["security_protocol"] = protocol if address.mechanism is None else _sasl(protocol)
        if address.ca is not None:
            self._settings["ssl_context"] = _encryption(address.ca)
        self._admin: AIOKafkaAdminClient | None = None
        self._latest: AIOKafkaConsumer | None = None

    async def producer(self, transactional_id: str) -> AIOKafkaProducer:
        """Return a producer; an earlier one of the same name is fenced off, and its open transaction undone."""
        producer = AIOKafkaProducer(
            **self._settings,
            bootstrap_servers=list(self._address.brokers),
            transactional_id=transactional_id,
            transaction_timeout_ms=_TRANSACTION_MS,
            max_request_size=_RECORD_BYTES_MAX,
            max_batch_size=1 << 18,
            retry_backoff_ms=20,
        )
        await self._start(producer)
        return producer

    async def _start(self, client: KafkaClient) -> None:
        try:
            await self.waits.started(client)
        except KafkaConnectionError as error:
            raise await why_not(self._address, self._settings, self.waits) from error

    async def reader(self, topic: str, undo: Undo | None = None) -> TopicReader:
        """Return a reader of a topic that is there."""
        reader = await self._consumer("read_committed")
        return TopicReader(topic, reader, self, undo)

    async def writers(self, place: TopicPartition, start: int, end: int) -> set[str]:
        """Return who has written records between two places, committed or not, by their headers."""
        consumer, found = await self._consumer("read_uncommitted"), set[str]()
        try:
            consumer.assign([place])
            consumer.seek(place, start)
            while await self.waits.within(consumer.position(place)) < end:
                records = await self.waits.within(consumer.getmany(place, timeout_ms=_READ_MS))
                for one in records.get(place, []):
                    found.update(value.decode() for name, value in one.headers if name == "owner")
        finally:
            self.waits.let_go(consumer)
        return found

    async def ends(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where partitions end, with what is not committed yet."""
        if self._latest is None:
            self._latest = await self._consumer("read_uncommitted")
        found: dict[TopicPartition, int] = await self.waits.within(self._latest.end_offsets(places))
        return found

    async def _consumer(self, isolation: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            **self._settings,
            bootstrap_servers=list(self._address.brokers),
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=_RECORD_BYTES_MAX,
        )
        await self._start(consumer)
        return consumer

    async def topics(self) -> dict[str, int]:
        """Return the numbers of partitions of all topics; asking for one of them might make it."""
        found = await self.waits.within((await self._administrator()).describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in found if not topic["error_code"]}

    async def make(self, topic: str, settings: Mapping[str, str]) -> None:
        """Make a topic of one partition, if it is not there."""
        # The brokers say how many replicas it has.
        wanted = NewTopic(topic, 1, -1, {}, dict(settings))
        answer = await self.waits.within((await self._administrator()).create_topics([wanted]))
        _demand(answer.topic_errors, "TopicAlreadyExistsError")

    async def drop(self, topic: str) -> None:
        """Drop a topic, if it is there."""
        answer = await self.waits.within((await self._administrator()).delete_topics([topic]))
        _demand(answer.topic_error_codes, "UnknownTopicOrPartitionError")

    async def settings(self, topic: str) -> dict[str, str]:
        """Return the settings of a topic."""
        wanted = ConfigResource(ConfigResourceType.TOPIC, topic)
        (answer,) = await self.waits.within((await self._administrator()).describe_configs([wanted]))
        return {entry[0]: entry[1] for resource in answer.resources for entry in resource[4]}

    async def _administrator(self) -> AIOKafkaAdminClient:
        if self._admin is None:
            admin = AIOKafkaAdminClient(**self._settings, bootstrap_servers=list(self._address.brokers))
            await self._start(admin)
            self._admin = admin
        return self._admin

    def let_go(self) -> None:
        """Close the connections; they are opened again when they are needed."""
        latest, self._latest, admin, self._admin = self._latest, None, self._admin, None
        for one in (latest, admin):
            if one is not None:
                self.waits.let_go(one)


class TopicReader:
    """Reads a topic from its beginning.

    Args:
        undo: Is given the writers of a transaction that stays open in the way of a reader to the latest.
    """

    def __init__(
        self, topic: str, consumer: AIOKafkaConsumer, connections: KafkaConnections, undo: Undo | None
    ) -> None:
        self._undo = undo
        self._topic = topic
        self._consumer = consumer
        self._connections = connections
        self._places: list[TopicPartition] = []

    async def read(self, *, to_latest: bool) -> list[Record]:
        """Return the records that came since the last call."""
        consumer, waits = self._consumer, self._connections.waits
        if not self._places:
            count = (await self._connections.topics()).get(self._topic, 0)
            self._places = [TopicPartition(self._topic, number) for number in range(count)]
            consumer.assign(self._places)
            await waits.within(consumer.seek_to_beginning(*self._places))
        found, blocked_s = list[Record](), time.monotonic()
        for place, end in (await self._connections.ends(self._places)).items():
            while (position := await waits.within(consumer.position(place))) < end:
                some = (await waits.within(consumer.getmany(place, timeout_ms=_READ_MS))).get(place, [])
                found += [Record(one.key, one.value, dict(one.headers)) for one in some if one.key is not None]
                stable = consumer.last_stable_offset(place)
                is_blocked = not some and stable is not None and position >= stable
                if is_blocked and not to_latest:
                    # A transaction is open there.
                    break
                blocked_s = blocked_s if is_blocked else time.monotonic()
                if self._undo is not None and time.monotonic() - blocked_s > _BLOCKED_S:
                    await self._undo(await self._connections.writers(place, position, end))
                    blocked_s = time.monotonic()
        return found

    def let_go(self) -> None:
        """Close the connection."""
        self._connections.waits.let_go(self._consumer)


def _sasl(protocol: str) -> str:
    return "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT"


def _demand(errors: Sequence[Sequence[Any]], passed: str) -> None:
    """Pass if no topic has an error but this one."""
    for _topic, code, *reason in errors:
        kind = for_code(code)
        if code and kind.__name__ != passed:
            raise kind(*[text for text in reason if text])


def _encryption(ca: str) -> ssl.SSLContext:
    """Return how to talk to brokers whose certificates those of a file sign.

    Raises:
        ViewFileError: The file cannot be read, or has none.
    """
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = f"the certificates in {ca} cannot be read: {error.strerror or error}"
        raise ViewFileError("database", f"the address of Kafka: {reason}") from error
