"""A transaction over Kafka: statements of the ledger run in memory, rows of views wait for the commit."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pequod_views.definition import DurableView, TableRow
from pequod_views.errors import TargetUnfitError
from pequod_views.parts import Place, ViewPart
from pequod_views.targets.kafka_address import is_topic
from pequod_views.targets.kafka_topics import LEDGER, ROWS
from pequod_views.targets.kafka_values import decoded, encoded, stored
from pequod_views.targets.sqlite import DIALECT as SQLITE
from pequod_views.targets.sums import RangeSum
from pequod_views.targets.target import PartChunk, RowChange, TargetDialect

if TYPE_CHECKING:
    from pequod_views.targets.kafka import KafkaTarget, TableTopic

DIALECT: Final[TargetDialect] = dataclasses.replace(
    SQLITE, now_s="pequod_now()", stored=stored, digest=lambda _view: None
)
_PARTS: Final = "pequod_views_parts"


@dataclass(frozen=True, slots=True)
class RowRecord:
    """A row that is to be written; without a value it is to be deleted."""

    view: str
    topic: str
    key: bytes
    value: bytes | None


class KafkaTransaction:
    """What is to be written at once."""

    def __init__(self, target: KafkaTarget) -> None:
        self.rows: list[RowRecord] = []
        self.made: list[str] = []
        self.dropped: list[str] = []
        self._target = target
        self._mirror = target.mirror
        #: Topics that were read by this transaction.
        self._read: dict[str, TableTopic] = {}

    async def fetch(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Run a statement of the ledger and return its rows."""
        return self._mirror.run(statement, _named(arguments))

    async def fetch_each(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Run a statement with each of these rows of arguments."""
        return [found for row in rows for found in self._mirror.run(statement, _named(row))]

    async def change_each(self, change: RowChange, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Change rows."""
        return await self.fetch_each(change.returning, rows)

    async def take_turn(self) -> None:
        """Fence off others who have the turn: the last one that comes has it."""
        await self._fence_off([""])

    async def _fence_off(self, owners: Sequence[str]) -> None:
        async with self._target.asking():
            await self._target.fence_off(owners)

    async def lock_parts(self, views: Sequence[str]) -> None:
        """Have all parts of views for this transaction alone."""
        found = set[str]()
        for view in views:
            rows = await self.fetch(f"SELECT DISTINCT owner FROM {_PARTS} WHERE view = $1", view)
            found.update(row[0] for row in rows)
        await self._fence_off(sorted(found))

    async def lock_part(self, place: Place, last: bytes | None) -> tuple[str, int] | None:
        """Have a part for this transaction alone."""
        owners = await self.fetch(f"SELECT owner FROM {_PARTS} WHERE view = $1 AND first = $2", *place)
        await self._fence_off([row[0] for row in owners])
        return await self._position(place, last)

    async def _position(self, place: Place, last: bytes | None) -> tuple[str, int] | None:
        rows = await self.fetch(
            f"SELECT server_id, revision FROM {_PARTS} WHERE view = $1 AND first = $2 AND last IS $3", *place, last
        )
        return (rows[0][0], rows[0][1]) if rows else None

    async def upsert(self, view: DurableView, rows: Sequence[TableRow]) -> None:
        """Write rows by their keys; those that are known to be equal are left alone."""
        known = self._read[view.table].rows if view.table in self._read else {}
        for row in rows:
            key, value = row[0], encoded(view, row)
            assert isinstance(key, bytes), "the first cell of a row is its key"
            if known.get(key) != value:
                self.rows.append(RowRecord(view.name, view.table, key, value))

    async def delete(self, view: DurableView, keys: Sequence[bytes]) -> None:
        """Delete the rows of keys."""
        self.rows += [RowRecord(view.name, view.table, key, None) for key in keys]

    async def delete_others(self, view: DurableView, first: bytes, last: bytes | None, keys: Sequence[bytes]) -> None:
        """Delete the rows of a range but those of some keys."""
        kept, found = set(keys), (await self._table(view)).keys
        stop = len(found) if last is None else bisect_left(found, last)
        await self.delete(view, [key for key in found[bisect_left(found, first) : stop] if key not in kept])

    async def _table(self, view: DurableView, *, again: bool = False) -> TableTopic:
        """Return the rows of a view's topic as of now, or as this transaction has read them before."""
        if again or view.table not in self._read:
            if not await self.has_table(view):
                # What is to be made is empty.
                raise self._refused(f"there is no topic {view.table}; run `pequod views install`")
            async with self._target.asking():
                table = self._read[view.table] = await self._target.table(view.table)
                await table.read()
        return self._read[view.table]

    async def table_columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table of the ledger with their types."""
        rows = await self.fetch("SELECT name, type FROM pragma_table_info($1)", table)
        return {name: kind.lower() for name, kind in rows}

    async def has_table(self, view: DurableView) -> bool:
        """Return whether the topic of a view is there."""
        if not is_topic(view.table):
            raise self._refused(f"{view.table!r} is no name of a topic; set `table` of {view.name}")
        return await self._has_topic(view.table)

    async def _has_topic(self, topic: str) -> bool:
        async with self._target.asking():
            return await self._target.has_topic(topic)

    async def table_problems(self, view: DurableView) -> list[str]:
        """Return what is wrong with the topic of a view, or with that of the ledger."""
        if not await self.has_table(view):
            return [f"{view.name}: there is no topic {view.table}; run `pequod views install`"]
        problems = []
        for topic, wanted in ((view.table, ROWS), (self._target.ledger, LEDGER)):
            if not await self._has_topic(topic):
                continue
            async with self._target.asking():
                found, policy = await self._target.connections.settings(topic), wanted["cleanup.policy"]
            if found.get("cleanup.policy") != policy:
                problems.append(
                    f"{view.name}: cleanup.policy of the topic {topic} is {found.get('cleanup.policy')}, which would"
                    f" lose rows; it should be {policy}"
                )
            if found.get("unclean.leader.election.enable") == "true":
                problems.append(f"{view.name}: unclean.leader.election.enable of {topic} would lose transactions")
        return problems

    async def make_table(self, view: DurableView) -> None:
        """Make the topic of a view, behind all that is written: a part that has a position finds its rows."""
        self.made.append(view.table)

    async def mend_table(self, view: DurableView) -> None:
        """Make the topic of a view if there is none."""
        if not await self.has_table(view):
            async with self._target.asking():
                await self._target.connections.make(view.table, ROWS)

    async def drop_table(self, table: str) -> None:
        """Drop the topic of a view, before anything is written."""
        self.dropped.append(table)

    async def keys_outside(self, view: DurableView) -> list[bytes]:
        """Return the keys of rows outside of the range of a view."""
        keys = (await self._table(view)).keys
        return [key for key in keys if key < view.first or (view.last is not None and key >= view.last)]

    async def sum_of(self, view: DurableView, part: ViewPart, start: bytes, stop: bytes | None) -> RangeSum | None:
        """Refuse: brokers compute nothing, and the topic is read as a whole anyway."""
        raise NotImplementedError

    async def chunk(
        self, view: DurableView, part: ViewPart, start: bytes, stop: bytes | None, count: int
    ) -> PartChunk | None:
        """Return a part's position and its first rows of a range.

        The topic is read behind the ledger, and then the ledger again: what the rows have more than the first position
        belongs to transactions that the second one has.
        """
        before = await self._position(part.place, part.last)
        table = await self._table(view, again=True)
        async with self._target.asking():
            await self._target.take_over()
        after = await self._position(part.place, part.last)
        if before is None or after is None:
            return None
        keys = table.keys
        end = len(keys) if stop is None else bisect_left(keys, stop)
        found = keys[bisect_left(keys, start) : end][:count]
        # Of another server nothing is known at the position before.
        revision = before[1] if before[0] == after[0] else -1
        return PartChunk(after[0], revision, after[1], {key: decoded(view, key, table.rows[key]) for key in found})

    def _refused(self, reason: str) -> TargetUnfitError:
        return TargetUnfitError(self._target.name, reason)


def _named(arguments: Sequence[Any]) -> dict[str, Any]:
    return {str(number): argument for number, argument in enumerate(arguments, 1)}
