"""Where to cut pieces into partitions: of about equal sizes, between contexts rather than inside of one.

    t|ann| ..........  t|bob| ...  t|liz| ....................................
    |        part 0             |        part 1          |      part 2        |
                             before t|liz|       inside of t|liz|, which is larger than a part

How large everything is, a pass over a part of the keys tells: what is sampled of them are the places where to cut.
Spark's own `repartitionByRange` does the same, but makes all rows with their values for it, and counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pequod.engine.joins.plan import Plan, compile_matchers
from pequod.language.slots import fix_slots, number_slots
from pequod.language.spec import JoinSpec
from pequod_spark.plan import is_sampled

#: Rows in one partition: a task sorts them in memory, and what is lost with a task is as much.
PART_ROWS: Final = 1_000_000
#: Of so many rows one is looked at for where to cut.
_SAMPLED: Final = 1000
#: Of so many keys of the value source one is looked at first, and all if that gives fewer rows than are enough.
_LOOKED_AT: Final = 16
_ENOUGH: Final = 100_000
#: Of so few source rows all are looked at at once: to plan a look at a part of them takes longer.
FEW_SOURCES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Survey:
    """About how many pieces there are, and some of their keys."""

    #: Output rows, or contributions to them.
    row_count: int
    #: Rows and contexts.
    piece_count: int
    #: Keys sampled evenly, in order.
    keys: Sequence[bytes]


def survey(pieces: Callable[[int], DataFrame], part_rows: int = PART_ROWS, *, can_sample: bool) -> Survey:
    """Count pieces, and sample their keys so that parts of some size can be cut.

    Args:
        pieces: Returns the pieces; of the rows, only what one of so many keys of the value source gives.
        part_rows: Rows in one part.
        can_sample: Such keys give rows of their own: how many there are follows from a part of them.

    Cost:
        Computes a sixteenth of the keys, or all if that is little, without values, and sorts nothing.
    """
    if can_sample:
        found = _survey(pieces(_LOOKED_AT), _LOOKED_AT, part_rows)
        if found.row_count >= _ENOUGH * _LOOKED_AT:
            return found
    return _survey(pieces(1), 1, part_rows)


def _survey(pieces: DataFrame, one_of: int, part_rows: int) -> Survey:
    step = max(1, min(_SAMPLED, part_rows // _SAMPLED))
    is_row = f.col("is_row")
    is_wanted = f.when(is_row, is_sampled(max(1, step // one_of))).otherwise(is_sampled(step))
    found = pieces.agg(
        f.count_if(is_row).alias("rows"),
        f.count_if(~is_row).alias("contexts"),
        f.collect_list(f.when(is_wanted, f.col("key"))).alias("keys"),
    ).first()
    assert found is not None
    row_count = found.rows * one_of
    return Survey(row_count, row_count + found.contexts, sorted(map(bytes, found["keys"])))


class Contexts:
    """The contexts of a join at one level: which one a key is in."""

    __slots__ = ("_level", "_plan", "_spec")

    def __init__(self, spec: JoinSpec, level: int) -> None:
        self._spec = spec
        self._level = level
        self._plan = Plan(spec, level, number_slots(spec), compile_matchers(spec))

    def prefix_of(self, key: bytes, last: bytes | None = None) -> bytes | None:
        """Return the prefix of the context that holds all keys from ``key`` up to ``last``, or ``key`` alone."""
        values = fix_slots(self._spec.output, key, key + b"\0" if last is None else last)[: self._level]
        return self._plan.prefix(self._plan.environment(values)) if len(values) == self._level else None

    def inside(self, key: bytes) -> bytes | None:
        """Return the prefix of the context that a key lies strictly inside of, None if it does not."""
        prefix = self.prefix_of(key)
        return None if prefix is None or prefix >= key else prefix

    def end_of(self, prefix: bytes) -> bytes:
        """Return the end of a context."""
        return self._plan.end_of(prefix)

    def splits(self, found: Survey, first: bytes, last: bytes, part_rows: int = PART_ROWS) -> list[bytes]:
        """Return where to cut a range into parts of some size: between contexts, if they are not too large."""
        part_count = -(-found.piece_count // part_rows)
        splits: list[bytes] = []
        for number in range(1, part_count):
            key = found.keys[len(found.keys) * number // part_count] if found.keys else b""
            for split in (self.inside(key), key):
                if split is not None and (splits[-1] if splits else first) < split < last:
                    splits.append(split)
                    break
        return splits
