"""Exact decimal numbers as Spark columns, with up to 64 characters, as the engine has them.

Spark's decimals end at 38 digits. So a number is kept as the digits of a fixed-point text, and a sum as one sum for
each limb of nine digits. Limbs are summed separately, and the carry is done once, at the end:

    value    -1.5
    digits   (72 zeros, the last a 1) 5 (62 zeros)      8 limbs before the point, 7 after it
    limbs    0 0 0 0 0 0 0 -1  -500000000 0 0 0 0 0 0
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pequod.language.decimals import NUMBER_BYTES_MAX, mean, print_number
from pequod_spark.keys import as_text

_LIMB_DIGITS: Final = 9
_LIMB_BASE: Final = 10**_LIMB_DIGITS
_WHOLE_LIMBS: Final = -(-NUMBER_BYTES_MAX // _LIMB_DIGITS)
#: A number with a fraction spends one character on the point.
_FRACTION_LIMBS: Final = -(-(NUMBER_BYTES_MAX - 1) // _LIMB_DIGITS)
_WHOLE_DIGITS: Final = _WHOLE_LIMBS * _LIMB_DIGITS
_FRACTION_DIGITS: Final = _FRACTION_LIMBS * _LIMB_DIGITS
#: The same notation of numbers as in the engine.
_NUMBER: Final = r"\A[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\z"

#: Sign, whole part and fraction, without zeros at either end.
_PADDED: Final = r"\A(-?)0*([0-9]+)(?:\.0*|(\.[0-9]*[1-9])0*)\z"


def is_number(value: Column) -> Column:
    """Return whether a value (bytes) is a number in plain decimal notation."""
    return (f.length(value) <= NUMBER_BYTES_MAX) & as_text(value).rlike(_NUMBER)


def rank(value: Column) -> Column:
    """Return the sort key of values: numbers by size and then by their bytes, then text by its bytes.

    Returns:
        A struct whose field ``value`` is the value.
    """
    numeric = is_number(value)
    return f.struct(
        (~numeric).alias("is_text"),
        f.when(numeric, _order(_digits(value), _has_minus(value))).otherwise("").alias("order"),
        value.alias("value"),
    )


def sum_exactly(contributions: DataFrame) -> DataFrame:
    """Sum the numbers of each key, and write the sum as the engine does; text does not count.

    Returns:
        Rows (key, value, count) of the keys that have a number; ``count`` says how many they have.

    Requires:
        No key has more than 9 billion numbers; Spark's own check of overflow fails the query otherwise.
    """
    value = f.col("value")
    numbers = contributions.where(is_number(value)).select(
        "key", _digits(value).alias("digits"), f.when(_has_minus(value), -1).otherwise(1).alias("sign")
    )
    places = range((_WHOLE_LIMBS + _FRACTION_LIMBS - 1) * _LIMB_DIGITS + 1, 0, -_LIMB_DIGITS)
    limbs = [f.substring("digits", place, _LIMB_DIGITS).cast("bigint") for place in places]
    sums = f.array(*[f.sum(limb * f.col("sign")) for limb in limbs])
    summed = numbers.groupBy("key").agg(sums.alias("limbs"), f.count("*").alias("count"))
    # Each step is a column of its own: in one expression, each sum would occur a dozen times.
    carried = summed.withColumn("sum", _carry(f.col("limbs")))
    is_negative = f.col("sum").getField("carry") < 0
    negated = _carry(f.transform("limbs", lambda limb: -limb))
    sized = carried.select(
        "key",
        "count",
        f.when(is_negative, "-").otherwise("").alias("sign"),
        f.when(is_negative, negated).otherwise(f.col("sum")).alias("size"),
    )
    return sized.select("key", _spell(f.col("sign"), f.col("size")).alias("value"), "count")


def average(contributions: DataFrame) -> DataFrame:
    """Return the mean of each key's numbers, as the engine writes it; text does not count.

    Returns:
        Rows (key, value) of the keys that have a number.

    Cost:
        That of the sums, and 2 to 4 us of CPU for each key, in Python: Spark's decimals end at 38 digits.
    """
    return sum_exactly(contributions).mapInArrow(_divide, "key binary, value binary")


def _divide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sums, counts = batch["value"].to_pylist(), batch["count"].to_pylist()
        means = [print_number(mean(Decimal(total.decode()), count)) for total, count in zip(sums, counts, strict=True)]
        yield pa.RecordBatch.from_arrays([batch["key"], pa.array(means, pa.binary())], names=["key", "value"])


def _has_minus(value: Column) -> Column:
    return f.substring(value, 1, 1) == f.lit(b"-")


def _digits(value: Column) -> Column:
    text = as_text(value)
    whole = f.regexp_extract(text, r"\A[+-]?([0-9]*)", 1)
    fraction = f.regexp_extract(text, r"\.([0-9]*)\z", 1)
    return f.concat(f.lpad(whole, _WHOLE_DIGITS, "0"), f.rpad(fraction, _FRACTION_DIGITS, "0"))


def _order(digits: Column, has_minus: Column) -> Column:
    """Return text whose order is that of the numbers: of negative numbers, the digits are complemented."""
    upside_down = f.translate(digits, "0123456789", "9876543210")
    # Negative zero equals zero.
    return f.when(has_minus & digits.rlike("[1-9]"), f.concat(f.lit("0"), upside_down)).otherwise(
        f.concat(f.lit("1"), digits)
    )


def _carry(limbs: Column) -> Column:
    """Carry, from the lowest limb on, so that each is in 0..10^9-1; the last carry is negative if the number is."""

    def add(so_far: Column, limb: Column) -> Column:
        total = so_far.getField("carry") + limb
        digits = f.pmod(total, f.lit(_LIMB_BASE))
        return f.struct(
            f.call_function("div", total - digits, f.lit(_LIMB_BASE)).alias("carry"),
            f.concat(f.lpad(digits.cast("string"), _LIMB_DIGITS, "0"), so_far.getField("digits")).alias("digits"),
        )

    nothing = f.struct(f.lit(0).cast("bigint").alias("carry"), f.lit("").alias("digits"))
    return f.reduce(limbs, nothing, add)


def _spell(sign: Column, size: Column) -> Column:
    digits = size.getField("digits")
    whole, fraction = f.substring(digits, 1, _WHOLE_DIGITS), f.substring(digits, _WHOLE_DIGITS + 1, _FRACTION_DIGITS)
    text = f.concat(sign, size.getField("carry").cast("string"), whole, f.lit("."), fraction)
    return f.regexp_replace(text, _PADDED, "$1$2$3").cast("binary")
