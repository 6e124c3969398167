"""A sweep goes over base tables and views: it completes what dead coordinators left, and collects stale rows.

base record    cell newer than its `done` mark         -> propagated
view record    live row that is not ready              -> finished
               live row whose cells say another place  -> moved there
               stale row                               -> the root leads past it; a tombstone
               tombstone, seen for `forget_s`          -> removed at all replicas
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pequod_views.versioned.leases import ShareLeases
from pequod_views.versioned.mending import broken_rows, collect, forget
from pequod_views.versioned.propagation import Propagator
from pequod_views.versioned.records import Cells, ForgettingStore, QuorumError, RecordStore
from pequod_views.versioned.replicas import refuse_duration
from pequod_views.versioned.rows import (
    VersionedView,
    check_cells,
    check_views,
    guesses,
    likely_row,
    row_in,
    undone,
)
from pequod_views.versioned.scanning import KeyScan
from pequod_views.versioned.shown import swept_rows


@dataclass(slots=True)
class Swept:
    """What a sweep has done, in rows."""

    propagated: int = 0
    finished: int = 0
    collected: int = 0
    forgotten: int = 0
    #: Replicas that did not tell which records they have: what they alone have is left to a later sweep.
    replicas_away: int = 0


class ViewSweeper:
    """Sweeps a store, such as once a minute and after a coordinator died.

    Args:
        leases: Shared with the coordinators of the process.
        forget_s: How long a message may be under way, or a replica be without what the others have. A tombstone that
            is removed earlier may let a row come back.

    Raises:
        SettingError: `forget_s` is no number of seconds.
    """

    def __init__(
        self,
        store: RecordStore,
        views: Sequence[VersionedView],
        leases: ShareLeases,
        *,
        forget_s: float = 3600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_views(views)
        refuse_duration("forget_s", forget_s)
        self._store = store
        self._views = tuple(views)
        self._propagator = Propagator(store, leases)
        self._forget_s = forget_s
        self._clock = clock
        #: When a tombstone was seen first, by view, record, base key and stamp.
        self._seen: dict[tuple[str, str, str, int], float] = {}

    async def sweep(self) -> Swept:
        """Go over all records once.

        Raises:
            QuorumError: Too few replicas answer.
            EarlierFormatError: A record of a view is of an earlier version.
        """
        swept = Swept()
        for view in self._views:
            base, rows = KeyScan(self._store, view.base), KeyScan(self._store, view.name)
            async for key in base:
                await self._complete(view, key, await base.record(key), swept)
            async for record in rows:
                await self._tidy(view, record, await rows.record(record), swept)
            swept.replicas_away = max(swept.replicas_away, base.replicas_away, rows.replicas_away)
        return swept

    async def _complete(self, view: VersionedView, key: str, cells: Cells, swept: Swept) -> None:
        """Propagate what a base record has and its marks do not have."""
        updates = undone(view, key, cells)
        if not updates:
            return
        # They may be at few replicas.
        await self._propagator.persist(updates)
        row = likely_row(view, cells)
        if not await self._propagator.propagate(view, updates, guesses() if row is None else guesses(row)):
            await self._propagator.mark(view, updates)
        swept.propagated += len(updates)

    async def _tidy(self, view: VersionedView, record: str, cells: Cells, swept: Swept) -> None:
        """Finish, collect and remove rows in a record of a view."""
        majority = self._propagator.majority
        check_cells(view.name, record, cells)
        found = swept_rows(view, record, cells)
        for broken in broken_rows(view, record, found):
            await self._propagator.mend(view, broken)
            swept.finished += 1
        for base_key in found.stale:
            row = row_in(record, base_key)
            await self._propagator.alone(view, base_key, partial(collect, view, base_key, row, majority))
            swept.collected += 1
        if not isinstance(self._store, ForgettingStore):
            return
        for base_key, stamp in found.collected.items():
            seen = view.name, record, base_key, stamp
            if self._clock() - self._seen.setdefault(seen, self._clock()) < self._forget_s:
                continue
            steps = partial(forget, view, base_key, row_in(record, base_key), stamp, self._store.replica_count)
            try:
                await self._propagator.alone(view, base_key, steps)
            except QuorumError:
                # A replica is away; the next sweep tries again.
                continue
            del self._seen[seen]
            swept.forgotten += 1
