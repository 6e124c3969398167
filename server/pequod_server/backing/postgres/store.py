"""PostgreSQL behind the cache.

Loads run in a REPEATABLE READ snapshot and return its horizon. Changes come from a replication slot (`slot`: durable,
resumed at its position) or from triggers (`notify`: nothing to configure, everything read again after a break).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import asyncpg

from pequod.engine import SearchRange
from pequod.engine.transacting import TransactionLimits, locked_keys
from pequod.escapes import shown
from pequod.language.transactions import Transaction
from pequod_server.backing.errors import (
    BackingUnavailableError,
    MappingError,
    PackError,
    SchemaError,
    WriteRefusedError,
)
from pequod_server.backing.health import Backoff, mended
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.postgres import install, removal
from pequod_server.backing.postgres.deciding import add_one, decide, decide_one
from pequod_server.backing.postgres.due import PostgresDeadlines
from pequod_server.backing.postgres.history import place, proven_place
from pequod_server.backing.postgres.notify import notify_feed
from pequod_server.backing.postgres.request_table import RequestTable
from pequod_server.backing.postgres.schema import (
    Connection,
    Facts,
    Mode,
    advice,
    check_identity,
    check_schema,
    described,
    read_facts,
)
from pequod_server.backing.postgres.session import PostgresSession, keys_as_ranges
from pequod_server.backing.postgres.slot import slot_feed
from pequod_server.backing.postgres.transactions import OneByOneError, in_transaction
from pequod_server.backing.postgres.writes import statements_of
from pequod_server.backing.repeated import once_of_addition, once_of_change
from pequod_server.backing.rows import sorted_in_steps
from pequod_server.backing.store import (
    Added,
    Addition,
    ConditionalChange,
    Event,
    IsWanted,
    KeyRange,
    Loaded,
    Place,
    RowChange,
    SequenceHorizon,
    Status,
    WrittenIf,
    WrittenThrough,
    WrittenTransaction,
    every_key,
    were_there,
)
from pequod_server.backing.timed import is_due
from pequod_server.backing.turns import Turns, in_turns
from pequod_server.backing.values import decompose
from pequod_server.once.outcomes import once_of_transaction

_FEED_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}").fullmatch
#: Rows that one statement writes or looks up: they are encoded in one step.
_TOGETHER = 250
#: Another number says that rows of earlier versions are not what would be made of them now.
_VALUES = 2


class PostgresStore(PostgresDeadlines):
    """A PostgreSQL database as the owner of the mapped keys."""

    def __init__(
        self,
        dsn: str,
        mappings: Sequence[Mapping],
        *,
        mode: Mode = "slot",
        feed_name: str = "pequod",
        connections_max: int = 4,
        timeout_s: float = 10.0,
        held_bytes_max: int = 64 << 20,
        keep_s: float = 600.0,
        backoff: Backoff | None = None,
    ) -> None:
        if not _FEED_NAME(feed_name):
            raise MappingError(feed_name, "the feed's name is small letters, digits and `_`, and 63 of them at most")
        self.mappings = tuple(mappings)
        self._backoff = backoff or Backoff()
        self._session = PostgresSession(
            dsn,
            mappings,
            mode,
            feed_name,
            connections_max=connections_max,
            timeout_s=timeout_s,
            held_bytes_max=held_bytes_max,
        )
        self.request_ids = RequestTable(self._session, keep_s)

    @property
    def status(self) -> Status:
        """The state of the change feed."""
        return self._session.health.status

    async def check(self) -> list[str]:
        """Compare the mappings with the real schema and return advice."""
        session, problems = self._session, list[str]()
        async with session.connection() as connection:
            level = await connection.fetchval("SHOW wal_level")
            if session.mode == "slot" and level != "logical":
                problems.append(
                    f"wal_level is {level}; for `slot` set wal_level = logical in postgresql.conf, and restart it"
                )
            # All problems are reported together, also missing installations for the tables that exist.
            facts = await read_facts(connection, self.mappings)
            there = [mapping for mapping in self.mappings if mapping.table in facts]
            for check in (
                lambda: check_schema(connection, session.name, self.mappings),
                lambda: install.check_installed(
                    connection, session.name, session.mode, session.feed_name, there, facts
                ),
            ):
                try:
                    await check()
                except SchemaError as error:
                    problems += error.problems
        if problems:
            raise SchemaError(session.name, problems)
        return advice(self.mappings, (await session.check_installed())[0])

    async def described(self) -> list[list[str]]:
        """Return for each mapping, in their order, what is made of each of its columns."""
        async with self._session.connection() as connection:
            facts = await read_facts(connection, self.mappings)
        return [described(mapping, facts[mapping.table]) for mapping in self.mappings]

    async def install(self) -> list[str]:
        """Make the publication or triggers, and a generic mapping's table, in one transaction; return the statements.

        Raises:
            SchemaError: The tables do not fit the mapping, or this user may not do it; nothing is changed.
        """
        session = self._session
        async with session.connection() as connection, connection.transaction():
            made = install.tables(self.mappings)
            for statement in made:
                await connection.execute(statement)
            facts = await check_schema(connection, session.name, self.mappings)
            before = await removal.replica_identities(connection, self.mappings)
            if session.mode == "slot":
                is_there = await connection.fetchval(
                    "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = $1)", session.feed_name
                )
                statements = list(install.install_slot(session.feed_name, self.mappings, facts, is_there=is_there))
            else:
                statements = list(install.install_notify(session.feed_name, self.mappings))
            for statement in statements:
                await connection.execute(statement)
            if session.mode == "slot":
                facts = await check_schema(connection, session.name, self.mappings)
                check_identity(session.name, self.mappings, facts)
                after = await removal.replica_identities(connection, self.mappings)
                changed = {table: identity for table, identity in before.items() if after[table] != identity}
                for statement in await removal.note_identities(connection, session.feed_name, changed):
                    await connection.execute(statement)
                    statements.append(statement)
        return [*made, *statements]

    async def removal(self) -> list[str]:
        """Return the statements that remove what `install` and feeds of this name made; none if there is nothing.

        Raises:
            SlotNotDroppedError: A server uses the replication slot.
        """
        async with self._session.connection() as connection:
            return await removal.uninstall(connection, self._session.feed_name)

    async def slot_removal(self) -> list[str]:
        """Return the statement that drops the replication slot of this name; nothing if there is no such slot.

        Raises:
            SlotNotDroppedError: A server uses the replication slot.
        """
        async with self._session.connection() as connection:
            return await removal.drop_slot(connection, self._session.feed_name)

    async def carry_out(self, statements: Sequence[str]) -> None:
        """Run the statements of `removal`: replication slots are dropped first, the rest is one transaction."""
        async with self._session.connection() as connection:
            rest = list(statements)
            while rest and rest[0].startswith("SELECT pg_drop_replication_slot"):
                await connection.execute(rest.pop(0))
            async with connection.transaction():
                for statement in rest:
                    await connection.execute(statement)

    async def load(self, ranges: Sequence[KeyRange]) -> Loaded:
        """Read ranges as of one moment."""
        return await self.find(ranges, [])

    async def find(self, ranges: Sequence[KeyRange], searches: Sequence[SearchRange]) -> Loaded:
        """Read ranges, and what searches find, as of one moment."""
        rows, moment = await self._session.read(ranges, searches)
        horizon = (
            moment.snapshot
            if self._session.mode == "slot"
            else SequenceHorizon(moment.snapshot.position, moment.number)
        )
        ordered = await in_turns(sorted_in_steps(rows.items()), Turns())
        return Loaded(tuple(ordered), horizon, moment.timeline)

    def changes(self, since: int | None = None, is_wanted: IsWanted = every_key) -> AsyncIterator[Event]:
        """Yield the events after a position."""
        session = self._session

        def feed(since: int | None) -> AsyncGenerator[Event, None]:
            return self._feed(since, is_wanted)

        return mended(feed, since, session.everything, session.health, self._backoff, session.closing)

    async def write(self, changes: Sequence[RowChange]) -> WrittenThrough:
        """Write changes in one transaction."""
        turns = Turns()
        plans: list[Mapping] = []
        for change in changes:
            plans.append(self._mapping(change))
            if turns.are_due():
                await turns.give()

        async def work(connection: Connection, facts: Facts, attempt: int) -> list[bool]:
            if len(changes) > 1 and attempt == 0:
                return await self._write_many(connection, facts, plans, changes)
            pairs = zip(plans, changes, strict=True)
            return [await self._write_one(connection, facts, mapping, change) for mapping, change in pairs]

        return WrittenThrough(*await in_transaction(self._session, work))

    async def write_if(self, change: ConditionalChange) -> WrittenIf:
        """Write a change if its condition holds: a row that is there is locked, and one that is not must not come."""
        how = change, self._mapping(RowChange(change.key, change.value)), self._session._rows, self._write_one
        work = self.request_ids.decided(once_of_change(change), lambda line, facts: decide_one(line, facts, *how))
        return WrittenIf(*await work)

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> WrittenTransaction:
        """Run a transaction; see `deciding`."""
        for change in transaction.writes():
            self._mapping(RowChange(*change))
        mappings = {key: self._mapping(RowChange(key, None)) for key in locked_keys(transaction)}

        how = transaction, limits, mappings, self._session._rows, self._write_one
        once = once_of_transaction(transaction)
        work = self.request_ids.decided(once, lambda line, facts: decide(line, facts, *how), mappings)
        return WrittenTransaction(*await work)

    async def add(self, addition: Addition) -> Added:
        """Add to a row; see `deciding`."""
        how = addition, self._mapping(RowChange(addition.key, None)), self._session._rows, self._write_one
        work = self.request_ids.decided(once_of_addition(addition), lambda line, facts: add_one(line, facts, *how))
        return Added(*await work)

    async def position(self) -> Place:
        """Return how far the log is flushed."""
        async with self._session.connection() as connection:
            return await place(connection)

    async def latest(self) -> Place:
        """Commit an empty logical message, and return how far the log is flushed."""
        async with self._session.connection() as connection:
            return await proven_place(connection)

    def hurry(self, position: int) -> None:
        """Have the feed come to a position soon."""
        self._session.hurry(position)

    async def mark(self) -> str:
        """Return a text that identifies the cluster, its timeline, the replication slot and the tables."""
        return (await self._mark())[0]

    async def knows(self, mark: str) -> bool:
        """Return whether the replication slot may still have all changes since; notifications are not kept."""
        if self._session.mode == "notify":
            return False
        present, self._session.fingerprint = await self._mark()
        return mark == present

    async def _mark(self) -> tuple[str, str]:
        session = self._session
        _, fingerprint = await session.check_installed()
        async with session.connection() as connection:
            place = await connection.fetchrow(
                "SELECT system_identifier, timeline_id, current_database() AS name "
                "FROM pg_control_system(), pg_control_checkpoint()"
            )
        assert place is not None
        facts = json.dumps([_VALUES, *map(str, place.values()), session.mode, session.feed_name, fingerprint])
        return hashlib.sha256(facts.encode()).hexdigest(), fingerprint

    async def close(self) -> None:
        """End the feed and close the connections; a replication slot stays, for a feed that resumes."""
        await self._session.close()
        self._session.health.closed()

    async def _feed(self, since: int | None, is_wanted: IsWanted) -> AsyncGenerator[Event, None]:
        session = self._session
        session.forget_facts()
        feed = slot_feed if session.mode == "slot" else notify_feed
        async with aclosing(feed(session, since, is_wanted)) as events:
            try:
                async for event in events:
                    session.passed = event.position
                    yield event
            except asyncpg.PostgresError as error:
                raise BackingUnavailableError(session.name, str(error)) from error

    def _mapping(self, change: RowChange) -> Mapping:
        for mapping in self.mappings:
            if mapping.columns_of(change.key) is not None:
                if change.value is not None:
                    decompose(change.key, change.value, mapping.value, mapping.form)
                return mapping
        raise PackError(
            f"key {shown(change.key)}", "it is of no mapped pattern, or its slots cannot be of their columns"
        )

    async def _write_many(
        self, connection: Connection, facts: Facts, plans: Sequence[Mapping], changes: Sequence[RowChange]
    ) -> list[bool]:
        """Write rows in a few round trips, if there is no conflict; only the last change of a key counts.

        Returns:
            For each change whether its key was there just before it.

        Raises:
            OneByOneError: There is one, which writing the rows one by one will show.
        """
        last = {change.key: (mapping, change) for mapping, change in zip(plans, changes, strict=True)}
        put = [key for key, (_, change) in last.items() if change.value is not None]
        before = await self._there(connection, facts, put)
        rows_of: dict[str, dict[Sequence[object], bytes]] = {}
        turns = Turns()
        for key, (mapping, change) in last.items():
            statements = statements_of(mapping, facts, change)
            query = statements[0] if key in before else statements[-1]
            rows_of.setdefault(query.text, {})[query.parameters] = key
            if turns.are_due():
                await turns.give()
        for text, keys in rows_of.items():
            rows = list(keys)
            for at in range(0, len(rows), _TOGETHER):
                # Removals answer with the parameters of those that found a row.
                gone = await connection.fetchmany(text, rows[at : at + _TOGETHER])
                before.update(keys[tuple(one)] for one in gone)
        if len(await self._there(connection, facts, put)) < len(put):
            raise OneByOneError
        return were_there(changes, before)

    async def _there(self, connection: Connection, facts: Facts, keys: Sequence[bytes]) -> set[bytes]:
        """Return which keys have a row."""
        there: set[bytes] = set()
        for at in range(0, len(keys), _TOGETHER):
            there.update(await self._session._rows(connection, facts, keys_as_ranges(keys[at : at + _TOGETHER])))
        return there

    async def _write_one(
        self, connection: Connection, facts: Facts, mapping: Mapping, change: RowChange, *, is_absent: bool = False
    ) -> bool:
        """Write a row, and return whether its key was there; True for a put.

        Args:
            is_absent: The row is not to be there: then it is inserted, or the write fails.
        """
        *updates, insert = statements_of(mapping, facts, change)
        if change.value is None:
            return bool(await connection.fetch(insert.text, *insert.parameters))
        for update in () if is_absent else updates:
            if not (await connection.execute(update.text, *update.parameters)).endswith(" 0"):
                break
        else:
            await connection.execute(insert.text, *insert.parameters)
        there = await self._session._rows(connection, facts, keys_as_ranges([change.key]))
        if change.key not in there and not is_due(change.value):
            raise WriteRefusedError(
                self._session.name,
                f"the row of key {shown(change.key)} would not meet the condition of {mapping.pattern}",
            )
        return True
