"""From the messages of a slot to events: the changes of a commit, and what has to be read again after it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Final

from pequod_server.backing.errors import PackError
from pequod_server.backing.health import FeedBrokenError
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.pg_schema import Facts
from pequod_server.backing.pg_session import PostgresSession
from pequod_server.backing.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Field,
    Other,
    Relation,
    RowChange,
    Truncate,
    parse_message,
)
from pequod_server.backing.sql import quoted, quoted_table, table_parts
from pequod_server.backing.store import Change, Changes, Event, KeyRange, Progress, Reload
from pequod_server.backing.values import Cell, compose

#: How often it is looked whether a commit is visible.
_UNSEEN_S: Final = 0.01


@dataclass(slots=True)
class _Watched:
    """A relation of the stream and the mappings that read it."""

    mappings: tuple[Mapping, ...]
    columns: tuple[str, ...]


@dataclass(slots=True)
class Decoder:
    """Turns the messages of a stream into events, one for each commit."""

    session: PostgresSession
    facts: Facts
    #: All that was committed before this has been returned.
    position: int
    transaction: int | None = None
    #: Changes of the open transaction in order; the last of a key counts.
    changes: dict[bytes, bytes | None] = field(default_factory=dict)
    #: Rows that are mapped if they meet a condition, by mapping: key, value, and the row as JSON would hold it.
    judged: dict[int, dict[bytes, tuple[bytes, dict[str, Field]]]] = field(default_factory=dict)
    reloads: list[KeyRange] = field(default_factory=list)
    relations: dict[int, _Watched] = field(default_factory=dict)

    def pass_by(self, position: int) -> None:
        """Note how far the database has told its log; that is past what is open only once that is complete."""
        if self.transaction is None:
            self.position = max(self.position, position)

    async def events(self, data: bytes) -> list[Event]:
        """Return what the message completes: the changes of a commit, and what has to be read again after it."""
        match parse_message(data):
            case Begin(transaction, position):
                self.transaction = transaction
                self.position = max(self.position, position)
            case Relation() as relation:
                self._meet(relation)
            case RowChange() as change:
                self._note(change)
            case Truncate(oids):
                for oid in oids:
                    for mapping in self.relations[oid].mappings if oid in self.relations else ():
                        self.reloads.append(KeyRange(mapping.first, mapping.last))
            case Commit(end):
                assert self.transaction is not None, "a commit follows its begin"
                await self._judge()
                changes = tuple(Change(key, value) for key, value in self.changes.items())
                reloads = tuple(self.reloads)
                stamp, self.transaction = self.transaction, None
                self.changes, self.reloads = {}, []
                events: list[Event] = []
                if reloads:
                    # Only the last event of a commit says that it is over.
                    reached = self.position if changes else end
                    await self._wait_until_seen(Changes(end, stamp, ()))
                    events.append(
                        Reload(reached, reloads, "a table was truncated, or a change did not tell the whole row")
                    )
                if changes:
                    events.append(Changes(end, stamp, changes, are_seen=False))
                self.position = end
                return events or [Progress(end)]
            case Other():
                pass
        return []

    def _meet(self, relation: Relation) -> None:
        mappings = tuple(mapping for mapping in self.session.mappings if self.facts[mapping.table].oid == relation.oid)
        self.relations[relation.oid] = _Watched(mappings, relation.columns)
        identity = {name for name, key in zip(relation.columns, relation.is_identity, strict=True) if key}
        for mapping in mappings:
            missing = set(mapping.columns) - set(relation.columns)
            missing |= {slot.name for slot in mapping.slots} - identity
            if missing:
                raise FeedBrokenError(
                    f"{mapping.table} was altered: {', '.join(sorted(missing))} is gone, or not told of old rows",
                    is_lost=True,
                )

    def _note(self, change: RowChange) -> None:
        watched = self.relations.get(change.oid)
        if watched is None:
            return
        old = None if change.old is None else dict(zip(watched.columns, change.old, strict=True))
        new = None if change.new is None else dict(zip(watched.columns, change.new, strict=True))
        for mapping in watched.mappings:
            if old is not None:
                key = self._key(mapping, old)
                if key is not None:
                    self._set(mapping, key, None)
            if new is not None:
                self._note_new(mapping, new, old)

    def _note_new(self, mapping: Mapping, new: dict[str, Field], old: dict[str, Field] | None) -> None:
        if old is not None:
            # Old rows are sent whole with REPLICA IDENTITY FULL, and large values that stayed are in them.
            new = {name: old.get(name, UNCHANGED) if value is UNCHANGED else value for name, value in new.items()}
        key = self._key(mapping, new)
        if key is None:
            return
        if any(new[name] is UNCHANGED for name in (new if mapping.condition else mapping.value)):
            self.reloads.append(KeyRange(key, key + b"\0"))
            self._drop(mapping, key)
            return
        columns = self.facts[mapping.table].columns
        cells = [Cell(_text(new[name]), columns[name].kind) for name in mapping.value]
        value = compose(mapping.value, mapping.as_object, cells)
        if mapping.condition is None:
            self.changes[key] = value
        else:
            self.judged.setdefault(self.session.mappings.index(mapping), {})[key] = (value, new)

    def _set(self, mapping: Mapping, key: bytes, value: bytes | None) -> None:
        self._drop(mapping, key)
        self.changes[key] = value

    def _drop(self, mapping: Mapping, key: bytes) -> None:
        self.changes.pop(key, None)
        self.judged.get(self.session.mappings.index(mapping), {}).pop(key, None)

    def _key(self, mapping: Mapping, row: dict[str, Field]) -> bytes | None:
        if any(row[slot.name] is UNCHANGED for slot in mapping.slots):
            self.reloads.append(KeyRange(mapping.first, mapping.last))
            return None
        try:
            return mapping.key({slot.name: _text(row[slot.name]) for slot in mapping.slots})
        except PackError as error:
            self.session.health.unpackable(error)
            return None

    async def _wait_until_seen(self, changes: Changes) -> None:
        """Wait until reads see a commit that is logged: what is read again is not to be what was there before it."""
        while not (await self.session.seen()).covers(changes):  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(_UNSEEN_S)

    async def _judge(self) -> None:
        """Ask the database which of the new rows meet the conditions of their mappings."""
        for number, rows in self.judged.items():
            mapping = self.session.mappings[number]
            table = quoted_table(mapping.table)
            alias = quoted(table_parts(mapping.table)[1])
            async with self.session.connection() as connection:
                verdicts = await connection.fetch(
                    f"SELECT coalesce(({mapping.condition}), false) "
                    f"FROM ROWS FROM (jsonb_populate_recordset(NULL::{table}, $1::text::jsonb)) AS {alias}",
                    json.dumps([row for _, row in rows.values()]),
                )
            for (key, (value, _)), (is_met,) in zip(rows.items(), verdicts, strict=True):
                self.changes[key] = value if is_met else None
        self.judged.clear()


def _text(value: Field) -> str | None:
    assert value is None or isinstance(value, str), "large values are seen to before"
    return value
