"""Backed tables: what a database owns, as far as it is loaded (paper §3.3).

load     a range as the database has it   -> loaded; what differs from before is told
apply    a change of the database         -> told, if it lies in a loaded range; else nobody needs to know
forget   a range                          -> absent; what was computed from it is dropped
"""

from __future__ import annotations

from collections.abc import Iterable

from pequod.engine.catalog import Catalog
from pequod.engine.changes import Changes
from pequod.engine.ranges import Range
from pequod.engine.spec import DELIMITER
from pequod.engine.store import Store


class Backed:
    """The backed tables of an engine."""

    __slots__ = ("_catalog", "_changes", "_store")

    def __init__(self, store: Store, catalog: Catalog, changes: Changes) -> None:
        self._store = store
        self._catalog = catalog
        self._changes = changes

    def load(self, first: bytes, last: bytes | None, rows: Iterable[tuple[bytes, bytes]]) -> int:
        """Take in what the database has in a range; return how many rows are others now. See `Engine.load`."""
        found = dict(rows)
        changed = 0
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start >= stop:
                continue
            assert table.presence is not None
            gone = [key for key in table.slice(start, stop).keys if key not in found]
            table.presence.add(start, stop)
            for key in gone:
                changed += self._changes.set_base(table, key, None)
            for key, value in found.items():
                if start <= key < stop:
                    changed += self._changes.set_base(table, key, value)
        return changed

    def apply(self, key: bytes, value: bytes | None) -> bool | None:
        """Take in a change of the database; tell whether it changed a row, None if it is not loaded."""
        table = self._store.tables.get(key.partition(DELIMITER)[0])
        if table is None or table.presence is None or not table.presence.has(key):
            return None
        return self._changes.set_base(table, key, value)

    def forget(self, first: bytes, last: bytes | None) -> None:
        """Drop what is loaded of a range, and everything that was computed from it; see `Engine.forget`."""
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start >= stop:
                continue
            assert table.presence is not None
            for sites in table.readers:
                for context in [context for site in sites for context in site.within(start, stop)]:
                    self._changes.drop(context)
            if table.watches.count:
                table.watches.note_forgotten(start, stop)
            for key in table.slice(start, stop).keys:
                table.remove(key)
            table.presence.discard(start, stop)

    def are_read(self, first: bytes, last: bytes | None) -> bool:
        """Tell whether what a read of the range shows comes from a backed table, through joins or not."""
        if any(start < stop for start, stop in (table.clip(first, last) for table in self._store.backed)):
            return True
        joins = dict.fromkeys(self._catalog.over(first, last))
        todo = list(joins)
        while todo:
            join = todo.pop()
            if any(table.presence is not None for table in join.source_tables):
                return True
            todo += [up for ups in join.upstreams for up in ups if up not in joins]
            joins.update(dict.fromkeys(todo))
        return False

    def loaded(self) -> list[Range]:
        """Return the loaded ranges."""
        return [one for table in self._store.backed if table.presence is not None for one in table.presence]

    @property
    def range_count(self) -> int:
        """How many ranges are loaded."""
        return sum(len(table.presence) for table in self._store.backed if table.presence is not None)
