"""Key ranges over DataFrames: clipping, which source keys a range of outputs needs, and sorted partitions.

A DataFrame of rows has two columns, ``key`` and ``value``, both binary and never null. Spark orders binary columns by
unsigned bytes, as the engine does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pequod.engine.patterns import compile_builder
from pequod.engine.plan import Containing, fix_slots, known_run, number_slots
from pequod.engine.ranges import lower, prefix_end
from pequod.engine.spec import JoinSpec, Pattern
from pequod.errors import PequodError


class SplitsError(PequodError):
    """Split points that do not ascend."""

    def __init__(self, split: bytes, after: bytes) -> None:
        super().__init__(f"split points must ascend, but {split!r} stands before {after!r}; sort them, each once")
        self.split = split
        self.after = after


def clip(rows: DataFrame, first: bytes, last: bytes | None) -> DataFrame:
    """Return the rows with keys in ``[first, last)``."""
    key = f.col("key")
    if first:
        rows = rows.where(key >= f.lit(first))
    return rows if last is None else rows.where(key < f.lit(last))


def keys_of(pattern: Pattern) -> tuple[bytes, bytes]:
    """Return the range that holds all keys of a pattern."""
    first = pattern.literal_prefix
    last = prefix_end(first) if any(pattern.slots()) else first + b"\0"
    assert last is not None, "a table name has an end"
    return first, last


def meet(first: bytes, last: bytes | None, within: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return what two ranges share; an empty range has both ends equal."""
    start, end = max(first, within[0]), lower(last, within[1])
    assert end is not None
    return start, max(start, end)


def fixed_slots(spec: JoinSpec, first: bytes, last: bytes) -> dict[str, bytes]:
    """Return the slots that are the same in all outputs of ``[first, last)``, such as the user of a timeline."""
    values = fix_slots(spec.output, first, last)
    names = dict.fromkeys(slot.name for slot in spec.output.slots())
    return dict(zip(names, values, strict=False))


def containing_range(spec: JoinSpec, pattern: Pattern, first: bytes, last: bytes) -> tuple[bytes, bytes]:
    """Return a range that holds all keys of a source ``pattern`` that contribute to outputs of ``[first, last)``.

    Requires:
        ``[first, last)`` lies within the join's outputs (`keys_of`).

    Source:
        Paper §3.1; the engine's narrowing, with no earlier source known.
    """
    fixed = fixed_slots(spec, first, last)
    numbers = number_slots(spec)
    values = [fixed.get(name, b"") for name in numbers]
    run = known_run(pattern.parts, set(fixed))
    prefix = compile_builder(pattern.parts[:run], numbers)(values)
    containing = Containing(spec.output.parts, pattern.parts[run:], numbers, set(fixed), set(fixed))
    narrowed, _ = containing.narrow(values, first, last)
    if narrowed is None:
        return prefix, prefix
    if run == len(pattern.parts):
        return prefix, prefix + b"\0"
    end = prefix_end(prefix) if narrowed.last is None else prefix + narrowed.last
    assert end is not None, "a table name has an end"
    return meet(prefix + narrowed.first, end, keys_of(pattern))


def sorted_ranges(rows: DataFrame, splits: Sequence[bytes]) -> DataFrame:
    """Partition rows by key range and sort each partition by key, ready for a bulk load.

    Partition i holds the keys of ``[splits[i-1], splits[i])``; the first and the last are open to their sides.

    Raises:
        SplitsError: The splits do not ascend.

    Cost:
        One shuffle of all rows; O(log splits) comparisons a row, in generated code up to some hundred splits and
        6 µs a row at a thousand.
    """
    for split, after in pairwise(splits):
        if split >= after:
            raise SplitsError(split, after)
    numbered = rows.repartitionById(len(splits) + 1, _range_number(splits, 0))
    return numbered.sortWithinPartitions("key")


def _range_number(splits: Sequence[bytes], lowest: int) -> Column:
    """Return the number of the range that a key lies in, by bisection."""
    if not splits:
        return f.lit(lowest)
    middle = len(splits) // 2
    below = _range_number(splits[:middle], lowest)
    above = _range_number(splits[middle + 1 :], lowest + middle + 1)
    return f.when(f.col("key") < f.lit(splits[middle]), below).otherwise(above)
