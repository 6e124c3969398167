"""The files of one view of the authority, written anew where changes touch them.

ranges      [ a ... f ][ g ... m ][ n ... z ]       a change of h: only the second one is written
grown       [ a ... f ][ g ... i ][ j ... m ][ n ... z ]
shrunk      [ a ... f ][ g, h ][ n ... z ]          together with a neighbour that has room
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from pequod_lake.runs import LakeFile

#: A range with fewer rows than this share of the most is joined with a neighbour, if both have at most this share.
_SMALL: Final = 0.25
_JOINED: Final = 0.75


class RangeRewriter:
    """Takes the ranges of a view in key order, and gives its new files.

    Args:
        read: Returns the rows of a range.
        write: Writes a file.
        range_rows: The most rows of a range.
    """

    def __init__(
        self,
        read: Callable[[Sequence[LakeFile]], Any],
        write: Callable[[Any], Iterable[LakeFile]],
        range_rows: int,
    ) -> None:
        self._read = read
        self._write = write
        self._range_rows = range_rows
        self._files = list[LakeFile]()
        #: The range before the next one, if it stays as it is; and if it does not, its rows.
        self._kept: Sequence[LakeFile] = ()
        self._rows: Any = None

    def keep(self, files: Sequence[LakeFile]) -> None:
        """Take a range that stays as it is, unless the one before it has become small."""
        count = _count(files)
        if self._rows is not None and self._is_small(self._rows.num_rows) and self._fits(self._rows.num_rows + count):
            self._rows = pa.concat_tables([self._rows, self._read(files)])
            return
        self._flush()
        self._kept = files
        self._files += files

    def put(self, rows: Any) -> None:
        """Take a range with what has become of it; without rows it is gone."""
        if rows.num_rows == 0:
            return
        if self._rows is not None:
            count = self._rows.num_rows
            is_small = self._is_small(count) or self._is_small(rows.num_rows)
            if is_small and self._fits(count + rows.num_rows):
                self._rows = pa.concat_tables([self._rows, rows])
                return
            self._flush()
        elif self._kept and self._is_small(rows.num_rows) and self._fits(_count(self._kept) + rows.num_rows):
            del self._files[-len(self._kept) :]
            rows = pa.concat_tables([self._read(self._kept), rows])
        self._kept = ()
        self._rows = rows

    def fill(self, batches: Iterable[Any]) -> None:
        """Take all rows of a view, in its order: each file gets as many as it may have."""
        waiting, count = list[Any](), 0
        for batch in batches:
            waiting.append(batch)
            count += batch.num_rows
            while count >= self._range_rows:
                whole = pa.concat_tables(waiting)
                self._files += self._write(whole.slice(0, self._range_rows))
                waiting, count = [whole.slice(self._range_rows)], count - self._range_rows
        if count:
            self._files += self._write(pa.concat_tables(waiting))

    def done(self) -> list[LakeFile]:
        """Return the files, in key order."""
        self._flush()
        return self._files

    def _flush(self) -> None:
        """Write the range whose rows are there; one that has grown beyond the size as several of equal size."""
        if self._rows is None:
            return
        rows, self._rows = self._rows, None
        parts = -(-rows.num_rows // self._range_rows)
        each = -(-rows.num_rows // parts)
        for start in range(0, rows.num_rows, each):
            self._files += self._write(rows.slice(start, each))

    def _is_small(self, count: int) -> bool:
        return count < self._range_rows * _SMALL

    def _fits(self, count: int) -> bool:
        return count <= self._range_rows * _JOINED


def _count(files: Iterable[LakeFile]) -> int:
    return sum(file.row_count for file in files)
