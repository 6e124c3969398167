"""SQLite behind the cache: embedded, nothing to install.

There is one writer at a time, so the numbers that triggers give to changes are in the order of commits. The feed polls
`PRAGMA data_version`, and reads the list of changed keys and their present values in one snapshot.

Loads, feed and writes each have a connection in a thread of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pequod.engine import SearchRange
from pequod.engine.transacting import TransactionLimits
from pequod.freshness import SQLITE_STATE, database_of
from pequod.language.transactions import Transaction
from pequod_server.backing.errors import PackError, SchemaError
from pequod_server.backing.health import Backoff, FeedBrokenError, Health, mended
from pequod_server.backing.mapping import GENERIC_TABLE, Mapping
from pequod_server.backing.noted import Noted
from pequod_server.backing.repeated import once_of_addition, once_of_change
from pequod_server.backing.rows import Clip, packed, result_of, sorted_in_steps
from pequod_server.backing.searches import by_columns
from pequod_server.backing.sql import Query, boxes_of, select
from pequod_server.backing.sqlite import schema as sqlite_schema
from pequod_server.backing.sqlite.connection import SqliteConnection, transaction
from pequod_server.backing.sqlite.dialect import SqliteDialect, plan_of
from pequod_server.backing.sqlite.due import SqliteDeadlines
from pequod_server.backing.sqlite.recalled import SqliteIds
from pequod_server.backing.sqlite.schema import CHANGES
from pequod_server.backing.sqlite.writes import add, carry_out, transact, write_if
from pequod_server.backing.store import (
    Added,
    Addition,
    Changes,
    ConditionalChange,
    Event,
    History,
    IsWanted,
    KeyRange,
    Loaded,
    Place,
    Progress,
    Reload,
    RowChange,
    SequenceHorizon,
    Status,
    WrittenIf,
    WrittenThrough,
    WrittenTransaction,
    every_key,
    whole,
)
from pequod_server.backing.turns import Turns
from pequod_server.backing.values import cell_of
from pequod_server.once.outcomes import Once, once_of_transaction

T = TypeVar("T")

#: In place of a mapping's name among the changes.
_MARK: Final = "mark"
#: Notes that are read at a time, and ranges in one statement.
_NOTES_MAX: Final = 2000
_RANGES_MAX: Final = 1000


class SqliteStore(SqliteDeadlines):
    """An SQLite database as the owner of the mapped keys."""

    def __init__(
        self, path: str | Path, mappings: Sequence[Mapping], *, poll_s: float = 0.01, backoff: Backoff | None = None
    ) -> None:
        self.mappings = tuple(mappings)
        self._path = Path(path)
        self._poll_s = poll_s
        self._backoff = backoff or Backoff()
        self._health = Health()
        self._closing = asyncio.Event()
        #: Ends a pause of the feed.
        self._hurried = asyncio.Event()
        #: The version of the schema that the last feed saw: if a part was missing since, changes may be lost.
        self._schema: int | None = None
        self._loads = SqliteConnection(self._path)
        self._feed = SqliteConnection(self._path, is_feed=True)
        self._writes = SqliteConnection(self._path)
        self.request_ids = SqliteIds(self._loads, self._writes)

    @property
    def status(self) -> Status:
        """The state of the change feed."""
        return self._health.status

    async def check(self) -> list[str]:
        """Compare the mappings with the real schema and return advice."""
        return await self._loads.run(lambda line: sqlite_schema.check_all(line, self._name, self.mappings))

    async def described(self) -> list[list[str]]:
        """Return for each mapping, in their order, what is made of each of its columns."""
        mappings = self.mappings
        return await self._loads.run(lambda line: [sqlite_schema.described(line, one) for one in mappings])

    async def install(self) -> list[str]:
        """Make the change table and the triggers, in one transaction, and return the statements.

        A generic mapping's table is made, too, and the file if there is none.

        Raises:
            SchemaError: The tables do not fit the mapping; nothing is changed.
        """
        is_generic = any(mapping.table == GENERIC_TABLE for mapping in self.mappings)
        if is_generic and not self._path.exists():
            with contextlib.closing(sqlite3.connect(self._path)) as connection:
                # Writers and loads go side by side.
                connection.execute("PRAGMA journal_mode = WAL")

        def install(connection: sqlite3.Connection) -> list[str]:
            with transaction(connection, "IMMEDIATE"):
                statements = list[str]()
                if is_generic:
                    statements += sqlite_schema.generic(connection)
                for statement in statements:
                    connection.execute(statement)
                sqlite_schema.check_schema(connection, self._name, self.mappings)
                for statement in sqlite_schema.install(connection, self.mappings):
                    connection.execute(statement)
                    statements.append(statement)
                return statements

        return await self._writes.run(install)

    async def removal(self) -> list[str]:
        """Return the statements that remove what `install` made; none if there is nothing."""
        return await self._loads.run(lambda connection: list(sqlite_schema.uninstall(connection)))

    async def carry_out(self, statements: Sequence[str]) -> None:
        """Run statements of `removal` in one transaction."""

        def carry_out(connection: sqlite3.Connection) -> None:
            with transaction(connection, "IMMEDIATE"):
                for statement in statements:
                    connection.execute(statement)

        await self._writes.run(carry_out)

    async def load(self, ranges: Sequence[KeyRange]) -> Loaded:
        """Read ranges as of one moment."""
        return await self.find(ranges)

    async def find(self, ranges: Sequence[KeyRange], searches: Sequence[SearchRange] = ()) -> Loaded:
        """Read ranges, and what searches find, as of one moment."""

        def load(connection: sqlite3.Connection) -> Loaded:
            with transaction(connection):
                seq = sqlite_schema.position_of(connection)
                rows = self._read(connection, ranges)
                for columns, some in by_columns(self.mappings, searches):
                    query = select(SqliteDialect(), columns.mapping, columns.boxes(some), columns.slots)
                    rows.update(self._records(connection, columns.mapping, query))
            # In steps here, too: while a list is sorted, no other thread can run Python.
            return Loaded(tuple(result_of(sorted_in_steps(rows.items()))), SequenceHorizon(seq, seq))

        return await self._loads.run(load)

    def changes(self, since: int | None = None, is_wanted: IsWanted = every_key) -> AsyncIterator[Event]:
        """Yield the events after a position."""

        def session(since: int | None) -> AsyncGenerator[Event, None]:
            return self._session(since, is_wanted)

        return mended(session, since, self._everything(), self._health, self._backoff, self._closing)

    async def write(self, changes: Sequence[RowChange]) -> WrittenThrough:
        """Write changes in one transaction."""
        turns = Turns()
        plans: list[list[Query]] = []
        #: The keys that have a row afterwards.
        written: dict[bytes, Mapping] = {}
        for change in changes:
            mapping, statements = plan_of(self.mappings, change)
            plans.append(statements)
            written.pop(change.key, None)
            if change.value is not None:
                written[change.key] = mapping
            if turns.are_due():
                await turns.give()

        def write(line: sqlite3.Connection) -> list[bool]:
            return carry_out(self._name, line, plans, written, self._read)

        return WrittenThrough(*await self._decided(write))

    async def write_if(self, change: ConditionalChange) -> WrittenIf:
        """Write a change if its condition holds; no other writer comes between."""
        how = change, self.mappings, self._read
        return WrittenIf(*await self._decided(lambda line: write_if(self._name, line, *how), once_of_change(change)))

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> WrittenTransaction:
        """Run a transaction; no other writer comes between."""
        how = transaction, limits, self.mappings, self._read
        write = self._decided(lambda line: transact(self._name, line, *how), once_of_transaction(transaction))
        return WrittenTransaction(*await write)

    async def add(self, addition: Addition) -> Added:
        """Add to a row; no other writer comes between."""
        how = addition, self.mappings, self._read
        return Added(*await self._decided(lambda line: add(self._name, line, *how), once_of_addition(addition)))

    async def _decided(
        self, decide: Callable[[sqlite3.Connection], T], write: Once[T] | None = None
    ) -> tuple[Place, T]:
        """Do work in one transaction, unless it came before; return the place behind it, and its outcome."""

        def run(connection: sqlite3.Connection) -> tuple[Place, T]:
            with transaction(connection, "IMMEDIATE"):
                found = self.request_ids.once(connection, write, partial(decide, connection))
                return Place(1, sqlite_schema.position_of(connection)), found

        return await self._writes.run(run)

    async def position(self) -> Place:
        """Return the number of the last change."""
        return Place(1, await self._loads.run(sqlite_schema.position_of))

    async def latest(self) -> Place:
        """Return the number of the last change: a file that can be read is the database."""
        return await self.position()

    def hurry(self, position: int) -> None:  # noqa: ARG002 - the file is looked at as a whole
        """Look at the file now."""
        self._hurried.set()

    async def mark(self) -> str:
        """Leave a note among the changes, which earlier copies of the file do not have."""

        def mark(connection: sqlite3.Connection) -> str:
            note = secrets.token_hex(8)
            with transaction(connection, "IMMEDIATE"):
                connection.execute(f"INSERT INTO {CHANGES} (mapping, slots) VALUES (?, ?)", (_MARK, note))
                return f"{sqlite_schema.position_of(connection)} {sqlite_schema.schema_version(connection)} {note}"

        return await self._writes.run(mark)

    async def knows(self, mark: str) -> bool:
        """Return whether the note is there, and the schema is the same."""

        def knows(connection: sqlite3.Connection) -> bool:
            with transaction(connection):
                self._schema = sqlite_schema.schema_version(connection)
                row = connection.execute(
                    f"SELECT max(seq), slots FROM {CHANGES} WHERE mapping = ?", (_MARK,)
                ).fetchone()
            return bool(row) and mark == f"{row[0]} {self._schema} {row[1]}"

        return await self._loads.run(knows)

    async def close(self) -> None:
        """End the feed and close the connections."""
        self._closing.set()
        self._hurried.set()
        for line in (self._loads, self._feed, self._writes):
            await line.close()
        self._health.closed()

    @property
    def _name(self) -> str:
        return f"sqlite:{self._path}"

    # The feed.

    async def _session(self, since: int | None, is_wanted: IsWanted) -> AsyncGenerator[Event, None]:
        oldest, now, schema, file_id = await self._feed.run(self._start)
        history = History(database_of("sqlite", file_id))
        position = now if since is None else since
        is_altered = since is not None and self._schema not in {None, schema}
        self._schema = schema
        if oldest <= position <= now and not is_altered:
            yield Progress(position, history=history)
        else:
            reason = "the schema has changed" if is_altered else f"the changes after {position} are no longer listed"
            yield Reload(now, self._everything(), reason, history)
            position = now
        version = None
        while not self._closing.is_set():
            asked_s = self._health.now()
            seen = await self._feed.run(sqlite_schema.data_version)
            if seen != version:
                # Read before the batch, so that a commit in between is noticed the next time.
                version = seen
                event = await self._event(position, schema, is_wanted)
                if event.position > position:
                    yield event
                position = event.position
                await self._feed.run(sqlite_schema.forget_changes, position)
            self._health.stands(asked_s, 0)
            await self._pause()

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._hurried.wait(), self._poll_s)
        except TimeoutError:
            return
        self._hurried.clear()

    def _start(self, connection: sqlite3.Connection) -> tuple[int, int, int, int]:
        with transaction(connection):
            schema = sqlite_schema.schema_version(connection)
            sqlite_schema.check_schema(connection, self._name, self.mappings)
            sqlite_schema.check_triggers(connection, self._name, self.mappings)
            is_named = connection.execute(SQLITE_STATE).fetchone()[0] is not None
        if not is_named:
            # An older version installed it.
            with transaction(connection, "IMMEDIATE"):
                connection.execute(sqlite_schema.NAME_DATABASE)
        with transaction(connection):
            now = sqlite_schema.position_of(connection)
            (oldest,) = connection.execute(f"SELECT min(seq) - 1 FROM {CHANGES}").fetchone()
            (file_id, _) = connection.execute(SQLITE_STATE).fetchone()
            return now if oldest is None else int(oldest), now, schema, file_id

    async def _event(self, position: int, schema: int, is_wanted: IsWanted) -> Event:
        """Return the events after a position, from one snapshot."""
        noted, turns = Noted(self.mappings, is_wanted), Turns()
        try:
            seq, cursor = await self._feed.run(self._begin, position, schema)
            while found := await self._feed.run(self._noted_keys, cursor):
                for identity, key in found:
                    noted.add(identity, key)
                    if turns.are_due():
                        await turns.give()
            if ranges := noted.ranges:
                return Reload(seq, ranges, "more keys have changed than are worth telling apart")
            keys = noted.keys
            if not keys:
                return Progress(seq)
            rows = await self._feed.run(self._read, [KeyRange(key, key + b"\0") for key in keys])
            return Changes(seq, seq, tuple([RowChange(key, rows.get(key)) for key in keys]))
        finally:
            await self._feed.rollback()

    def _begin(self, connection: sqlite3.Connection, position: int, schema: int) -> tuple[int, sqlite3.Cursor]:
        connection.execute("BEGIN")
        if sqlite_schema.schema_version(connection) != schema:
            # A trigger may have been missing for a while.
            raise FeedBrokenError("the schema has changed", is_lost=True)
        seq = sqlite_schema.position_of(connection)
        return seq, connection.execute(f"SELECT DISTINCT mapping, slots FROM {CHANGES} WHERE seq > ?", (position,))

    def _noted_keys(self, _connection: sqlite3.Connection, cursor: sqlite3.Cursor) -> list[tuple[str, bytes]]:
        """Return the next noted keys; none at the end."""
        by_identity = {mapping.identity: mapping for mapping in self.mappings}
        found: list[tuple[str, bytes]] = []
        while not found and (notes := cursor.fetchmany(_NOTES_MAX)):
            for identity, slots in notes:
                mapping = by_identity.get(identity)
                if mapping is None:
                    continue
                try:
                    found.append((identity, mapping.key(json.loads(slots))))
                except PackError as error:
                    self._health.unpackable(error)
        return found

    def _everything(self) -> tuple[KeyRange, ...]:
        return whole(self.mappings)

    def _read(self, connection: sqlite3.Connection, ranges: Sequence[KeyRange]) -> dict[bytes, bytes]:
        rows: dict[bytes, bytes] = {}
        for at in range(0, len(ranges), _RANGES_MAX):
            some = ranges[at : at + _RANGES_MAX]
            clip = Clip(some)
            for mapping in self.mappings:
                found = self._records(connection, mapping, select(SqliteDialect(), mapping, boxes_of(mapping, some)))
                rows.update((key, value) for key, value in found if clip.holds(key))
        return rows

    def _records(
        self, connection: sqlite3.Connection, mapping: Mapping, query: Query | None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of each row that a statement gives."""
        if query is None:
            return
        try:
            records = connection.execute(query.text, query.parameters)
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                raise SchemaError(self._name, [str(error)]) from error
            raise
        yield from packed(mapping, (list(map(cell_of, record)) for record in records), self._health.unpackable)
