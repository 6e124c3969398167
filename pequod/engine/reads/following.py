"""Following ranges: watches begin at what a scan returns, and settle to what a scan would return now.

settle   stale contexts    brought up to date, which tells their changes
         lost ranges       computed or loaded anew, and compared with what was told of them
"""

from __future__ import annotations

from collections.abc import Callable

from pequod.engine.base.store import Store
from pequod.engine.joins.watches import Change, Watch, Watches, refuse_unwatchable, settle_lost
from pequod.engine.read import Read
from pequod.engine.reads.scans import Scans
from pequod.engine.writes.catalog import Catalog
from pequod.language.errors import LimitExceededError, MissingError, NotWatchableError
from pequod.language.ranges import Range, united


class Following:
    """Begins and settles the watches of an engine."""

    __slots__ = ("_catalog", "_scans", "_store", "_watches")

    def __init__(self, store: Store, catalog: Catalog, scans: Scans, watches: Watches) -> None:
        self._store = store
        self._catalog = catalog
        self._scans = scans
        self._watches = watches

    def begin(self, first: bytes, last: bytes | None, wake: Callable[[], None], read: Read) -> Watch:
        """Follow a range; see `Engine.watch`."""
        joins = self._catalog.over(first, last)
        for join in joins:
            refuse_unwatchable(join)
        watch = Watch(first, last, wake)
        self._scans.bring_up(joins, first, last, read)
        self._watches.add(watch)
        return watch

    def settle(self, watch: Watch, read: Read) -> list[Change]:
        """Return the changes of a range; see `Engine.settle`."""
        try:
            while watch.ended is None and (watch.stale or watch.lost):
                self._bring_up(watch, read)
        except (NotWatchableError, LimitExceededError) as error:
            self._watches.end(watch, str(error))
        return watch.take()

    def _bring_up(self, watch: Watch, read: Read) -> None:
        while watch.stale:
            stale, watch.stale = watch.stale, {}
            lacking = self._scans.refresh(stale, read)
            watch.stale.update(lacking)
            self._scans.refuse_missing(read)
        lost, loss_count = watch.lost.copy(), watch.loss_count
        joins = self._catalog.over(watch.first, watch.last) if lost else []
        for join in joins:
            refuse_unwatchable(join)
        missing: list[Range] = []
        for first, last in lost:
            try:
                self._scans.bring_up(self._catalog.over(first, last), first, last, read)
            except MissingError as error:
                missing += error.ranges
        if missing:
            raise MissingError(united(missing))
        if lost and not watch.stale and loss_count == watch.loss_count:
            settle_lost(watch, joins, self._store.backed)
