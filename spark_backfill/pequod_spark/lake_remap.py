"""Ids for the texts of a raw run, by Spark: what `Stages` does in one process, over partitions.

    raw files -> texts, each once -> ranges of texts, in order      known: its id; new: the next ids, by range
    rows + (text, id), joined                                       a file for each piece of the raw files, in its order

New texts get their ids in the order of the texts, as in one process, so that the files hold the same rows. The numbers
of new texts by range are counted first: then each range knows its first id.

Source:
    LazyBase 3.5, which partitions ids by hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pequod_lake.combining import places_in_order
from pequod_lake.ids import known_ids
from pequod_lake.reading import LakeReader
from pequod_lake.runs import LakeFile, Run
from pequod_lake.schema import LakeTable, ids_table
from pequod_lake.slices import RunWork
from pequod_lake.states import reader_at
from pequod_lake.writing import FileWriter
from pyarrow import compute as pc

from pequod_spark.lake_tasks import ANSWER, PIECE, PLACE, Attempt, pieces_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TEXT_AND_ID: Final = "text string, id bigint"
_TEXT_AND_ID_SCHEMA: Final = pa.schema([("text", pa.string()), ("id", pa.int64())])


def remapped(
    spark: SparkSession,
    reader: LakeReader,
    attempt: Attempt,
    work: RunWork,
    take_ids: Callable[[str, int], int],
    part_rows: int,
) -> list[LakeFile]:
    """Return the files of new ids, and of the tables that have columns with ids; none of them is sorted.

    Args:
        take_ids: Takes ids of a name, by their number, and returns the first one (`Coordinator.take_ids`).
        part_rows: Rows of a part.

    Raises:
        LakeCorruptError: A file is damaged.
        LakeError: It cannot be done.
    """

    def read(table: LakeTable, columns: Sequence[str]) -> DataFrame:
        stored = table.stored(table.primary, raw=True)
        some = pa.schema([stored.field(name) for name in columns])
        return rows_of(spark, attempt.location, pieces_of(reader, work.run.of(table.name), part_rows), some)

    part_count = max(1, -(-work.run.row_count // part_rows))
    found = list[LakeFile]()
    ids: dict[str, DataFrame] = {}
    kept: list[DataFrame] = []
    try:
        for name in work.schema.ids:
            texts = _texts(read, work.tables, name, part_count)
            if texts is None:
                continue
            looked_up = texts.mapInArrow(_looked_up(attempt.location, work.earlier, name), _TEXT_AND_ID).persist()
            kept.append(looked_up)
            firsts = _first_ids(looked_up, lambda count, name=name: take_ids(name, count))  # type: ignore[misc]
            found += attempt.files(looked_up.mapInArrow(attempt.writing(_new_ids(work.kind, name, firsts)), ANSWER))
            ids[name] = looked_up.mapInArrow(_numbered(firsts), _TEXT_AND_ID)
        for table in work.tables:
            joined = _joined(read(table, table.stored(table.primary, raw=True).names), table, ids)
            found += attempt.files(joined.groupBy(PIECE).applyInArrow(_piece_written(attempt, work, table), ANSWER))
    finally:
        for one in kept:
            one.unpersist()
    return [replace(file, first_key="", last_key="", content="") for file in found]


def _texts(
    read: Callable[[LakeTable, Sequence[str]], DataFrame], tables: Sequence[LakeTable], name: str, part_count: int
) -> DataFrame | None:
    """Return the texts of all columns of a name, each once, in ranges and in order; None if it has no columns here."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - slow to import, and seldom needed

    pieces = [
        read(table, [column.name]).select(f.col(column.name).alias("text"))
        for table in tables
        for column in table.columns
        if column.ids == name
    ]
    if not pieces:
        return None
    texts = reduce(lambda one, other: one.unionAll(other), pieces).where("text IS NOT NULL").distinct()
    return texts.repartitionByRange(part_count, "text").sortWithinPartitions("text")


def _looked_up(location: str, earlier: Sequence[Run], name: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return what a task runs: it adds to each text its id, null if it has none yet."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        texts = pa.concat_arrays([pa.array([], pa.string()), *(batch.column(0) for batch in batches)])
        known = known_ids(reader_at(location), earlier, name, texts)
        ids = known["id"].take(pc.index_in(texts, value_set=known["key"].combine_chunks()))
        yield from pa.table([texts, ids], schema=_TEXT_AND_ID_SCHEMA).combine_chunks().to_batches()

    return run


def _first_ids(looked_up: DataFrame, take: Callable[[int], int]) -> dict[int, int]:
    """Return the first new id of each partition that has new texts."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    parts = looked_up.where("id IS NULL").groupBy(f.spark_partition_id().alias("part")).count()
    counts = {row["part"]: row["count"] for row in parts.collect()}
    if not counts:
        return {}
    order = sorted(counts)
    firsts = accumulate((counts[part] for part in order[:-1]), initial=take(sum(counts.values())))
    return dict(zip(order, firsts, strict=True))


def _filled(batches: Iterable[pa.RecordBatch], first: int | None) -> tuple[Any, Any]:
    """Return texts with their ids, of which those that are null follow ``first``; and which of them are new."""
    table = pa.Table.from_batches(batches, _TEXT_AND_ID_SCHEMA).combine_chunks()
    is_new = pc.is_null(table["id"])
    if first is None or not table.num_rows:
        return table, is_new
    # The number of new texts before each one.
    before = pc.subtract(pc.cumulative_sum(pc.cast(is_new, pa.int64())), 1)
    ids = pc.coalesce(table["id"], pc.add(before, first))
    return table.set_column(1, "id", ids), is_new


def _new_ids(
    kind: str, name: str, firsts: dict[int, int]
) -> Callable[[FileWriter, int, Iterable[Any]], LakeFile | None]:
    """Return what writes the new ids of a part."""

    def write(writer: FileWriter, part: int, batches: Iterable[Any]) -> LakeFile | None:
        table = ids_table(name)
        rows, is_new = _filled(batches, firsts.get(part))
        new = rows.filter(is_new).rename_columns(["key", "id"])
        deleted = pa.repeat(pa.scalar(value=False), new.num_rows)
        return writer.write(kind, table, table.primary, [new.append_column(table.hidden()[0][0], deleted)])

    return write


def _numbered(firsts: dict[int, int]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return what a task runs: it gives the new texts of its part their ids."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 - as above

        context = TaskContext.get()
        assert context is not None
        rows, _ = _filled(batches, firsts.get(context.partitionId()))
        yield from rows.combine_chunks().to_batches()

    return run


def _joined(rows: DataFrame, table: LakeTable, ids: dict[str, DataFrame]) -> DataFrame:
    """Return the rows of a table with numbers in place of texts."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    for column in table.columns:
        if column.ids:
            known = ids[column.ids].select(f.col("text").alias("_text"), f.col("id").alias("_id"))
            rows = rows.join(known, rows[column.name] == known["_text"], "left").drop("_text")
            rows = rows.withColumn(column.name, f.col("_id")).drop("_id")
    return rows


def _piece_written(attempt: Attempt, work: RunWork, table: LakeTable) -> Callable[[Any, Any], Any]:
    """Return what writes the rows of a piece in their order; the answers have the numbers of the pieces."""
    answer, kind = attempt.answering(), work.kind
    stored = table.stored(table.primary)

    def run(key: Any, rows: Any) -> Any:
        ordered = rows.combine_chunks().take(places_in_order(rows, [PLACE])).select(stored.names).cast(stored)
        return answer(key[0].as_py(), lambda writer: writer.write(kind, table, table.primary, [ordered]))

    return run
