"""The engine's structures, each taken out: what the plain way in its place costs, and what it gives back.

    with flat_store():
        engine = Engine()      # works as ever, on one ordered map of all keys of a table

The engine has no switches for this. An alternative replaces methods and classes of the engine while it is in use,
and an engine that is made meanwhile works that way; what it answers is the same. They are made for Twip: what its
operations never do (removals, joins over joins, watches) is left out. A compiled engine can be neither patched nor
subclassed: see `pure.require_pure_engine` before this module is imported.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, cast
from unittest.mock import patch

from sortedcontainers import SortedDict

from pequod.engine import Engine, Rows
from pequod.engine.base.rows import LEAF_MAX, SortedRows
from pequod.engine.base.store import Cut, Table
from pequod.engine.joins import contexts, timeline
from pequod.engine.joins import installed as joins
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.joins.plan import FrameKey, Plan, Step
from pequod.engine.joins.timeline import Timeline
from pequod.engine.joins.updaters import Site, Updaters
from pequod.engine.reads.execution import Execution
from pequod.engine.writes.changes import Changes
from pequod.language.ranges import prefix_end

_make_context: Final = Context.__init__


class KeyedRows:
    """A context's rows under whole keys, in a map that may hold those of other contexts too."""

    __slots__ = ("_end", "_prefix", "keys", "map", "values")

    def __init__(self, prefix: bytes, ordered_map: SortedRows) -> None:
        self.map = ordered_map
        self._prefix = prefix
        self._end = prefix_end(prefix)
        #: Always empty, so that the engine's own short way of a fan-out is not taken.
        self.keys: list[bytes] = []
        self.values: list[bytes] = []

    def put(self, tail: bytes, value: bytes) -> bytes | None:
        """Set the row of ``tail``; as `SortedRows.put`."""
        return self.map.put(self._prefix + tail, value)

    def merge(self, tails: list[bytes], values: list[bytes]) -> None:
        """Take in rows; as `SortedRows.merge`."""
        prefix = self._prefix
        self.map.merge([prefix + tail for tail in tails], values)

    def since(self, _prefix: bytes, first: bytes, limit: int | None) -> Rows:
        """Return the rows from ``first`` on; as `SortedRows.since`."""
        return self.map.slice(first, self._end, limit)


@contextmanager
def flat_store() -> Iterator[None]:
    """Keep each table in one ordered map, timelines too, instead of groups and contexts with rows of their own."""
    timelines = SortedRows()

    def regroup(_table: Table, _cut: Cut | None) -> None:
        pass

    def slice_table(
        table: Table, first: bytes, last: bytes | None, limit: int | None = None, *, reverse: bool = False
    ) -> Rows:
        return table.loose.slice(first, last, limit, reverse=reverse)

    def make_context(
        context: Context, join: InstalledJoin, plan: Plan, environment: list[bytes], prefix: bytes
    ) -> None:
        _make_context(context, join, plan, environment, prefix)
        context.rows = cast("SortedRows", KeyedRows(prefix, timelines))

    def slice_context(
        context: Context, first: bytes, last: bytes, limit: int | None = None, *, reverse: bool = False
    ) -> Rows:
        return timelines.slice(max(first, context.prefix), min(last, context.end), limit, reverse=reverse)

    with ExitStack() as stack:
        stack.enter_context(patch.object(Table, "regroup", regroup))
        stack.enter_context(patch.object(Table, "slice", slice_table))
        stack.enter_context(patch.object(Context, "__init__", make_context))
        stack.enter_context(patch.object(Context, "slice", slice_context))
        yield


@contextmanager
def whole_keys() -> Iterator[None]:
    """Keep whole keys in each timeline, instead of tails that all timelines share."""

    def make_context(
        context: Context, join: InstalledJoin, plan: Plan, environment: list[bytes], prefix: bytes
    ) -> None:
        _make_context(context, join, plan, environment, prefix)
        context.rows = cast("SortedRows", KeyedRows(prefix, SortedRows()))

    def slice_context(
        context: Context, first: bytes, last: bytes, limit: int | None = None, *, reverse: bool = False
    ) -> Rows:
        return cast("KeyedRows", context.rows).map.slice(max(first, context.prefix), last, limit, reverse=reverse)

    def apply_write(contexts: Collection[Context], tail: bytes, new: bytes) -> int:
        for context in contexts:
            whole = cast("KeyedRows", context.rows).map
            keys = whole.keys
            key = context.prefix + tail
            if keys and context.is_whole and context.upper is None and keys[-1] < key:
                keys.append(key)
                whole.values.append(new)
            elif context.covers(tail):
                whole.put(key, new)
        return len(contexts)

    with ExitStack() as stack:
        stack.enter_context(patch.object(Context, "__init__", make_context))
        stack.enter_context(patch.object(Context, "slice", slice_context))
        stack.enter_context(patch.object(timeline, "apply_write", apply_write))
        yield


class SearchingRows(SortedRows):
    """Rows that look for the place of each key, the latest too."""

    __slots__ = ()

    def put(self, key: bytes, value: bytes) -> bytes | None:
        """Set ``key``; as `SortedRows.put` without its first lines."""
        keys, values = self._leaf(key)
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:
            old = values[at]
            values[at] = value
            return old
        keys.insert(at, key)
        values.insert(at, value)
        if len(keys) > LEAF_MAX:
            self._split(key)
        return None


@contextmanager
def searched_appends() -> Iterator[None]:
    """Search the place of each fan-out entry, instead of appending it where it is the latest."""

    def apply_write(contexts: Collection[Context], tail: bytes, new: bytes) -> int:
        for context in contexts:
            if context.covers(tail):
                context.rows.put(tail, new)
        return len(contexts)

    with patch.object(contexts, "SortedRows", SearchingRows), patch.object(timeline, "apply_write", apply_write):
        yield


class CopyingRows(SortedRows):
    """Rows with values of their own."""

    __slots__ = ()

    def put(self, key: bytes, value: bytes) -> bytes | None:
        """Set ``key`` to a copy of ``value``."""
        return super().put(key, bytes(memoryview(value)))

    def merge(self, keys: list[bytes], values: list[bytes]) -> None:
        """Take in rows, their values copied."""
        super().merge(keys, [bytes(memoryview(value)) for value in values])


@contextmanager
def copied_values() -> Iterator[None]:
    """Copy each tweet into each timeline, instead of sharing it with the post."""

    def apply_write(contexts: Collection[Context], tail: bytes, new: bytes) -> int:
        for context in contexts:
            tails = context.rows.keys
            if tails and context.is_whole and context.upper is None and tails[-1] < tail:
                tails.append(tail)
                context.rows.values.append(bytes(memoryview(new)))
            elif context.covers(tail):
                context.rows.put(tail, new)
        return len(contexts)

    with patch.object(contexts, "SortedRows", CopyingRows), patch.object(timeline, "apply_write", apply_write):
        yield


class LoneUpdater:
    """One context that waits at one frame key."""

    __slots__ = ("_entries", "_key", "context")

    def __init__(self, entries: Entries, key: tuple[FrameKey, int], context: Context) -> None:
        self.context = context
        self._entries = entries
        self._key = key

    def release(self, _context: Context) -> None:
        """Let go of the context."""
        self._entries.pop(self._key, None)


#: Updaters in the order of their frame keys, those of one frame key in that of their contexts' numbers.
Entries = SortedDict[tuple[FrameKey, int], LoneUpdater]


class FoundUpdaters:
    """What a search finds at one frame key, read from the ordered map as it is asked for."""

    __slots__ = ("_entries", "_frame_key", "tail_bytes")

    def __init__(self, entries: Entries, frame_key: FrameKey) -> None:
        self._entries = entries
        self._frame_key = frame_key
        #: The ledger's, which holds no limit here.
        self.tail_bytes = 0

    @property
    def contexts(self) -> FoundUpdaters:
        """The contexts that wait there."""
        return self

    def __len__(self) -> int:
        """Return one for however many there are: only the ledger asks, and counting them would cost a search."""
        return 1

    def __iter__(self) -> Iterator[Context]:
        entries = self._entries
        for key in entries.irange((self._frame_key, 0), (self._frame_key, 1 << 64)):
            yield entries[key].context

    def get(self, context: Context, default: tuple[()]) -> tuple[()] | None:
        """Return None, for no extras, if the context waits there."""
        return None if (self._frame_key, id(context)) in self._entries else default


class SearchedSite(Site):
    """A site with an entry for each updater, in order, instead of one for each frame key."""

    __slots__ = ("_entries",)

    def __init__(self, join: InstalledJoin, plan: Plan, step: Step) -> None:
        super().__init__(join, plan, step)
        self._entries: Entries = SortedDict()

    def at(self, key: bytes, match: re.Match[bytes]) -> Updaters | None:
        """Return the updaters that a change of ``key`` concerns."""
        return cast("Updaters", FoundUpdaters(self._entries, self.step.frame_key_of(key, match)))

    def add_all(self, frame_keys: list[FrameKey], context: Context) -> None:
        """Let ``context`` wait at frames without extras."""
        entries, held = self._entries, context.updaters
        for frame_key in frame_keys:
            key = (frame_key, id(context))
            if key not in entries:
                entries[key] = updater = LoneUpdater(entries, key, context)
                held.append(cast("Updaters", updater))


@contextmanager
def lone_updaters() -> Iterator[None]:
    """Keep an updater for each context in one ordered map, instead of all contexts of a frame key together."""
    with patch.object(joins, "Site", SearchedSite):
        yield


@contextmanager
def general_loops() -> Iterator[None]:
    """Compute first checks by the nested loops of any join, instead of the two loops made for this kind."""

    def fill(_execution: Execution, _timeline: Timeline, _known: int, _rows: Rows) -> bool:
        return False

    with patch.object(Execution, "_fill", fill):
        yield


@contextmanager
def general_scan() -> Iterator[None]:
    """Scan the way that fits all ranges, instead of looking for the one timeline first."""

    def scan(
        engine: Engine,
        first: bytes,
        last: bytes | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        now: float = 0.0,
    ) -> Rows:
        return engine._scans.scan_any_range(first, last, limit, reverse=reverse, read=engine._reads.begin(now))

    with patch.object(Engine, "scan", scan):
        yield


@contextmanager
def forgotten_timelines() -> Iterator[None]:
    """Forget a timeline when its subscriptions change, and compute what is read next, instead of keeping a log."""

    def note(
        changes: Changes, context: Context, _depth: int, _key: bytes, _old: bytes | None, _grows_bytes: int
    ) -> None:
        changes._overflowing.append(context)

    with patch.object(Changes, "_note", note):
        yield
