"""Spark reads a lake's tables: freshness, conditions, chosen columns; the same rows as the lake's own queries."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pequod_lake import IngestLimits, MergePolicy
from pequod_lake.errors import LakeSchemaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructType
from pyspark_pequod_lake.tables import LakeTableReader

from tests.lake.empty import empty_lake
from tests.lake.replay import SCHEMA, Call, ingest, random_calls, replayed

ID = StructType().add("id", LongType())


@pytest.mark.timeout(600)
def test_spark_reads_each_table_as_of_one_scu(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(5)
    uploads: list[list[Call]] = []
    folder = tmp_path / "lake"
    with empty_lake(folder, SCHEMA) as lake:
        with lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
            worker = lake.worker(MergePolicy(fan_in=2, authority_after_s=0))
            for number in range(8):
                uploads.append(random_calls(dice, lake.schema))
                ingest(ingestor, f"u{number}", uploads[-1])
                if number == 4:
                    worker.drain()
            worker.close()
        read = spark.read.format("pequod_lake").option("partitions", "2")
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        expected = replayed(lake.schema, uploads)
        parts = read.option("table", "parts").load(str(folder))
        rows = sorted((row.asDict() for row in parts.collect()), key=repr)
        assert rows == sorted(expected.rows(lake.schema.table("parts")), key=repr)
        # Only the wanted column is read, of the rows that the conditions allow.
        authority = replayed(lake.schema, uploads[:5]).rows(lake.schema.table("plain"))
        some = spark.read.format("pequod_lake").option("columns", "body, id").option("table", "plain")
        narrow = some.option("freshness", "authority").option("where", '[["id", ">=", 2], ["id", "<", 6]]')
        found = narrow.load(str(folder)).select("body")
        assert sorted(row.body or "" for row in found.collect()) == sorted(
            row["body"] or "" for row in authority if 2 <= row["id"] < 6
        )
        # PySpark would keep what one scan has pushed for the others of the DataFrame.
        rows = expected.rows(lake.schema.table("plain"))
        plain = read.option("table", "plain").load(str(folder))
        twice = plain.filter("id = 2").union(plain).count()
        assert twice == len(rows) + sum(row["id"] == 2 for row in rows) > 1
        for wrong in ("id=2", '[["id", "="]]', '[["no", "=", 2]]'):
            with pytest.raises(LakeSchemaError, match="it has no column" if "no" in wrong else "`where` is a list"):
                LakeTableReader({"path": str(folder), "table": "plain", "where": wrong}, ID).partitions()
        with pytest.raises(PySparkException, match="is no option"):
            read.option("table", "plain").option("fresh", "x").load(str(folder))
