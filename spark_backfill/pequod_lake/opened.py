"""What the footer of a Parquet file says, kept: which row groups may have rows that meet conditions.

The file itself does not stay open: a deleted file takes up room on the disk for as long as a process has it open.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pequod_lake.conditions import Bound, RowBound

#: Lists of more values are compared with each group by Arrow.
_FEW: Final = 4_096
#: What Arrow takes in memory for a byte of a footer: 13.2 to 13.7 with five columns.
_FOOTER_TIMES: Final = 14


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """What is known of a file once it has been opened; files never change."""

    metadata: Any
    #: The Arrow schema.
    schema: Any
    #: The places of columns by name.
    places: dict[str, int]
    #: The least and the largest value of a column in each row group; None where they are unknown.
    bounds: dict[str, list[tuple[Any, Any] | None]] = field(default_factory=dict)
    #: The least and the largest values of a column of a sorted file, each in a list; None if some are not known.
    _edges: dict[str, tuple[list[Any], list[Any]] | None] = field(default_factory=dict)

    def groups(self, conditions: Sequence[RowBound], order: Sequence[str] = ()) -> list[int]:
        """Return the row groups that may have rows that meet all conditions.

        Args:
            order: The columns by which the rows are sorted; none if they are not.

        Cost:
            O(log g + m) for g groups, of which m have values of the first column that may be wanted.
        """
        found: Sequence[int] = range(self.metadata.num_row_groups)
        if order:
            found = self._leading(order[0], conditions)
        for condition in conditions:
            bounds = [self.bounds_of(column) for column in condition.columns]
            if isinstance(condition, Bound) and condition.op == "in" and len(condition.value) <= _FEW:
                wanted = sorted(one for one in condition.value.to_pylist() if one is not None)
                found = [one for one in found if (pair := bounds[0][one]) is None or _has(wanted, *pair)]
            else:
                found = [one for one in found if condition.may_be_in([column[one] for column in bounds])]
        return list(found)

    def groups_with(self, columns: Sequence[str], values: Sequence[Any]) -> Sequence[int]:
        """Return the groups that may have rows with these values, of a file that is sorted by these columns first."""
        edges = self._edges_of(columns[0])
        found: Sequence[int] = range(self.metadata.num_row_groups)
        if edges is not None:
            lows, highs = edges
            found = range(bisect_left(highs, values[0]), bisect_right(lows, values[0]))
        if len(found) > 1:
            for column, value in zip(columns[1:], values[1:], strict=True):
                bounds = self.bounds_of(column)
                found = [one for one in found if (pair := bounds[one]) is None or pair[0] <= value <= pair[1]]
        return found

    def _leading(self, column: str, conditions: Sequence[RowBound]) -> Sequence[int]:
        """Return the groups that the conditions of the first column of the order leave."""
        first, last = 0, self.metadata.num_row_groups
        mine = [one for one in conditions if isinstance(one, Bound) and one.column == column and one.op != "in"]
        edges = self._edges_of(column) if mine else None
        if edges is None:
            return range(first, last)
        lows, highs = edges
        for one in mine:
            value = one.value.as_py()
            if one.op[0] != "<":
                first = max(first, bisect_left(highs, value))
            if one.op[0] != ">":
                last = min(last, bisect_right(lows, value))
        return range(first, last)

    def _edges_of(self, column: str) -> tuple[list[Any], list[Any]] | None:
        if column not in self._edges:
            pairs = [pair for pair in self.bounds_of(column) if pair is not None]
            is_known = len(pairs) == self.metadata.num_row_groups
            self._edges[column] = ([low for low, _ in pairs], [high for _, high in pairs]) if is_known else None
        return self._edges[column]

    def bounds_of(self, column: str) -> list[tuple[Any, Any] | None]:
        """Return the least and the largest value of a column in each row group; None where they are not known."""
        found = self.bounds.get(column)
        if found is None:
            place = self.places[column]
            found = []
            for number in range(self.metadata.num_row_groups):
                statistics = self.metadata.row_group(number).column(place).statistics
                is_known = statistics is not None and statistics.has_min_max
                found.append(_edges(statistics) if is_known else None)
            self.bounds[column] = found
        return found

    def may_have_nulls(self, column: str) -> bool:
        """Return whether a column has nulls, as far as statistics say."""
        for number in range(self.metadata.num_row_groups):
            statistics = self.metadata.row_group(number).column(self.places[column]).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                return True
        return False


class OpenedFiles:
    """The files that this process has opened, those that were used last; threads share it."""

    def __init__(self, files_max: int, bytes_max: int) -> None:
        """Keep at most some files, and bytes of memory for their footers, but always the last one."""
        self._files_max = max(1, files_max)
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._files: OrderedDict[str, OpenedFile] = OrderedDict()
        #: What the footers take up in memory.
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._files)

    def known(self, path: str) -> OpenedFile | None:
        """Return what is known of a file; None if nothing is."""
        with self._lock:
            found = self._files.get(path)
            if found is not None:
                self._files.move_to_end(path)
            return found

    def keep(self, path: str, file: OpenedFile) -> None:
        """Keep what is known of a file; what was unused longest goes."""
        with self._lock:
            if (before := self._files.pop(path, None)) is not None:
                self._bytes -= _memory(before)
            self._files[path] = file
            self._bytes += _memory(file)
            while len(self._files) > 1 and (len(self._files) > self._files_max or self._bytes > self._bytes_max):
                self._bytes -= _memory(self._files.popitem(last=False)[1])

    def forget(self) -> None:
        """Let all of it go."""
        with self._lock:
            self._files.clear()
            self._bytes = 0

    def _check(self) -> None:
        """Check that all is counted, and within the bounds."""
        with self._lock:
            assert self._bytes == sum(_memory(one) for one in self._files.values())
            assert len(self._files) <= self._files_max
            assert self._bytes <= self._bytes_max or len(self._files) == 1


def _memory(file: OpenedFile) -> int:
    return int(file.metadata.serialized_size) * _FOOTER_TIMES


def _has(wanted: Sequence[Any], least: Any, most: Any) -> bool:
    """Return whether one of sorted values is between two others."""
    place = bisect_left(wanted, least)
    return place < len(wanted) and bool(wanted[place] <= most)


def _edges(statistics: Any) -> tuple[Any, Any] | None:
    """Return the least and the largest value; None if Python has no such value: a timestamp beyond year 9999."""
    try:
        return statistics.min, statistics.max
    except (ValueError, OverflowError):
        return None
