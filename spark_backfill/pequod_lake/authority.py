"""The authority, merged with younger runs: only the files that updates touch are written.

    updates         combined, at most a slice of the key at a time
    primary view    of each range that they touch: its rows, with the updates combined, written anew
    other views     the rows that were there before go, those that are there now come; again by ranges

Where updates are many, or a range has more rows than a slice, as in lakes of the version before ranges, all of a table
is written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.combining import live, places_in_order
from pequod_lake.ranges import by_range, members, ranges_of
from pequod_lake.reading import LakeReader
from pequod_lake.rewriting import RangeRewriter
from pequod_lake.runs import LakeFile
from pequod_lake.schema import LakeTable, LakeView
from pequod_lake.slices import TableWork, key_slices


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLimits:
    """How much a step does at a time."""

    #: Rows of a table that a merge has in memory at once; larger ones are merged in slices of the key.
    slice_rows: int = 4_000_000
    #: What DuckDB may take to sort the rows of a larger merge for another view; the rest is on disk.
    memory: str = "2GB"
    #: Tables of which a step has more rows go to Spark, if the worker has one.
    bulk_rows: int = 20_000_000
    #: The most rows of a file of the authority, which is written anew when an update touches it.
    range_rows: int = 1_000_000
    #: With more updates than this share of a table's rows, all of the table is written anew.
    whole_ratio: float = 0.25


class Write(Protocol):
    """Writes rows of a view into a file; yields none if there are no rows."""

    def __call__(self, table: LakeTable, view: str, batches: Iterable[Any]) -> Iterator[LakeFile]:
        """Write tables of Arrow one after the other."""
        ...


@dataclass(slots=True)
class _Changes:
    """What a round has changed in the rows that are there."""

    removed: list[Any] = field(default_factory=list)
    added: list[Any] = field(default_factory=list)


class AuthorityMerge:
    """Merges runs into the authority.

    Args:
        write: Writes a file.
        remove: Deletes files that were written and are not wanted any more.
    """

    def __init__(
        self,
        reader: LakeReader,
        write: Write,
        remove: Callable[[Iterable[LakeFile]], None],
        limits: StageLimits,
    ) -> None:
        self._reader = reader
        self._write = write
        self._remove = remove
        self._limits = limits

    def is_whole(self, work: TableWork) -> bool:
        """Return whether all of a table is written anew."""
        authority, *others = work.runs
        files = authority.of(work.table.name)
        count = sum(file.row_count for file in files)
        updates = sum(file.row_count for run in others for file in run.of(work.table.name))
        views = ("", *(view.name for view in work.table.views))
        largest = max(
            (
                sum(file.row_count for file in one)
                for view in views
                for one in ranges_of(authority.of(work.table.name, view))
            ),
            default=0,
        )
        # Each round may touch all of the other views.
        rounds = -(-updates // self._limits.slice_rows) if work.table.views else 1
        is_many = updates * rounds > count * self._limits.whole_ratio
        return updates > 0 and (not files or is_many or largest > self._limits.slice_rows)

    def ranged(self, work: TableWork) -> list[LakeFile]:
        """Return the files of a table: those that no update touches as they are, and new ones.

        Raises:
            LakeCorruptError: A file is damaged.
            LakeError: The disk is full.
        """
        authority, *others = work.runs
        table = work.table
        kept = {file.path for file in authority.files}
        files = {view.name: list(authority.of(table.name, view.name)) for view in (table.primary, *table.views)}
        updates = TableWork(work.kind, table, tuple(others), work.writer_id)
        if not updates.row_count:
            return [file for one in files.values() for file in one]
        for one in key_slices(self._reader, updates, self._limits.slice_rows):
            rows = one.rows(self._reader, updates)
            if rows.num_rows == 0:
                continue
            before = files
            changes = _Changes()
            files = {"": self._primary(work, files[""], rows, changes)}
            for view in table.views:
                files[view.name] = self._view(table, view, before[view.name], changes)
            after = {file.path for some in files.values() for file in some}
            old = [file for some in before.values() for file in some if file.path not in after]
            self._remove(file for file in old if file.path not in kept)
        return [file for one in files.values() for file in one]

    def fill(self, table: LakeTable, view: str, batches: Iterable[Any]) -> Iterator[LakeFile]:
        """Write all rows of a view anew, in its order; yield the files."""
        rewriter = self._rewriter(table, table.view(view))
        rewriter.fill(batches)
        yield from rewriter.done()

    def _rewriter(self, table: LakeTable, view: LakeView) -> RangeRewriter:
        return RangeRewriter(
            lambda files: self._rows(table, view, files),
            lambda rows: self._write(table, view.name, [rows]),
            self._limits.range_rows,
        )

    def _primary(self, work: TableWork, files: Sequence[LakeFile], updates: Any, changes: _Changes) -> list[LakeFile]:
        table = work.table
        ranges = ranges_of(files)
        touched = dict(by_range(updates, table.key, ranges))
        rewriter = self._rewriter(table, table.primary)
        for place, one in enumerate(ranges or [()]):
            if (some := touched.get(place)) is None:
                rewriter.keep(one)
                continue
            base = self._rows(table, table.primary, one)
            is_old = members(base, some, table.key)
            old = base.filter(is_old)
            new = work.finished([old, some])
            if table.views:
                changes.removed.append(live(table, old))
                changes.added.append(live(table, new))
            rewriter.put(_in_order([base.filter(pc.invert(is_old)), new], table.key))
        return rewriter.done()

    def _view(self, table: LakeTable, view: LakeView, files: Sequence[LakeFile], changes: _Changes) -> list[LakeFile]:
        removed = _in_order([one.select(list(view.key)) for one in changes.removed], view.key)
        added = _in_order([one.select(list(view.columns)) for one in changes.added], view.key)
        ranges = ranges_of(files)
        going, coming = dict(by_range(removed, view.key, ranges)), dict(by_range(added, view.key, ranges))
        rewriter = self._rewriter(table, view)
        for place, one in enumerate(ranges or [()]):
            if place not in going and place not in coming:
                rewriter.keep(one)
                continue
            rows = self._rows(table, view, one)
            if place in going:
                rows = rows.filter(pc.invert(members(rows, going[place], table.key)))
            rewriter.put(_in_order([rows, coming[place]], view.key) if place in coming else rows)
        return rewriter.done()

    def _rows(self, table: LakeTable, view: LakeView, files: Sequence[LakeFile]) -> Any:
        stored = table.stored(view)
        pieces = [self._reader.read(file, stored.names) for file in files]
        return pa.concat_tables(pieces) if pieces else stored.empty_table()


def _in_order(pieces: Sequence[Any], key: Sequence[str]) -> Any:
    rows = pa.concat_tables(pieces).combine_chunks()
    return rows.take(places_in_order(rows, key)) if rows.num_rows else rows
