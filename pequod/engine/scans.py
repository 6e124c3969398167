"""Reads of any range, over tables and joins: bring up what joins compute there, and merge it with what is stored.

scan [p|, t|bob})     store   p|bob|100  p|liz|120  s|ann|bob ...
                      joins   t: ensure [t|, t|bob})      karma: pulled
"""

from __future__ import annotations

from pequod.engine.catalog import Catalog
from pequod.engine.changes import Changes
from pequod.engine.contexts import Context
from pequod.engine.errors import MissingError
from pequod.engine.eviction import Memory
from pequod.engine.joins import InstalledJoin
from pequod.engine.ranges import united
from pequod.engine.read import Read
from pequod.engine.reader import Reader
from pequod.engine.rows import Rows
from pequod.engine.store import Store, merge_layers
from pequod.engine.views import View, join_layers


class Scans:
    """Reads that no short cut of the engine's answers."""

    __slots__ = ("_catalog", "_changes", "_memory", "_reader", "_store")

    def __init__(self, store: Store, catalog: Catalog, changes: Changes, reader: Reader, memory: Memory) -> None:
        self._store = store
        self._catalog = catalog
        self._changes = changes
        self._reader = reader
        self._memory = memory

    def scan(self, first: bytes, last: bytes | None, limit: int | None, *, reverse: bool, read: Read) -> Rows:
        """Return the rows of ``[first, last)``; see `Engine.scan`."""
        if last is not None and first >= last:
            return Rows([], [])
        if limit is None or reverse:
            return self._scan_whole(first, last, limit, reverse=reverse, read=read)
        # Many contexts are brought up to date only as far as it takes: a large scan in pieces must not look at all of
        # them for each piece. Rows may go meanwhile; then it takes more.
        wanted = limit
        while True:
            bound = self._reach(first, last, wanted)
            rows = self._scan_whole(first, bound, limit, reverse=False, read=read)
            if bound == last or len(rows.keys) >= limit:
                return rows
            wanted *= 2

    def _reach(self, first: bytes, last: bytes | None, row_count: int) -> bytes | None:
        """Return how far to read for so many rows, as far as what is materialised tells."""
        for join in self._catalog.over(first, last):
            start, stop = join.clip(first, last)
            if start < stop and (bound := join.coverage.reach(start, stop, row_count)) < stop:
                last = bound
        return last

    def _scan_whole(self, first: bytes, last: bytes | None, limit: int | None, *, reverse: bool, read: Read) -> Rows:
        layers = [self._store.slice(first, last, limit, reverse=reverse)]
        joins = self._catalog.over(first, last)
        pulled = self.bring_up(joins, first, last, read)
        for join in joins:
            start, stop = join.clip(first, last)
            if join in pulled:
                rows = pulled[join]
                layers.append(Rows(rows.keys[::-1], rows.values[::-1]) if reverse else rows)
            else:
                layers.append(join.coverage.slice(start, stop, limit, reverse=reverse))
        return merge_layers(layers, limit, reverse=reverse)

    def scan_pulled(
        self, joins: list[InstalledJoin], first: bytes, last: bytes, limit: int | None, read: Read
    ) -> Rows | None:
        """Return the rows of ``[first, last)`` of a table's joins, some of them computed now; see `Engine.scan`.

        It spares such a read half its fixed cost: nothing of it can be remembered for the next one.

        Returns:
            None if no join is computed now, what the others keep is not ready in one context each, or anything is
            missing.

        Requires:
            ``[first, last)`` lies in the table, which holds no rows of its own.
        """
        if True not in [join.is_pull for join in joins]:
            return None
        kept: list[Context] = []
        for join in joins:
            if join.is_pull:
                continue
            context = join.level_one(first)
            if context is None or not context.holds(first, last) or context.expires_s < read.now:
                return None
            if not (context.is_fresh or self._reader.refresh(context, read)):
                return None
            context.last_used = read.number
            kept.append(context)
        read.begin_again(self._changes.serial)
        pulled = {join: self._reader.pull(join, *join.clip(first, last), read) for join in joins if join.is_pull}
        if read.missing or read.serial != self._changes.serial or not all(map(_is_ready, kept)):
            return None
        layers = []
        for join in joins:
            if join in pulled:
                layers.append(pulled[join])
            else:
                context = kept.pop(0)
                join.counters.hits += 1
                layers.append(context.slice(first, last))
        rows = join_layers(layers, None, reverse=False)
        return rows if limit is None else Rows(rows.keys[:limit], rows.values[:limit])

    def count(self, first: bytes, last: bytes | None, read: Read) -> int:
        """Return how many keys ``[first, last)`` has; see `Engine.count`."""
        if last is not None and first >= last:
            return 0
        joins = self._catalog.over(first, last)
        pulled = self.bring_up(joins, first, last, read)
        if pulled or any(join.rivals for join in joins):
            return len(self.scan(first, last, None, reverse=False, read=read).keys)
        return self._store.count(first, last) + sum(join.coverage.count(*join.clip(first, last)) for join in joins)

    def get(self, join: InstalledJoin, key: bytes, read: Read) -> bytes | None:
        """Return the value of a key that a join may compute, None if it does not."""
        status = join.coverage.find(key)
        context = None if status is None else status.context
        if context is None or not context.is_fresh or context.expires_s < read.now:
            pulled = self.bring_up([join], key, key + b"\0", read)
            if join in pulled:
                return pulled[join].values[0] if pulled[join].values else None
            status = join.coverage.find(key)
            assert status is not None
            context = status.context
        else:
            join.counters.hits += 1
        context.last_used = read.number
        return context.get(key)

    def bring_up_view(self, view: View, read: Read) -> bool:
        """Bring the contexts of a view up to date; tell whether it still answers its read then."""
        if not view.holds(read.now):
            return False
        contexts = [part.context for part in view.parts]
        for context in contexts:
            context.last_used = read.number
        if not all(self._reader.refresh(context, read) for context in contexts if not context.is_fresh):
            return False
        if not (view.holds(read.now) and all(context.is_fresh for context in contexts)):
            return False
        for context in contexts:
            context.join.counters.hits += 1
        return True

    def bring_up(
        self, joins: list[InstalledJoin], first: bytes, last: bytes | None, read: Read
    ) -> dict[InstalledJoin, Rows]:
        """Materialise a range of joins and bring it up to date; return the rows of those that keep nothing.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.
            LimitExceededError: What it computes does not fit into memory.
        """
        while True:
            read.begin_again(self._changes.serial)
            pulled = {}
            for join in joins:
                start, stop = join.clip(first, last)
                if join.is_pull:
                    pulled[join] = self._reader.pull(join, start, stop, read)
                else:
                    self._reader.ensure(join, start, stop, read)
            if self._store.backed:
                read.lack(self._store.absent(first, last, read.number))
                self.refuse_missing(read)
            if read.serial == self._changes.serial:
                return pulled

    def refuse_missing(self, read: Read) -> None:
        """Raise MissingError with all that a read lacks, if it lacks anything."""
        if read.missing:
            self._memory.wait(read)
            raise MissingError(united(read.missing))

    def refresh(self, contexts: dict[Context, None], read: Read) -> dict[Context, None]:
        """Bring contexts up to date; return those for which the read lacks something, noted in it."""
        read.begin_again(self._changes.serial)
        for context in contexts:
            context.last_used = read.number
        return {context: None for context in contexts if not self._reader.refresh(context, read) and context.is_live}


def _is_ready(context: Context) -> bool:
    return context.is_live and context.is_fresh
