"""Merges in slices of the key, and what takes over work that is too much for one process.

    runs      [ 1 ... 900 ][ 2 ... 700 ][ 5 ... 800 ]
    slices    [ below 300 ) [ 300 to 600 ) [ 600 and above )      each with the rows of all runs

    key (country, id)       [ below (de, 500) ) [ (de, 500) to (fr) ) [ (fr) and above )

A slice depends on no other, so slices are done one after the other, or by tasks of Spark side by side: the same code
does them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import pyarrow as pa

from pequod_lake.combining import combined, live
from pequod_lake.conditions import KeyBound
from pequod_lake.ranges import files_within
from pequod_lake.reading import LakeReader
from pequod_lake.runs import LakeFile, Run
from pequod_lake.schema import LakeSchema, LakeTable, LakeView


@dataclass(frozen=True, slots=True)
class TableWork:
    """What a step does with one table: runs that follow each other become files of one run."""

    #: What the files are, for their names.
    kind: str
    table: LakeTable
    runs: tuple[Run, ...]
    #: The worker, under whose lock files are written.
    writer_id: str
    is_authority: bool = False

    @property
    def files(self) -> tuple[LakeFile, ...]:
        """The files of the primary view, those of older runs first."""
        return tuple(file for run in self.runs for file in run.of(self.table.name))

    @property
    def row_count(self) -> int:
        """The number of rows of all runs."""
        return sum(file.row_count for file in self.files)

    def finished(self, pieces: Sequence[Any]) -> Any:
        """Return versions combined; in the authority without delete markers, unless the table keeps them."""
        rows = combined(self.table, pieces)
        return live(self.table, rows) if self.is_authority and not self.table.keeps_markers else rows


@dataclass(frozen=True, slots=True)
class RunWork:
    """What the stage `id-remap` does with a raw run."""

    #: As for `TableWork`.
    kind: str
    schema: LakeSchema
    run: Run
    #: The runs that know the ids of earlier SCUs.
    earlier: tuple[Run, ...]
    writer_id: str

    @property
    def tables(self) -> tuple[LakeTable, ...]:
        """The tables of the run that have columns with ids."""
        return tuple(table for table in self.schema.tables if table.has_ids and self.run.of(table.name))


@dataclass(frozen=True, slots=True)
class KeySlice:
    """The rows whose key is at least ``low`` and below ``high``: values of its first columns; None is no limit."""

    low: tuple[Any, ...] | None
    high: tuple[Any, ...] | None

    def rows(self, reader: LakeReader, work: TableWork) -> Any:
        """Return what remains of the slice's rows.

        Raises:
            LakeCorruptError: A file is damaged.
        """
        return work.finished(self.pieces(reader, work))

    def pieces(self, reader: LakeReader, work: TableWork, view: str = "") -> list[Any]:
        """Return the slice's rows of each run, those of older runs first; at least one piece, which may be empty.

        Args:
            view: The view whose key the slice is of; no value of that key is null.

        Raises:
            LakeCorruptError: A file is damaged.
        """
        reader.learn(work.table)
        chosen = work.table.view(view)
        conditions = self._bounds(work.table, chosen)
        stored = work.table.stored(chosen)
        files = [file for run in work.runs for file in files_within(run, work.table, view, conditions)]
        return [reader.read(file, stored.names, conditions) for file in files] or [stored.empty_table()]

    def within(self, table: LakeTable, view: LakeView, rows: Any) -> Any:
        """Return those of some rows of a view that are in the slice."""
        for bound in self._bounds(table, view):
            rows = rows.filter(bound.mask_of(rows))
        return rows

    def _bounds(self, table: LakeTable, view: LakeView) -> list[KeyBound]:
        limits: list[tuple[Literal["<", ">="], tuple[Any, ...] | None]] = [(">=", self.low), ("<", self.high)]
        return [_bound(table, view, op, values) for op, values in limits if values is not None]


def key_slices(reader: LakeReader, work: TableWork, rows_max: int, view: str = "", others: int = 0) -> list[KeySlice]:
    """Cut the rows of sorted runs into slices of about ``rows_max`` rows, by the statistics of their files.

    Args:
        view: The view by whose key they are cut.
        others: The number of rows that may come to each slice from elsewhere.

    The least values of all columns of a row group are no key of it, but no key of it is below them. Few values of the
    first columns are no hindrance, then: within one of them the cuts are by the next column.

    Raises:
        LakeCorruptError: A file is damaged.
    """
    key = work.table.view(view).key
    files = [file for run in work.runs for file in run.of(work.table.name, view)]
    starts = sorted(start for file in files for start in reader.least_values(file, key))
    bounds = list[tuple[Any, ...]]()
    before: tuple[Any, ...] = ()
    rows = 0
    for least, count in starts:
        rows += count
        if rows + others > rows_max and before < least:
            # No longer than it must be: each column of a bound is compared with those of all rows.
            bounds.append(next(least[:size] for size in range(1, len(least) + 1) if before < least[:size]))
            rows = count
        before = least
    return [KeySlice(low, high) for low, high in pairwise([None, *bounds, None])]


def _bound(table: LakeTable, view: LakeView, op: Literal["<", ">="], values: tuple[Any, ...]) -> KeyBound:
    names, stored = view.key[: len(values)], table.stored(view)
    scalars = [pa.scalar(value, stored.field(name).type) for name, value in zip(names, values, strict=True)]
    return KeyBound(names, op, tuple(scalars))


class Bulk(Protocol):
    """Does steps that are too much for one process; their results are those of `Stages`."""

    def remap(self, work: RunWork, take_ids: Callable[[str, int], int]) -> list[LakeFile]:
        """Write the new ids of a raw run, and its tables that have columns with ids.

        Args:
            take_ids: Takes ids of a name, by their number, and returns the first one.

        Raises:
            LakeCorruptError, LakeError: As `sort`.
        """
        ...

    def sort(self, work: TableWork) -> list[LakeFile]:
        """Sort one run that is not sorted, into files for each view.

        Raises:
            LakeCorruptError: A file is damaged.
            LakeError: It could not be done; nothing is left of it.
        """
        ...

    def merge(self, work: TableWork) -> list[LakeFile]:
        """Merge sorted runs, into files for each view.

        Raises:
            LakeCorruptError, LakeError: As `sort`.
        """
        ...
