"""Views in Kafka: rows are records of compacted topics, and each transaction has the positions of its parts with them.

    topic of a view      key of a row -> its columns as JSON; no value: there is no such row
    topic of the ledger  the tables beside the views, see kafka_mirror.py

A transaction of Kafka has nobody wait, so what may be written is ruled by transactional ids. There is one for each
owner of parts. Rows of a part, and its row of the ledger, are written under the id of its owner, also by other
processes. A process that opens an id fences its former user off, whose open transaction is undone. So

    a manager          keeps its id open, and writes its parts, and rows of these, without asking anybody
    who takes a part   opens the id of its owner, reads the ledger to its end, and writes if nothing is there that it
                       did not know: what the owner has under way comes before that, or never
    nobody's parts     and the views as a whole have the id of no owner, which is the turn of those who install
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalOperation, InvalidTopicError, KafkaError, MessageSizeTooLargeError, ProducerFenced

from pequod_views.errors import TargetAwayError, TargetBusyError, TargetRefusedError, TargetUnfitError
from pequod_views.targets.kafka_address import parse_address
from pequod_views.targets.kafka_mirror import LedgerChange, LedgerMirror
from pequod_views.targets.kafka_refusal import UNAUTHORISED, may_not
from pequod_views.targets.kafka_topics import LEDGER, ROWS, KafkaConnections, Record, TopicReader
from pequod_views.targets.kafka_transaction import DIALECT, KafkaTransaction, RowRecord
from pequod_views.targets.target import LookAgain

#: A manager that holds its parts reads what others have written at most so often.
_READ_S: Final = 0.2
#: One that was fenced off leaves its id alone for a while, so that who did it can end.
_FENCED_S: Final = 0.5
_WORK_S: Final = 60.0
#: A topic that was read as a whole is kept for a further transaction.
_KEPT_S: Final = 10.0
_NOBODY: Final = ""


class KafkaTarget:
    """Topics that hold views: one transaction at a time in each process."""

    dialect = DIALECT

    def __init__(self, database: str) -> None:
        self._address = parse_address(database)
        self.name = self._address.shown
        self.ledger = self._address.ledger
        self.connections = KafkaConnections(self._address)
        self._turn = asyncio.Lock()
        #: By owner, those that are open; all but those of managers of this process end with the transaction.
        self._producers: dict[str, AIOKafkaProducer] = {}
        self._own: set[str] = set()
        #: Those that this process has ever opened.
        self._opened: set[str] = set()
        self._fenced_s: dict[str, float] = {}
        self._clock_s = 0.0
        self._begin_anew()
        self._reader: TopicReader | None = None
        self._tables: dict[str, TableTopic] = {}

    def _begin_anew(self) -> None:
        self.mirror = LedgerMirror(lambda: time.time() + self._clock_s)
        #: Tells records of this process from others. Whether what it wrote before was committed is not known.
        self._token = secrets.token_bytes(8)
        self._read_s = float("-inf")
        #: Whether Kafka is being asked: an error then leaves open what was read and written.
        self._is_asking = False
        #: Records that were taken over inside the present transaction.
        self._taken: list[Record] = []
        self.topics: dict[str, int] = {}

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[KafkaTransaction]:
        """Begin a transaction; of each owner's parts all is written or nothing."""
        async with self._turn:
            try:
                async with self.asking():
                    await self._refresh()
                self.mirror.begin()
                transaction = KafkaTransaction(self)
                yield transaction
                async with self.asking():
                    await self._commit(transaction)
                self._end_foreign()
            except BaseException as error:
                self._undo(error)
                match error:
                    case MessageSizeTooLargeError() | InvalidTopicError():
                        raise TargetRefusedError(self.name, str(error)) from error
                    case ProducerFenced() | IllegalOperation():
                        raise TargetBusyError(self.name, "another process has written for the same owner") from error
                    case KafkaError() if isinstance(error, UNAUTHORISED):
                        raise may_not(self._address, error) from error
                    case KafkaError() | OSError() | TimeoutError():
                        raise TargetAwayError(self.name, str(error) or type(error).__name__) from error
                    case sqlite3.Error():
                        raise TargetRefusedError(self.name, str(error)) from error
                    case _:
                        raise

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Ask Kafka; an error inside has all be read anew."""
        self._is_asking = True
        try:
            async with asyncio.timeout(_WORK_S) as bound:
                yield
        except TimeoutError as error:
            if bound.expired():
                raise TimeoutError(f"it was not done within {_WORK_S:g} s") from error
            raise
        self._is_asking = False

    def _undo(self, error: BaseException) -> None:
        """Forget the transaction; if Kafka was being asked, also all that was read and opened."""
        self.mirror.rollback()
        if isinstance(error, ProducerFenced | IllegalOperation):
            now_s = time.monotonic()
            self._fenced_s = dict.fromkeys(self._own & self._producers.keys(), now_s)
        if not self._is_asking:
            self.mirror.apply((one.key, one.value) for one in self._taken)
            self._taken.clear()
            self._end_foreign()
        else:
            self._reset()

    def _reset(self) -> None:
        producers, self._producers = self._producers, {}
        reader, self._reader = self._reader, None
        tables, self._tables = self._tables, {}
        self.mirror.close()
        self._begin_anew()
        for producer in producers.values():
            self.connections.waits.let_go(producer)
        for table in tables.values():
            table.let_go()
        if reader is not None:
            reader.let_go()
        self.connections.let_go()

    def _end_foreign(self) -> None:
        for owner in [owner for owner in self._producers if owner not in self._own]:
            self.connections.waits.let_go(self._producers.pop(owner))

    async def _refresh(self) -> None:
        """Take over what others have committed."""
        now_s = time.monotonic()
        for topic in [topic for topic, table in self._tables.items() if now_s - table.used_s > _KEPT_S]:
            self._tables.pop(topic).let_go()
        if self._producers and now_s - self._read_s < _READ_S:
            return
        # A manager goes on beside another one that has died with a transaction open. A command, or a manager that
        # begins, has to know what was written behind that: whose data the views show, for instance.
        self.mirror.apply(_pairs(await self._read_ledger(to_latest=not self._producers)))
        self._read_s = now_s

    async def _read_ledger(self, *, to_latest: bool) -> list[Record]:
        """Return what others have written since the last time."""
        if self._reader is None:
            if not await self.has_topic(self.ledger):
                return []
            self._reader = await self.connections.reader(self.ledger, self._undo_open)
        return [one for one in await self._reader.read(to_latest=to_latest) if one.headers.get("by") != self._token]

    async def has_topic(self, topic: str) -> bool:
        """Return whether there is a topic; what was seen once counts as there until an error."""
        if topic not in self.topics:
            self.topics = await self.connections.topics()
        return topic in self.topics

    async def table(self, topic: str) -> TableTopic:
        """Return the rows of a topic."""
        if topic not in self._tables:
            self._tables[topic] = TableTopic(await self.connections.reader(topic))
        return self._tables[topic]

    async def take_over(self) -> None:
        """Take over, inside a transaction, all that others have committed or are committing.

        Raises:
            TargetBusyError: They have changed what the transaction has changed.
        """
        records = await self._read_ledger(to_latest=True)
        self._taken += records
        if not self.mirror.changed_keys().isdisjoint(one.key for one in records):
            raise TargetBusyError(self.name, "others have changed the same parts meanwhile")
        self.mirror.apply(_pairs(records))

    async def fence_off(self, owners: Sequence[str]) -> None:
        """Have the parts of owners for this transaction alone, and know all that was written of them.

        Raises:
            TargetBusyError: They have changed what the transaction has changed.
        """
        missing = [owner for owner in dict.fromkeys(owners) if owner not in self._producers]
        if not missing:
            return
        for owner in missing:
            wait_s = self._fenced_s.pop(owner, -_FENCED_S) + _FENCED_S - time.monotonic()
            await asyncio.sleep(max(0.0, wait_s))
            self._producers[owner] = await self.connections.producer(f"{self.ledger}/{owner}")
        # A manager has named itself a moment ago: nobody has written under its name.
        if not (self._own >= set(missing) and self._opened.isdisjoint(missing)):
            await self.take_over()
        self._opened.update(missing)

    async def _undo_open(self, owners: set[str]) -> None:
        """Have Kafka undo transactions that stay open: of managers that died, or are stopped, or are very slow."""
        for owner in owners - self._producers.keys():
            self.connections.waits.let_go(await self.connections.producer(f"{self.ledger}/{owner}"))

    async def _commit(self, transaction: KafkaTransaction) -> None:
        changes = self.mirror.changes()
        groups = self._groups(changes, transaction.rows)
        self._own |= {one.fence for one in changes if one.fence and one.key.startswith(b'["managers"')}
        if groups:
            if not await self.has_topic(self.ledger):
                await self.connections.make(self.ledger, LEDGER)
            await self.fence_off(list(groups))
        for topic in transaction.dropped:
            await self.connections.drop(topic)
            self.topics.pop(topic, None)
        for owner, (ledger, rows) in groups.items():
            await self._write(owner, ledger, rows)
        for topic in transaction.made:
            await self.connections.make(topic, ROWS)
        self.mirror.commit()
        self._taken.clear()

    def _groups(
        self, changes: Sequence[LedgerChange], rows: Sequence[RowRecord]
    ) -> dict[str, tuple[list[LedgerChange], list[tuple[RowRecord, bytes]]]]:
        """Return what is to be written, by the owner under whose id it is."""
        groups: dict[str, tuple[list[LedgerChange], list[tuple[RowRecord, bytes]]]] = {}
        for change in changes:
            if change.fence is not None:
                groups.setdefault(change.fence, ([], []))[0].append(change)
        parts = {view: _Parts(self.mirror, view) for view in {one.view for one in rows}}
        for row in rows:
            owner, position = parts[row.view].of(row.key)
            groups.setdefault(owner, ([], []))[1].append((row, position))
        # What nobody has to be kept from goes with the first, so that it is in the same transaction if there is one.
        free = [change for change in changes if change.fence is None]
        if free:
            first = next(iter([*groups, *(self._own & self._producers.keys())]), _NOBODY)
            groups.setdefault(first, ([], []))[0].extend(free)
        return groups

    async def _write(self, owner: str, ledger: Sequence[LedgerChange], rows: Sequence[tuple[RowRecord, bytes]]) -> None:
        """Write records in one transaction."""
        for topic in {row.topic for row, _ in rows}:
            if not await self.has_topic(topic):
                raise TargetUnfitError(self.name, f"there is no topic {topic}; run `pequod views install`")
        records: list[tuple[Any, ...]] = [
            (row.topic, row.value, row.key, None, None, [("position", position)]) for row, position in rows
        ]
        headers = [("by", self._token), ("owner", owner.encode())]
        records += [(self.ledger, change.value, change.key, 0, None, headers) for change in ledger]
        outcomes = await self.connections.waits.within(_written(self._producers[owner], records))
        if ledger:
            self._clock_s = getattr(outcomes[-1], "timestamp", time.time() * 1e3) / 1e3 - time.time()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[LookAgain]:
        """Have readers look again and again: who waits would have to read the ledger anyway."""
        yield LookAgain()

    async def close(self) -> None:
        """Close the connections; in order if the brokers answer, and at any rate soon."""
        self._reset()
        await self.connections.waits.ended()


async def _written(producer: AIOKafkaProducer, records: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Write records in one transaction; return what Kafka tells of each."""
    sent: list[asyncio.Future[Any]] = []
    try:
        await producer.begin_transaction()
        for record in records:
            sent.append(await producer.send(*record))
            # What becomes of each record is also in the error of the transaction.
            sent[-1].add_done_callback(lambda done: done.cancelled() or done.exception())
        await producer.commit_transaction()
    except (MessageSizeTooLargeError, InvalidTopicError):
        await producer.abort_transaction()
        raise
    except AssertionError as error:
        # So aiokafka tells that it was fenced off in the background.
        raise ProducerFenced from error
    return await asyncio.gather(*sent)


class TableTopic:
    """The rows of a topic as of its end, in memory."""

    def __init__(self, reader: TopicReader) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.used_s = time.monotonic()
        self._reader = reader
        self._keys: list[bytes] | None = None

    async def read(self) -> None:
        """Take over all that was committed or is being committed."""
        self.used_s = time.monotonic()
        for one in await self._reader.read(to_latest=True):
            if one.value is None:
                self.rows.pop(one.key, None)
            else:
                self.rows[one.key] = one.value
            self._keys = None

    @property
    def keys(self) -> list[bytes]:
        """All keys, in order."""
        if self._keys is None:
            self._keys = sorted(self.rows)
        return self._keys

    def let_go(self) -> None:
        """Close the connection."""
        self._reader.let_go()


class _Parts:
    """The parts of a view, by key."""

    def __init__(self, mirror: LedgerMirror, view: str) -> None:
        statement = (
            "SELECT first, last, owner, server_id, revision FROM pequod_views_parts WHERE view = $1 ORDER BY first"
        )
        self._parts = mirror.run(statement, {"1": view})
        self._firsts = [row[0] for row in self._parts]

    def of(self, key: bytes) -> tuple[str, bytes]:
        """Return who owns the part of a key, and the part's position."""
        at = bisect_right(self._firsts, key) - 1
        if at < 0:
            return _NOBODY, b""
        _first, last, owner, server_id, revision = self._parts[at]
        return (_NOBODY, b"") if last is not None and key >= last else (owner, f"{server_id}:{revision}".encode())


def _pairs(records: Sequence[Record]) -> list[tuple[bytes, bytes | None]]:
    return [(one.key, one.value) for one in records]
