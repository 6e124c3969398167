"""Row groups that were read before, kept in memory within a bound: files never change, so what was read stays true.

    file        [ group 0 ][ group 1 ][ group 2 ]          on disk, compressed
    cache                  [ group 1: id, body ]           columns as they are asked for; what was unused longest goes

Rows of a group of a sorted file are found by halving, as in (author, id): those of one author, and of these one id.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.conditions import Bound, RowBound

#: A list of more values is not looked up one by one where the values are no numbers.
_FEW: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLimits:
    """What a process keeps of the files that it reads."""

    #: Bytes of rows, as they are in memory.
    bytes_max: int = 256 << 20
    #: Files of which it keeps what their footers say, and the bytes of memory for that.
    files_max: int = 1024
    footers_bytes_max: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a block: those at ``places``, or all from ``first`` to ``last``."""

    first: int
    last: int
    places: Any

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.places) if self.places is not None else self.last - self.first


class Block:
    """Columns of one row group.

    Invariants:
        1. A column never changes once it is there; threads share blocks.
    """

    __slots__ = ("_numbers", "columns", "row_count", "size_bytes")

    def __init__(self, row_count: int) -> None:
        self.row_count = row_count
        #: Arrays of Arrow by their names.
        self.columns: dict[str, Any] = {}
        self.size_bytes = 0
        #: Columns as NumPy has them; None if they are no numbers, or have nulls.
        self._numbers: dict[str, Any] = {}

    def numbers(self, name: str) -> Any:
        """Return a column of numbers or moments for NumPy; None if it is of another type or has nulls."""
        try:
            return self._numbers[name]
        except KeyError:
            found = self._numbers[name] = _numbers(self.columns[name])
            return found

    def first_at(self, name: str, value: Any, first: int, last: int) -> int | None:
        """Return the first place in ``first`` to ``last`` whose value is at least ``value``; None if it has nulls."""
        return self._place(name, value, first, last, "left")

    def first_after(self, name: str, value: Any, first: int, last: int) -> int | None:
        """Return the first place in ``first`` to ``last`` whose value is above ``value``; None if it has nulls."""
        return self._place(name, value, first, last, "right")

    def _place(self, name: str, value: Any, first: int, last: int, side: str) -> int | None:
        numbers = self.numbers(name)
        if numbers is not None:
            return first + int(numbers[first:last].searchsorted(numbers.dtype.type(value), side))
        column = self.columns[name]
        if column.null_count or pa.types.is_boolean(column.type):
            return None
        halve = bisect_left if side == "left" else bisect_right
        return halve(range(last), value, lo=first, hi=last, key=lambda place: column[place].as_py())

    def first_with(self, order: Sequence[str], values: Sequence[Any]) -> int | None:
        """Return the first place whose columns have some values; None if there is none.

        Args:
            order: The columns by which the rows are sorted first.
        """
        first, last = 0, self.row_count
        for name, value in zip(order, values, strict=True):
            low = self.first_at(name, value, first, last)
            high = self.first_after(name, value, first, last)
            if low is None or high is None:
                column = self.columns[name][first:last]
                places = pc.indices_nonzero(pc.equal(column, pa.scalar(value, column.type)))
                low = first + places[0].as_py() if len(places) else last
                high = first + places[-1].as_py() + 1 if len(places) else last
            first, last = low, high
            if first >= last:
                return None
        return first

    def meeting(self, order: Sequence[str], conditions: Sequence[RowBound]) -> tuple[int, int, Any, list[RowBound]]:
        """Return where the rows are that may meet conditions.

        Args:
            order: The columns by which rows are sorted; none if they are not.

        Returns:
            The first and the last place, half-open; of these the places that matter, or None for all; and the
            conditions that are not known to be met there.
        """
        first, last, rest = 0, self.row_count, list(conditions)
        for name in order:
            mine = [one for one in rest if isinstance(one, Bound) and one.column == name]
            is_fixed = False
            for one in mine:
                edges = None if one.op == "in" else self._edges(one, first, last)
                if edges is not None:
                    first, last = edges
                    rest.remove(one)
                    is_fixed = is_fixed or one.op == "="
            if not is_fixed:
                listed = next((one for one in mine if one.op == "in"), None)
                if listed is None:
                    return first, last, None, rest
                places = self._listed(name, listed.value, first, last)
                if places is not None:
                    rest.remove(listed)
                return first, last, places, rest
        return first, last, None, rest

    def _edges(self, condition: Bound, first: int, last: int) -> tuple[int, int] | None:
        name, value = condition.column, searched(condition.value)
        low = self.first_at(name, value, first, last) if condition.op in {"=", ">=", "<"} else first
        high = self.first_after(name, value, first, last) if condition.op in {"=", ">", "<="} else last
        if low is None or high is None:
            return None
        match condition.op:
            case ">":
                return high, last
            case "<":
                return first, low
            case _:
                return low, high

    def _listed(self, name: str, values: Any, first: int, last: int) -> Any:
        """Return the places in ``first`` to ``last`` whose values are among others; None if a mask tells it faster."""
        numbers = self.numbers(name)
        if numbers is not None:
            wanted = np.unique(_numbers(values.drop_null()).astype(numbers.dtype))
            lows = numbers[first:last].searchsorted(wanted, "left") + first
            highs = numbers[first:last].searchsorted(wanted, "right") + first
        elif len(values) <= _FEW and not self.columns[name].null_count and not pa.types.is_boolean(values.type):
            texts = sorted(set(values.drop_null().to_pylist()))
            lows = np.array([self.first_at(name, one, first, last) for one in texts], np.int64)
            highs = np.array([self.first_after(name, one, first, last) for one in texts], np.int64)
        else:
            return None
        counts = highs - lows
        starts = np.repeat(lows - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) if len(counts) else lows
        return pa.array(starts + np.arange(len(starts)))

    def found(self, order: Sequence[str], conditions: Sequence[RowBound]) -> Found:
        """Return which rows meet all conditions.

        Requires:
            The columns of the conditions are there.
        """
        first, last, places, rest = self.meeting(order, conditions)
        if not rest or first >= last:
            return Found(first, max(first, last), places)
        tested = {name: self.columns[name][first:last] for one in rest for name in one.columns}
        if places is not None:
            tested = {name: column.take(pc.subtract(places, first)) for name, column in tested.items()}
        mask = None
        for one in rest:
            met = one.mask_of(tested)
            mask = met if mask is None else pc.and_(mask, met)
        places = pc.add(pc.indices_nonzero(mask), first) if places is None else places.filter(mask)
        return Found(first, last, places)

    def picked(self, name: str, found: Found) -> Any:
        """Return a column of rows that were found."""
        column = self.columns[name]
        return column[found.first : found.last] if found.places is None else column.take(found.places)


class BlockCache:
    """Blocks of many files; threads share it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self.size_bytes = 0

    def block(
        self, path: str, group: int, row_count: int, names: Sequence[str], read: Callable[[list[str]], Sequence[Any]]
    ) -> Block:
        """Return a block that has these columns.

        Args:
            read: Returns columns of the group that are not there, as arrays of Arrow.
        """
        key = (path, group)
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
        if block is None:
            block = Block(row_count)
        missing = [name for name in names if name not in block.columns]
        if missing:
            columns = dict(zip(missing, read(missing), strict=True))
            with self._lock:
                self._add(key, block, columns)
        return block

    def _add(self, key: tuple[str, int], block: Block, columns: dict[str, Any]) -> None:
        # Another thread may have read some of them meanwhile.
        block.columns.update({name: column for name, column in columns.items() if name not in block.columns})
        if self._blocks.get(key, block) is not block:
            # Another thread has made the block meanwhile; this one is for its caller alone.
            return
        if key in self._blocks:
            self.size_bytes -= block.size_bytes
        block.size_bytes = sum(column.get_total_buffer_size() for column in block.columns.values())
        self.size_bytes += block.size_bytes
        self._blocks[key] = block
        while self.size_bytes > self._bytes_max:
            _, gone = self._blocks.popitem(last=False)
            self.size_bytes -= gone.size_bytes

    def forget(self) -> None:
        """Let all blocks go."""
        with self._lock:
            self._blocks.clear()
            self.size_bytes = 0

    def _check(self) -> None:
        """Check that the blocks are counted, and within the bound."""
        with self._lock:
            assert self.size_bytes == sum(block.size_bytes for block in self._blocks.values())
            assert self.size_bytes <= self._bytes_max


def searched(scalar: Any) -> Any:
    """Return a scalar of Arrow as `Block` compares it: of a moment its number."""
    return scalar.value if pa.types.is_timestamp(scalar.type) else scalar.as_py()


def _numbers(column: Any) -> Any:
    if column.null_count or not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type)):
        return None
    values = column.to_numpy(zero_copy_only=False)
    return values.view(np.int64) if pa.types.is_timestamp(column.type) else values
