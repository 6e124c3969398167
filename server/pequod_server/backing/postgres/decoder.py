"""From the messages of a replication slot to events: the changes of a commit, and the ranges to read again after it.

    Begin                     the commit is logged, and perhaps visible by now
    Insert, Update, Delete    a change, or nothing if the key is not loaded (below), or a row to be judged, in pieces
    Commit                    one `Changes` with all of it; a `Reload` of the ranges whose changes could not be kept

The memory for a commit is bounded: beyond the bound, a mapping is read again as a whole.

**Rows that are not loaded are dropped** before they are unpacked, once reads see the commit. Until then, a load that
begins later may not hold the commit, and needs all of its rows. From then on every load that begins later holds all of
it; so if the key is neither loaded nor being loaded when its row comes, the row will never be needed. An earlier row of
the same key, which came when the key was loaded, is dropped as well: if the key is loaded again later, that load has
it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from pequod_server.backing.errors import PackError
from pequod_server.backing.health import FeedBrokenError
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.postgres.judge import Judge, UnjudgedError
from pequod_server.backing.postgres.lookout import Lookout
from pequod_server.backing.postgres.pgoutput import (
    DELETE,
    INSERT,
    NEW_ROW,
    ROW_AT,
    ROWS,
    UNCHANGED,
    WHOLE_ROW,
    Begin,
    Commit,
    Field,
    Other,
    Relation,
    Truncate,
    parse_message,
    read_columns,
    table_of,
)
from pequod_server.backing.postgres.rows import MappedRows
from pequod_server.backing.postgres.schema import Facts
from pequod_server.backing.postgres.session import PostgresSession
from pequod_server.backing.store import Changes, Event, IsWanted, KeyRange, Progress, Reload, RowChange, whole

#: How often the feed checks whether a commit is visible, and after how many rows of the commit.
_UNSEEN_S: Final = 0.01
UNSEEN_ROWS: Final = 256
#: The bytes of a change without its key and value.
CHANGE_BYTES: Final = 250
#: If more keys of one mapping have to be read again, the whole mapping is.
_KEYS_MAX: Final = 1_000


@dataclass(slots=True)
class _Part:
    """The changes of a commit to the keys of one mapping."""

    #: By key; only the last change of a key counts.
    changes: dict[bytes, RowChange] = field(default_factory=dict)
    held_bytes: int = 0
    #: Keys that have to be read again.
    keys: dict[bytes, None] = field(default_factory=dict)
    #: Whether the whole mapping has to be read again; then nothing more is noted.
    is_given_up: bool = False

    def put(self, key: bytes, value: bytes | None) -> None:
        """Note the present value of a key."""
        self.drop(key)
        self.held_bytes += len(key) + len(value or b"") + CHANGE_BYTES
        self.changes[key] = RowChange(key, value)

    def drop(self, key: bytes) -> None:
        """Drop what was noted of a key."""
        old = self.changes.pop(key, None)
        if old is not None:
            self.held_bytes -= len(key) + len(old.value or b"") + CHANGE_BYTES

    def give_up(self) -> None:
        """Drop everything, and have the whole mapping read again."""
        self.is_given_up = True
        self.changes, self.keys, self.held_bytes = {}, {}, 0

    def ranges(self, mapping: Mapping) -> list[KeyRange]:
        """Return the ranges that have to be read again."""
        if self.is_given_up:
            return [*whole([mapping])]
        return [KeyRange(key, key + b"\0") for key in self.keys]


@dataclass(slots=True)
class _Commit:
    """The transaction whose messages are coming."""

    #: Its number, modulo 2**32.
    transaction: int
    #: Whether every read that begins from now on sees it.
    is_seen: bool
    #: One for each mapping.
    parts: tuple[_Part, ...]
    #: Rows that came since the last check whether reads see it.
    row_count: int = 0
    #: The reason why ranges have to be read again.
    reasons: dict[str, None] = field(default_factory=dict)

    def give_up(self, number: int, reason: str) -> None:
        """Note that a mapping has to be read again as a whole."""
        self.parts[number].give_up()
        self.reasons[reason] = None

    def read_again(self, number: int, keys: list[bytes], reason: str) -> None:
        """Note that keys of a mapping have to be read again."""
        part = self.parts[number]
        for key in keys:
            part.drop(key)
            part.keys[key] = None
        self.reasons[reason] = None
        if len(part.keys) > _KEYS_MAX:
            part.give_up()


class Decoder:
    """Turns the messages of a stream into events.

    Args:
        is_wanted: Returns whether a key is loaded or being loaded.

    Invariants:
        1. The memory for a commit is bounded, for each mapping, by the session's ``held_bytes_max``, a piece for its
        judge, and a message.
    """

    def __init__(
        self,
        session: PostgresSession,
        facts: Facts,
        lookout: Lookout,
        start: int,
        is_wanted: IsWanted,
    ) -> None:
        self._session = session
        self._facts = facts
        self._lookout = lookout
        self._is_wanted = is_wanted
        self._held_bytes_max = session.held_bytes_max
        #: The changes of all commits before this have been returned.
        self.position = start
        self._open: _Commit | None = None
        self._relations: dict[int, tuple[MappedRows, ...]] = {}
        self._judges = {
            number: Judge(mapping, lookout.fetch)
            for number, mapping in enumerate(session.mappings)
            if mapping.condition is not None
        }
        self._is_piece_full = False

    @property
    def is_open(self) -> bool:
        """Whether a commit has begun, and has not been returned."""
        return self._open is not None

    def pass_by(self, position: int) -> None:
        """Note how far the database has sent its log; an open commit ends after that, unless it is complete."""
        if self._open is None:
            self.position = max(self.position, position)

    def note(self, data: bytes) -> bool:
        """Take in a message of a row; return whether it is processed. If not, await `events`.

        Cost:
            3 µs for a row that is not loaded (bench row: feed, dropped).
        """
        kind = data[0]
        if kind not in ROWS:
            return False
        readers = self._relations.get(table_of(data))
        commit = self._open
        assert commit is not None, "a row follows its begin"
        if not readers:
            return True
        for rows in readers:
            if commit.parts[rows.number].is_given_up:
                continue
            if kind == INSERT:
                self._note_new(commit, rows, data, ROW_AT, None)
            else:
                self._note_old(commit, rows, data)
            if commit.parts[rows.number].held_bytes > self._held_bytes_max:
                self._give_up(commit, rows.number)
        commit.row_count += 1
        return not self._is_piece_full and (commit.is_seen or commit.row_count < UNSEEN_ROWS)

    async def events(self, data: bytes) -> list[Event]:
        """Process a message that completes something, and return the resulting events."""
        commit = self._open
        if data[0] in ROWS:
            assert commit is not None, "a row follows its begin"
            await self._judge(commit, is_last=False)
            if commit.row_count >= UNSEEN_ROWS and not commit.is_seen:
                commit.row_count = 0
                commit.is_seen = (await self._lookout.ask()).seen.covers(commit.transaction)
            return []
        match parse_message(data):
            case Begin(transaction, position):
                self.position = max(self.position, position)
                seen = self._lookout.seen
                is_seen = seen is not None and seen.covers(transaction)
                self._open = _Commit(transaction, is_seen, tuple(_Part() for _ in self._session.mappings))
            case Relation() as relation:
                self._meet(relation)
            case Truncate(oids):
                assert commit is not None, "a change follows its begin"
                for oid in oids:
                    for rows in self._relations.get(oid, ()):
                        commit.give_up(rows.number, "a table was truncated")
            case Commit(end):
                assert commit is not None, "a commit follows its begin"
                events = await self._complete(commit, end)
                self._open, self.position = None, end
                return events
            case Other():
                pass
        return []

    async def _complete(self, commit: _Commit, end: int) -> list[Event]:
        await self._judge(commit, is_last=True)
        ranges = [
            one
            for part, mapping in zip(commit.parts, self._session.mappings, strict=True)
            for one in part.ranges(mapping)
        ]
        changes = tuple(chain.from_iterable(part.changes.values() for part in commit.parts))
        events: list[Event] = []
        if ranges:
            # Only the last event of a commit has the position after it.
            reached = self.position if changes else end
            await self._wait_until_seen(commit)
            events.append(Reload(reached, tuple(ranges), "; ".join(commit.reasons)))
        if changes:
            events.append(Changes(end, commit.transaction, changes, are_seen=commit.is_seen))
        return events or [Progress(end)]

    def _meet(self, relation: Relation) -> None:
        readers = []
        identity = {name for name, key in zip(relation.columns, relation.is_identity, strict=True) if key}
        for number, mapping in enumerate(self._session.mappings):
            facts = self._facts[mapping.table]
            if facts.oid != relation.oid:
                continue
            missing = set(mapping.columns) - set(relation.columns)
            missing |= {slot.name for slot in mapping.slots} - identity
            if missing:
                raise FeedBrokenError(
                    f"{mapping.table} was altered: {', '.join(sorted(missing))} is gone, or not told of old rows",
                    is_lost=True,
                )
            readers.append(MappedRows.of(mapping, number, relation.columns, facts))
        self._relations[relation.oid] = tuple(readers)

    def _note_old(self, commit: _Commit, rows: MappedRows, data: bytes) -> None:
        """Note an update or a delete."""
        if data[ROW_AT - 1] == NEW_ROW:
            self._note_new(commit, rows, data, ROW_AT, None)
            return
        is_whole = data[ROW_AT - 1] == WHOLE_ROW
        old, at = read_columns(data, ROW_AT, len(rows.columns))
        key = self._key(commit, rows, old)
        if key is not None:
            self._forget(commit, rows, key)
            if not commit.is_seen or self._is_wanted(key):
                commit.parts[rows.number].put(key, None)
        if data[0] != DELETE:
            self._note_new(commit, rows, data, at + 1, old if is_whole else None)

    def _note_new(self, commit: _Commit, rows: MappedRows, data: bytes, at: int, old: list[Field] | None) -> None:
        """Note the new row that begins at ``at``."""
        row, _ = read_columns(data, at, rows.key_count)
        key = self._key(commit, rows, row if old is None else _merged(row, old))
        if key is None:
            return
        if commit.is_seen and not self._is_wanted(key):
            self._forget(commit, rows, key)
            return
        row, _ = read_columns(data, at, len(rows.columns))
        # With REPLICA IDENTITY FULL, unchanged large values are in the old row; otherwise that has the key alone.
        row = row if old is None else _merged(row, old)
        if not rows.is_whole(row):
            self._forget(commit, rows, key)
            commit.read_again(rows.number, [key], "a change did not tell the whole row")
            return
        value = rows.shown(row)
        if value is None or rows.mapping.condition is None:
            if value is None:
                self._forget(commit, rows, key)
            commit.parts[rows.number].put(key, value)
        else:
            judge = self._judges[rows.number]
            judge.add(key, value, rows.as_json(row))
            self._is_piece_full |= judge.is_full

    def _forget(self, commit: _Commit, rows: MappedRows, key: bytes) -> None:
        """Drop the changes of a key in this commit so far."""
        part = commit.parts[rows.number]
        if part.changes:
            part.drop(key)
        if rows.number in self._judges:
            self._judges[rows.number].drop(key)

    def _key(self, commit: _Commit, rows: MappedRows, row: list[Field]) -> bytes | None:
        try:
            key = rows.key(row)
        except PackError as error:
            self._session.health.unpackable(error)
            return None
        if key is None:
            commit.give_up(rows.number, "a change did not tell the whole key")
        return key

    def _give_up(self, commit: _Commit, number: int) -> None:
        """Hold no more rows of a mapping that has too many in the commit."""
        text = f"a commit has changed more than {self._held_bytes_max} bytes of what is loaded at once"
        commit.give_up(number, text)
        if number in self._judges:
            self._judges[number].clear()

    async def _judge(self, commit: _Commit, *, is_last: bool) -> None:
        """Ask the database which rows meet their conditions, if there are enough of them or no more will come."""
        self._is_piece_full = False
        for number, judge in self._judges.items():
            if not judge.is_full and not is_last:
                continue
            if commit.parts[number].is_given_up:
                judge.clear()
                continue
            try:
                for key, value in await judge.judge():
                    commit.parts[number].put(key, value)
            except UnjudgedError as error:
                # A read of one of the keys loads it, and gets the error if it is that row's.
                reason = f"the condition of {judge.mapping.pattern} fails: {error}"
                self._session.health.trouble(reason)
                commit.read_again(number, judge.keys, reason)
            judge.clear()

    async def _wait_until_seen(self, commit: _Commit) -> None:
        """Wait until reads see a logged commit, so that ranges that are read again are not as they were before it."""
        while not commit.is_seen:
            commit.is_seen = (await self._lookout.ask()).seen.covers(commit.transaction)
            if not commit.is_seen:
                await asyncio.sleep(_UNSEEN_S)


def _merged(row: list[Field], old: list[Field]) -> list[Field]:
    """Return a new row whose missing columns are taken from the old one."""
    return [before if value is UNCHANGED else value for value, before in zip(row, old, strict=False)]
