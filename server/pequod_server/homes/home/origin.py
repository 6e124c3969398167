"""Where a home's base data come from: a database, whose feed the relay follows; or the clients' own puts.

DatabaseOrigin   tables of the database   events of its feed           places: the database's
PassedOrigin     tables of other servers  events of their feed         places: the database's, behind all of them
MemoryOrigin     all that is not computed  watches over whole tables   places: revisions of this server
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from typing import Final

from pequod.engine import Engine, Rows
from pequod.engine.transacting import TransactionLimits, backed_key
from pequod.errors import BackedKeyError, BackingUnavailableError, BadRequestError
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
from pequod_server.backing.store import WrittenThrough
from pequod_server.backing.timed import refuse_deadline
from pequod_server.backing.turns import Turns
from pequod_server.database.databases import Databases
from pequod_server.database.followed import Reached
from pequod_server.freshness.questions import Questions
from pequod_server.homes.home.exports import Exports
from pequod_server.homes.home.own_origin import MemoryOrigin, table_of
from pequod_server.homes.home.relay import Relay
from pequod_server.once.parts import Remembering
from pequod_server.wire.publishing import HOME

log = logging.getLogger("pequod.peer")

#: After this time the feed of the database is hurried again.
_PATIENCE_S: Final = 10.0


class DatabaseOrigin:
    """The base data of a server with a database, and the tables that it computes from them for others.

    Args:
        tables: Those of the database.
        exported: Those that joins compute.
    """

    def __init__(
        self,
        engine: Engine,
        databases: Databases,
        tables: Sequence[bytes],
        relay: Relay,
        exported: Sequence[bytes] = (),
    ) -> None:
        self.engine = engine
        self._databases = databases
        self._loader = loader = databases.all[0]
        self.tables = [*tables, *exported]
        self.relay = relay
        self._exports = Exports(engine, relay, exported, tables)
        self._position = Questions(loader.store.position, lambda _begun_s, _place: None)
        self._latest = Questions(loader.store.latest, lambda _begun_s, _place: None)
        self._waking: asyncio.Task[None] | None = None
        #: The database remembers them; None: it does not.
        self.request_ids = loader.store.request_ids if isinstance(loader.store, Remembering) else None
        loader.tell(self._exports if exported else relay)

    #: The lives of the servers through which its changes come from the homes, this one first; none at a home.
    relays: tuple[int, ...] = ()
    #: Whether only computes that are told of a range may load it.
    needs_feed = False

    @property
    def trouble(self) -> str:
        """Why computes have to go on elsewhere; empty if they need not."""
        return ""

    @property
    def history(self) -> History:
        """The history of the positions."""
        history = self._loader.followed.history
        if history is None:
            raise BackingUnavailableError(HOME, "its feed of changes does not stand yet")
        return history

    @property
    def position(self) -> int:
        """How far the engine is."""
        return self._loader.followed.position or 0

    @property
    def shown_position(self) -> int:
        """The position that rows of the engine show, if not a later one."""
        return self.relay.position

    @property
    def age_ms(self) -> int | None:
        """Everything that was committed longer ago is in the engine; None if that is not known."""
        fresh_s = self._loader.status.fresh_s
        if fresh_s is None or self._loader.followed.failure:
            return None
        return max(0, math.ceil((time.monotonic() - fresh_s) * 1000))

    def wake(self) -> None:
        """Have the relay keep changes from now on."""
        if not self.relay.is_awake:
            self.relay.begin(self.history, self.position)
            self._waking = asyncio.create_task(self._learn_start(), name="pequod relay start")

    async def _learn_start(self) -> None:
        """Find out from which position on the relay has everything.

        The feed may have left out changes of keys that were not wanted before, of commits up to now.
        """
        relay, history = self.relay, self.relay.history
        place = await self._loader.store.position()
        if relay.history == history and history is not None and place.timeline == history.timeline:
            relay.complete_from = max(place.position, relay.complete_from or 0)

    def prepare(self, ranges: Sequence[KeyRange]) -> None:
        """Check that ranges are the database's.

        Raises:
            BadRequestError: They are not.
        """
        for one in ranges:
            if table_of(one) not in self.tables:
                raise BadRequestError(f"the keys from {one.first!r} on are not of a table of the home's database")

    async def follow(self, ranges: Sequence[KeyRange]) -> None:
        """Have exported ranges watched; of the database's tables the relay is told anyway."""
        if exported := self._exported(ranges):
            bounds = [(one.first, one.last) for one in exported]
            await self._databases.read(lambda: self._exports.follow(exported), bounds)

    def can_resume(self, ranges: Sequence[KeyRange]) -> bool:
        """Return whether the ranges are the database's alone: the relay has changes of exported ones since a load."""
        return not self._exported(ranges)

    async def unknown_since(self, ranges: Sequence[KeyRange], since: Place) -> list[KeyRange] | None:  # noqa: ARG002
        """Return the ranges of which changes since a place may not have come here, as of the turn of the return.

        Returns:
            These ranges; None: all.
        """
        return [] if self.can_resume(ranges) else None

    def _exported(self, ranges: Sequence[KeyRange]) -> list[KeyRange]:
        tables = self._exports.tables
        return [one for one in ranges if table_of(one) in tables] if tables else []

    def settle(self) -> None:
        """Do nothing: the relay is told in the turn in which the engine shows it."""

    async def bring(self, ranges: Sequence[KeyRange]) -> None:
        """Load what is not there of some ranges, with one statement for each table, and not one for each range."""
        absent = [gap for one in ranges for gap in self.engine.absent(one.first, one.last)]
        if absent:
            await self._databases.load(absent)

    async def scan(self, first: bytes, last: bytes | None, limit: int) -> Rows:
        """Return the first rows of a range, once they are loaded, as of the turn in which this returns.

        Raises:
            BackingUnavailableError, LimitExceededError: They cannot be loaded.
        """
        return await self._databases.read(lambda: self.engine.scan(first, last, limit=limit), [(first, last)])

    def reached(self, place: Place) -> Reached:
        """Return whether the engine has everything up to a place."""
        return self._loader.followed.reached(place)

    async def come_to(self, place: Place) -> None:
        """Hurry the feed of the database, and wait until it is known whether the engine comes to a place."""
        followed = self._loader.followed
        if followed.reached(place) is Reached.NOT_YET:
            self._loader.store.hurry(place.position)
            while not await followed.until(lambda: followed.reached(place) is not Reached.NOT_YET, _PATIENCE_S):
                self._loader.store.hurry(place.position)

    async def ask(self, *, latest: bool) -> Place:
        """Ask the database for its place, or for a proof of the latest; callers that ask together share a question."""
        return await (self._latest if latest else self._position).ask()

    def _let_in(self, key: bytes, value: bytes | None) -> None:
        """Pass if the database may have a row, by the limits of this server's own clients."""
        self.engine.owned_by_database(key, value or b"")
        if value is not None and not self._loader.keeps_deadlines:
            refuse_deadline(key, value)

    async def write(self, changes: Sequence[RowChange]) -> WrittenThrough:
        """Write to the database, if this server writes through, within the limits of its own clients: all or none.

        The relay passes the place of the write after it has told the changes.
        """
        if not self._loader.is_write_through:
            raise BackedKeyError(changes[0].key)
        turns = Turns()
        for key, value in changes:
            self._let_in(key, value)
            if turns.are_due():
                await turns.give()
        written = await self._loader.store.write(changes)
        self._loader.counters.writes += len(changes)
        self._loader.store.hurry(written.place.position)
        return written

    async def write_if(self, change: ConditionalChange) -> WrittenIf:
        """Write to the database, if this server writes through, a change whose condition holds there."""
        if not self._loader.is_write_through:
            raise BackedKeyError(change.key)
        self._let_in(change.key, change.value)
        written = await self._loader.store.write_if(change)
        self._loader.counters.writes += bool(written.outcome)
        self._loader.store.hurry(written.place.position)
        return written

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> WrittenTransaction:
        """Have the database run a transaction, if this server writes through."""
        if not self._loader.is_write_through or backed_key(self.engine, transaction) is None:
            raise BackedKeyError(transaction.decided_by()[0])
        written = await self._loader.store.transact(transaction, limits)
        self._loader.store.hurry(written.place.position)
        return written

    async def add(self, addition: Addition) -> Added:
        """Add to a value in the database, if this server writes through."""
        if not self._loader.is_write_through:
            raise BackedKeyError(addition.key)
        self.engine.owned_by_database(addition.key)
        found = await self._loader.store.add(addition)
        self._loader.counters.writes += 1
        self._loader.store.hurry(found.place.position)
        return found

    def stop(self) -> None:
        """Ask nothing more."""
        self._position.stop()
        self._latest.stop()
        self._exports.stop()
        if self._waking is not None:
            self._waking.cancel()


#: The base data of a home, from which its computes load and to which they write.
Origin = DatabaseOrigin | MemoryOrigin
