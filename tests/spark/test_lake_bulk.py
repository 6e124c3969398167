"""Spark sorts and merges what is too much for one process: the tables are the same with it and without."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from pequod_lake import IngestLimits, Lake, MergePolicy, StageLimits, Upload
from pequod_lake.errors import LakeCorruptError, LakeError
from pequod_lake.runs import Stage
from pequod_lake.staging import StagingJob
from pequod_spark.lake_bulk import SparkBulk
from pyspark.sql import SparkSession

from tests.lake.empty import empty_lake
from tests.lake.replay import Call, check_snapshot, fill, ingest, random_calls

#: Everything goes to Spark.
BULK = StageLimits(bulk_rows=0)
PLAIN = """
[[table]]
name = "plain"
key = ["id"]
columns = { id = "int64", body = "text" }
"""
#: A table with ids in its key and one with timestamps and bytes, one that is partial; each with a view.
MANY = """
[[id]]
name = "user"

[[table]]
name = "timed"
key = ["a", "b"]
columns = { a = "int32", b = "text", at = "timestamp", body = "bytes" }
timestamp = "at"
views.by_at = { key = ["at", "a", "b"], columns = ["body"] }

[[table]]
name = "parts"
key = ["k", "owner"]
partial = true
columns = { k = "int64", owner = "id:user", x = "int64", y = "double", z = "bool" }
views.by_x = ["x", "k", "owner"]
"""


def worked(folder: Path, bulk: SparkBulk | None) -> Lake:
    """Sort the first SCU and merge both, in Spark if there is one."""
    lake = Lake(folder)
    policy = MergePolicy(authority_after_s=1e9)
    worker = lake.worker(policy, StageLimits(bulk_rows=10), bulk=bulk)
    while lake.catalog.snapshot().runs[1].stage is not Stage.SORTED:
        worker.step()
    plain = lake.worker(policy)
    plain.drain()
    worker.compact()
    for one in (worker, plain):
        one.close()
    assert lake.verify() == []
    assert lake.catalog.orphans() == []
    return lake


def in_files(lake: Lake, name: str, calls: Sequence[Call]) -> None:
    """Take an upload as a job of Spark writes it: a file for each of its pieces."""
    job, pieces = StagingJob.new(60), fill(Upload(lake.schema, name), calls).pieces
    files = [
        job.write(lake.place.files, f"{table}-{number}", lake.schema.table(table), [piece])
        for table, found in pieces.items()
        for number, piece in enumerate(found)
    ]
    lake.take_staged(job, name, [file for file in files if file is not None])
    job.drop(lake.place.files)


def test_tables_are_the_same_with_spark_and_without(spark: SparkSession, tmp_path: Path) -> None:
    dice = random.Random(3)
    uploads: list[list[Call]] = []
    with empty_lake(tmp_path / "one", MANY) as lake, lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        for number in range(2):
            uploads.append([call for _ in range(8) for call in random_calls(dice, lake.schema)])
            if number:
                ingest(ingestor, f"u{number}", uploads[-1])
            else:
                in_files(lake, f"u{number}", uploads[-1])
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    plain = worked(tmp_path / "one", None)
    bulk = worked(tmp_path / "other", SparkBulk(tmp_path / "other", part_rows=16))
    (ours,), (theirs,) = plain.catalog.snapshot().runs, bulk.catalog.snapshot().runs
    for table in plain.schema.all_tables:
        for view in (table.primary, *table.views):
            names = table.stored(view).names
            rows = [
                [row for file in run.of(table.name, view.name) for row in lake.reader.read(file, names).to_pylist()]
                for lake, run in ((plain, ours), (bulk, theirs))
            ]
            assert rows[0] == rows[1], (table.name, view.name)
            assert len(theirs.of(table.name, view.name)) > 1 or table.name == "ids_user"
    with bulk.snapshot("authority") as snapshot:
        check_snapshot(snapshot, uploads, dice)
    plain.close()
    bulk.close()


def test_a_damaged_file_is_said_by_the_task_that_reads_it_and_nothing_is_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    with empty_lake(tmp_path / "lake", PLAIN) as lake, lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        for number in range(2):
            upload = ingestor.upload(f"u{number}")
            upload.put("plain", {"id": [number, 7], "body": ["x", "y"]})
            ingestor.take(upload)
        worker = lake.worker(MergePolicy(authority_after_s=1e9))
        worker.drain()
        worker.close()
        file = lake.catalog.files("plain")[0]
        path = tmp_path / "lake" / file.path
        data = bytearray(path.read_bytes())
        data[len(data) // 4] ^= 1
        path.write_bytes(data)
        before = sorted((tmp_path / "lake" / "data").rglob("*.parquet"))
        with Lake(tmp_path / "lake") as again:
            worker = again.worker(MergePolicy(), BULK, bulk=SparkBulk(tmp_path / "lake"))
            with pytest.raises(LakeCorruptError, match=file.path):
                worker.compact()
            worker.close()
        assert sorted((tmp_path / "lake" / "data").rglob("*.parquet")) == before


def test_what_spark_cannot_do_is_an_error_of_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    with empty_lake(tmp_path / "lake", PLAIN) as lake, lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        upload = ingestor.upload("u")
        upload.put("plain", {"id": [1], "body": ["x"]})
        ingestor.take(upload)
        # The folder where tasks write is a file.
        shutil.rmtree(tmp_path / "lake/data/main/plain", ignore_errors=True)
        (tmp_path / "lake/data/main/plain").write_text("")
        worker = lake.worker(MergePolicy(), BULK, bulk=SparkBulk(tmp_path / "lake"))
        with pytest.raises(LakeError, match="plain"):
            worker.compact()
        assert [run.stage for run in lake.catalog.snapshot().runs] == [Stage.AUTHORITY, Stage.RAW]
        worker.close()
