"""Backfills of joins over records: what Spark computes, loaded into an engine, is what the model evaluates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pequod_grammar import parse
from pequod_spark.cutting import Contexts
from pequod_spark.loads import PartitionRange, Requests
from pequod_spark.pieces import compile_pieces, with_contexts
from pequod_spark.plan import read_from
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pequod.calls import BackfillStatus
from pequod.engine import Backfill, Engine, NotBackfillableError, Piece
from pequod.engine.testing import NaiveModel, select
from tests.engine.draw import draw_key, draw_range
from tests.engine.draw_records import draw_value
from tests.engine.random_walk import draw_fit_join
from tests.spark.rows import frame_of

#: Joins that are computed in one job.
AT_A_TIME = 3


class Drawn:
    """A join over records, drawn with its rows, and a backfill of it that has begun."""

    def __init__(self, random: Random, *, composed: bool = False) -> None:
        self.random = random
        while True:
            self.engine, self.model = Engine(), NaiveModel()
            spec = draw_fit_join(random, records=True, composed=composed)
            self.engine.add_joins([spec])
            self.model.add(spec)
            self.change(40)
            first, last = draw_range(random, [spec]) if random.random() < 0.3 else (b"", None)
            level = random.choice([None, 0, 1])
            (join,) = self.engine.joins()
            try:
                self.backfill = self.engine.backfills.begin(
                    join.name, first, last, self.engine.revision, level=level, record_bytes_max=1 << 20
                )
            except NotBackfillableError:
                continue
            self.base = dict(self.model.base)
            (computed,) = self.model.evaluate_joins()
            self.outputs = select(computed, self.backfill.first, self.backfill.last)
            if len(self.outputs) > 1:
                return

    def change(self, count: int) -> None:
        for _ in range(count):
            key = draw_key(self.random, self.model.joins)
            if not self.model.computes(key):
                value = draw_value(self.random, self.model.joins)
                self.engine.put(key, value)
                self.model.put(key, value)

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return what Spark computes."""
        backfill = self.backfill
        spec, level = backfill.join.spec, backfill.plan.level
        read = read_from(frame_of(spark, self.base))
        return with_contexts(spec, level, compile_pieces(spec, level, read, backfill.first, backfill.last))

    def pieces(self, rows: pa.Table) -> Iterator[Piece]:
        """Yield the pieces that a task makes of these rows."""
        backfill = self.backfill
        spec, level, bounds = backfill.join.spec, backfill.plan.level, (backfill.first, backfill.last)
        status = BackfillStatus(7, "t", *bounds, level, 0, (), 0, 0, 0, 0, 0, "", 0, 0.0, 0.0, "")
        part = PartitionRange(*bounds, Contexts(spec, level).inside(backfill.first))
        # A context's own row comes first.
        ordered = rows.append_column("is_row", pc.is_valid(rows["tail"]))
        ordered = ordered.sort_by([("key", "ascending"), ("is_row", "ascending")])
        for request in Requests(status, spec, part).of(ordered.to_batches()):
            at = 0
            for first, last, count in zip(request.firsts, request.lasts, request.row_counts, strict=True):
                within = slice(at, at + count)
                yield Piece(
                    first,
                    last,
                    [request.tails[number] for number in request.tail_at[within]],
                    [request.values[number] for number in request.value_at[within]],
                    request.times[within],
                    [request.source_keys[number] for number in request.source_key_at[within]],
                )
                at += count


def is_covered(backfill: Backfill, key: bytes) -> bool:
    return not backfill.join.coverage.gaps(key, key + b"\0")


@pytest.mark.parametrize("seed", range(4))
def test_random_joins_over_records_are_backfilled(spark: SparkSession, seed: int) -> None:
    randoms = [Random(seed * AT_A_TIME + number) for number in range(AT_A_TIME)]
    drawn = [Drawn(random, composed=seed == 3) for random in randoms]
    frames = [one.rows(spark).withColumn("plan", f.lit(number)) for number, one in enumerate(drawn)]
    rows = reduce(DataFrame.union, frames).toArrow()
    for number, one in enumerate(drawn):
        one.change(10)
        pieces = list(one.pieces(rows.filter(pc.field("plan") == number).drop_columns("plan")))
        loaded = one.engine.backfills.load(one.backfill, pieces)
        assert loaded.range_count == len(pieces)
        assert all(is_covered(one.backfill, key) for key, _ in one.outputs)
        one.engine._check()
        scanned = one.engine.scan(b"", None)
        assert list(zip(*scanned, strict=True)) == one.model.scan(b"", None), str(one.model.joins[0])


def test_contexts_without_rows_are_named_by_fields_too(spark: SparkSession) -> None:
    (spec,) = parse("t|<team>|<id> = check s|<of> with team = <team> copy p|<id> with of = <of>")
    rows = {b"s|1": b'{"team": "red"}', b"s|2": b'{"team": "blue"}', b"s|3": b"{}", b"p|7": b'{"of": 1}'}
    pieces = compile_pieces(spec, 1, read_from(frame_of(spark, rows)), b"t|", b"t}").toArrow().to_pylist()
    found = sorted((piece["key"], piece["is_row"]) for piece in pieces)
    assert found == [(b"t|blue|", False), (b"t|red|", False), (b"t|red|7", True)]
