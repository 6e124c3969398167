"""Columns are added and dropped while others read, write and merge: old files have null, dropped ones are not read."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pequod_lake import IngestLimits, Lake, MergePolicy, StageLimits
from pequod_lake.errors import LakeSchemaError, UploadRefusedError
from pequod_lake.sql import run_sql

NOW = IngestLimits(scu_age_s=0)
SCHEMA = """
[[id]]
name = "user"

[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "id:user", body = "text" }
views.by_author = ["author", "id"]
views.bodies = { key = ["id"], columns = ["body"] }

[[table]]
name = "parts"
key = ["k"]
partial = true
columns = { k = "int64", x = "int64" }
"""
ORDERED = """
[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "text", body = "text" }
views.by_author = ["author", "id"]
"""
LIMITS = StageLimits(range_rows=4, whole_ratio=9.0)


def put(lake: Lake, name: str, table: str, **columns: list[object]) -> None:
    with lake.ingestor(NOW) as ingestor:
        upload = ingestor.upload(name)
        upload.put(table, columns)
        ingestor.take(upload)


def check(lake: Lake, posts: list[tuple[object, ...]], parts: list[tuple[object, ...]]) -> None:
    """Compare both tables, by each order, by SQL, by points, and after a verification."""
    with lake.snapshot() as snapshot:
        for table, expected in (("posts", posts), ("parts", parts)):
            names = snapshot.schema.table(table).names
            rows = [dict(zip(names, row, strict=True)) for row in expected]
            assert snapshot.scan(table).rows.to_pylist() == rows
            key = snapshot.schema.table(table).key
            found = run_sql(snapshot, f"SELECT * FROM {table} ORDER BY {key[0]}")
            assert found.to_pylist() == rows
            for row in rows:
                assert snapshot.get(table, *(row[name] for name in key)) == row
            assert snapshot.scan(table, columns=names[-1:]).rows.to_pylist() == [
                {names[-1]: row[names[-1]]} for row in rows
            ]
        by_author = snapshot.scan("posts", [("author", "=", "ann")], view="by_author").rows.to_pylist()
        names = snapshot.schema.table("posts").names
        assert by_author == [dict(zip(names, row, strict=True)) for row in posts if row[1] == "ann"]
        if "likes" in names:
            some = snapshot.scan("posts", [("likes", ">=", 5)]).rows["id"].to_pylist()
            place = names.index("likes")
            assert some == [row[0] for row in posts if row[place] is not None and int(str(row[place])) >= 5]
    assert lake.verify() == []


def test_columns_come_and_go_at_each_stage(location: Callable[[str], str]) -> None:
    where = location(SCHEMA)
    with Lake(where) as lake, Lake(where) as other:
        worker = other.worker(MergePolicy(authority_after_s=0.0, delta_ratio=0.4), LIMITS)
        put(lake, "a", "posts", id=list(range(9)), author=["ann", "bob", "cy"] * 3, body=["x"] * 9)
        put(lake, "b", "parts", k=[1, 2], x=[1, 2])
        worker.compact()
        put(lake, "raw", "posts", id=[20], author=["ann"], body=["y"])
        lake.add_column("posts", "likes", "int64")
        lake.add_column("parts", "y", "text")
        old = [(number, ["ann", "bob", "cy"][number % 3], "x", None) for number in range(9)]
        posts: list[tuple[object, ...]] = [*old, (20, "ann", "y", None)]
        parts: list[tuple[object, ...]] = [(1, 1, None), (2, 2, None)]
        check(lake, posts, parts)
        check(other, posts, parts)
        put(lake, "c", "posts", id=[1, 30], author=["bob", "ann"], body=["z", "z"], likes=[7, 3])
        put(lake, "d", "posts", id=[2], author=["ann"], body=["z"])
        put(lake, "e", "parts", k=[2, 3], y=["p", "q"])
        posts[1:3] = [(1, "bob", "z", 7), (2, "ann", "z", None)]
        posts.append((30, "ann", "z", 3))
        parts[1:] = [(2, 2, "p"), (3, None, "q")]
        check(lake, posts, parts)
        while worker.step() is not None:
            check(lake, posts, parts)
        lake.drop_column("posts", "body")
        posts = [(number, author, likes) for number, author, _, likes in posts]
        check(lake, posts, parts)
        check(other, posts, parts)
        put(lake, "f", "posts", id=[3], author=["dé"], likes=[9])
        posts[3] = (3, "dé", 9)
        worker.compact()
        lake.expire(0.0)
        check(lake, posts, parts)
        assert lake.repair().left == []
        with pytest.raises(UploadRefusedError, match="no column"):
            put(lake, "g", "posts", id=[3], author=["dé"], likes=[9], body=["x"])
        worker.close()


def test_what_cannot_be_is_refused_and_changes_nothing(make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    lake.add_column("posts", "likes", "int64")
    lake.drop_column("posts", "likes")
    text = lake.schema.text
    for table, name, kind, reason in [
        ("posts", "likes", "int64", "was one"),
        ("posts", "body", "text", "is a column"),
        ("posts", "more", "id:user", "cannot be added"),
        ("posts", "More", "text", "no name"),
        ("nothing", "more", "text", "no such table"),
        ("ids_user", "more", "text", "no such table"),
    ]:
        with pytest.raises(LakeSchemaError, match=reason):
            lake.add_column(table, name, kind)
    for name, reason in [("id", "no column"), ("author", "ids"), ("gone", "no column")]:
        with pytest.raises(LakeSchemaError, match=reason):
            lake.drop_column("posts", name)
    assert (lake.schema.text, lake.verify()) == (text, [])


def test_a_step_that_began_before_a_column_is_done_again(make: Callable[[str], Lake]) -> None:
    """A worker would leave out the column that came while it worked."""
    with Lake(make(SCHEMA).folder) as lake:
        done: list[str] = []

        def at_point(name: str) -> None:
            if name == "sort.written" and not done:
                done.append(name)
                lake.add_column("posts", "likes", "int64")
                put(lake, "b", "posts", id=[2], author=["ann"], body=["x"], likes=[4])

        with Lake(lake.folder, at_point=at_point) as other:
            put(lake, "a", "posts", id=[1], author=["ann"], body=["x"])
            worker = other.worker()
            worker.compact()
            worker.compact()
            worker.close()
        assert done == ["sort.written"]
        check(lake, [(1, "ann", "x", None), (2, "ann", "x", 4)], [])
        assert lake.catalog.orphans() == []


def test_a_lost_table_is_made_anew_from_an_order_that_still_has_a_dropped_column(make: Callable[[str], Lake]) -> None:
    lake = make(ORDERED)
    folder = lake.folder
    put(lake, "a", "posts", id=list(range(12)), author=[f"a{number % 3}" for number in range(12)], body=["x"] * 12)
    worker = lake.worker(limits=LIMITS)
    worker.compact()
    lake.add_column("posts", "likes", "int64")
    lake.drop_column("posts", "body")
    worker.close()
    with lake.snapshot() as snapshot:
        before = snapshot.scan("posts").rows.to_pylist()
    lake.expire(0.0)
    for file in lake.catalog.snapshot().runs[0].of("posts"):
        (folder / file.path).unlink()
    with Lake(folder) as again:
        report = again.repair()
        assert report.left == []
        assert [line for line in report.done if "the primary view of posts is made anew" in line]
        with again.snapshot() as snapshot:
            assert snapshot.scan("posts").rows.to_pylist() == before
        assert again.verify() == []


def test_readers_writers_and_workers_go_on_while_columns_change(make: Callable[[str], Lake]) -> None:
    folder = make(SCHEMA).folder
    stop, errors = threading.Event(), list[BaseException]()
    written: list[int] = []

    def guarded(work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with Lake(folder) as lake:

        def write() -> None:
            while not stop.is_set() and len(written) < 60:
                number = len(written)
                columns: dict[str, list[object]] = (
                    {"body": [f"b{number}"]} if "body" in lake.schema.table("posts").names else {}
                )
                try:
                    put(lake, f"w{number}", "posts", id=[number], author=["ann"], **columns)
                except UploadRefusedError:
                    continue
                written.append(number)

        def read() -> None:
            while not stop.is_set():
                count = len(written)
                with lake.snapshot() as snapshot:
                    assert snapshot.scan("posts").rows["id"].to_pylist()[:count] == list(range(count))

        worker = lake.worker(MergePolicy(fan_in=3, authority_after_s=0.0), LIMITS)
        threads = [guarded(write), guarded(read), guarded(lambda: worker.run(stop))]
        with Lake(folder) as other:
            for number in range(4):
                other.add_column("posts", f"c{number}", "int64")
                more: dict[str, list[object]] = {f"c{number}": [number]}
                put(other, f"o{number}", "posts", id=[1000 + number], author=["bob"], body=["o"], **more)
            other.drop_column("posts", "c0")
            other.drop_column("posts", "body")
        while len(written) < 30 and not errors:
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join()
        assert errors == []
        worker.compact()
        worker.close()
        with lake.snapshot("authority") as snapshot:
            rows = snapshot.scan("posts").rows
        assert rows.schema.names == ["id", "author", "c1", "c2", "c3"]
        ids = rows["id"].to_pylist()
        assert ids == [*range(len(written)), 1000, 1001, 1002, 1003]
        assert [row for row in rows["c2"].to_pylist() if row is not None] == [2]
        assert lake.verify() == []


def test_duckdb_sees_the_columns_of_each_moment(tmp_path: Path) -> None:
    with Lake.create(tmp_path / "lake", SCHEMA) as lake:
        put(lake, "a", "parts", k=[1], x=[5])
        worker = lake.worker(limits=LIMITS)
        worker.compact()
        lake.add_column("parts", "y", "text")
        put(lake, "b", "parts", k=[2], y=["q"])
        worker.compact()
        lake.drop_column("parts", "x")
        worker.close()
    # In a process of its own: two libraries of SQLite must not have one file open in one process.
    script = f"""
import duckdb
from pequod_lake.ducklake_tables import extension_path
db = duckdb.connect()
for name in ("ducklake", "sqlite_scanner"):
    db.execute(f"LOAD '{{extension_path(name)}}'")
db.execute("ATTACH 'ducklake:sqlite:{tmp_path}/lake/catalog.sqlite' AS lake (READ_ONLY)")
print(db.execute("SELECT * EXCLUDE (_ts, _dts, _ts_y) FROM lake.parts ORDER BY k").fetchall())
print([one[0] for one in db.execute("DESCRIBE lake.parts").fetchall() if one[0][0] != "_"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[(1, None), (2, 'q')]", "['k', 'y']"], done.stderr
