"""A coordinator carries out writes and reads, and propagates its own writes afterwards (Algorithm 1).

Propagations of one base record take turns: those of view keys have the record alone, those of other columns share it
(section IV-F). `RowLocks` is for coordinators of one process; with several processes, send all writes of a base record
through one of them, such as by a hash of its key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

from pequod_views.versioned.algorithms import RowUnfinishedError, get_view
from pequod_views.versioned.locks import RowLocks
from pequod_views.versioned.propagation import Propagator
from pequod_views.versioned.records import Cells, QuorumError, RecordStore, StoredCell
from pequod_views.versioned.rows import Update, VersionedView, base_column, check_text, check_views, guesses


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
        locks: Shared with the other coordinators and the sweeper of the process.
    """

    def __init__(self, store: RecordStore, views: Sequence[VersionedView], locks: RowLocks) -> None:
        check_views(views)
        self._store = store
        self._views = tuple(views)
        self._propagator = Propagator(store, locks)
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
            await self._store.put(update.table, update.key, {base_column(update.column): update.cell}, quorum)
        except QuorumError as error:
            failure = error
        for view in views:
            task = self._start(self._propagate(view, update, keys[view.name], is_written=failure is None))
            if session is not None:
                session.expect(task, view.name)
        if failure is not None:
            raise failure

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _propagate(self, view: VersionedView, update: Update, keys: Sequence[str], *, is_written: bool) -> None:
        if not is_written:
            await self._propagator.persist(update)
        await self._propagator.propagate(view, update, keys)
        # A session need not wait for this.
        self._start(self._propagator.mark(view, update))

    async def _guesses(self, view: VersionedView, update: Update, quorum: int) -> list[str]:
        try:
            column = base_column(view.key_column)
            return guesses(await self._store.get_versions(update.table, update.key, column, quorum))
        except QuorumError:
            return guesses(())

    async def get(self, table: str, key: str, quorum: int) -> Cells:
        """Return the cells of a base record."""
        cells = await self._store.get(table, key, None, quorum)
        return {column: cell for column, cell in cells.items() if not column.base_key}

    async def get_view(
        self, view: VersionedView, key: str, session: StoreSession | None = None
    ) -> dict[str, dict[str, StoredCell]]:
        """Return the rows of a view with a view key, by base key.

        Raises:
            QuorumError: Less than a majority of the replicas answers.
            EarlierFormatError: The record is of an earlier version.
            NameRefusedError: The key is not Unicode.
        """
        check_text("the view key", key)
        if session is not None:
            await session.settle(view.name)
        while True:
            try:
                return await self._propagator.carry_out(get_view(view, key, self._propagator.majority))
            except RowUnfinishedError as error:
                await self._propagator.heal(view, error.base_key, error.row)

    async def settle(self) -> None:
        """Wait until all writes so far have been propagated."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))


def _concerns(view: VersionedView, update: Update) -> bool:
    return update.column == view.key_column or update.column in view.columns
