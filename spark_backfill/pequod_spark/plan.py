r"""Cache joins compiled to DataFrames: Spark computes a range of outputs from base rows.

    t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>

    read s|..         read p|..           base rows of the containing ranges, and rows that other joins compute
       |                 |
    match, slots      match, slots        keys.take_apart
        \               /
         join on poster                   slots that sources share; `unless`, left anti; `check?`, left outer
               |
     put together the value               composed.value, if several sources give fields
               |
     put together the key                 keys.put_together
               |
     combine rows that meet in a key       contributions.combine, unless each key has one contribution
               |
     number the rows of each group         keep, if the join has it: then the range is that of whole groups
               |
     clip to the range                    ranges.clip

All steps are Spark's own functions: no row passes through Python, but those of a source that looks at records
(`records.plain_rows`). Nothing runs until the DataFrame is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import combinations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pequod.engine import Engine
from pequod.language.containing import fixed_slots, keys_of, meet
from pequod.language.keeping import compile_group, group_parts, widen
from pequod.language.patterns import may_overlap
from pequod.language.slots import number_slots
from pequod.language.spec import JoinSpec, Operator
from pequod.language.views import RecordView, plain_join
from pequod_spark.composed import composed_value
from pequod_spark.contributions import combine
from pequod_spark.keys import put_together, take_apart
from pequod_spark.needs import Need, computing, needs
from pequod_spark.ranges import clip
from pequod_spark.records import plain_rows

#: Return the base rows of a key range as a DataFrame of rows; rows outside of the range do no harm.
#: If ``last`` is None, the range has no end. No key may occur twice.
Read = Callable[[bytes, bytes | None], DataFrame]


def compile_join(
    spec: JoinSpec, read: Read, first: bytes = b"", last: bytes | None = None, *, installed: Iterable[JoinSpec] = ()
) -> DataFrame:
    """Compile a join's outputs in a range: exactly the rows that the engine computes for it.

    If several joins compute a key, the value is that of ``spec``, even if a scan shows another join's.

    Args:
        spec: The join, installed or not.
        read: Reads the base rows. Rows with a key that an installed join computes are ignored, so ``read`` may read
            from a server, which has both.
        first: The first output key wanted.
        last: The end of the range, None for no end.
        installed: The joins that compute sources, the earliest installed first.

    Returns:
        The rows, in no order, each key once.

    Raises:
        JoinError: A join is malformed, or they form a cycle.
    """
    joins = [*dict.fromkeys(installed)]
    return SparkPlan(joins if spec in joins else [*joins, spec], read).outputs(spec, first, last)


def compile_scan(installed: Iterable[JoinSpec], read: Read, first: bytes = b"", last: bytes | None = None) -> DataFrame:
    """Compile all rows of a range, base and computed: exactly those that a scan of a server returns.

    Args:
        installed: The joins, the earliest installed first: if two compute a key, the earlier one's value shows.
        read: Reads the base rows, as for `compile_join`.
        first: The first key wanted.
        last: The end of the range, None for no end.

    Returns:
        The rows, in no order, each key once.

    Raises:
        JoinError: A join is malformed, or they form a cycle.
    """
    return SparkPlan([*dict.fromkeys(installed)], read).rows(first, last)


def read_from(rows: DataFrame) -> Read:
    """Return a `Read` over one DataFrame of base rows of all tables."""
    return lambda _first, _last: rows


class SparkPlan:
    """The installed joins over base rows.

    Invariants:
        1. The joins are well-formed, each is there once, and none reads its own output.
    """

    __slots__ = ("_joins", "_read")

    def __init__(self, joins: Sequence[JoinSpec], read: Read) -> None:
        # An engine refuses joins that do not fit together, and explains why.
        Engine().add_joins(joins)
        self._joins = joins
        self._read = read

    def outputs(self, spec: JoinSpec, first: bytes, last: bytes | None) -> DataFrame:
        """Return the rows that one join computes in a range."""
        first, last = meet(first, last, keys_of(spec.output))
        if spec.keep is None:
            return self._combined(spec, first, last)
        whole = widen(compile_group(spec), first, last)
        return clip(keep(spec, self._combined(spec, *whole)), first, last)

    def _combined(self, spec: JoinSpec, first: bytes, last: bytes) -> DataFrame:
        contributions = self.contributions(spec, first, last)
        return combine(spec.value_source.operator, contributions, is_unique=contributes_once(spec))

    def contributions(self, spec: JoinSpec, first: bytes, last: bytes | None, *, one_of: int = 1) -> DataFrame:
        """Return a row for each tuple of source keys that gives an output in a range: key, source_key and value.

        Args:
            spec: The join.
            first: The first output key wanted.
            last: The end of the range, None for no end.
            one_of: Use only one in this many keys of the value source.
        """
        whole = keys_of(spec.output)
        first, last = meet(first, last, whole)
        fixed = fixed_slots(spec, first, last)
        plain, views = plain_join(spec)
        columns = {name: f"slot_{number}" for name, number in number_slots(plain).items()}
        seen = dict(zip(spec.sources, views, strict=True))
        needed = needs(self._joins, spec, first, last)
        there = [need for need in needed if need.source.operator.binds_slots]
        sources = [
            self._source(need, seen[need.source], columns, fixed, one_of if need.source.operator.gives_value else 1)
            for need in _join_order(there)
        ]
        joined = reduce(_join, sources)
        for need in needed:
            if not need.source.operator.binds_slots:
                without = need.source.operator is Operator.UNLESS
                source = self._source(need, seen[need.source], columns, fixed, 1)
                joined = (_without if without else _perhaps)(joined, source)
        if spec.is_composed:
            joined = joined.withColumn("value", composed_value(spec, columns))
        slots = {name: f.col(column) for name, column in columns.items()}
        keyed = joined.withColumn("key", put_together(spec.output.parts, slots))
        # All keys are in the whole range, and with a filter Spark would make each key twice.
        found = clip(keyed, b"" if first == whole[0] else first, None if last == whole[1] else last)
        return found.select("key", "source_key", "value")

    def rows(self, first: bytes, last: bytes | None) -> DataFrame:
        """Return all rows of a range."""
        return self._rows(first, last, computing(self._joins, first, last))

    def _source(
        self, need: Need, view: RecordView | None, columns: dict[str, str], fixed: dict[str, bytes], one_of: int
    ) -> DataFrame:
        """Return the slots of a source's keys, and for the value source the contribution as well."""
        source = need.source
        rows = self._rows(*need.within, need.computing)
        matches, slots = take_apart(source.pattern, f.col("key"))
        if one_of > 1:
            matches &= is_sampled(one_of)
        source_key = f.col("key").alias("source_key")
        if view is not None:
            rows = plain_rows(rows.where(matches), view)
            matches, slots = take_apart(view.pattern, f.col("key"))
            source_key = f.col("source_key")
        for name in slots.keys() & fixed.keys():
            matches &= slots[name] == f.lit(fixed[name])
        shown = [column.alias(columns[name]) for name, column in slots.items()]
        if source.operator.gives_value:
            shown += [source_key, f.col("value")]
        return rows.where(matches).select(*shown)

    def _rows(self, first: bytes, last: bytes | None, joins: Sequence[JoinSpec]) -> DataFrame:
        """Return the rows of a range in which ``joins`` compute some."""
        read = self._read(first, last).select("key", "value")
        base = clip(read, first, last, *(~take_apart(spec.output, f.col("key")).matches for spec in joins))
        if not joins:
            return base
        outputs = [self.outputs(spec, first, last) for spec in joins]
        if any(may_overlap(a.output, b.output) for a, b in combinations(joins, 2)):
            return base.union(_earliest(outputs))
        return reduce(DataFrame.union, outputs, base)


def _earliest(outputs: list[DataFrame]) -> DataFrame:
    """Return the rows of all DataFrames; of rows with the same key, that of the earliest."""
    ordered = [rows.withColumn("order", f.lit(order)) for order, rows in enumerate(outputs)]
    return reduce(DataFrame.union, ordered).groupBy("key").agg(f.min_by("value", "order").alias("value"))


def keep(spec: JoinSpec, rows: DataFrame) -> DataFrame:
    """Return the rows that `keep` leaves, of rows of whole groups."""
    assert spec.keep is not None
    key = f.col("key")
    order = key.desc() if spec.keep.is_last else key.asc()
    if not spec.keep.slots:
        return rows.orderBy(order).limit(spec.keep.count)
    group = put_together(group_parts(spec), take_apart(spec.output, key).slots)
    numbered = rows.withColumn("number", f.row_number().over(Window.partitionBy(group).orderBy(order)))
    return numbered.where(f.col("number") <= spec.keep.count).drop("number")


def _join(left: DataFrame, right: DataFrame) -> DataFrame:
    shared = [column for column in left.columns if column in right.columns]
    return left.join(right, shared) if shared else left.crossJoin(right)


def _without(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return the rows of ``left`` to which no row of ``right`` fits; columns of ``right`` alone fit with anything."""
    shared = [column for column in left.columns if column in right.columns]
    return left.join(right, shared or f.lit(True), "left_anti")  # noqa: FBT003 - a column


def _perhaps(left: DataFrame, right: DataFrame) -> DataFrame:
    """Return all rows of ``left``, each with the row of ``right`` that fits, if there is one."""
    shared = [column for column in left.columns if column in right.columns]
    return left.join(right, shared or f.lit(True), "left_outer")  # noqa: FBT003 - a column


def _join_order(sources: Sequence[Need]) -> list[Need]:
    """Return the sources in an order in which each shares a slot with those before it, if there is one."""
    ordered = [sources[0]]
    rest = list(sources[1:])
    while rest:
        known = {slot for need in ordered for slot in need.source.slots()}
        following = next((need for need in rest if known.intersection(need.source.slots())), rest[0])
        rest.remove(following)
        ordered.append(following)
    return ordered


def is_sampled(one_of: int) -> Column:
    """Return whether a row is in a sample of one in this many keys; the sample is the same each time."""
    return f.pmod(f.xxhash64("key"), f.lit(one_of)) == 0


def contributes_once(spec: JoinSpec) -> bool:
    """Return whether each output key has one contribution: then the key has all slots that distinguish source keys.

    `JoinSpec.is_unique` says so of copies alone, whose rows the server takes as they are.
    """
    bound = {slot.name for source in spec.sources for slot in source.bound()}
    return bound == {slot.name for slot in spec.output.slots()}
