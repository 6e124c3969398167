"""Others read a lake without Pequod, as docs/lake.md has it: DuckDB by its catalog, others by the paths of files."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from pequod_lake import IngestLimits, Lake, MergePolicy
from pyarrow import parquet

SCHEMA = """
[[id]]
name = "user"

[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "id:user", created = "timestamp", body = "text" }
views.by_author = ["author", "id"]
"""
#: In a process of its own, since two libraries of SQLite in one break each other's locks.
ATTACHED = """
import json, sys
from pathlib import Path
import duckdb, duckdb_extension_ducklake, duckdb_extension_sqlite_scanner
db = duckdb.connect()
for module in (duckdb_extension_sqlite_scanner, duckdb_extension_ducklake):
    (path,) = Path(module.__file__).parent.rglob("*.duckdb_extension")
    db.execute(f"LOAD '{path}'")
folder = sys.argv[1]
# The lake is a copy of another one.
moved = f"DATA_PATH '{folder}/data/', OVERRIDE_DATA_PATH true"
db.execute(f"ATTACH 'ducklake:sqlite:{folder}/catalog.sqlite' AS lake (READ_ONLY, {moved})")
assert not any(name.startswith("pequod") for name in sys.modules)
print(json.dumps([db.execute(query).fetchall() for query in sys.argv[2:]]))
"""
JOINED = """
SELECT p.id, u.key AS author, p.body, p.likes FROM lake.posts AS p LEFT JOIN lake.ids_user AS u ON u.id = p.author
WHERE NOT p._deleted ORDER BY p.id
"""
PATHS = "SELECT path FROM lake_part WHERE table_name = ? AND view_name = '' AND end_number IS NULL"


def changed(lake: Lake) -> list[dict[str, Any]]:
    """Change a lake at each stage, and return the rows that it has then."""

    def put(upload_id: str, rows: dict[str, list[Any]], gone: list[int] | None = None) -> None:
        with lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
            upload = ingestor.upload(upload_id)
            upload.put("posts", rows)
            if gone:
                upload.delete("posts", {"id": gone})
            ingestor.take(upload)

    names = [f"u{number % 7}" for number in range(2_000)]
    put("a", {"id": list(range(2_000)), "author": names, "created": list(range(2_000)), "body": ["old"] * 2_000})
    worker = lake.worker(MergePolicy(authority_after_s=0.0))
    worker.compact()
    put("b", {"id": [1, 2], "author": ["u1", "new"], "created": [1, 2], "body": ["b"] * 2})
    worker.drain()
    assert [run.stage.value for run in lake.catalog.snapshot().runs] == ["authority", "delta"]
    lake.add_column("posts", "likes", "int64")
    lake.drop_column("posts", "created")
    put("c", {"id": [4, 5_000], "author": ["x", "y"], "body": ["c"] * 2, "likes": [7, 8]}, [5])
    worker.compact()
    worker.close()
    with lake.snapshot("authority") as snapshot:
        rows: list[dict[str, Any]] = snapshot.scan("posts", view="").rows.to_pylist()
    assert len(rows) == 2_000
    return sorted(rows, key=lambda row: row["id"])


def test_duckdb_reads_what_the_lake_says_without_pequod(make: Callable[[str], Lake]) -> None:
    for package in ("duckdb_extension_ducklake", "duckdb_extension_sqlite_scanner"):
        pytest.importorskip(package)
    lake = make(SCHEMA)
    rows = changed(lake)
    folder = lake.folder
    lake.close()
    past = "SELECT count(*), count(created) FROM lake.posts AT (VERSION => 5)"
    command = [sys.executable, "-c", ATTACHED, str(folder), JOINED, past]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, before = json.loads(done.stdout)
    assert found == [[row["id"], row["author"], row["body"], row["likes"]] for row in rows]
    assert before == [[2_000, 2_000]]


def test_the_paths_of_the_catalog_are_the_table(make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    rows = changed(lake)
    with closing(sqlite3.connect(f"file:{lake.folder}/catalog.sqlite?mode=ro", uri=True)) as catalog:
        posts, ids = ([path for (path,) in catalog.execute(PATHS, (name,))] for name in ("posts", "ids_user"))
    table = pa.concat_tables([parquet.read_table(lake.folder / path) for path in posts], promote_options="default")
    texts = {one["id"]: one["key"] for path in ids for one in parquet.read_table(lake.folder / path).to_pylist()}
    found = [
        {"id": row["id"], "author": texts[row["author"]], "body": row["body"], "likes": row["likes"]}
        for row in sorted(table.to_pylist(), key=lambda row: row["id"])
        if not row["_deleted"]
    ]
    assert found == [{name: row[name] for name in ("id", "author", "body", "likes")} for row in rows]
