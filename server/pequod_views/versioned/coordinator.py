"""A coordinator carries out writes and reads, and propagates its own writes afterwards (Algorithm 1).

Propagations of one base record take turns: those of view keys have the record alone, those of other columns share it
(section IV-F). `ShareLeases` holds between all processes over a store: any of them may write any record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Final

from pequod.errors import PequodError
from pequod_views.versioned.algorithms import RowBrokenError, get_view
from pequod_views.versioned.groups import Groups, GroupView
from pequod_views.versioned.leases import ShareLeases
from pequod_views.versioned.propagation import Propagator
from pequod_views.versioned.records import Cells, LimitedStore, QuorumError, RecordStore, StoredCell
from pequod_views.versioned.replicas import refuse_duration
from pequod_views.versioned.rows import (
    ROOT,
    Update,
    VersionedView,
    base_column,
    check_text,
    check_view,
    check_views,
    guesses,
    likely_row,
    record_of,
    row_of,
)

_WAIT_S: Final = 10.0


class ViewLateError(PequodError):
    """A read of a view waited for writes of its session, or for a row that is being made, as long as it may."""

    def __init__(self, view: str, wait_s: float) -> None:
        super().__init__(
            f"{view}: not propagated after {wait_s:g} s, though the writes are not lost: read again, with a larger "
            "wait_s, or without a session"
        )
        self.view = view
        self.wait_s = wait_s


class UpdatesRefusedError(PequodError):
    """Updates that cannot be written at once; nothing was done."""

    def __init__(self, record_count: int, columns: Sequence[str]) -> None:
        super().__init__(
            f"a put writes one record, and each of its columns once; these are updates of {record_count} records and "
            f"of the columns {', '.join(map(repr, columns))}"
        )
        self.record_count = record_count
        self.columns = columns


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
        views: Of groups their `rows_view`.
        leases: Shared with the other coordinators and the sweeper of the process.

    Raises:
        NameRefusedError, ViewRefusedError: The views cannot be kept together, or one is no view of rows.
    """

    def __init__(self, store: RecordStore, views: Sequence[VersionedView], leases: ShareLeases) -> None:
        check_views(views)
        self._store = store
        self._views = tuple(views)
        self._propagator = Propagator(store, leases)
        self._tasks: set[asyncio.Task[None]] = set()

    async def put(self, update: Update, quorum: int, session: StoreSession | None = None) -> None:
        """Write a base cell, and propagate it to the views afterwards.

        Raises:
            QuorumError: Too few replicas answer. The write is not given up: it goes on to be made and propagated, since
                some replicas may have it already.
        """
        await self.put_columns([update], quorum, session)

    async def put_columns(self, updates: Sequence[Update], quorum: int, session: StoreSession | None = None) -> None:
        """Write cells of a base record at once, and propagate them to the views afterwards, also at once.

        Requires:
            The updates are of one base record, each of another column.

        Raises:
            QuorumError: See `put`.
            NameRefusedError: The store does not take a row of a view, such as one with a long key; nothing was done.
        """
        _check_one_record(updates)
        table, key = updates[0].table, updates[0].key
        concerned = {view: some for view in self._views if (some := _concerning(view, updates))}
        for view in concerned:
            self._check_rows(view, updates)
        # Before the write: what the record has afterwards may not be in the view yet.
        rows = await self._guesses(list(concerned), key, quorum)
        failure: QuorumError | None = None
        try:
            cells = {base_column(update.column): update.cell for update in updates}
            await self._store.put(table, key, cells, quorum)
        except QuorumError as error:
            failure = error
        for view, some in concerned.items():
            task = self._start(self._propagate(view, some, rows[view.name], is_written=failure is None))
            if session is not None:
                session.expect(task, view.name)
        if failure is not None:
            raise failure

    def _check_rows(self, view: VersionedView, updates: Sequence[Update]) -> None:
        """Pass if the store takes the rows that a view will have of updates."""
        if not isinstance(self._store, LimitedStore):
            return
        base_key = updates[0].key
        values = [update.cell.value for update in updates if update.column == view.key_column]
        for row in (ROOT, *map(row_of, values)):
            self._store.check_record(view.name, record_of(row, base_key))

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _propagate(
        self, view: VersionedView, updates: Sequence[Update], rows: Sequence[str], *, is_written: bool
    ) -> None:
        if not is_written:
            await self._propagator.persist(updates)
        if not await self._propagator.propagate(view, updates, rows):
            # A session need not wait for this.
            self._start(self._propagator.mark(view, updates))

    async def _guesses(self, views: Sequence[VersionedView], key: str, quorum: int) -> dict[str, list[str]]:
        """Return guesses for views, from memory or from what the record has; a read for all that need one."""
        known = {view.name: row for view in views if (row := self._propagator.row_of(view, key)) is not None}
        unknown = [view for view in views if view.name not in known]
        if unknown:
            columns = dict.fromkeys(base_column(name) for view in unknown for name in view.deciders)
            try:
                cells = await self._store.get(unknown[0].base, key, list(columns), quorum)
            except QuorumError:
                cells = {}
            known |= {view.name: row for view in unknown if (row := likely_row(view, cells)) is not None}
        return {view.name: guesses(*([known[view.name]] if view.name in known else [])) for view in views}

    async def get(self, table: str, key: str, quorum: int) -> Cells:
        """Return the cells of a base record."""
        cells = await self._store.get(table, key, None, quorum)
        return {column: cell for column, cell in cells.items() if not column.base_key}

    async def get_view(
        self, view: VersionedView, key: str, session: StoreSession | None = None, *, wait_s: float = _WAIT_S
    ) -> dict[str, dict[str, StoredCell]]:
        """Return the rows of a view with a view key, by base key.

        Args:
            wait_s: How long it may take until the writes of the session are propagated, and rows are whole.

        Raises:
            QuorumError: Less than a majority of the replicas answers.
            ViewLateError: It takes longer.
            EarlierFormatError: The record is of an earlier version.
            NameRefusedError: The key is not Unicode.
            SettingError: `wait_s` is no number of seconds.
            ViewRefusedError: The view is one of groups, see `get_groups`.
        """
        check_view(view)
        check_text("the view key", key)
        refuse_duration("wait_s", wait_s)
        try:
            async with asyncio.timeout(wait_s):
                if session is not None:
                    await session.settle(view.name)
                while True:
                    try:
                        return await self._propagator.carry_out(get_view(view, key, self._propagator.majority))
                    except RowBrokenError as error:
                        await self._propagator.mend(view, error)
        except TimeoutError:
            raise ViewLateError(view.name, wait_s) from None

    async def get_groups(
        self, groups: GroupView, key: str, session: StoreSession | None = None, *, wait_s: float = _WAIT_S
    ) -> Groups:
        """Return the groups that a view key has, by the values of the columns of `by`; without `by` it is ().

        They are those of a base with all writes whose propagation had ended when the read began, and some of those
        that were under way.

        Requires:
            The coordinator keeps `groups.rows_view`.

        Raises:
            QuorumError, ViewLateError, EarlierFormatError, NameRefusedError, SettingError: See `get_view`.

        Cost:
            One read of a record, which has all rows of the key.
        """
        return groups.groups_of(await self.get_view(groups.rows_view, key, session, wait_s=wait_s))

    async def settle(self) -> None:
        """Wait until all writes so far have been propagated."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))


def _check_one_record(updates: Sequence[Update]) -> None:
    """Pass if updates can be written at once."""
    records = {(update.table, update.key) for update in updates}
    columns = [update.column for update in updates]
    if len(records) != 1 or len(set(columns)) != len(columns):
        raise UpdatesRefusedError(len(records), columns)


def _concerning(view: VersionedView, updates: Sequence[Update]) -> list[Update]:
    return [update for update in updates if update.table == view.base and update.column in view.followed]
