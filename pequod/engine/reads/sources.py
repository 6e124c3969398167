"""Where executions read: the rows of one join's sources, base and computed, and what the rows depend on.

read p|bob|  of source 1    the rows of the table; those that joins compute, brought up to date; what is missing
upstreams                   the contexts whose rows were read
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Protocol

from pequod.answers.rows import Rows
from pequod.engine.base.groups import Groups
from pequod.engine.base.rows import merge_layers
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.coverage import Coverage
from pequod.engine.joins.indexes import Gaps, Index
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.joins.timeline import Around
from pequod.engine.memory.eviction import Evictor
from pequod.engine.read import Read
from pequod.engine.reads import execution
from pequod.engine.reads.plain import read_indexed, read_shown
from pequod.engine.writes.changes import Writer
from pequod.language.missing import NextGroups, Unindexed
from pequod.language.narrowing import Narrowed
from pequod.language.ranges import prefix_end


class Computing(Protocol):
    """What brings the joins up to date that compute rows of sources: a `Reader`."""

    at_once: bool
    memory: Evictor
    writer: Writer

    def answer(self, contexts: Sequence[Context], read: Read) -> bool:
        """Bring contexts up to date; return whether they may answer now."""

    def ensure(self, join: InstalledJoin, first: bytes, last: bytes, read: Read) -> list[Context] | None:
        """Materialise a range and bring it up to date; return the contexts that hold it, None if a range is missing."""

    def pull(
        self, join: InstalledJoin, first: bytes, last: bytes, read: Read, reader: SourceReader | None = None
    ) -> Rows:
        """Compute a range and keep nothing."""


class SourceReader:
    """Reads the sources of one join for one execution, and notes the contexts that it depends on."""

    __slots__ = ("_join", "_read", "_reader", "_serial", "expires_s", "is_lacking", "upstreams")

    def __init__(self, reader: Computing, join: InstalledJoin, read: Read) -> None:
        self._reader = reader
        self._join = join
        self._read = read
        self._serial = reader.writer.serial
        #: Contexts whose rows were read, and the first moment at which one of them expires.
        self.upstreams: dict[Context, None] = {}
        self.expires_s = inf
        #: Whether a range that was read is not loaded: then the result of the execution is useless.
        self.is_lacking = False

    @property
    def is_steady(self) -> bool:
        """Whether no computed row has changed since the execution began, so that all rows read are of one moment."""
        return self._serial == self._reader.writer.serial

    def read(self, source: int, prefix: bytes, first: bytes, last: bytes | None) -> Rows:
        """Return the rows of a source that start with ``prefix`` and continue in ``[first, last)``.

        Computed rows are brought up to date first. The caller only reads the rows, and only until its next call.
        """
        table = self._join.source_tables[source]
        if table.presence is not None:
            self._look_for(table.presence, prefix, first, last)
        base = table.slice_within(prefix, first, last)
        upstreams = self._join.upstreams[source]
        if not upstreams:
            return base
        start = prefix + first
        stop = prefix_end(prefix) if last is None else prefix + last
        assert stop is not None, "a table name has an end"
        if start >= stop:
            return base
        layers = [base]
        for upstream in upstreams:
            if upstream.is_pull:
                layers.append(self._reader.pull(upstream, start, stop, self._read, self))
            elif (kept := self._bring_up(upstream, start, stop)) is not None:
                layers.append(kept.slice(start, stop))
        return merge_layers(layers)

    def _bring_up(self, upstream: InstalledJoin, first: bytes, last: bytes) -> Context | Coverage | None:
        """Bring a range of a join up to date; return what has its rows, None if something is missing."""
        holder = upstream.holder(first, last)
        if holder is not None and self._reader.answer((holder,), self._read):
            self.depend_on(holder)
            return holder
        contexts = self._reader.ensure(upstream, first, last, self._read)
        if contexts is None:
            self.is_lacking = True
            return None
        for context in contexts:
            self.depend_on(context)
        return upstream.coverage

    def read_end(
        self, source: int, prefix: bytes, first: bytes, last: bytes | None, limit: int | None, *, is_last: bool
    ) -> Rows:
        """Return the last rows of these, or the first ones, in the order of their keys; see `read`."""
        join, table = self._join, self._join.source_tables[source]
        if join.upstreams[source] or join.indexes[source] is not None or limit is None:
            keys, values = self.read(source, prefix, first, last)
            if limit is None or len(keys) <= limit:
                return Rows(keys, values)
            return Rows(keys[-limit:], values[-limit:]) if is_last else Rows(keys[:limit], values[:limit])
        if table.presence is not None:
            # All of it is loaded: which rows are the last ones is known when they are there.
            self._look_for(table.presence, prefix, first, last)
        stop = prefix_end(prefix) if last is None else prefix + last
        keys, values = table.slice(prefix + first, stop, limit, reverse=is_last)
        return Rows(keys[::-1], values[::-1]) if is_last else Rows(keys, values)

    def groups(self, source: int, around: Around, prefixes: list[bytes], narrowed: Narrowed) -> Groups | None:
        """Return the groups of the source's table by their prefixes; see `Sources`."""
        join, table = self._join, self._join.source_tables[source]
        if join.upstreams[source] or join.indexes[source] is not None or not table.has_groups(*around, prefixes):
            return None
        if table.presence is not None:
            for prefix in prefixes:
                self._look_for(table.presence, prefix, *narrowed)
        return table.groups

    def look_ahead(self, source: int, prefix: bytes, around: Around, narrowed: Narrowed) -> None:
        """Note which groups of a backed table the read lacks next, if it lacks anything now; see `Sources`."""
        is_plain = not self._join.upstreams[source] and self._join.indexes[source] is None
        if self.is_lacking and is_plain and self._join.source_tables[source].presence is not None:
            self._read.next_groups.append(NextGroups(prefix, *around, *narrowed))

    def make_room(self, tails: list[bytes]) -> int:
        """Make room for contributions to rows with these tails; see `Evictor.room_for`."""
        return self._reader.memory.room_for(tails, execution.ROWS_AT_A_TIME)

    def _look_for(self, known: Gaps, prefix: bytes, first: bytes, last: bytes | None) -> bool:
        """Return whether all rows that start with ``prefix`` and continue in a range are there; note what is not."""
        start, stop = prefix + first, prefix_end(prefix) if last is None else prefix + last
        assert stop is not None, "a table name has an end"
        gaps = known.gaps(start, stop, self._read.number) if start < stop else []
        if gaps:
            self._read.lack(gaps)
            self.is_lacking = True
        return not gaps

    def depend_on(self, context: Context) -> None:
        """Note that rows of ``context`` were read."""
        self.upstreams[context] = None
        self.expires_s = min(self.expires_s, context.expires_s)

    def get(self, source: int, key: bytes) -> bytes | None:
        """Return the value of one source key, None if it is absent."""
        table = self._join.source_tables[source]
        if self._join.upstreams[source] or table.presence is not None:
            rows = SourceReader.read(self, source, key, b"", b"\0")
            return rows.values[0] if rows.keys else None
        return table.get(key)


class RecordReader(SourceReader):
    """Reads the sources of a join that sees plain rows in records."""

    __slots__ = ()

    def read(self, source: int, prefix: bytes, first: bytes, last: bytes | None) -> Rows:
        """Return the plain rows of a source, or the rows of a source that does not look at values."""
        index = self._join.indexes[source]
        if index is None:
            return super().read(source, prefix, first, last)
        searched = index.searched
        if not first and last == b"\0" and searched is None:
            value = self.get(source, prefix)
            return Rows([], []) if value is None else Rows([prefix], [value])
        if index.lens.view.is_indexed and self._join.upstreams[source]:
            if self._is_kept(index, source, is_all=prefix == index.table.prefix and not first and last is None):
                assert index.rows is not None
                return index.rows.slice_within(prefix, first, last)
            if self.is_lacking:
                return Rows([], [])
        elif index.lens.view.is_indexed:
            # Before a search: what is found by one is looked up in the index.
            if searched is not None and self._lacks(index):
                return Rows([], [])
            if (presence := index.table.presence) is not None:
                is_all = searched is None or (prefix == index.table.prefix and not first and last is None)
                if (is_all and not self._look_for(presence, b"", *index.range)) or (
                    searched is not None and not self._look_for(searched, prefix, first, last)
                ):
                    return Rows([], [])
            if self._lacks(index):
                return Rows([], [])
            if (rows := read_indexed(index, prefix, first, last, self._read.number)) is not None:
                return rows
        read = partial(super().read, source) if searched is None else index.table.slice_within
        return read_shown(index, prefix, first, last, read)

    def read_end(
        self, source: int, prefix: bytes, first: bytes, last: bytes | None, limit: int | None, *, is_last: bool
    ) -> Rows:
        """Return the last rows of these, or the first ones, of computed rows from their index; see `read`."""
        index, upstreams = self._join.indexes[source], self._join.upstreams[source]
        if limit is None or index is None or not (upstreams and index.lens.view.is_indexed):
            return super().read_end(source, prefix, first, last, limit, is_last=is_last)
        if not self._is_kept(index, source, is_all=False):
            return super().read_end(source, prefix, first, last, limit, is_last=is_last)
        assert index.rows is not None
        stop = prefix_end(prefix) if last is None else prefix + last
        keys, values = index.rows.slice(prefix + first, stop, limit, reverse=is_last)
        return Rows(keys[::-1], values[::-1]) if is_last else Rows(keys, values)

    def _is_kept(self, index: Index, source: int, *, is_all: bool) -> bool:
        """Return whether the index of a source whose rows joins compute is there and right, made if it is wanted."""
        upstreams = self._join.upstreams[source]
        if (index.rows is None and is_all) or any(upstream.is_pull for upstream in upstreams):
            return False
        if index.rows is None:
            own = super().read(source, b"", *index.range)
            if not self.is_lacking and self.is_steady:
                index.keep(index.show(own))
        else:
            for upstream in upstreams:
                self._bring_up(upstream, *index.range)
        index.use(self._read.number)
        return index.rows is not None

    def _lacks(self, index: Index) -> bool:
        """Return whether an index is to be made slice by slice before it is read, and note that."""
        if self._reader.at_once or self._read.is_whole or not index.takes_slices:
            return False
        self._read.lack([Unindexed(index.lens.view)])
        self.is_lacking = True
        return True

    def get(self, source: int, key: bytes) -> bytes | None:
        """Return the value of one plain row, None if it is absent."""
        if (index := self._join.indexes[source]) is None:
            return super().get(source, key)
        own_key = index.lens.own_key(key)
        return None if own_key is None else index.look(own_key, super().get(source, own_key)).get(key)
