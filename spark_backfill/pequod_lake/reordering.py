"""The other views of a merge that is too large for memory: the rows of its primary view in their orders.

    runs        primary view, in slices of its key      keys that several runs have, with what they have become
    views       [ a ... k ][ b ... z ][ a ... c ]       merged in slices of their own keys, without the rows of those
                                                        keys, and with what these have become

So each view of the runs, which is in order already, is read once. Where most keys are in several runs, or a view's key
has nulls, DuckDB sorts the rows of the primary view, on disk if need be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.combining import live, places_in_order
from pequod_lake.duckdb_files import table_of
from pequod_lake.ranges import members
from pequod_lake.reading import LakeReader
from pequod_lake.runs import LakeFile
from pequod_lake.schema import LakeTable, LakeView
from pequod_lake.slices import TableWork, key_slices

_BATCH_ROWS: Final = 131_072
_COUNT: Final = "_count"


class Reordering:
    """Follows the slices of a merge, and then gives the rows of its other views.

    Args:
        slice_rows: Rows that are in memory at once.
        memory: What DuckDB may take.
    """

    def __init__(self, reader: LakeReader, work: TableWork, slice_rows: int, memory: str) -> None:
        self._reader = reader
        self._work = work
        self._slice_rows = slice_rows
        self._memory = memory
        #: The live rows of keys that several runs have, and these keys; None if they are too many to keep.
        self._changed: list[tuple[Any, Any]] | None = []
        self._changed_rows = 0

    def primary(self) -> Iterator[Any]:
        """Yield the merged rows of the primary view, a slice of the key at a time."""
        for one in key_slices(self._reader, self._work, self._slice_rows):
            pieces = one.pieces(self._reader, self._work)
            rows = self._work.finished(pieces)
            if self._work.table.views:
                self._note(pieces, rows)
            yield rows

    def view(self, view: LakeView, primary: Sequence[LakeFile]) -> Iterator[Any]:
        """Yield the rows of another view, in its order.

        Args:
            primary: The files of all rows that `primary` has given.

        Raises:
            LakeCorruptError: A file is damaged.
        """
        table = self._work.table
        files = [file for run in self._work.runs for file in run.of(table.name, view.name)]
        if self._changed is None or any(self._reader.has_nulls(file, view.key) for file in files):
            yield from self._sorted(table, view, primary)
            return
        stored = table.stored(view)
        keys = pa.concat_tables([keys for keys, _ in self._changed]) if self._changed else None
        new = [rows.select(stored.names) for _, rows in self._changed]
        for one in key_slices(self._reader, self._work, self._slice_rows, view.name, _count(new)):
            pieces = one.pieces(self._reader, self._work, view.name)
            rows = pa.concat_tables(pieces) if pieces else stored.empty_table()
            if keys is not None:
                rows = rows.filter(pc.invert(members(rows, keys, table.key)))
                rows = pa.concat_tables([rows, *(one.within(table, view, some) for some in new)])
            rows = rows.combine_chunks()
            yield rows.take(places_in_order(rows, view.key))

    def _note(self, pieces: Sequence[Any], rows: Any) -> None:
        """Keep the keys that several pieces have, with what they have become."""
        table = self._work.table
        if self._changed is None or _count(pieces) == _count([rows]):
            return
        keys = pa.concat_tables([piece.select(list(table.key)) for piece in pieces])
        counted = keys.append_column(_COUNT, pa.repeat(1, keys.num_rows)).group_by(list(table.key))
        sums = counted.aggregate([(_COUNT, "sum")])
        twice = sums.filter(pc.greater(sums[f"{_COUNT}_sum"], 1)).select(list(table.key)).combine_chunks()
        self._changed_rows += twice.num_rows
        if self._changed_rows * 2 > self._slice_rows:
            self._changed = None
        elif twice.num_rows:
            there = live(table, rows)
            self._changed.append((twice, there.filter(members(there, twice, table.key))))

    def _sorted(self, table: LakeTable, view: LakeView, files: Sequence[LakeFile]) -> Iterator[Any]:
        hidden = [name for name, _ in table.hidden()]
        names = ", ".join(f'"{name}"' for name in dict.fromkeys([*view.columns, *hidden]))
        order = ", ".join(f'"{name}"' for name in view.key)
        with duckdb.connect() as db:
            db.execute(f"SET memory_limit = '{self._memory}'")
            source = table_of(db, self._reader, files, table.stored(table.primary))
            found = db.execute(f"SELECT {names} FROM {source} ORDER BY {order}")  # noqa: S608 - names of the schema
            for batch in found.to_arrow_reader(_BATCH_ROWS):
                yield live(table, pa.Table.from_batches([batch])).select(list(view.columns))


def _count(pieces: Sequence[Any]) -> int:
    return sum(piece.num_rows for piece in pieces)
