"""Texts of workloads as Spark columns."""

from __future__ import annotations

import re

from pequod_workloads.twip import FILLER
from pyspark.sql import Column
from pyspark.sql import functions as f


def digits(number: Column, width: int) -> Column:
    """Return a number as text, with zeros in front."""
    return f.lpad(number.cast("string"), width, "0")


def text(number: Column, size_bytes: int) -> Column:
    """Return the number and filler, cut to ``size`` bytes, so that most texts differ."""
    return f.rpad(f.concat(number.cast("string"), f.lit(" ")), size_bytes, FILLER.decode()).cast("binary")


def rendered(pattern: bytes, *numbers: Column) -> Column:
    """Return the key that a pattern such as ``p|%08d|%010d`` makes of numbers."""
    parts = re.split(r"%0(\d+)d", pattern.decode())
    columns = [f.lit(parts[0])]
    for number, width, after in zip(numbers, parts[1::2], parts[2::2], strict=True):
        columns += [digits(number, int(width)), *([f.lit(after)] if after else [])]
    return f.concat(*columns).cast("binary")
