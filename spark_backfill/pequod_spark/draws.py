"""Random draws that depend only on a seed and on what is drawn, not on partitions or order.

A draw is a hash of the seed, a word for its purpose, and the numbers of the row. Draws by weight use an alias table
(Walker's method): each of n equally likely buckets holds a part of its own item and a part of another one,

    weights 3 1      buckets  0: all of item 0     1: half item 1, half item 0

so that an equi-join finds a bucket, and a second draw the item, whatever the number of items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f


def uniform(seed: int, what: str, *numbers: str) -> Column:
    """Return a number in [0, 1) for each row, drawn for ``what`` and the ``numbers`` (names of bigint columns)."""
    bits = f.shiftrightunsigned(f.xxhash64(f.lit(seed).cast("bigint"), f.lit(what), *numbers), 11)
    return bits.cast("double") / f.lit(2.0**53)


def uniform_below(limit: int, seed: int, what: str, *numbers: str) -> Column:
    """Return a whole number in 0..limit-1 for each row."""
    return f.floor(uniform(seed, what, *numbers) * limit)


class AliasTable(NamedTuple):
    """The buckets: bucket i gives item i with chance ``keep[i]``, otherwise item ``other[i]``."""

    keep: list[float]
    other: list[int]


def alias_table(weights: Sequence[float]) -> AliasTable:
    """Make the buckets of some weights.

    Requires:
        No weight is negative, and at least one is positive.

    Cost:
        O(items), in Python: about 1 s for a million.

    >>> alias_table([3.0, 1.0])
    AliasTable(keep=[1.0, 0.5], other=[0, 0])
    """
    total = sum(weights)
    assert total > 0
    shares = [weight * len(weights) / total for weight in weights]
    keep, other = [1.0] * len(shares), list(range(len(shares)))
    poor = [item for item, share in enumerate(shares) if share < 1]
    rich = [item for item, share in enumerate(shares) if share >= 1]
    while poor and rich:
        item, giver = poor.pop(), rich[-1]
        keep[item], other[item] = shares[item], giver
        shares[giver] -= 1 - shares[item]
        if shares[giver] < 1:
            poor.append(rich.pop())
    # Buckets that rounding leaves over are full, unless the weight of their item is zero.
    for item in poor:
        if weights[item] == 0:
            keep[item], other[item] = 0.0, max(range(len(weights)), key=weights.__getitem__)
    return AliasTable(keep, other)


def draw_items(rows: DataFrame, name: str, weights: Sequence[float], seed: int, what: str, *numbers: str) -> DataFrame:
    """Add a column ``name`` with an item's number, drawn by weight for ``what`` and the ``numbers``."""
    table = alias_table(weights)
    buckets = rows.sparkSession.createDataFrame(
        pa.table({"bucket": pa.array(range(len(weights)), pa.int64()), "keep": table.keep, "other": table.other})
    )
    placed = rows.withColumn("bucket", uniform_below(len(weights), seed, f"{what}: bucket", *numbers))
    kept = uniform(seed, f"{what}: keep", *numbers) < f.col("keep")
    drawn = placed.join(buckets, "bucket").withColumn(name, f.when(kept, f.col("bucket")).otherwise(f.col("other")))
    return drawn.select(*rows.columns, name)
