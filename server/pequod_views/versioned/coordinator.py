"""A coordinator carries out writes and reads, and propagates its own writes afterwards (Algorithm 1).

Propagations of one base record take turns: those of view keys have the record alone, those of other columns share it
(section IV-F). `RowLocks` is for coordinators of one process; with several processes, send all writes of a base record
through one of them, such as by a hash of its key.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

from pequod_views.versioned.algorithms import (
    NoLiveRowError,
    Request,
    RowUnfinishedError,
    Update,
    VersionedView,
    base_column,
    get_view,
    guesses,
    heal,
    propagate,
)
from pequod_views.versioned.records import Cells, Get, QuorumError, RecordStore, StoredCell

T = TypeVar("T")
_PAUSE_S: Final = 0.01
_PAUSE_S_MAX: Final = 1.0


class RowLocks:
    """A lock for each base record of each view: one exclusive holder, or several that share it."""

    def __init__(self) -> None:
        self._sharing: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._exclusive: set[tuple[str, str]] = set()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, view: str, base_key: str, *, exclusive: bool) -> AsyncIterator[None]:
        """Hold the lock of a record for a context."""
        row = view, base_key
        async with self._changed:
            await self._changed.wait_for(
                lambda: row not in self._exclusive and not (exclusive and self._sharing.get(row))
            )
            if exclusive:
                self._exclusive.add(row)
            else:
                self._sharing[row] += 1
        try:
            yield
        finally:
            async with self._changed:
                if exclusive:
                    self._exclusive.remove(row)
                elif self._sharing[row] == 1:
                    del self._sharing[row]
                else:
                    self._sharing[row] -= 1
                self._changed.notify_all()


class StoreSession:
    """Reads of views through a session show its own writes (Definition 4)."""

    def __init__(self) -> None:
        self._pending: dict[asyncio.Task[None], str] = {}

    def expect(self, task: asyncio.Task[None], view: str) -> None:
        """Have reads of a view wait for a propagation."""
        self._pending[task] = view
        task.add_done_callback(self._pending.pop)

    async def settle(self, view: str) -> None:
        """Wait until the session's writes have been propagated to a view."""
        waiting = [task for task, name in self._pending.items() if name == view]
        if waiting:
            await asyncio.wait(waiting)


class ViewCoordinator:
    """Writes base tables and keeps their views.

    Args:
        locks: Shared with the other coordinators of the process.
    """

    def __init__(self, store: RecordStore, views: Sequence[VersionedView], locks: RowLocks) -> None:
        self._store = store
        self._views = tuple(views)
        self._locks = locks
        self._majority = store.replica_count // 2 + 1
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, update: Update, quorum: int, session: StoreSession | None = None) -> None:
        """Write a base cell, and propagate it to the views afterwards.

        Raises:
            QuorumError: Too few replicas answer. The write is not given up: it goes on to be made and propagated, since
                some replicas may have it already.
        """
        views = [view for view in self._views if update.table == view.base and _concerns(view, update)]
        # Before the write: what the record has afterwards may not be in the view yet.
        keys = {view.name: await self._guesses(view, update, quorum) for view in views}
        failure: QuorumError | None = None
        try:
            await self._write(update, quorum)
        except QuorumError as error:
            failure = error
        for view in views:
            work = self._propagate(view, update, keys[view.name], is_written=failure is None)
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if session is not None:
                session.expect(task, view.name)
        if failure is not None:
            raise failure

    async def _write(self, update: Update, quorum: int) -> None:
        await self._store.put(update.table, update.key, {base_column(update.column): update.cell}, quorum)

    async def _guesses(self, view: VersionedView, update: Update, quorum: int) -> list[str]:
        try:
            column = base_column(view.key_column)
            return guesses(await self._store.get_versions(update.table, update.key, column, quorum))
        except QuorumError:
            return guesses(())

    async def get(self, table: str, key: str, quorum: int) -> Cells:
        """Return the cells of a base record."""
        return await self._store.get(table, key, None, quorum)

    async def get_view(
        self, view: VersionedView, key: str, session: StoreSession | None = None
    ) -> dict[str, dict[str, StoredCell]]:
        """Return the rows of a view with a view key, by base key.

        Raises:
            QuorumError: Less than a majority of the replicas answers.
        """
        if session is not None:
            await session.settle(view.name)
        while True:
            try:
                return await self._carry_out(get_view(view, key, self._majority))
            except RowUnfinishedError as error:
                await self._heal(view, error)

    async def settle(self) -> None:
        """Wait until all writes so far have been propagated."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _propagate(self, view: VersionedView, update: Update, keys: Sequence[str], *, is_written: bool) -> None:
        """Propagate an update, however long the replicas are away."""
        if not is_written:
            await self._persist(update)
        exclusive, at = update.column == view.key_column, 0
        while True:
            try:
                async with self._locks.hold(view.name, update.key, exclusive=exclusive):
                    steps = partial(propagate, view, update, keys[at], self._majority)
                    await self._insist(steps, view if exclusive else None)
                return
            except NoLiveRowError:
                # The last guess is the root, which never fails.
                at += 1
            except RowUnfinishedError as error:
                await self._heal(view, error)

    async def _heal(self, view: VersionedView, error: RowUnfinishedError) -> None:
        async with self._locks.hold(view.name, error.base_key, exclusive=True):
            await self._insist(partial(heal, view, error.base_key, error.key, self._majority))

    async def _persist(self, update: Update) -> None:
        """Make a write of unknown fate, so that the base has what is propagated."""
        pause_s = _PAUSE_S
        while True:
            try:
                await self._write(update, 1)
                return
            except QuorumError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _insist(
        self, steps: Callable[[], Generator[Request, Any, None]], view: VersionedView | None = None
    ) -> None:
        """Do work until enough replicas have answered; the lock stays held, so that nobody builds on half of it."""
        pause_s = _PAUSE_S
        while True:
            try:
                await self._carry_out(steps())
                return
            except RowUnfinishedError as error:
                # Perhaps the work of its own earlier attempt: the lock must not be given up before it is whole.
                if view is None:
                    raise
                await self._insist(partial(heal, view, error.base_key, error.key, self._majority))
            except QuorumError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _carry_out(self, steps: Generator[Request, Any, T]) -> T:
        reply: Any = None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if isinstance(request, Get):
                reply = await self._store.get(request.table, request.key, request.columns, request.quorum)
            else:
                await self._store.put(request.table, request.key, dict(request.cells), request.quorum)
                reply = None


def _concerns(view: VersionedView, update: Update) -> bool:
    return update.column == view.key_column or update.column in view.columns
