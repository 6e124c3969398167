"""What a server takes in for a backfill, as a DataFrame: contributions with the contexts that they belong to.

    prefix   tail             value   times  source_key
    t|ann|   null                                        ann has a timeline, even if it is empty
    t|ann|   0000000100|bob   Hi                         a copy of all slots: the rows themselves
    t|ann|   0000000120|liz   ..
    t|bob|   null

Other joins have ``times``, how many equal contributions there are, and copies of them ``source_key`` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pequod.engine.containing import keys_of, meet
from pequod.engine.plan import known_run
from pequod.engine.spec import JoinSpec, Operator, Slot
from pequod_spark.keys import put_together, take_apart
from pequod_spark.plan import Plan, Read, is_unique, value_source
from pequod_spark.ranges import clip

#: Where rows are sorted and cut: the output key, or the prefix for a context as such.
SORT_KEY = "key"


def compile_pieces(
    spec: JoinSpec, level: int, read: Read, first: bytes, last: bytes | None, covered: DataFrame | None = None
) -> DataFrame:
    """Compile what follows from base rows in a range of outputs.

    Args:
        spec: The join; no other computes its sources.
        level: How many slots of the output a context fixes.
        read: Gives the base rows.
        first: The first output key wanted.
        last: The end of the range, None for no end.
        covered: A column ``prefix``: contexts that are not wanted.

    Returns:
        Columns ``key``, ``prefix``, ``tail``, ``value``, ``times`` and ``source_key``, in no order.
    """
    first, last = meet(first, last, keys_of(spec.output))
    contributions = Plan([spec], read).contributions(spec, first, last)
    leading = list(dict.fromkeys(slot.name for slot in spec.output.slots()))[:level]
    run = spec.output.parts[: known_run(spec.output.parts, set(leading))]
    _, slots = take_apart(spec.output, f.col("key"))
    prefix = put_together(run, slots)
    counted = _count(spec, contributions)
    tail = f.substring(f.col("key"), f.length("prefix") + 1, f.length("key") - f.length("prefix"))
    rows = counted.withColumn("prefix", prefix).withColumn("tail", tail)
    found = rows.select("key", "prefix", "tail", "value", "times", "source_key")
    empty = _contexts(spec, leading, run, read, first, last)
    found = found if empty is None else found.unionByName(empty)
    return found if covered is None else found.join(f.broadcast(covered), "prefix", "left_anti")


def _count(spec: JoinSpec, contributions: DataFrame) -> DataFrame:
    """Put equal contributions together, and leave out what the server does not look at."""
    nothing, once = f.lit(None).cast("binary"), f.lit(None).cast("bigint")
    if is_unique(spec):
        return contributions.select("key", "value", once.alias("times"), nothing.alias("source_key"))
    match value_source(spec).operator:
        case Operator.COUNT:
            told = ["key"]
        case Operator.COPY:
            told = ["key", "value", "source_key"]
        case _:
            told = ["key", "value"]
    counted = contributions.groupBy(*told).agg(f.count(f.lit(1)).alias("times"))
    for name in ("value", "source_key"):
        if name not in told:
            counted = counted.withColumn(name, nothing)
    return counted


def _contexts(
    spec: JoinSpec, leading: list[str], run: Sequence[bytes | Slot], read: Read, first: bytes, last: bytes
) -> DataFrame | None:
    """Return the contexts that sources tell of, also those without rows; None if no source tells of any."""
    found = []
    for source in spec.sources:
        if not set(leading) <= {slot.name for slot in source.pattern.slots()}:
            continue
        within = keys_of(source.pattern)
        matches, slots = take_apart(source.pattern, f.col("key"))
        prefixes = clip(read(*within), *within).where(matches).select(put_together(run, slots).alias("prefix"))
        found.append(prefixes)
    if not found:
        return None
    nothing, once = f.lit(None).cast("binary"), f.lit(None).cast("bigint")
    prefixes = reduce(DataFrame.union, found).distinct()
    return prefixes.where(_meets(f.col("prefix"), first, last)).select(
        f.col("prefix").alias("key"),
        "prefix",
        nothing.alias("tail"),
        nothing.alias("value"),
        once.alias("times"),
        nothing.alias("source_key"),
    )


def _meets(prefix: Column, first: bytes, last: bytes) -> Column:
    """Tell whether a context may have keys in a range."""
    # Above the last key of the prefix stands what is not above it and does not start with it.
    return (prefix < f.lit(last)) & ((prefix >= f.lit(first)) | f.startswith(f.lit(first), prefix))
