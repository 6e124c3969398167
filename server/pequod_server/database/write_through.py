"""Writes of keys that databases own: in transactions of many, one after another where one of them is refused.

    PUT a  PUT b  REMOVE c   of a batch -> one transaction for each database -> its feed has passed it -> three statuses
                             refused    -> halves, until the command that it is refused for is alone

Rows are written in the order of their keys, so that two servers never wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Final, NamedTuple

from pequod.answers.transacted import Transacted
from pequod.engine import BackedKeyError, Engine, PequodError
from pequod.engine.transacting import TransactionLimits
from pequod.errors import MixedWriteError, NoDeadlineError, TransactionError, UnassignedKeyError
from pequod.escapes import shown
from pequod.freshness import merged
from pequod.language.conditions import IfValue, Met, Unmet
from pequod.language.ranges import within
from pequod.language.spec import DELIMITER
from pequod.language.transactions import Transaction
from pequod_server.backing import (
    Addition,
    BackingUnavailableError,
    ConditionalChange,
    PackError,
    RowChange,
    WriteRefusedError,
)
from pequod_server.backing.rows import sorted_in_steps
from pequod_server.backing.timed import timed
from pequod_server.backing.turns import Turns, in_turns
from pequod_server.database.databases import Databases
from pequod_server.database.loader import Loader
from pequod_server.wire.publishing import of_one, public

#: Commands of a batch, or keys of a range, in one transaction.
TOGETHER_MAX: Final = 1000


#: The outcome of a change: whether the key was there before, whether the condition held, the sum of an addition, or why
#: the change failed.
Settled = bool | bytes | Met | Unmet | PequodError


class CarriedOut(NamedTuple):
    """The outcome of changes."""

    outcomes: Sequence[Settled]
    #: Of those that did not fail; a failover may lose them at any moment. Empty if all failed.
    token: bytes


class RemovedRange(NamedTuple):
    """The outcome of the removal of a range."""

    key_count: int
    #: As in `CarriedOut`.
    token: bytes


class WriteThrough:
    """Carries writes out in the databases behind an engine."""

    def __init__(self, engine: Engine, databases: Databases) -> None:
        self._engine = engine
        self._databases = databases

    async def carry_out(self, changes: Sequence[RowChange]) -> CarriedOut:
        """Carry changes out, those of each database in their order.

        Changes that a database refuses have no effect; the others are carried out. If the server cannot know whether
        they were carried out, all of the same database fail with BackingUnavailableError.
        """
        outcomes: dict[int, Settled] = {}
        mine: dict[Loader, list[int]] = {}
        for number, change in enumerate(changes):
            try:
                mine.setdefault(self._databases.owner_of(change.key), []).append(number)
            except UnassignedKeyError as error:
                outcomes[number] = error
        parts = [self._carry_out([changes[number] for number in numbers]) for numbers in mine.values()]
        found = [await parts[0]] if len(parts) == 1 else await asyncio.gather(*parts)
        for numbers, part in zip(mine.values(), found, strict=True):
            outcomes.update(zip(numbers, part.outcomes, strict=True))
        token = merged(*(part.token for part in found))
        return CarriedOut([outcomes[number] for number in range(len(changes))], token)

    async def _carry_out(self, changes: Sequence[RowChange]) -> CarriedOut:
        """Carry out changes of one database, in their order."""
        try:
            self._databases.taker_of([change.key for change in changes])
            order = sorted(range(len(changes)), key=lambda number: changes[number].key)
            token, found = await self._databases.write([changes[number] for number in order])
        except (PackError, WriteRefusedError, NoDeadlineError) as error:
            if len(changes) == 1:
                return CarriedOut([error], b"")
            half = len(changes) // 2
            one, other = await self._carry_out(changes[:half]), await self._carry_out(changes[half:])
            return CarriedOut([*one.outcomes, *other.outcomes], merged(one.token, other.token))
        except BackedKeyError:
            return CarriedOut([BackedKeyError(change.key) for change in changes], b"")
        except PequodError as error:
            return CarriedOut([error] * len(changes), b"")
        were_there = dict(zip(order, found, strict=True))
        return CarriedOut([were_there[number] for number in range(len(changes))], token)

    async def write_if(self, change: ConditionalChange) -> CarriedOut:
        """Carry out a change if the present row in its database meets the condition: one transaction decides."""
        try:
            loader = self._databases.taker_of([change.key])
            try:
                token, outcome = await loader.write_if(change)
            except BackingUnavailableError as error:
                raise of_one(loader.title, error) from error
        except PequodError as error:
            return CarriedOut([error], b"")
        return CarriedOut([outcome], token)

    async def expire(self, key: bytes, ttl_ms: int) -> CarriedOut:
        """Have a row of a database expire, or (0) live for ever; the outcome is whether it is there.

        The row is written with the value that it has: another writer that changes it meanwhile is not overwritten.
        """
        value = await self._databases.read(lambda: self._engine.get(key), [(key, key + b"\0")])
        while value is not None:
            done = await self.write_if(ConditionalChange(key, timed(value, ttl_ms), IfValue(value)))
            match done.outcomes[0]:
                case Met():
                    return CarriedOut([True], done.token)
                case Unmet(present):
                    value = present
                case error:
                    return CarriedOut([error], done.token)
        return CarriedOut([False], b"")

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> tuple[Transacted, bytes]:
        """Have the database that owns the keys of a transaction run it; return the outcome, and the token of the state.

        Raises:
            MixedWriteError: Not all keys that are compared or written are of one database; nothing is done.
            TransactionError: It reads what is not of this database alone; nothing is done.
            PequodError: As `Loader.transact`.
        """
        decided_by = transaction.decided_by()
        if not all(map(self._engine.owned_by_database, decided_by)):
            raise MixedWriteError("the transaction")
        loader = self._databases.taker_of(decided_by)
        for first, last in transaction.ranges_read():
            if last is not None and last <= first:
                continue
            is_base = self._engine.backed_reads(first, last) == ((first, last),)
            owners = set(self._databases.assignment.owners_of(first, last))
            if not is_base or owners != {loader} or self._engine.computes(first, last):
                raise TransactionError(
                    f"a database decides, and the keys from {shown(first)} on that are read are not all its own",
                    "read them after the transaction, in a session or with its token",
                )
        try:
            token, done = await loader.transact(transaction, limits)
        except BackingUnavailableError as error:
            raise of_one(loader.title, error) from error
        return done, token

    async def add(self, addition: Addition) -> CarriedOut:
        """Add to the present row in its database: one transaction reads and writes."""
        try:
            loader = self._databases.taker_of([addition.key])
            try:
                token, total = await loader.add(addition)
            except BackingUnavailableError as error:
                raise of_one(loader.title, error) from error
        except PequodError as error:
            return CarriedOut([error], b"")
        return CarriedOut([total], token)

    async def put_all(self, keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
        """Put rows in one transaction, all or none; return the token of the write.

        Raises:
            MixedWriteError: Not all keys are of one database; nothing is written.
            PackError, WriteRefusedError: A row is refused; nothing is written.
            BackedKeyError, BackingUnavailableError, UnassignedKeyError: As `Databases.write`.
            InvalidKeyError, LimitExceededError, ComputedKeyError: As the engine's `put_all`; nothing is written.
        """
        turns = Turns()
        rows, is_mixed = dict[bytes, bytes](), False
        for row in zip(keys, values, strict=True):
            if self._engine.owned_by_database(*row):
                rows[row[0]] = row[1]
            else:
                is_mixed = True
            if turns.are_due():
                await turns.give()
        self._databases.taker_of(list(rows))
        if is_mixed:
            raise MixedWriteError("the call")
        changes: list[RowChange] = []
        for row in await in_turns(sorted_in_steps(rows.items()), turns):
            changes.append(RowChange(*row))
            if turns.are_due():
                await turns.give()
        token, _ = await self._databases.write(changes)
        return token

    async def remove_range(self, first: bytes, last: bytes | None) -> RemovedRange:
        """Remove the keys that are in the databases now, in transactions of ``TOGETHER_MAX`` at most.

        Returns:
            How many rows the databases removed; another writer may have been faster with some of them.

        Raises:
            MixedWriteError: The range has other keys than those of one table of databases; nothing is removed.
            BackedKeyError: A database takes no writes from here.
            WriteRefusedError, BackingUnavailableError: With how many keys are removed already.
        """
        table_prefix = first.partition(DELIMITER)[0] + DELIMITER
        if within(table_prefix, first, last) != (first, last):
            raise MixedWriteError("the range")
        owners = list(self._databases.assignment.owners_of(first, last))
        for owner in owners:
            if not owner.is_write_through:
                raise BackedKeyError(first)
        # The cache is behind its database by the time of a feed: a row that was written a moment ago goes, too.
        for owner in owners:
            try:
                await owner.caught_up()
            except BackingUnavailableError as error:
                raise of_one(owner.title, error) from error
        keys = (await self._databases.read(lambda: self._engine.scan(first, last), [(first, last)])).keys
        removed, token = 0, b""
        for some in self._together(keys):
            try:
                newer, found = await self._databases.write([RowChange(key, None) for key in some])
            except WriteRefusedError as error:
                raise WriteRefusedError(error.store, f"{error.reason} ({_already(removed)})") from error
            except BackingUnavailableError as error:
                shown = public(error)
                assert isinstance(shown, BackingUnavailableError)
                raise BackingUnavailableError(shown.store, f"{shown.reason} ({_already(removed)})") from error
            token = merged(token, newer)
            removed += sum(found)
        return RemovedRange(removed, token)

    def _together(self, keys: Sequence[bytes]) -> Iterator[list[bytes]]:
        """Yield keys in their order, as many of one database at a time as fit into a transaction."""
        for _, run in groupby(keys, self._databases.owner_of):
            while some := list(islice(run, TOGETHER_MAX)):
                yield some


def _already(count: int) -> str:
    return f"{count} keys of the range are removed already" if count else "nothing is removed"
