"""Texts of workloads as Spark columns."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

_FILLER: Final = "the sea was calm and the whale was nowhere to be seen "


def digits(number: Column, width: int) -> Column:
    """Return a number as text, with zeros in front."""
    return f.lpad(number.cast("string"), width, "0")


def text(number: Column, size_bytes: int) -> Column:
    """Return the number and filler, cut to ``size`` bytes, so that most texts differ."""
    return f.rpad(f.concat(number.cast("string"), f.lit(" ")), size_bytes, _FILLER).cast("binary")
