"""The rows that a server takes in for a backfill, as a DataFrame: contributions with their contexts.

    key                     is_row  value        prefix   tail             times  source_key
    t|ann|                  false                t|ann|   null                                ann's context
    t|ann|0000000100|bob    true    Hi           t|ann|   0000000100|bob
    t|ann|0000000120|liz    true    ..           t|ann|   0000000120|liz
    t|bob|                  false                t|bob|   null                                an empty context
    compile_pieces: these are sorted     | with_contexts: these follow from the key

For a copy of all slots, a contribution is a row. Other joins also have ``times``, the number of equal contributions,
and copies among them ``source_key``. A column that a join does not need is not in the DataFrame while it is sorted:
sorting is most of the work, and its time grows with the width of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pequod.language.containing import keys_of, meet
from pequod.language.slots import known_run
from pequod.language.spec import JoinSpec, Operator, Slot
from pequod.language.views import plain_join
from pequod_spark.keys import put_together, take_apart
from pequod_spark.plan import Read, SparkPlan, contributes_once, keep
from pequod_spark.ranges import clip
from pequod_spark.records import plain_rows


def compile_pieces(
    spec: JoinSpec,
    level: int,
    read: Read,
    first: bytes,
    last: bytes | None,
    covered: DataFrame | None = None,
    *,
    one_of: int = 1,
) -> DataFrame:
    """Compile the pieces of a range of outputs.

    Args:
        spec: The join; no other join computes its sources.
        level: How many slots of the output a context fixes.
        read: Reads the base rows.
        first: The first output key wanted; of a join with `keep`, the first one of a group.
        last: The end of the range, None for no end; it cuts no group either.
        covered: A column ``prefix``: contexts to leave out.
        one_of: Keep only the contributions of one in this many keys of the value source.

    Returns:
        Columns ``key`` and ``is_row``, and ``value``, ``times`` and ``source_key`` if the join needs them, in no order.
    """
    first, last = meet(first, last, keys_of(spec.output))
    contributions = SparkPlan([spec], read).contributions(spec, first, last, one_of=one_of)
    counted = _count(spec, contributions)
    if spec.keep is not None and spec.is_unique:
        # Groups are whole in the range; the server reads what is behind these rows when they do not do.
        counted = keep(spec, counted)
    found = counted.withColumn("is_row", f.lit(True))  # noqa: FBT003 - a column
    contexts = _contexts(spec, level, read, first, last)
    if contexts is not None:
        found = found.unionByName(contexts, allowMissingColumns=True)
    if covered is None:
        return found
    prefixed = found.withColumn("prefix", _prefix(spec, level))
    return prefixed.join(f.broadcast(covered), "prefix", "left_anti").drop("prefix")


def with_contexts(spec: JoinSpec, level: int, pieces: DataFrame) -> DataFrame:
    """Return pieces with the columns of their contexts, in the same order.

    Returns:
        Columns ``key``, ``prefix``, ``tail``, ``value``, ``times`` and ``source_key``.
    """
    tail = f.substring(f.col("key"), f.length("prefix") + 1, f.length("key") - f.length("prefix"))
    rows = pieces.withColumn("prefix", _prefix(spec, level)).withColumn("tail", f.when(f.col("is_row"), tail))
    for name, kind in (("value", "binary"), ("times", "bigint"), ("source_key", "binary")):
        if name not in pieces.columns:
            rows = rows.withColumn(name, f.lit(None).cast(kind))
    return rows.select("key", "prefix", "tail", "value", "times", "source_key")


def _run(spec: JoinSpec, level: int) -> tuple[set[str], Sequence[bytes | Slot]]:
    """Return the slots that a context fixes, and the parts of the output in its prefix."""
    leading = set(list(dict.fromkeys(slot.name for slot in spec.output.slots()))[:level])
    return leading, spec.output.parts[: known_run(spec.output.parts, leading)]


def _prefix(spec: JoinSpec, level: int) -> Column:
    """Return the prefix of the context that a piece belongs to."""
    key = f.col("key")
    _, slots = take_apart(spec.output, key)
    return f.when(f.col("is_row"), put_together(_run(spec, level)[1], slots)).otherwise(key)


def _count(spec: JoinSpec, contributions: DataFrame) -> DataFrame:
    """Count equal contributions, and leave out columns that the server does not need."""
    if spec.is_unique:
        return contributions.select("key", "value")
    match spec.value_source.operator:
        case Operator.COUNT:
            told = ["key"]
        case Operator.COPY:
            told = ["key", "value", "source_key"]
        case _:
            told = ["key", "value"]
    if contributes_once(spec):
        # No two are equal.
        return contributions.select(*told, f.lit(1).cast("bigint").alias("times"))
    return contributions.groupBy(*told).agg(f.count("*").alias("times"))


def _contexts(spec: JoinSpec, level: int, read: Read, first: bytes, last: bytes) -> DataFrame | None:
    """Return the contexts that one source alone names, also those without rows; None if no source can."""
    leading, run = _run(spec, level)
    found = []
    there = [one for one in zip(spec.sources, plain_join(spec)[1], strict=True) if one[0].operator.binds_slots]
    for source, view in there:
        pattern, within = source.pattern, keys_of(source.pattern)
        rows = clip(read(*within), *within, take_apart(pattern, f.col("key")).matches)
        if not leading <= {slot.name for slot in pattern.slots()}:
            # Fields of records name contexts as well. If no other source can leave them empty, their rows name them.
            if view is None or len(there) == 1 or not leading <= {slot.name for slot in source.slots()}:
                continue
            rows, pattern = plain_rows(rows, view), view.pattern
        _, slots = take_apart(pattern, f.col("key"))
        found.append(rows.select(put_together(run, slots).alias("key")))
    if not found:
        return None
    prefixes = reduce(DataFrame.union, found).distinct()
    return prefixes.where(_meets(f.col("key"), first, last)).withColumn("is_row", f.lit(False))  # noqa: FBT003 - a column


def _meets(prefix: Column, first: bytes, last: bytes) -> Column:
    """Return whether a context may have keys in a range."""
    # A key is above all keys of a prefix if it is above the prefix and does not begin with it.
    return (prefix < f.lit(last)) & ((prefix >= f.lit(first)) | f.startswith(f.lit(first), prefix))
