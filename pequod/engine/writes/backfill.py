"""A backfill: what the sources of a join were at a revision, while they go on changing.

    begin      revision R                       record: nothing
    put p|bob|120 x    it was absent at R       record: p|bob|120 -> None
    put p|bob|100 y    it was `w` at R          record: p|bob|100 -> w
    remove p|bob|120                            as before: the first old value is that of R
    end        the record is forgotten

The rows at R are the stored ones with the record laid over them. Spark, which takes minutes, computes from these while
reads and writes go on; `loading` takes in the result.

Of a source that looks at records, the plain rows that a change moves are recorded as well: `loading` reads those.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sortedcontainers import SortedDict

from pequod.answers.rows import Rows
from pequod.engine.joins.indexes import Index
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.joins.plan import Plan
from pequod.language.errors import BackfillEndedError
from pequod.language.ranges import Range

#: The bytes of an entry of the record without its key and value: three objects and their places in the containers.
_ENTRY_BYTES = 200


@dataclass(frozen=True, slots=True)
class Piece:
    """Contributions to a range of one context, as they follow from the sources at the backfill's revision.

    A join whose output keys have one contribution each gives rows: ``tails`` ascend strictly. Other joins give the
    tuples of source keys that contribute, equal ones once with their number in ``times``; ``tails`` ascend.

    A join that keeps some rows of each group gives whole groups. If its output keys have one contribution each, these
    are the rows that are kept, and may be more; else all contributions to the rows of the groups.
    """

    first: bytes
    last: bytes
    #: The parts of the output keys after the context's prefix.
    tails: Sequence[bytes]
    #: One for each tail; empty for a count, which does not use values.
    values: Sequence[bytes]
    #: One for each tail; empty if output keys have one contribution.
    times: Sequence[int] = ()
    #: Keys of the value source, one for each tail; only for copies whose output keys may have several contributions.
    source_keys: Sequence[bytes] = ()


@dataclass(slots=True)
class LoadCounts:
    """The result of loading pieces."""

    #: Ranges that are materialised now, with their rows, and pieces that were materialised before.
    range_count: int = 0
    row_count: int = 0
    skipped_count: int = 0

    def add(self, other: LoadCounts) -> None:
        """Add another result."""
        self.range_count += other.range_count
        self.row_count += other.row_count
        self.skipped_count += other.skipped_count


class Backfill:
    """One backfill: a range of a join, and its sources as they were at its revision.

    Invariants:
        1. A row of ``sources`` at the revision is what ``record`` has for its key, else what is stored.
        2. ``_by_prefix[depth]`` holds the recorded keys of source ``depth``'s pattern, plain ones if it looks at
        records, by the prefix that a frame knows; for those in ``_copied`` it holds none.
        3. ``_copied`` holds the present rows that follow from the recorded keys of the value source, if these are the
        same in all contexts.
        4. A plain row that source ``depth`` saw at the revision is what ``_plain[depth]`` has for its key, else what it
        sees now.
    """

    def __init__(
        self, join: InstalledJoin, plan: Plan, bounds: Range, revision: int, sources: list[Range], bytes_max: int
    ) -> None:
        self.join = join
        self.plan = plan
        self.first, self.last = bounds
        self.revision = revision
        #: The ranges of source keys that can contribute.
        self.sources = sources
        #: Source key -> its value at the revision, None if it was absent; only keys that have changed since.
        self.record: SortedDict[bytes, bytes | None] = SortedDict()
        self.record_bytes = 0
        self.loaded = LoadCounts()
        #: Why no more rows can be loaded; None while they can.
        self.ended: str | None = None
        #: The number of recorded keys when the backfill ended, and their bytes.
        self._changed_at_end = 0, 0
        self._bytes_max = bytes_max
        self._by_prefix: list[dict[bytes, list[bytes]]] = [{} for _ in plan.steps]
        #: For each source that looks at records: plain key -> its value at the revision, None if it was absent.
        self._plain: list[dict[bytes, bytes | None]] = [{} for _ in plan.steps]
        self._sites = join.sites_of(plan)
        site = self._sites[plan.value_depth]
        #: Whether rows are copies whose tails follow from the source keys alone, so a change is the same in all
        #: contexts.
        self.copies_alike = site.is_alike and not site.step.verify
        #: The prefix of source keys that a frame knows -> tail -> present value, None if the row is gone. A piece takes
        #: these rows in as one slice, in 0.2 µs a row, or 0.7 with the rest of a load of 100 rows (bench row: backfill,
        #: changed posts). The timeline's kernel would need 2.5 µs a row to replay them from the record, because it cuts
        #: the tails anew for each context; writes would take 14 % less.
        self._copied: dict[bytes, dict[bytes, bytes | None]] = {}
        #: Tails and values of loaded rows, and the bytes to remember them.
        self._shared: dict[bytes, bytes] = {}
        self._shared_bytes = 0

    def note(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Record the old value of a source key, unless it changed before, and its present rows.

        Cost:
            1 µs or so for each source, while a backfill goes on.
        """
        is_first = key not in self.record
        is_source = False
        for depth, (first, last) in enumerate(self.sources):
            if not first <= key < last:
                continue
            is_source = True
            index = self.join.indexes[depth]
            if index is None:
                self._note_row(depth, key, new, is_first=is_first)
            else:
                self._note_plain(depth, index, key, old, new)
        if is_source and is_first:
            self.record[key] = old
            self.record_bytes += len(key) + len(old or b"") + _ENTRY_BYTES
        if self.record_bytes > self._bytes_max:
            self.end(
                f"the changes since it began take more than {self._bytes_max} bytes; begin again for what is left, "
                "in smaller ranges, or raise backfill_bytes_max"
            )

    def _note_plain(self, depth: int, index: Index, key: bytes, old: bytes | None, new: bytes | None) -> None:
        """Record the plain rows that a source sees in a changed row, and sees no more."""
        before, after = index.look(key, old), index.look(key, new)
        record = self._plain[depth]
        for plain in before | after:
            was, present = before.get(plain), after.get(plain)
            if was == present:
                continue
            is_first = plain not in record
            if is_first:
                record[plain] = was
                self.record_bytes += len(plain) + len(was or b"") + _ENTRY_BYTES
            self._note_row(depth, plain, present, is_first=is_first)

    def _note_row(self, depth: int, key: bytes, new: bytes | None, *, is_first: bool) -> None:
        """Note a changed row where loads look for it; a plain one if the source looks at records."""
        site = self._sites[depth]
        is_copied = self.copies_alike and site.step.is_value
        match = site.step.match(key) if is_first or is_copied else None
        if match is None:
            return
        frame_key = site.step.frame_key_of(key, match)
        prefix = frame_key if isinstance(frame_key, bytes) else frame_key[0]
        if is_copied:
            self._copied.setdefault(prefix, {})[site.tail_of(match)] = new
        else:
            self._by_prefix[depth].setdefault(prefix, []).append(key)

    def end(self, reason: str) -> None:
        """End: load and record no more, and forget the record."""
        if self.ended is None:
            self.ended = reason
            self._changed_at_end = len(self.record), self.record_bytes
            self.record.clear()
            self.record_bytes = 0
            self._by_prefix = [{} for _ in self.plan.steps]
            self._plain = [{} for _ in self.plan.steps]
            self._copied.clear()
            self._shared.clear()

    def changed_size(self) -> tuple[int, int]:
        """Return how many source keys have changed since the revision, or did until the end, and the record's bytes."""
        return (len(self.record), self.record_bytes) if self.ended is None else self._changed_at_end

    def changed(self, depth: int, prefix: bytes, first: bytes, last: bytes | None) -> list[bytes]:
        """Return the recorded keys of a source that start with ``prefix`` and go on within ``[first, last)``."""
        keys = self._by_prefix[depth].get(prefix)
        if not keys:
            return []
        keys.sort()
        start = bisect_left(keys, prefix + first)
        return keys[start : None if last is None else bisect_left(keys, prefix + last)]

    def record_of(self, depth: int) -> Mapping[bytes, bytes | None]:
        """Return the values at the revision of the keys that a source reads, plain ones if it looks at records."""
        return self.record if self.join.indexes[depth] is None else self._plain[depth]

    def copied(self, prefixes: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """Return the changes of rows copied from source keys with these prefixes: tail -> value, None if gone.

        Cost:
            O(prefixes + rows returned), 0.1 µs or so for each.
        """
        found: dict[bytes, bytes | None] = {}
        if self._copied:
            for rows in map(self._copied.get, prefixes):
                if rows is not None:
                    found |= rows
        return found

    def source_rows(self, first: bytes, last: bytes, limit: int) -> Rows:
        """Return rows of ``[first, last)`` as they were at the revision, the first of it.

        Returns:
            About ``limit`` rows; none only if there are none.

        Raises:
            BackfillEndedError: The backfill has ended.

        Cost:
            O(rows returned), and O(log n) for each that changed.
        """
        self.refuse_ended()
        table = next((table for table in self.join.source_tables if table.prefix <= first < table.end), None)
        while table is not None and first < last:
            found = table.slice(first, min(last, table.end), limit)
            stop = found.keys[-1] + b"\0" if len(found.keys) == limit else last
            changed = list(self.record.irange(first, stop, inclusive=(True, False)))
            rows = as_they_were(found, changed, self.record)
            if rows.keys:
                return rows
            # All rows that were read were written after the revision.
            first = stop
        return Rows([], [])

    def share(self, found: Sequence[bytes]) -> list[bytes]:
        """Return equal bytes, as one object with those that came before: a post is in many timelines.

        The objects to share take the memory that the record leaves; when that is full, all of them are forgotten.
        """
        if self.record_bytes + self._shared_bytes > self._bytes_max:
            self._shared.clear()
            self._shared_bytes = 0
        known, count = self._shared.setdefault, len(self._shared)
        shared = [known(one, one) for one in found]
        if len(self._shared) > count:
            mean = sum(map(len, found)) // len(found)
            self._shared_bytes += (len(self._shared) - count) * (mean + _ENTRY_BYTES)
        return shared

    def refuse_ended(self) -> None:
        """Raise BackfillEndedError if the backfill has ended."""
        if self.ended is not None:
            raise BackfillEndedError(self.join.info.name, self.ended)

    def _check(self) -> None:
        for depth, prefixes in enumerate(self._by_prefix):
            assert {key for keys in prefixes.values() for key in keys} <= self.record_of(depth).keys(), "invariant 2"
        depth = self.plan.value_depth
        site, (first, last) = self._sites[depth], self.sources[depth]
        index = self.join.indexes[depth]
        copied: dict[object, dict[bytes, bytes | None]] = {}
        for key in self.record_of(depth):
            match = site.step.match(key)
            if match is not None and self.copies_alike and (index is not None or first <= key < last):
                value = self._present(depth, index, key)
                copied.setdefault(site.step.frame_key_of(key, match), {})[site.tail_of(match)] = value
        assert copied == self._copied, "invariant 3"
        assert self.ended is None or not (self.record or any(self._plain))

    def _present(self, depth: int, index: Index | None, key: bytes) -> bytes | None:
        table = self.join.source_tables[depth]
        if index is None:
            return table.get(key)
        own_key = index.lens.own_key(key)
        assert own_key is not None, "invariant 4"
        return index.look(own_key, table.get(own_key)).get(key)


def as_they_were(rows: Rows, changed: list[bytes], record: Mapping[bytes, bytes | None]) -> Rows:
    """Return rows as they were at a revision; ``changed`` are the keys in their range that the record has."""
    if not changed:
        return rows
    found = dict(zip(rows.keys, rows.values, strict=True))
    for key in changed:
        old = record[key]
        if old is None:
            found.pop(key, None)
        else:
            found[key] = old
    keys = sorted(found)
    return Rows(keys, [found[key] for key in keys])
