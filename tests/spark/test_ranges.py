"""Ranges, partitions and their order."""

from __future__ import annotations

from random import Random

import pytest
from pequod_spark.ranges import SplitsError, clip, sorted_ranges
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pequod.engine import Engine, JoinError
from pequod.engine.testing import NaiveModel, select
from pequod.language.containing import containing_range, keys_of, meet
from tests.engine.draw import draw_join, draw_key, draw_range
from tests.spark.rows import frame_of, rows_of

KEYS = sorted({bytes((a, b)) for a in (0, 1, 0x7C, 0x7F, 0x80, 0xFF) for b in (0, 0x7C, 0x80, 0xFF)})


def test_partitions_hold_their_ranges_in_order(spark: SparkSession) -> None:
    rows = dict.fromkeys(KEYS, b"")
    shuffled = frame_of(spark, dict(Random(1).sample(list(rows.items()), len(rows))))
    splits = [b"\x00\x80", b"\x01", b"\x7c\x7c", b"\x7e", b"\x7e\x00", b"\xff\x80"]
    placed = sorted_ranges(shuffled, splits).select(
        f.spark_partition_id().alias("partition"), f.monotonically_increasing_id().alias("place"), "key"
    )
    found = [(row.partition, bytes(row.key)) for row in sorted(placed.collect(), key=lambda row: row.place)]
    assert found == [(sum(split <= key for split in splits), key) for key in KEYS]
    assert sorted_ranges(shuffled, splits).rdd.getNumPartitions() == len(splits) + 1


def test_no_splits_are_one_partition(spark: SparkSession) -> None:
    frame = sorted_ranges(frame_of(spark, dict.fromkeys(KEYS[::-1], b"")), [])
    assert [bytes(row.key) for row in frame.collect()] == KEYS


def test_splits_that_do_not_ascend_are_refused(spark: SparkSession) -> None:
    with pytest.raises(SplitsError, match="must ascend, but b'b' stands before b'a'"):
        sorted_ranges(frame_of(spark, {}), [b"b", b"a"])


def test_clipping_compares_unsigned_bytes(spark: SparkSession) -> None:
    rows = dict.fromkeys(KEYS, b"")
    for first, last in [(b"", None), (b"\x7f", b"\x80"), (b"\x80", None), (b"", b"\xff\x80"), (b"\xff", b"\x00")]:
        assert rows_of(clip(frame_of(spark, rows), first, last)) == select(rows, first, last)


def test_containing_ranges_leave_nothing_out() -> None:
    """Leaving out the other source keys changes no output of the range."""
    random = Random(3)
    tight = 0
    for _ in range(400):
        spec = draw_join(random)
        try:
            # One that reads its own output after `unless` would have no end.
            Engine().add_joins([spec])
        except JoinError:
            continue
        rows = {draw_key(random, [spec]): b"1" for _ in range(20)}
        first, last = meet(*draw_range(random, [spec]), keys_of(spec.output))
        ranges = [containing_range(spec, source.pattern, first, last) for source in spec.sources]
        model, less = NaiveModel(), NaiveModel()
        model.add(spec)
        less.add(spec)
        model.base = {key: value for key, value in rows.items() if not model.computes(key)}
        tables = {source.pattern.literal_prefix for source in spec.sources}
        less.base = {key: value for key, value in model.base.items() if any(a <= key < b for a, b in ranges)}
        assert less.evaluate_joins()[0].keys() >= {key for key, _ in select(model.evaluate_joins()[0], first, last)}
        tight += len(tables) == 1 and len(less.base) < len(model.base)
    assert tight > 20
