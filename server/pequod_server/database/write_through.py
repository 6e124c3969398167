"""Writes of keys that the database owns: in transactions of many, one after another where one of them is refused.

    PUT a  PUT b  REMOVE c   of a batch -> one transaction -> the feed has passed it -> three statuses
                             refused    -> halves, until the command that it is refused for is alone

Rows are written in the order of their keys, so that two servers never wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pequod.engine import Engine, MissingError, PequodError, Range
from pequod.errors import MixedWriteError
from pequod.language.ranges import united, within
from pequod.language.spec import DELIMITER
from pequod_server.backing import BackingUnavailableError, Change, PackError, WriteRefusedError
from pequod_server.backing.rows import sorted_in_steps
from pequod_server.backing.turns import Turns, in_turns
from pequod_server.database.loader import Loader
from pequod_server.wire.publishing import public

#: Commands of a batch, or keys of a range, in one transaction.
TOGETHER_MAX: Final = 1000


class WriteThrough:
    """Carries writes out in the database behind an engine."""

    def __init__(self, engine: Engine, loader: Loader) -> None:
        self._engine = engine
        self._loader = loader

    async def carry_out(self, changes: Sequence[Change]) -> list[bool | PequodError]:
        """Carry changes out in their order; return for each whether the key was there before, or why it failed.

        Changes that the database refuses have no effect; the others are carried out. If the server cannot know
        whether they were carried out, all fail with BackingUnavailableError.
        """
        try:
            were_there = await self._were_there(changes)
            await self._loader.write(sorted(changes, key=lambda change: change.key))
        except (PackError, WriteRefusedError) as error:
            if len(changes) == 1:
                return [error]
            half = len(changes) // 2
            return [*await self.carry_out(changes[:half]), *await self.carry_out(changes[half:])]
        except PequodError as error:
            return [error] * len(changes)
        return list(were_there)

    async def put_all(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Put rows in one transaction, all or none.

        Raises:
            MixedWriteError: Not all keys are of the database; nothing is written.
            PackError, WriteRefusedError: A row is refused; nothing is written.
            BackingUnavailableError: As `Loader.write`.
            InvalidKeyError, LimitExceededError, ComputedKeyError: As the engine's `put_all`; nothing is written.
        """
        turns = Turns()
        rows = dict[bytes, bytes]()
        for row in zip(keys, values, strict=True):
            if not self._engine.owned_by_database(*row):
                raise MixedWriteError("the call")
            rows[row[0]] = row[1]
            if turns.are_due():
                await turns.give()
        changes: list[Change] = []
        for row in await in_turns(sorted_in_steps(rows.items()), turns):
            changes.append(Change(*row))
            if turns.are_due():
                await turns.give()
        await self._loader.write(changes)

    async def remove_range(self, first: bytes, last: bytes | None) -> int:
        """Remove the keys that are there now, in transactions of ``TOGETHER_MAX``; return how many.

        Raises:
            MixedWriteError: The range has other keys than those of one table of the database; nothing is removed.
            WriteRefusedError, BackingUnavailableError: With how many keys are removed already.
        """
        table_prefix = first.partition(DELIMITER)[0] + DELIMITER
        if within(table_prefix, first, last) != (first, last):
            raise MixedWriteError("the range")
        keys = (await self._loader.read(lambda: self._engine.scan(first, last), [(first, last)])).keys
        for at in range(0, len(keys), TOGETHER_MAX):
            try:
                await self._loader.write([Change(key, None) for key in keys[at : at + TOGETHER_MAX]])
            except WriteRefusedError as error:
                raise WriteRefusedError(error.store, f"{error.reason} ({_already(at)})") from error
            except BackingUnavailableError as error:
                shown = public(error)
                assert isinstance(shown, BackingUnavailableError)
                raise BackingUnavailableError(shown.store, f"{shown.reason} ({_already(at)})") from error
        return len(keys)

    async def _were_there(self, changes: Sequence[Change]) -> list[bool]:
        """Return for each change whether its key is there before it; True for puts, whose result is not used."""
        doomed = list(dict.fromkeys(change.key for change in changes if change.value is None))
        bounds = [(key, key + b"\0") for key in doomed]
        is_there = await self._loader.read(lambda: self._known(doomed), bounds) if doomed else {}
        found = []
        for change in changes:
            found.append(change.value is not None or is_there[change.key])
            is_there[change.key] = change.value is not None
        return found

    def _known(self, keys: Sequence[bytes]) -> dict[bytes, bool]:
        """Return which keys are there; one MissingError names the ranges that all of them lack."""
        found: dict[bytes, bool] = {}
        missing: list[Range] = []
        for key in keys:
            try:
                found[key] = self._engine.get(key) is not None
            except MissingError as error:
                missing += error.ranges
        if missing:
            raise MissingError(united(missing))
        return found


def _already(count: int) -> str:
    return f"{count} keys of the range are removed already" if count else "nothing is removed"
