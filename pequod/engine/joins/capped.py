"""The rows that `keep` leaves of each group, and spare ones behind them, which take the places of rows that go.

    t|<user>|<time>|<poster> = ... keep last 3 of <user>      context t|ann|, which is one group

    spare   0070|bob  0080|liz                  no read sees them
    rows    0100|bob  0110|liz  0120|bob        the rows of the context: what reads see
    edge    0070|bob                            beyond it nothing is known of the group; None: all is known

A row that comes to a full group pushes the outermost one out, to the spare ones. When a row goes, the innermost spare
one takes its place. If there is none, and the group has rows beyond its edge, the group is *short*: the next read
computes it again. Of `keep last`, the outermost row is the first one; of `keep first`, the last one.

A group is whole in one context, since reads are widened to whole groups (`Cap.widen`). Or the context has the end of
its only group, if no read asked for more: of `keep last`, the rows from a key on need nothing below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from pequod.answers.rows import Rows
from pequod.engine.base.rows import SortedRows
from pequod.engine.joins.materialised import Materialised
from pequod.engine.joins.tails import RowTails
from pequod.engine.memory.ledger import BYTES
from pequod.language.keeping import compile_group, widen
from pequod.language.ranges import Range, prefix_end
from pequod.language.spec import JoinSpec

#: A tail, with the values before and after that reads see; None: no row.
RowChange = tuple[bytes, bytes | None, bytes | None]
#: Rows that are kept for a spare one (see `Cap.spare_count`), and for one too many that fan-outs may append: what a cut
#: costs is shared by the rows that it takes out (bench row: keep: fan-out).
_ROWS_A_SPARE: Final = 8
_ROWS_A_ROW_OVER: Final = 2
#: The least number of spare rows of a group. Tests make it small.
SPARES_MIN = 8


class Split(NamedTuple):
    """The rows of one group, in the order of their tails."""

    #: What all tails of the group begin with.
    group: bytes
    kept: Rows
    #: Those that are not kept.
    others: Rows


class Cap:
    """The words of `keep`, for the contexts of one plan."""

    __slots__ = ("_match", "count", "is_last", "is_single", "is_unique", "spare_count", "takes_appends")

    def __init__(self, spec: JoinSpec, level: int) -> None:
        keep = spec.keep
        assert keep is not None
        assert level <= len(keep.slots), "a context has whole groups"
        self.count, self.is_last = keep.count, keep.is_last
        self.is_unique = spec.is_unique
        #: How many spare rows of a group stay when there are more than twice this number.
        self.spare_count = max(SPARES_MIN, keep.count // _ROWS_A_SPARE)
        #: Whether a context is one group.
        self.is_single = level == len(keep.slots)
        #: Whether fan-outs may append rows to a context, and leave it to others to drop what is too much.
        is_copied = spec.is_unique and not (spec.is_decided or spec.is_composed)
        self.takes_appends = self.is_last and self.is_single and is_copied
        self._match = compile_group(spec)

    @property
    def wanted(self) -> int:
        """How many rows of a group a context takes in, with the spare ones."""
        return self.count + self.spare_count

    @property
    def room_over(self) -> int:
        """How many rows too many fan-outs may append."""
        return max(2 * SPARES_MIN, self.count // _ROWS_A_ROW_OVER) if self.takes_appends else 0

    @property
    def held(self) -> int:
        """How many rows of a group a context holds at most, with the spare ones."""
        return self.count + max(2 * self.spare_count, self.room_over) + self.room_over

    def group_of(self, prefix: bytes, tail: bytes) -> bytes:
        """Return what all tails of a tail's group begin with; ``prefix`` is that of the context."""
        if self.is_single:
            return b""
        match = self._match(prefix + tail)
        assert match is not None, "an output key has the slots of its group"
        return match[0][len(prefix) :]

    def widen(self, first: bytes, last: bytes) -> Range:
        """Return the range of all groups of which ``[first, last)`` has a part."""
        return widen(self._match, first, last)

    def split(self, prefix: bytes, rows: Rows) -> Iterator[Split]:
        """Yield the groups of rows, which are in the order of their tails."""
        keys, values = rows
        at = 0
        for group, found in groupby(keys, lambda tail: self.group_of(prefix, tail)):
            start, at = at, at + sum(1 for _ in found)
            cut = max(start, at - self.count) if self.is_last else min(at, start + self.count)
            sides = Rows(keys[start:cut], values[start:cut]), Rows(keys[cut:at], values[cut:at])
            kept, others = reversed(sides) if self.is_last else sides
            yield Split(group, kept, others)

    def cut(self, prefix: bytes, rows: Rows) -> Rows:
        """Return the rows that are kept, of rows in the order of their tails."""
        parts = [part.kept for part in self.split(prefix, rows)]
        return Rows([tail for part in parts for tail in part.keys], [value for part in parts for value in part.values])

    def is_beyond(self, tail: bytes, other: bytes) -> bool:
        """Return whether a tail is farther out than another one of its group."""
        return tail < other if self.is_last else tail > other

    def outermost(self, rows: SortedRows, group: bytes) -> bytes:
        """Return the tail of a group's row that goes before all others; there is one."""
        return rows.slice(group, prefix_end(group), 1, reverse=not self.is_last).keys[0]

    def innermost(self, rows: SortedRows) -> bytes:
        """Return the tail of the row that goes after all others, of rows of one group; there is one."""
        return rows.slice(b"", None, 1, reverse=self.is_last).keys[0]


class Spare:
    """The spare rows of a group, and its edge."""

    __slots__ = ("edge", "rows")

    def __init__(self) -> None:
        self.rows = SortedRows()
        self.edge: bytes | None = None


class Kept:
    """The groups of one context.

    Invariants:
        1. A group has at most `Cap.count` rows, and exactly this number if it has spare ones.
        2. The spare rows of a group are beyond all its rows, and not beyond its edge.
        3. A group with an edge and with fewer rows is short.
        4. ``spare_count`` is the number of all spare rows.
        5. A stale context may have more rows, which were appended to one group: see `cut`.
    """

    __slots__ = ("_tails", "cap", "short", "spare_count", "spares")

    def __init__(self, cap: Cap, tails: RowTails) -> None:
        self.cap = cap
        self._tails = tails
        #: By group; only where there are spare rows or an edge.
        self.spares: dict[bytes, Spare] = {}
        #: The groups that are to be computed again.
        self.short: dict[bytes, None] = {}
        self.spare_count = 0

    def fill(self, context: Materialised, rows: Rows, value_bytes: int, *, is_all: bool) -> None:
        """Take in rows, which are in the order of their tails, of groups of which the context has none.

        Args:
            value_bytes: As `Materialised.take_rows` has it.
            is_all: Whether all rows of the groups are there, else only the innermost ones.
        """
        self._fill(context, rows, value_bytes, lambda _: is_all)

    def fill_cut(self, context: Materialised, rows: Rows, value_bytes: int) -> None:
        """Take in rows as `fill` does, of which each group has its innermost ones: if they are too few, all of them."""
        self._fill(context, rows, value_bytes, lambda row_count: row_count < self.cap.count)

    def _fill(self, context: Materialised, rows: Rows, value_bytes: int, has_all: Callable[[int], bool]) -> None:
        """Take in rows; ``has_all`` returns whether a group with this number of rows has all of them."""
        cap = self.cap
        rows = Rows(self._tails.give(rows.keys), rows.values)
        taken = Rows([], [])
        for group, kept, others in cap.split(context.prefix, rows):
            taken.keys.extend(kept.keys)
            taken.values.extend(kept.values)
            is_all = has_all(len(kept.keys) + len(others.keys))
            if not others.keys and is_all:
                continue
            spare = self.spares[group] = Spare()
            spare.rows.merge(*others)
            self.spare_count += len(others.keys)
            context.gain_rows(len(others.keys), self._tails.own_bytes(others.keys, value_bytes))
            if not is_all:
                spare.edge = cap.outermost(spare.rows, group) if others.keys else (kept.keys[0 if cap.is_last else -1])
            self._drop_spares(context, spare)
        if self._tails.is_shared:
            context.take_shared_rows(taken.keys, taken.values)
        else:
            context.take_rows(taken.keys, taken.values, value_bytes)
        self.measure(context)

    def release_all(self, context: Materialised) -> None:
        """Let go of the tails of all rows, which their owner is about to clear."""
        for rows in (context.rows, *(spare.rows for spare in self.spares.values())):
            self._tails.release(list(rows.everything().keys))

    def measure(self, context: Materialised) -> None:
        """Note how many rows may be appended to a context."""
        cap = self.cap
        context.room = max(0, cap.count + cap.room_over - len(context.rows)) if cap.takes_appends else 0

    def cut(self, context: Materialised) -> None:
        """Make spare rows of those that are too many, since rows were appended to a full group."""
        cap, rows = self.cap, context.rows
        excess = len(rows) - cap.count
        if excess <= 0 or not cap.takes_appends:
            return
        spare = self.spares.setdefault(b"", Spare())
        outer, count = rows.take_first(excess), len(spare.rows)
        if excess >= cap.spare_count:
            # They are enough by themselves.
            if count:
                spare.edge = cap.outermost(outer, b"")
                context.gain_rows(-count, -(context.row_bytes * count // (len(rows) + excess + self.spare_count)))
            spare.rows = outer
            self.spare_count += excess - count
        else:
            found = outer.everything()
            spare.rows.merge(list(found.keys), list(found.values))
            self.spare_count += excess
            self._drop_spares(context, spare)
        self.measure(context)

    def knows(self, tail: bytes) -> bool:
        """Return whether a row of this tail matters: none beyond the edge of the group, of which there is one, does."""
        edge = self.edge_of(b"")
        return edge is None or not self.cap.is_beyond(tail, edge)

    def place(self, context: Materialised, tail: bytes, new: bytes | None, own_bytes: int) -> list[RowChange]:
        """Set a row, or (None) remove it; return what reads see of that."""
        self.cut(context)
        changes = self._place(context, tail, new, own_bytes)
        self.measure(context)
        return changes

    def _place(self, context: Materialised, tail: bytes, new: bytes | None, own_bytes: int) -> list[RowChange]:
        group = self.cap.group_of(context.prefix, tail)
        if new is None:
            return self._remove(context, group, tail)
        rows, cap = context.rows, self.cap
        if rows.get(tail) is not None:
            return [(tail, rows.put(tail, new), new)]
        spare, edge = self.spares.get(group), self.edge_of(group)
        if edge is not None and cap.is_beyond(tail, edge):
            return []
        is_full = self.count(context, group) == cap.count
        outermost = cap.outermost(rows, group) if is_full else b""
        if is_full and cap.is_beyond(tail, outermost):
            if spare is not None and spare.rows.get(tail) is not None:
                spare.rows.put(tail, new)
            else:
                self._put_spare(context, group, *self._own(tail, own_bytes), new)
            return []
        tail, own_bytes = self._own(tail, own_bytes)
        changes: list[RowChange] = [(tail, None, new)]
        if is_full:
            # First, so that the rows need no more room than they have.
            value = rows.remove(outermost)
            assert value is not None
            context.gain_rows(-1, 0)
            self._put_spare(context, group, outermost, 0, value)
            changes.append((outermost, value, None))
        rows.put(tail, new)
        context.gain_rows(1, own_bytes)
        if group in self.short and self.count(context, group) == cap.count:
            del self.short[group]
        return changes

    def refill(self, context: Materialised, group: bytes, rows: Rows, *, is_all: bool) -> list[RowChange]:
        """Take in what was computed of a short group; see `fill`. Return what reads see of that."""
        self.cut(context)
        cap, spare = self.cap, self.spares[group]
        self.short.pop(group, None)
        edge, spare.edge = spare.edge, None
        assert edge is not None, "else nothing is missing"
        found = list(zip(*rows, strict=True))
        changes: list[RowChange] = []
        for tail, value in reversed(found) if cap.is_last else found:
            if cap.is_beyond(tail, edge):
                changes += self.place(context, tail, value, BYTES + len(tail))
        if not is_all and spare.edge is None:
            spare.edge = found[0 if cap.is_last else -1][0]
        self._tidy(group)
        return changes

    def take_over(self, other: Kept) -> None:
        """Take in the groups of another context; this one has none of them."""
        self.spares |= other.spares
        self.short |= other.short
        self.spare_count += other.spare_count

    def count(self, context: Materialised, group: bytes) -> int:
        """Return how many rows of a group are kept."""
        return context.rows.count(group, prefix_end(group)) if group else len(context.rows)

    def edge_of(self, group: bytes) -> bytes | None:
        """Return the tail beyond which nothing is known of a group, None if all is known that the context has."""
        spare = self.spares.get(group)
        return None if spare is None else spare.edge

    def range_of(self, context: Materialised, group: bytes) -> Range:
        """Return the range of a group's keys, from where the context begins."""
        end = prefix_end(context.prefix + group) or context.end
        return Range(context.prefix + max(group, context.lower), min(end, context.end))

    def _own(self, tail: bytes, own_bytes: int) -> tuple[bytes, int]:
        """Return the tail of a new row, and what its context has in the ledger for it."""
        return (self._tails.give([tail])[0], 0) if self._tails.is_shared else (tail, own_bytes)

    def _remove(self, context: Materialised, group: bytes, tail: bytes) -> list[RowChange]:
        rows, spare = context.rows, self.spares.get(group)
        value = rows.remove(tail)
        if value is None:
            if spare is not None and spare.rows.remove(tail) is not None:
                self.spare_count -= 1
                self._lose(context)
                self._tails.release([tail])
                self._tidy(group)
            return []
        self._lose(context)
        self._tails.release([tail])
        changes: list[RowChange] = [(tail, value, None)]
        if spare is not None and spare.rows:
            inner = self.cap.innermost(spare.rows)
            taken = spare.rows.remove(inner)
            assert taken is not None
            rows.put(inner, taken)
            self.spare_count -= 1
            changes.append((inner, None, taken))
            self._tidy(group)
        elif spare is not None:
            self.short[group] = None
        return changes

    def _put_spare(self, context: Materialised, group: bytes, tail: bytes, own_bytes: int, value: bytes) -> None:
        """Add a spare row, which is none yet."""
        spare = self.spares.setdefault(group, Spare())
        spare.rows.put(tail, value)
        self.spare_count += 1
        context.gain_rows(1, own_bytes)
        self._drop_spares(context, spare)

    def _drop_spares(self, context: Materialised, spare: Spare) -> None:
        """Drop the outermost spare rows if they are many; aggregates keep all, with their states."""
        cap = self.cap
        if len(spare.rows) <= 2 * cap.spare_count or not cap.is_unique:
            return
        if cap.is_last:
            dropped = spare.rows.take_first(len(spare.rows) - cap.spare_count)
            gone = len(dropped)
            self._tails.release(list(dropped.everything().keys))
            total = len(context.rows) + self.spare_count
            context.gain_rows(-gone, -(context.row_bytes * gone // total))
            self.spare_count -= gone
            spare.edge = cap.outermost(spare.rows, b"")
            return
        tails = spare.rows.slice(b"", None, len(spare.rows) - cap.spare_count, reverse=True).keys
        for tail in tails:
            spare.rows.remove(tail)
            self.spare_count -= 1
            self._lose(context)
        self._tails.release(tails)
        spare.edge = cap.outermost(spare.rows, b"")

    def _lose(self, context: Materialised) -> None:
        """Remove a row from the ledger, with the mean bytes of one; see `Hot.lose_row`."""
        context.gain_rows(-1, -(context.row_bytes // (len(context.rows) + self.spare_count + 1)))

    def _tidy(self, group: bytes) -> None:
        spare = self.spares[group]
        if not spare.rows and spare.edge is None:
            del self.spares[group]

    def _check(self, context: Materialised) -> None:
        cap = self.cap
        if cap.takes_appends:
            assert context.room == cap.count + cap.room_over - len(context.rows), "invariant 5"
            if len(context.rows) > cap.count:
                assert not context.is_fresh, "invariant 5"
                return
        tails = context.rows.everything().keys
        for group, kept, others in cap.split(context.prefix, Rows(tails, tails)):
            assert not others.keys, "invariant 1"
            assert len(kept.keys) == cap.count or group not in self.spares or group in self.short, "invariant 3"
        for group, spare in self.spares.items():
            spare.rows._check()
            assert spare.rows or spare.edge is not None
            if spare.rows:
                assert self.count(context, group) == cap.count, "invariant 1"
                inner, outer = cap.innermost(spare.rows), cap.outermost(spare.rows, b"")
                assert cap.is_beyond(inner, cap.outermost(context.rows, group)), "invariant 2"
                assert spare.edge is None or not cap.is_beyond(outer, spare.edge), "invariant 2"
            elif self.count(context, group) < cap.count:
                assert group in self.short, "invariant 3"
        assert self.spare_count == sum(len(spare.rows) for spare in self.spares.values()), "invariant 4"
