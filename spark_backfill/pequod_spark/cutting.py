"""Where to cut pieces into partitions: into about equal sizes, between contexts rather than inside one.

    t|ann| ..........  t|bob| ...  t|liz| ....................................
    |        part 0             |        part 1          |      part 2        |
                             before t|liz|       inside of t|liz|, which is larger than a part

A pass over a sample of the keys counts the pieces, and the keys of the sample are the candidates for cuts. Spark's own
`repartitionByRange` does the same, but computes all rows with their values for it, and returns no count.
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
from pequod.language.views import plain_join
from pequod_spark.plan import is_sampled

#: Rows in one partition: a task sorts them in memory, and a task that dies loses as many.
PART_ROWS: Final = 1_000_000
#: One row in this many is sampled as a candidate for a cut.
_SAMPLED: Final = 1000
#: One key in this many of the value source is used first, and all keys if that gives too few rows.
_LOOKED_AT: Final = 16
_ENOUGH: Final = 100_000
#: With fewer source rows than this, all are used at once: planning a sample would take longer.
FEW_SOURCES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Survey:
    """The approximate number of pieces, and some of their keys."""

    #: Output rows, or contributions to them.
    row_count: int
    #: Rows and contexts.
    piece_count: int
    #: Keys in order, sampled evenly.
    keys: Sequence[bytes]


def survey(pieces: Callable[[int], DataFrame], part_rows: int = PART_ROWS, *, can_sample: bool) -> Survey:
    """Count pieces, and sample their keys, so that they can be cut into parts of a given size.

    Args:
        pieces: Returns the pieces; its argument n keeps only those from one in n keys of the value source.
        part_rows: Rows in one part.
        can_sample: Whether different keys of the value source give different rows, so that a sample of keys tells how
            many rows there are.

    Cost:
        Computes the pieces of a sixteenth of the keys, or of all if they are few, without values or sorting.
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
    """The contexts of a join at one level, by the keys in them."""

    __slots__ = ("_level", "_plan", "_spec")

    def __init__(self, spec: JoinSpec, level: int) -> None:
        self._spec = spec
        self._level = level
        plain, _ = plain_join(spec)
        self._plan = Plan(plain, level, number_slots(plain), compile_matchers(plain))

    def prefix_of(self, key: bytes, last: bytes | None = None) -> bytes | None:
        """Return the prefix of the context that holds all keys from ``key`` up to ``last``, or ``key`` alone."""
        values = fix_slots(self._spec.output, key, key + b"\0" if last is None else last)[: self._level]
        return self._plan.prefix(self._plan.environment(values)) if len(values) == self._level else None

    def inside(self, key: bytes) -> bytes | None:
        """Return the prefix of the context that a key lies strictly inside; None if there is none."""
        prefix = self.prefix_of(key)
        return None if prefix is None or prefix >= key else prefix

    def part_of(self, key: bytes) -> bytes:
        """Return where a context may be cut before a key: at the key, or at its group if some rows of each are kept."""
        cap = self._plan.cap
        return key if cap is None else cap.widen(key, key + b"\0").first

    def end_of(self, prefix: bytes) -> bytes:
        """Return the end of a context."""
        return self._plan.end_of(prefix)

    def splits(self, found: Survey, first: bytes, last: bytes, part_rows: int = PART_ROWS) -> list[bytes]:
        """Return the keys at which to cut a range: between contexts, unless these are larger than a part.

        No group of a join that keeps some rows of each is cut.
        """
        part_count = -(-found.piece_count // part_rows)
        splits: list[bytes] = []
        for number in range(1, part_count):
            key = found.keys[len(found.keys) * number // part_count] if found.keys else b""
            for split in (self.inside(key), self.part_of(key)):
                if split is not None and (splits[-1] if splits else first) < split < last:
                    splits.append(split)
                    break
        return splits
