"""A home whose base data are the clients' own puts: they die with its process, unless the server keeps them on disk.

A table is watched from the first load of it on, so a server that no compute asks pays nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from pequod.engine import Engine, MissingError, Rows, Watch
from pequod.engine.transacting import TransactionLimits, transact
from pequod.errors import BackingUnavailableError, BadRequestError
from pequod.language.conditions import Met, Unmet
from pequod.language.spec import DELIMITER
from pequod.language.transactions import Transaction
from pequod_server.backing import (
    Added,
    Addition,
    ConditionalChange,
    History,
    KeyRange,
    Place,
    RowChange,
    WrittenIf,
    WrittenTransaction,
)
from pequod_server.backing.repeated import once_of_addition, once_of_change
from pequod_server.backing.store import WrittenThrough, were_there
from pequod_server.backing.timed import deadlines_after, lasting_changes
from pequod_server.database.databases import Databases
from pequod_server.database.followed import Reached
from pequod_server.freshness.own import LifeHistory, OwnHistory
from pequod_server.homes.home.relay import Relay
from pequod_server.once.memory import RequestIds
from pequod_server.once.outcomes import once_of_transaction

log = logging.getLogger("pequod.peer")

Outcome = TypeVar("Outcome")


class MemoryOrigin:
    """The base data of a server without a database.

    Args:
        server_id: Names the history; another life of the server has another one.
        own: Names it instead: the data outlive the server. None: they die with it.
        ids: Remembers writes that may come again.
        databases: Has what writes lack taken in, if the data on disk are more than memory.
    """

    def __init__(
        self,
        engine: Engine,
        server_id: int,
        relay: Relay,
        own: OwnHistory | None = None,
        ids: RequestIds | None = None,
        databases: Databases | None = None,
    ) -> None:
        self.request_ids = ids or RequestIds()
        self.engine = engine
        self._databases = databases or Databases(engine)
        self._is_kept = own is not None
        self._own = own or LifeHistory(server_id)
        self.relay = relay
        self.tables: list[bytes] = []
        self._watches: dict[bytes, Watch] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    #: As of a home with a database.
    relays: tuple[int, ...] = ()
    needs_feed = False
    trouble = ""

    @property
    def history(self) -> History:
        """The history of the positions."""
        return self._own.history

    @property
    def position(self) -> int:
        """How far the engine is."""
        return self.engine.revision

    @property
    def shown_position(self) -> int:
        """The position that rows of the engine show."""
        return self.relay.position

    @property
    def age_ms(self) -> int:
        """Nothing is older."""
        return 0

    def wake(self) -> None:
        """Have the relay keep changes of the tables that computes load."""
        if not self.relay.is_awake:
            self._loop = asyncio.get_running_loop()
            if not self._is_kept:
                log.warning(
                    "other servers compute from this one's keys, and no database is behind it: the keys die with it"
                )
            self.relay.begin(self.history, self.position)
            self.relay.complete_from = self.position

    def prepare(self, ranges: Sequence[KeyRange]) -> None:
        """Watch the tables of ranges.

        Raises:
            BadRequestError: A range is not within one table, or a join computes keys of its table.
        """
        for one in ranges:
            table = table_of(one)
            if table is None:
                raise BadRequestError(f"the keys from {one.first!r} on are not of one table")
            prefix = table + DELIMITER
            for join in self.engine.joins():
                if join.spec.output.literal_prefix.startswith(prefix):
                    raise BadRequestError(
                        f"the join {join.name!r} computes keys of table {table!r}: they are no base data"
                    )
            if table not in self._watches:
                try:
                    watch = self.engine.watch(prefix, table + bytes((DELIMITER[0] + 1,)), self._wake)
                except MissingError as error:
                    # They are being loaded, or there are too many of them.
                    reason = f"the rows of table {table!r} are not all in its memory"
                    raise BackingUnavailableError("the home's data on disk", reason) from error
                watch.hears_deadlines = True
                self._watches[table] = watch

    async def follow(self, ranges: Sequence[KeyRange]) -> None:
        """Do nothing: their tables are watched."""

    def can_resume(self, ranges: Sequence[KeyRange]) -> bool:  # noqa: ARG002 - all are watched
        """Return true: whole tables are watched."""
        return True

    async def unknown_since(self, ranges: Sequence[KeyRange], since: Place) -> list[KeyRange] | None:  # noqa: ARG002
        """Return nothing: all changes of the tables that computes load are known."""
        return []

    def _wake(self) -> None:
        assert self._loop is not None, "watches begin once a compute has asked for something"
        self._loop.call_soon(self.settle)

    def settle(self) -> None:
        """Tell the relay what the watches have heard."""
        changes: list[RowChange] = []
        for table, watch in list(self._watches.items()):
            told = [RowChange(key, new) for key, _, new in self.engine.settle(watch)]
            changes += lasting_changes(self.engine.deadlines, told)
            if watch.ended is not None:
                # A join computes keys of the table from now on. Computes learn it from their next load.
                del self._watches[table]
                self._lose(watch.ended)
        if changes:
            self.relay.add(self.position, changes)

    def _lose(self, reason: str) -> None:
        self.relay.complete_from = None
        for subscriber in list(self.relay.subscribers.values()):
            self.relay.lose(subscriber, reason)

    async def bring(self, ranges: Sequence[KeyRange]) -> None:
        """Do nothing: all that there is is here."""

    async def scan(self, first: bytes, last: bytes | None, limit: int) -> Rows:
        """Return the first rows of a range."""
        return self.engine.scan(first, last, limit=limit)

    def reached(self, place: Place) -> Reached:
        """Return whether the engine has everything up to a place."""
        history = self.history
        end = self.position if place.timeline == history.timeline else history.ends.get(place.timeline, -1)
        return Reached.YES if place.position <= end else Reached.LOST

    async def come_to(self, place: Place) -> None:
        """Do nothing: no place is known before the engine is there."""

    async def ask(self, *, latest: bool) -> Place:  # noqa: ARG002 - what is here is the latest
        """Return the present place."""
        return Place(self.history.timeline, self.position)

    async def write(self, changes: Sequence[RowChange]) -> WrittenThrough:
        """Write to the engine: all checks come before the first change."""
        engine, final = self.engine, dict(changes)
        for key in final:
            engine.owned_by_database(key)
        puts = {key: value for key, value in final.items() if value is not None}

        def apply() -> list[bool]:
            if absent := [gap for key in final for gap in engine.absent(key, key + b"\0")]:
                raise MissingError(absent)
            found = were_there(changes, {key for key in final if engine.get(key) is not None})
            deadlines = deadlines_after(engine, puts.items())
            engine.put_all(list(puts), list(map(bytes, puts.values())))
            engine.set_deadlines(deadlines)
            for key, value in final.items():
                if value is None:
                    engine.discard(key)
            return found

        found = await self._written(apply)
        return WrittenThrough(Place(self.history.timeline, self.position), found)

    async def _written(self, write: Callable[[], Outcome]) -> Outcome:
        """Return what a write gives once the rows that decide it are in memory, and tell the relay."""
        outcome = await self._databases.read(write, ())
        self.settle()
        return outcome

    async def write_if(self, change: ConditionalChange) -> WrittenIf:
        """Write to the engine, if the condition holds."""
        key, value = change.key, change.value

        def decide() -> Met | Unmet:
            deadlines = deadlines_after(self.engine, [] if value is None else [(key, value)])
            outcome = self.engine.write_if(key, None if value is None else bytes(value), change.condition)
            if outcome:
                self.engine.set_deadlines(deadlines)
            return outcome

        outcome = await self._written(lambda: self.request_ids.once(once_of_change(change), decide))
        return WrittenIf(Place(self.history.timeline, self.position), outcome)

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> WrittenTransaction:
        """Run a transaction on the engine."""
        write = once_of_transaction(transaction)
        run = partial(transact, self.engine, transaction, time.monotonic(), limits)
        done = await self._written(lambda: self.request_ids.once(write, run))
        return WrittenTransaction(Place(self.history.timeline, self.position), done)

    async def add(self, addition: Addition) -> Added:
        """Add to a value of the engine."""
        write = once_of_addition(addition)
        run = partial(self.engine.add, addition.key, addition.delta)
        total = await self._written(lambda: self.request_ids.once(write, run))
        return Added(Place(self.history.timeline, self.position), total)

    def stop(self) -> None:
        """Watch nothing more."""
        for watch in self._watches.values():
            self.engine.unwatch(watch)
        self._watches.clear()


def table_of(one: KeyRange) -> bytes | None:
    """Return the table that holds all keys of a range, None if no table does."""
    table, delimiter, _ = one.first.partition(DELIMITER)
    if not delimiter or one.last is None or one.last > table + bytes((DELIMITER[0] + 1,)):
        return None
    return table
