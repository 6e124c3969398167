"""Propagations and repairs over a store: the algorithms, their locks, and patience while replicas are away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pequod_views.versioned.algorithms import (
    NoLiveRowError,
    Request,
    RowUnfinishedError,
    heal,
    propagate,
)
from pequod_views.versioned.locks import RowLocks
from pequod_views.versioned.records import Forget, Get, QuorumError, RecordStore, StoredCell
from pequod_views.versioned.rows import Update, VersionedView, base_column, check_cells, done_column

T = TypeVar("T")
_PAUSE_S: Final = 0.01
_PAUSE_S_MAX: Final = 1.0


class Propagator:
    """Carries out algorithms over a store.

    Args:
        locks: Shared with all that propagate updates of these records.
    """

    def __init__(self, store: RecordStore, locks: RowLocks) -> None:
        self.store = store
        self.majority = store.replica_count // 2 + 1
        self._locks = locks

    async def propagate(self, view: VersionedView, update: Update, guesses: Sequence[str]) -> None:
        """Propagate an update, however long the replicas are away.

        Args:
            guesses: See `rows.guesses`.
        """
        exclusive, at = update.column == view.key_column, 0
        while True:
            try:
                async with self._locks.hold(view.name, update.key, exclusive=exclusive):
                    steps = partial(propagate, view, update, guesses[at], self.majority)
                    await self.insist(steps, view if exclusive else None)
                break
            except NoLiveRowError:
                # The last guess is the root, which never fails.
                at += 1
            except RowUnfinishedError as error:
                await self.heal(view, error.base_key, error.row)

    async def mark(self, view: VersionedView, update: Update) -> None:
        """Say in the base record that an update has been propagated."""
        mark = {done_column(view, update.column): StoredCell("", update.cell.timestamp)}
        try:
            await self.store.put(update.table, update.key, mark, 1)
        except QuorumError:
            # A sweep propagates it once more.
            return

    async def heal(self, view: VersionedView, base_key: str, row: str) -> None:
        """Finish a row that was left half made."""
        async with self._locks.hold(view.name, base_key, exclusive=True):
            await self.insist(partial(heal, view, base_key, row, self.majority))

    async def alone(
        self, view: VersionedView, base_key: str, steps: Callable[[], Generator[Request, Any, None]]
    ) -> None:
        """Carry out steps once while nothing else propagates updates of the record.

        Raises:
            QuorumError: Too few replicas answer.
        """
        async with self._locks.hold(view.name, base_key, exclusive=True):
            while True:
                try:
                    return await self.carry_out(steps())
                except RowUnfinishedError as error:
                    await self.carry_out(heal(view, base_key, error.row, self.majority))

    async def persist(self, update: Update) -> None:
        """Make a write of unknown fate, so that the base has what is propagated."""
        pause_s = _PAUSE_S
        while True:
            try:
                await self.store.put(update.table, update.key, {base_column(update.column): update.cell}, 1)
                return
            except QuorumError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def insist(
        self, steps: Callable[[], Generator[Request, Any, None]], view: VersionedView | None = None
    ) -> None:
        """Do work until enough replicas have answered; the lock stays held, so that nobody builds on half of it."""
        pause_s = _PAUSE_S
        while True:
            try:
                return await self.carry_out(steps())
            except RowUnfinishedError as error:
                # Perhaps the work of its own earlier attempt: the lock must not be given up before it is whole.
                if view is None:
                    raise
                await self.insist(partial(heal, view, error.base_key, error.row, self.majority))
            except QuorumError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def carry_out(self, steps: Generator[Request, Any, T]) -> T:
        """Send the requests of an algorithm to the store, and return its result.

        Raises:
            EarlierFormatError: A record of the view is of an earlier version.
        """
        reply: Any = None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as stop:
                result: T = stop.value
                return result
            reply = None
            if isinstance(request, Get):
                reply = await self.store.get(request.table, request.key, request.columns, request.quorum)
                check_cells(request.table, request.key, reply)
            elif isinstance(request, Forget):
                await self.store.forget(request.table, request.key, dict(request.cells), request.quorum)
            else:
                await self.store.put(request.table, request.key, dict(request.cells), request.quorum)
