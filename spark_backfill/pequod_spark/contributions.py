"""How the contributions to one output key combine: the operators of value sources as Spark aggregates.

Each row of a DataFrame of contributions is one tuple of source keys that match: ``key`` is the output key,
``source_key`` and ``value`` are those of the value source. `pequod.engine.joins.aggregates` has the same for one key.
"""

from __future__ import annotations

from typing import assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pequod.language.spec import Operator
from pequod_spark.decimals import average, rank, sum_exactly


def combine(operator: Operator, contributions: DataFrame, *, is_unique: bool) -> DataFrame:
    """Return the rows (key, value) that contributions give.

    Args:
        operator: The operator of the value source.
        contributions: Columns ``key``, ``source_key`` and ``value``.
        is_unique: Whether no key has two contributions: then a copy needs no aggregate, and no shuffle.
    """
    if operator is Operator.COPY and is_unique:
        return contributions.select("key", "value")
    if operator is Operator.SUM:
        return sum_exactly(contributions).select("key", "value")
    if operator is Operator.AVG:
        return average(contributions)
    return contributions.groupBy("key").agg(_aggregate(operator).alias("value"))


def _aggregate(operator: Operator) -> Column:
    value = f.col("value")
    match operator:
        case Operator.COPY:
            return f.max_by(value, f.col("source_key"))
        case Operator.COUNT:
            return f.count("*").cast("string").cast("binary")
        case Operator.MIN:
            return f.min(rank(value)).getField("value")
        case Operator.MAX:
            return f.max(rank(value)).getField("value")
        case Operator.SUM | Operator.AVG | Operator.CHECK | Operator.OPTIONAL | Operator.UNLESS:
            raise AssertionError(f"{operator} is no aggregate of Spark's")
        case _:
            assert_never(operator)
