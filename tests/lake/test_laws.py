"""Single laws of a lake."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pequod_lake import IngestLimits, Lake, LakeSchema, MergePolicy
from pequod_lake.checking import check_run
from pequod_lake.clock import Stamp, machine_clock
from pequod_lake.errors import (
    LakeBusyError,
    LakeCorruptError,
    LakeExistsError,
    LakeSchemaError,
    LakeStaleError,
    NoLakeError,
    SnapshotGoneError,
    UploadRefusedError,
)
from pequod_lake.runs import Run, Stage
from pyarrow import parquet

NOW = IngestLimits(scu_age_s=0)
SCHEMA = """
[[table]]
name = "plain"
key = ["id"]
columns = { id = "int64", body = "text" }
"""


def put(lake: Lake, name: str, rows: dict[str, list[Any]]) -> int:
    with lake.ingestor(NOW) as ingestor:
        upload = ingestor.upload(name)
        upload.put("plain", rows)
        return ingestor.take(upload).scu


def row(number: int) -> dict[str, list[Any]]:
    return {"id": [number], "owner": ["ann"], "size": [number], "body": [f"b{number}"]}


def test_an_upload_that_is_sent_again_is_not_taken_twice(folder: Path) -> None:
    with Lake(folder) as lake:
        assert put(lake, "one", row(1)) == 1
        with lake.ingestor(NOW) as ingestor:
            again = ingestor.upload("one")
            again.put("plain", row(2))
            done = ingestor.take(again)
        assert (done.scu, done.is_repeated) == (1, True)
        with lake.snapshot() as snapshot:
            assert snapshot.scu == 1
            assert snapshot.get("plain", 2) is None


def test_one_id_that_two_processes_send_at_once_is_taken_once(folder: Path) -> None:
    with Lake(folder) as lake, Lake(folder) as other:
        # Both have asked whether the id is there before either commits.
        with lake.ingestor(NOW) as first, other.ingestor(IngestLimits(scu_age_s=0.3)) as second:
            late = second.upload("same")
            late.put("plain", row(1))
            beside = second.upload("beside")
            beside.put("plain", row(2))
            futures = [second.submit(late), second.submit(beside)]
            early = first.upload("same")
            early.put("plain", row(1))
            assert first.take(early).scu == 1
            assert [(one.result().scu, one.result().is_repeated) for one in futures] == [(1, True), (2, False)]
        with lake.snapshot() as snapshot:
            assert snapshot.scan("plain").rows["id"].to_pylist() == [1, 2]
            assert lake.catalog.orphans() == []


def test_uploads_of_many_threads_are_put_together_and_each_is_a_whole(folder: Path) -> None:
    with Lake(folder) as lake, lake.ingestor(IngestLimits(scu_age_s=0.05)) as ingestor:

        def send(number: int) -> None:
            upload = ingestor.upload(f"u{number}")
            upload.put("plain", row(number))
            upload.put("parts", {"k": [f"k{number}"], "x": [number]})
            ingestor.take(upload)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with lake.snapshot() as snapshot:
            assert snapshot.scu < 40
            assert snapshot.scan("plain").rows["id"].to_pylist() == list(range(40))
            assert sorted(snapshot.scan("parts").rows["x"].to_pylist()) == list(range(40))


def test_an_scu_closes_at_its_rows(folder: Path) -> None:
    with Lake(folder) as lake, lake.ingestor(IngestLimits(scu_age_s=60, scu_rows_max=2)) as ingestor:
        futures = []
        for number in range(4):
            upload = ingestor.upload(f"u{number}")
            upload.put("plain", row(number))
            futures.append(ingestor.submit(upload))
        assert [future.result(timeout=10).scu for future in futures] == [1, 1, 2, 2]


def test_a_full_queue_is_refused_after_a_while(folder: Path) -> None:
    limits = IngestLimits(scu_age_s=1.0, waiting_bytes_max=1, wait_s=0.05)
    with Lake(folder) as lake, lake.ingestor(limits) as ingestor:
        first, second = ingestor.upload("first"), ingestor.upload("second")
        first.put("plain", row(1))
        second.put("plain", row(2))
        future = ingestor.submit(first)
        with pytest.raises(LakeBusyError):
            ingestor.submit(second)
        assert future.result(timeout=10).scu == 1
        assert ingestor.take(second).scu == 2


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ({"id": [1]}, "missing"),
        (row(1) | {"more": [1]}, "no column"),
        (row(1) | {"id": [None]}, "null"),
        (row(1) | {"id": ["x"]}, "fit"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_written(
    rows: dict[str, list[Any]], reason: str, folder: Path
) -> None:
    with Lake(folder) as lake, lake.ingestor(NOW) as ingestor:
        upload = ingestor.upload("x")
        with pytest.raises(UploadRefusedError, match=reason):
            upload.put("plain", rows)
        with pytest.raises(UploadRefusedError):
            upload.put("ids_user", {"key": ["x"], "id": [1]})


def test_the_age_of_an_answer_is_of_the_oldest_scu_that_it_leaves_out(folder: Path) -> None:
    now = [100.0]
    with Lake(folder, clock=lambda: Stamp("boot", now[0], 0)) as lake:
        for number in range(4):
            put(lake, f"u{number}", row(number))
            now[0] += 10
        # The SCUs are 40, 30, 20 and 10 s old.
        for freshness, scu, age_s in [
            ("authority", 0, 40),
            ("35s", 1, 30),
            ("20s", 2, 20),
            ("5s", 4, 0),
            ("scu:3", 3, 10),
        ]:
            with lake.snapshot(freshness) as snapshot:
                assert (snapshot.scu, snapshot.age_s) == (scu, age_s), freshness
        with pytest.raises(LakeStaleError):
            lake.snapshot("scu:5")


def test_a_step_of_the_wall_clock_makes_no_answer_older(folder: Path) -> None:
    elapsed_s, wall_us = [100.0], [10**12]
    with Lake(folder, clock=lambda: Stamp("boot", elapsed_s[0], wall_us[0])) as lake:
        put(lake, "first", row(1))
        elapsed_s[0] += 10
        for step_us in (-(10**10), 10**10):
            wall_us[0] += step_us
            with lake.snapshot("5s") as snapshot:
                assert snapshot.scu == 1
            with lake.snapshot("20s") as snapshot:
                assert snapshot.scu == 0


def test_after_a_restart_a_stamp_of_the_future_is_read(folder: Path) -> None:
    with Lake(folder, clock=lambda: Stamp("boot-1", 50.0, 2 * 10**6)) as lake:
        put(lake, "first", row(1))
    with Lake(folder, clock=lambda: Stamp("boot-2", 1.0, 10**6)) as lake, lake.snapshot("1h") as snapshot:
        assert snapshot.scu == 1


def test_a_snapshot_keeps_its_files_while_merges_and_expiry_go_on(folder: Path) -> None:
    with Lake(folder) as lake:
        worker = lake.worker(MergePolicy(fan_in=2, authority_after_s=0))
        put(lake, "a", row(1))
        snapshot = lake.snapshot()
        for number in range(2, 6):
            put(lake, f"u{number}", row(number))
            worker.drain()
        lake.expire(0.0)
        # Nothing of it is cached yet.
        assert snapshot.scan("plain").rows["id"].to_pylist() == [1]
        snapshot.close()
        assert lake.expire(0.0)[0]
        worker.close()
        with lake.snapshot("authority") as found:
            assert found.scan("plain").rows["id"].to_pylist() == [1, 2, 3, 4, 5]


def test_the_past_is_read_within_the_retention(folder: Path) -> None:
    with Lake(folder) as lake:
        worker = lake.worker()
        for number in range(3):
            put(lake, f"u{number}", row(number))
        worker.compact()
        worker.close()
        for scu in range(4):
            with lake.snapshot_at(scu=scu) as snapshot:
                assert snapshot.scan("plain").rows["id"].to_pylist() == list(range(scu))
        lake.expire(3600.0)
        with lake.snapshot_at(scu=1) as snapshot:
            assert snapshot.scu == 1
        lake.expire(0.0)
        with pytest.raises(SnapshotGoneError):
            lake.snapshot_at(scu=1)
        with pytest.raises(SnapshotGoneError):
            lake.snapshot_at(scu=7)
        with lake.snapshot_at(scu=3) as snapshot:
            assert snapshot.scu == 3


#: Texts that no compression makes shorter; the least and the largest stand in headers, too.
BODIES: list[object] = [hashlib.sha256(bytes([number])).hexdigest() for number in range(9)]


def damaged(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "short":
        path.write_bytes(content[: len(content) // 2])
    elif how == "footer":
        content[-20] ^= 1
        path.write_bytes(content)
    else:
        column = parquet.read_metadata(path).row_group(0).column(1)
        content[column.data_page_offset + column.total_compressed_size - 9] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["gone", "short", "footer", "page"])
def test_a_damaged_file_is_said_and_gives_no_rows(how: str, make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    put(lake, "u", {"id": list(range(9)), "body": BODIES})
    worker = lake.worker()
    worker.step()
    (file,) = lake.catalog.files("plain")
    damaged(lake.folder / file.path, how)
    with Lake(lake.folder) as again, again.snapshot() as snapshot:
        with pytest.raises(LakeCorruptError):
            snapshot.scan("plain")
        with pytest.raises(LakeCorruptError):
            again.reader.checked_path(file)
        assert file.path in again.verify()[0]
    with pytest.raises(LakeCorruptError):
        worker.compact()
    worker.close()


def test_rows_out_of_order_are_said(make: Callable[[str], Lake]) -> None:
    """Two rows that changed places, in one file and in two."""
    lake = make(SCHEMA)
    table = lake.schema.table("plain")

    def written(*files: list[int]) -> Run:
        rows = [pa.table({"id": ids, "body": ["x"] * len(ids), "_deleted": [False] * len(ids)}) for ids in files]
        found = [lake.writer.write("merge", table, table.primary, [one]) for one in rows]
        return Run(1, 1, 1, Stage.SORTED, 0, machine_clock(), tuple(one for one in found if one is not None))

    assert check_run(lake.reader, table, written([1, 2, 3], [4, 5])) == []
    assert "order" in check_run(lake.reader, table, written([2, 1, 3]))[0]
    assert "come after" in check_run(lake.reader, table, written([4, 5], [1, 2]))[0]
    assert "come after" in check_run(lake.reader, table, written([1, 2], [2, 3]))[0]


def test_duckdb_reads_the_catalog_and_its_past(tmp_path: Path) -> None:
    # No copy of a template, whose catalog says where the template's files are.
    lake = Lake.create(tmp_path / "lake", SCHEMA)
    put(lake, "a", {"id": [2, 1], "body": ["b", "a"]})
    worker = lake.worker()
    worker.drain()
    before = lake.catalog.snapshot().number
    put(lake, "b", {"id": [1], "body": ["new"]})
    worker.compact()
    worker.close()
    lake.close()
    # In a process of its own: two libraries of SQLite must not have one file open in one process.
    script = f"""
import duckdb
from pequod_lake.ducklake_tables import extension_path
db = duckdb.connect()
for name in ("ducklake", "sqlite_scanner"):
    db.execute(f"LOAD '{{extension_path(name)}}'")
db.execute("ATTACH 'ducklake:sqlite:{lake.folder}/catalog.sqlite' AS lake (READ_ONLY)")
print(db.execute("SELECT id, body FROM lake.plain ORDER BY id").fetchall())
print(db.execute("SELECT id, body FROM lake.plain AT (VERSION => {before}) ORDER BY id").fetchall())
print(db.execute("SELECT count(*) FROM lake.plain__raw").fetchall())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[(1, 'new'), (2, 'b')]", "[(1, 'a'), (2, 'b')]", "[(0,)]"], done.stderr


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoLakeError):
        Lake(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeExistsError):
        Lake.create(tmp_path, SCHEMA)
    with pytest.raises(NoLakeError):
        (tmp_path / "catalog.sqlite").write_text("no database at all")
        Lake(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[table]", "not TOML"),
        ("", "no table"),
        ("[[table]]\nname = 'A'", "the name is 'A'"),
        ("[[table]]\nname = 'a'\nkey = ['x']\ncolumns = { id = 'int64' }", "'x', which is no column"),
        ("[[table]]\nname = 'a'\nkey = ['id']\ncolumns = { id = 'double' }", "cannot be part of a key"),
        ("[[table]]\nname = 'a'\nkey = ['id']\ncolumns = { id = 'int' }", "no type"),
        ("[[table]]\nname = 'a'\nkey = ['id']\ncolumns = { id = 'id:user' }", "no \\[\\[id\\]\\]"),
        ("[[table]]\nname = 'a'\nkey = ['id']\ntimestamp = 'id'\ncolumns = { id = 'int64' }", "not in the key"),
        ("[[table]]\nname = 'a'\nkey = ['id']\nviews.v = ['b']\ncolumns = { id = 'int64', b = 'text' }", "part of the"),
    ],
)
def test_a_schema_that_is_not_right_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(LakeSchemaError, match=reason):
        LakeSchema.parse(text)


def test_rows_come_as_arrow_batches_too(make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    with lake.ingestor(NOW) as ingestor:
        upload = ingestor.upload("x")
        upload.put("plain", pa.record_batch({"id": pa.array([1], pa.int32()), "body": ["x"]}))
        upload.delete("plain", pa.table({"id": [2]}))
        assert ingestor.take(upload).scu == 1
    with lake.snapshot("newest") as snapshot:
        assert snapshot.scan("plain", columns=["body"]).rows.to_pydict() == {"body": ["x"]}
    assert machine_clock().age_s(machine_clock()) < 1


def test_the_tables_of_an_empty_catalog_are_those_that_ducklake_makes(tmp_path: Path) -> None:
    """But for two: it makes one for rows of each table that are in the catalog, and names it in another."""
    Lake.create(tmp_path / "lake", SCHEMA).close()
    script = f"""
import duckdb
from pequod_lake.ducklake_tables import extension_path
db = duckdb.connect()
for name in ("ducklake", "sqlite_scanner"):
    db.execute(f"LOAD '{{extension_path(name)}}'")
db.execute("ATTACH 'ducklake:sqlite:{tmp_path}/made.sqlite' AS lake (DATA_PATH '{tmp_path}/data/')")
db.execute("CREATE TABLE lake.plain (id BIGINT, body VARCHAR)")
"""
    subprocess.run([sys.executable, "-c", script], check=True)

    def tables(path: Path) -> dict[str, list[Any]]:
        with closing(sqlite3.connect(path)) as db:
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            kept = [name for name in names if name.startswith("ducklake") and "inlined_data_1" not in name]
            return {name: db.execute(f"PRAGMA table_info({name})").fetchall() for name in sorted(kept)}

    def rows(path: Path, table: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as db:
            return db.execute(f"SELECT * FROM ducklake_{table} ORDER BY 1, 4").fetchall()

    made, ours = tmp_path / "made.sqlite", tmp_path / "lake" / "catalog.sqlite"
    assert tables(ours) == tables(made)
    assert {row[0] for row in rows(ours, "metadata")} == {row[0] for row in rows(made, "metadata")}
    (plain,) = {row[0] for row in rows(ours, "table") if row[5] == "plain"}
    columns = [(*row[:3], *row[4:]) for row in rows(ours, "column") if row[3] == plain and row[5] in ("id", "body")]
    assert columns == [(*row[:3], *row[4:]) for row in rows(made, "column")]
