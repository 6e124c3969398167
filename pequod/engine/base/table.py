"""Tables: rows that share the first part of their keys, cut into groups (paper §4.1).

    Table p|    groups: b"p|bob|" -> rows of bob's posts
                        b"p|liz|" -> rows of liz's posts
                loose:  keys of the table that are too short to be cut

A table's cut is the length of its groups' prefixes: after the first slot of the patterns that read it. So most
operations look at one short list. The table stays one ordered map: groups have an order beside their dictionary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from pequod.answers.rows import Rows
from pequod.engine.base.groups import Groups
from pequod.engine.base.presence import Presence
from pequod.engine.base.rows import SortedRows, merge_layers
from pequod.engine.memory.ledger import BYTES, GROUP, PART, ROW, TABLE
from pequod.engine.read import Numbers
from pequod.language.ranges import Range, prefix_end
from pequod.language.spec import DELIMITER
from pequod.native import core


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a table is cut into groups: ``width`` bytes after its name, or (None) after the next delimiter."""

    width: int | None


class HotTable:
    """The rows of a table, and how they are read and changed one by one."""

    __slots__ = (
        "_group_of",
        "cut_width",
        "end",
        "entry_count",
        "groups",
        "key_bytes",
        "loaded",
        "loose",
        "prefix",
        "uses",
        "value_bytes",
    )

    _group_of: Callable[[bytes], bytes | None]
    groups: Groups
    loose: SortedRows
    entry_count: int
    key_bytes: int
    value_bytes: int

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, or None if it is absent."""
        prefix = self._group_of(key)
        rows = self.loose if prefix is None else self.groups.get(prefix)
        return None if rows is None else rows.get(key)

    def put(self, key: bytes, value: bytes) -> bytes | None:
        """Set ``key`` and return the value that it had, None if it was absent."""
        prefix = self._group_of(key)
        rows = self.loose if prefix is None else self.groups.make(prefix)
        old = rows.put(key, value)
        if old is None:
            self.entry_count += 1
            self.key_bytes += len(key)
            self.value_bytes += len(value)
        else:
            self.value_bytes += len(value) - len(old)
        return old

    def remove(self, key: bytes) -> bytes | None:
        """Remove ``key`` and return the value that it had, None if it was absent."""
        prefix = self._group_of(key)
        rows = self.loose if prefix is None else self.groups.get(prefix)
        old = None if rows is None else rows.remove(key)
        if old is None:
            return None
        if prefix is not None and not rows:
            self.groups.remove(prefix)
        self.entry_count -= 1
        self.key_bytes -= len(key)
        self.value_bytes -= len(old)
        return old


if not TYPE_CHECKING and core is not None:
    HotTable = core.HotTable


class Table(HotTable):
    """The client-written rows of one table.

    Invariants:
        1. Every key starts with ``prefix``.
        2. A group is never empty, and its keys start with its prefix.
        3. ``loose`` holds exactly the keys that the cut does not apply to.
        4. The counters equal what is stored.
    """

    # The core finds groups by ``cut_width``, and has no place for the function.
    __slots__ = ("cut", "is_kept", "is_paged", "presence", *(() if core is None else ("_group_of",)))

    def __init__(self, prefix: bytes) -> None:
        #: The table's name with its delimiter.
        self.prefix = prefix
        end = prefix_end(prefix)
        assert end is not None, "a table name has an end"
        #: The end of the table's range: it is above every key of the table.
        self.end = end
        self.cut: Cut | None = None
        #: The width of the cut; 0 if it ends at a delimiter, -1 if there is none.
        self.cut_width = -1
        self.loose = SortedRows()
        self.entry_count = 0
        self.key_bytes = 0
        self.value_bytes = 0
        #: The loaded ranges, if a database owns the keys, or a disk keeps rows that are not here; else None.
        self.presence: Presence | None = None
        #: Whether it is a disk that has the other rows: then clients write the keys.
        self.is_paged = False
        #: Whether a disk has all rows that clients write, so that it may come to be paged.
        self.is_kept = False
        #: Their bounds, or None.
        self.loaded: SortedRows | None = None
        self.uses: dict[bytes, Numbers] | None = None
        #: The groups by their prefixes; others look at them alone.
        self.groups = Groups()
        self._group_of = _uncut

    def back(self) -> Presence:
        """Declare that a database owns the keys, and return the loaded ranges: none, the first time."""
        if self.presence is None:
            self.presence = Presence()
            self.loaded, self.uses = self.presence.bounds, self.presence.uses
        return self.presence

    def hold_whole(self) -> None:
        """Note that all rows are here, and that clients write them."""
        self.presence = self.loaded = None
        self.is_paged = False

    def is_away(self, key: bytes) -> bool:
        """Return whether a key is not loaded: whether it is there, and its value, is known elsewhere alone."""
        return self.presence is not None and not self.presence.has(key)

    def regroup(self, cut: Cut | None) -> None:
        """Cut the table again.

        Cost:
            O(n) in the rows of the table.
        """
        if cut == self.cut:
            return
        rows = self.slice(self.prefix, prefix_end(self.prefix))
        self.cut = cut
        self.cut_width = -1 if cut is None else cut.width or 0
        self._group_of = _compile_cut(self.prefix, cut)
        self.groups = Groups()
        self.loose = SortedRows()
        self.entry_count = self.key_bytes = self.value_bytes = 0
        for key, value in zip(rows.keys, rows.values, strict=True):
            self.put(key, value)

    def put_run(self, keys: list[bytes], values: list[bytes]) -> int:
        """Set ascending keys; return the number of rows that are new or have another value.

        Keys of one group that lie between two neighbouring rows are inserted as one slice.

        Requires:
            ``keys`` ascend strictly.
        """
        changed = start = 0
        while start < len(keys):
            prefix = self._group_of(keys[start])
            if prefix is not None and (start + 1 == len(keys) or not keys[start + 1].startswith(prefix)):
                # Where a field tells all records apart, each group of an index has one row.
                changed += self.put(keys[start], values[start]) != values[start]
                start += 1
                continue
            if prefix is not None:
                end = prefix_end(prefix)
                stop = len(keys) if end is None else bisect_left(keys, end, start)
            else:
                stop = len(keys) if self.cut is None else start + 1
            changed += self._put_into(prefix, keys[start:stop], values[start:stop])
            start = stop
        return changed

    def _put_into(self, prefix: bytes | None, keys: list[bytes], values: list[bytes]) -> int:
        rows = self.loose if prefix is None else self.groups.make(prefix)
        if not rows.insert(keys, values):
            return sum(self.put(key, value) != value for key, value in zip(keys, values, strict=True))
        self.entry_count += len(keys)
        self.key_bytes += sum(map(len, keys))
        self.value_bytes += sum(map(len, values))
        return len(keys)

    def slice(self, first: bytes, last: bytes | None, limit: int | None = None, *, reverse: bool = False) -> Rows:
        """Return the rows of ``[first, last)``; see `SortedRows.slice`.

        Cost:
            O(log group) inside one group, plus O(log groups + groups with rows in the range) across groups.
        """
        prefix = self._group_of(first)
        if prefix is not None and last is not None and last <= prefix_end(prefix):  # type: ignore[operator]
            rows = self.groups.get(prefix)
            return Rows([], []) if rows is None else rows.slice(first, last, limit, reverse=reverse)
        found = Rows([], [])
        for rows in self._groups_over(first, last, reverse=reverse):
            wanted = None if limit is None else limit - len(found.keys)
            if wanted == 0:
                break
            piece = rows.slice(first, last, wanted, reverse=reverse)
            found.keys.extend(piece.keys)
            found.values.extend(piece.values)
        if self.loose:
            layers = [found, self.loose.slice(first, last, limit, reverse=reverse)]
            return merge_layers(layers, limit, reverse=reverse)
        return found

    def is_cut_between(self, before: bytes, width: int | None, after: bytes) -> bool:
        """Return whether ``before``, any value of a slot and ``after`` are always the prefix of a group.

        A slot with a width may hold the delimiter, at which a cut without one ends: so these two never fit.
        """
        if self.cut is None:
            return False
        if self.cut.width is None or width is None:
            return self.cut.width == width and before == self.prefix and after == DELIMITER
        return len(before) + width + len(after) == len(self.prefix) + self.cut.width

    def is_cut_at(self, prefix: bytes) -> bool:
        """Return whether ``prefix`` is that of a group, maybe of an empty one: it has all keys that begin so."""
        return self._group_of(prefix) == prefix

    def has_groups(self, before: bytes, width: int | None, after: bytes, prefixes: list[bytes]) -> bool:
        """Return whether all ``prefixes`` are those of groups; each is ``before``, a value of a slot, and ``after``.

        Another join may have had the table cut: then some of these prefixes may be those of groups, and others not.

        Cost:
            O(1) if the table is cut as the slot says, else O(prefixes).
        """
        return self.is_cut_between(before, width, after) or all(map(self.is_cut_at, prefixes))

    def slice_within(self, prefix: bytes, first: bytes, last: bytes | None) -> Rows:
        """Return the rows that start with ``prefix`` and continue in ``[first, last)``.

        Requires:
            The caller only reads them, and only until the table changes.

        Cost:
            O(1) for a whole group, else that of `slice`.
        """
        rows = self.groups.get(prefix)
        if rows is None:
            if self.is_cut_at(prefix):
                return _NO_ROWS
            return self.slice(prefix + first, prefix_end(prefix) if last is None else prefix + last)
        if not first and last is None:
            return rows.everything()
        return rows.slice(prefix + first, None if last is None else prefix + last)

    def group(self, prefix: bytes) -> SortedRows | None:
        """Return the rows with a prefix, to be looked at alone; None if it is not the prefix of a group."""
        rows = self.groups.get(prefix)
        return _NO_GROUP if rows is None and self.is_cut_at(prefix) else rows

    def count(self, first: bytes, last: bytes | None) -> int:
        """Return how many keys ``[first, last)`` holds."""
        return self.loose.count(first, last) + sum(rows.count(first, last) for rows in self._groups_over(first, last))

    def has_more(self, first: bytes, last: bytes, count: int) -> bool:
        """Return whether ``[first, last)`` holds more than ``count`` keys.

        Cost:
            O(log group) for each group up to that number of keys.
        """
        left = count - self.loose.count(first, last)
        for rows in self._groups_over(first, last):
            left -= rows.count(first, last)
            if left < 0:
                break
        return left < 0

    def sample(self, first: bytes, last: bytes | None, step: int, groups_max: int) -> Iterator[tuple[bytes, int]]:
        """Yield keys of ``[first, last)``, each with the number of rows that it stands for, approximately.

        Args:
            step: The greatest number of rows of one group for a key.
            groups_max: Examine this many groups, or up to twice as many; each stands for its neighbours too.
        """
        yield from self.loose.sample(first, last, step)
        start, order = self._group_of(first), self.groups.order
        begin = order.bisect_left(first if start is None else start)
        end = len(order) if last is None else order.bisect_left(last)
        stride = max(1, (end - begin) // groups_max)
        for prefix in islice(order.islice(begin, max(begin, end)), 0, None, stride):
            for key, count in self._group(prefix).sample(first, last, step):
                yield key, count * stride

    def clip(self, first: bytes, last: bytes | None) -> Range:
        """Return the part of ``[first, last)`` that lies in the table; empty if it ends at or below its first key."""
        return Range(max(first, self.prefix), self.end if last is None else min(last, self.end))

    @property
    def name(self) -> bytes:
        """The table's name, without the delimiter."""
        return self.prefix[:-1]

    @property
    def group_count(self) -> int:
        """The number of groups."""
        return len(self.groups)

    def count_bytes(self) -> int:
        """Return the memory of the rows, and of the table itself."""
        parts_bytes = 0 if self.presence is None else len(self.presence) * PART
        count = self.entry_count
        # CPython has each value of one byte once, such as that of all subscriptions; no more values are of a row alone.
        own_value_count = min(count, max(self.value_bytes - count, 0))
        rows_bytes = count * (ROW - BYTES) + own_value_count * BYTES + self.key_bytes + self.value_bytes
        return TABLE + len(self.groups) * GROUP + parts_bytes + rows_bytes

    def _groups_over(self, first: bytes, last: bytes | None, *, reverse: bool = False) -> Iterator[SortedRows]:
        # The group that `first` falls into sorts at or below it.
        start = self._group_of(first)
        bounds = first if start is None else start, last
        return map(self._group, self.groups.order.irange(*bounds, inclusive=(True, False), reverse=reverse))

    def _group(self, prefix: bytes) -> SortedRows:
        rows = self.groups.get(prefix)
        assert rows is not None, "there is a group for each prefix in the order"
        return rows

    def _check(self) -> None:
        self.loose._check()
        self.groups._check()
        groups = self.groups.items()
        keys = [key for rows in (self.loose, *dict(groups).values()) for leaf, _ in rows.leaves() for key in leaf]
        assert all(key.startswith(self.prefix) for key in keys), "invariant 1"
        for prefix, rows in groups:
            rows._check()
            assert rows, "invariant 2"
            assert all(self._group_of(key) == prefix for leaf, _ in rows.leaves() for key in leaf), "invariant 2"
        assert all(self._group_of(key) is None for leaf, _ in self.loose.leaves() for key in leaf), "invariant 3"
        assert self.entry_count == len(keys), "invariant 4"
        assert self.key_bytes == sum(map(len, keys)), "invariant 4"
        assert self.cut_width == (-1 if self.cut is None else self.cut.width or 0)
        if self.presence is not None:
            self.presence._check()


_NO_ROWS: Final = Rows([], [])
_NO_GROUP: Final = SortedRows()


def _uncut(_key: bytes) -> bytes | None:
    return None


def _compile_cut(prefix: bytes, cut: Cut | None) -> Callable[[bytes], bytes | None]:
    if cut is None:
        return _uncut
    start = len(prefix)
    if cut.width is not None:
        length = start + cut.width

        def fixed(key: bytes) -> bytes | None:
            return key[:length] if len(key) >= length else None

        return fixed

    def delimited(key: bytes) -> bytes | None:
        at = key.find(DELIMITER, start)
        return key[: at + 1] if at >= 0 else None

    return delimited
