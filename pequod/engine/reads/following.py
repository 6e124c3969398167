"""Following ranges: a watch begins with the rows of a scan, and settles to those that a scan would return now.

settle   stale contexts    brought up to date, which delivers their changes
         lost ranges       computed or loaded again, and compared with the delivered rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pequod.answers.changes import Change
from pequod.answers.rows import Rows
from pequod.engine.base.store import Store
from pequod.engine.base.table import Table
from pequod.engine.joins.installed import InstalledJoin, materialised_rows
from pequod.engine.joins.relations import Directory
from pequod.engine.joins.watches import Watch
from pequod.engine.read import Read
from pequod.engine.reads.scans import Scans
from pequod.engine.writes.catalog import Catalog
from pequod.language.errors import LimitExceededError, NotWatchableError
from pequod.language.missing import Lacking, MissingError, NextGroups
from pequod.language.spec import Snapshot


class Following:
    """Begins and settles the watches of an engine."""

    __slots__ = ("_catalog", "_directory", "_scans", "_store")

    def __init__(self, store: Store, directory: Directory, catalog: Catalog, scans: Scans) -> None:
        self._store = store
        self._catalog = catalog
        self._scans = scans
        self._directory = directory

    def begin(self, first: bytes, last: bytes | None, wake: Callable[[], None], read: Read) -> Watch:
        """Follow a range; see `Engine.watch`."""
        joins = self._catalog.over(first, last)
        for join in joins:
            refuse_unwatchable(join)
        watch = Watch(first, last, wake)
        self._scans.bring_up(joins, first, last, read)
        self._directory.add_watch(watch)
        return watch

    def settle(self, watch: Watch, read: Read) -> list[Change]:
        """Return the changes of a range; see `Engine.settle`."""
        try:
            while watch.ended is None and (watch.stale or watch.lost):
                self._bring_up(watch, read)
        except (NotWatchableError, LimitExceededError) as error:
            self._directory.end_watch(watch, str(error))
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
        missing: list[Lacking] = []
        next_groups: list[NextGroups] = []
        for first, last in lost:
            try:
                self._scans.bring_up(self._catalog.over(first, last), first, last, read)
            except MissingError as error:
                missing += error.lacking
                next_groups += error.next_groups
        if missing:
            raise MissingError(missing, next_groups)
        if lost and not watch.stale and loss_count == watch.loss_count:
            settle_lost(watch, joins, self._store.backed)


def refuse_unwatchable(join: InstalledJoin) -> None:
    """Raise NotWatchableError unless all changes of a join's rows can be delivered."""
    if join.is_pull:
        raise NotWatchableError(join.info.name, "it is computed on every read and keeps nothing")
    todo, seen = [join], {join}
    for timed in todo:
        if isinstance(timed.spec.maintenance, Snapshot):
            raise NotWatchableError(join.info.name, "it shows snapshots, which change by the clock")
        todo += [one for upstreams in timed.upstreams for one in upstreams if one not in seen]
        seen.update(todo)


def settle_lost(watch: Watch, joins: Sequence[InstalledJoin], backed: Iterable[Table]) -> None:
    """Deliver the differences between lost rows and the present ones, which are materialised and fresh."""
    rows: dict[bytes, bytes] = {}
    for first, last in watch.lost:
        rows |= materialised_rows(joins, first, last)
        for table in backed:
            start, stop = table.clip(first, last)
            found = table.slice(start, stop) if start < stop else Rows([], [])
            rows.update(zip(found.keys, found.values, strict=True))
    before, watch.lost_rows = watch.lost_rows, {}
    watch.lost = []
    for key in sorted(before.keys() | rows.keys()):
        old, new = before.get(key), rows.get(key)
        if old != new:
            watch.changes.append(Change(key, old, new))
