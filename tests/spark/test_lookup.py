"""Values looked up by the keys of rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pequod_spark.connection import Connection, ServerChangedError
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType
from pyspark_pequod import lookup
from pyspark_pequod.columns import ColumnError
from pyspark_pequod.looking_up import KEYS_MAX, _Finder
from pyspark_pequod.options import key_pattern
from pyspark_pequod.packing import RowError

from pequod.client import Client
from tests.spark.served import served

TEXT = "p|<poster>|<time:4>"
PATTERN = key_pattern({"pattern": TEXT})
SLOTS = StructType([StructField("poster", StringType()), StructField("time", IntegerType())])
KEY = StructType([StructField("key", BinaryType())])


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with served() as target:
        with Client(target) as client:
            client.add_join("t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
            client.multi_put({f"p|bob|{number:04d}": str(number) for number in range(0, 3 * KEYS_MAX, 2)})
            client.put("s|ann|bob", "1")
        yield target


def finder(target: str, schema: StructType = KEY, kind: DataType | None = None) -> _Finder:
    pattern = PATTERN if schema is SLOTS else None
    return _Finder(schema, pattern, Connection(target), "value", kind or BinaryType())


def test_each_row_has_the_value_of_its_key_or_none(target: str) -> None:
    """Computed keys too, keys that are there twice, and nulls; over several calls of one batch."""
    keys = [b"p|bob|%04d" % number for number in range(3 * KEYS_MAX)]
    keys += [None, b"t|ann|0002|bob", b"p|bob|0004", b"nothing"]  # type: ignore[list-item]
    (found,) = finder(target).find(iter([pa.record_batch([pa.array(keys, pa.binary())], names=["key"])]))
    assert found.column("key").to_pylist() == keys
    want = [None if number % 2 else b"%d" % number for number in range(3 * KEYS_MAX)]
    assert found.column("value").to_pylist() == [*want, None, b"2", b"4", None]


def test_keys_are_put_together_and_values_have_the_type_that_is_asked_for(target: str) -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"poster": "bob", "time": 6}, {"poster": None, "time": 6}, {"poster": "bob", "time": 7}],
        schema=pa.schema([("poster", pa.string()), ("time", pa.int32())]),
    )
    found = list(finder(target, SLOTS, LongType()).find(iter([rows, rows.slice(0, 0)])))
    assert [batch.column("value").to_pylist() for batch in found] == [[6, None, None], []]
    assert found[0].schema.field("value").type == pa.int64()
    bad = rows.set_column(0, "poster", pa.array(["bob", "bob", "a|b"]))
    with pytest.raises(RowError, match=r"it holds a \|, which ends the slot, in the row poster='a\|b'"):
        list(finder(target, SLOTS).find(iter([bad])))


def test_what_cannot_be_looked_up_is_refused(spark: SparkSession, target: str) -> None:
    rows = spark.createDataFrame([("bob", 1)], "poster string, value int")
    with pytest.raises(ColumnError, match="column 'value': the rows have it already"):
        lookup(rows, Connection(target), TEXT)
    with pytest.raises(ColumnError, match="column 'time': there is none"):
        lookup(rows, Connection(target), TEXT, column="text")
    with pytest.raises(ColumnError, match="column 'key': there is none"):
        lookup(rows, Connection(target), column="text")


def test_a_server_that_was_started_anew_is_not_taken_for_one_without_rows(target: str) -> None:
    found = finder(target)
    with served() as other:
        found._connection = Connection(other)
        with pytest.raises(ServerChangedError, match=r"call lookup\(\) again"):
            list(found.find(iter([pa.record_batch([pa.array([b"p|bob|0002"])], names=["key"])])))


def test_a_frame_of_keys_gets_their_values_and_keeps_its_columns(spark: SparkSession, target: str) -> None:
    rows = spark.range(0, 6).selectExpr("'bob' poster", "cast(id as int) time", "id * 10 other").repartition(2)
    found = lookup(rows, Connection(target), TEXT, column="text", kind="string").where("other < 50")
    assert found.columns == ["poster", "time", "other", "text"]
    got = sorted((row.time, row.other, row.text) for row in found.collect())
    assert got == [(number, number * 10, None if number % 2 else str(number)) for number in range(5)]


def test_the_page_of_a_query_shows_the_rows_that_were_read(spark: SparkSession, target: str) -> None:
    """Spark counts for sources in Python; they cannot add numbers of their own."""
    frame = spark.read.format("pequod").options(target=target, partitions=2).load("p|bob|")
    assert len(frame.collect()) == 3 * KEYS_MAX // 2
    assert spark._jsparkSession is not None
    store = spark._jsparkSession.sharedState().statusStore()
    latest = store.executionsList().apply(store.executionsCount() - 1)
    found = [latest.metrics().apply(at) for at in range(latest.metrics().size())]
    values = store.executionMetrics(latest.executionId())
    shown = {one.name(): values.get(one.accumulatorId()).get() for one in found if values.contains(one.accumulatorId())}
    assert shown["number of output rows"] == f"{3 * KEYS_MAX // 2:,}", shown
