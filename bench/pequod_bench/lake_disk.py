"""How much of the disk a table takes in a lake, beside the same rows in DuckLake, whose format of catalog a lake has.

The table has two sort orders. DuckLake knows none: beside its table stands one with the same rows in the other order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
from pequod_lake import IngestLimits, Lake
from pequod_lake.ducklake_tables import extension_path

SCHEMA: Final = """
[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "int64", created = "timestamp", body = "text" }
views.by_author = ["author", "created", "id"]
"""
#: The most frequent words of English, of which posts are made.
_WORDS: Final = (
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but "
    "not what all were we when your can said there use an each which she do how their if will up other about out many"
)
_POST_WORDS: Final = 8


@dataclass(frozen=True, slots=True)
class Disk:
    """A place for rows, and what they take there."""

    place: str
    size_bytes: int


def measure(folder: Path, count: int) -> list[Disk]:
    """Write a table into a lake and into DuckLake, and return the sizes of the files."""
    rows = _rows(count)
    found = list[Disk]()
    with Lake.create(folder / "lake", SCHEMA) as lake:
        with lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
            upload = ingestor.upload("all")
            upload.put("posts", rows)
            ingestor.take(upload)
        worker = lake.worker()
        worker.compact()
        worker.close()
        found.append(Disk("lake, two orders, before its past expires", _size(folder / "lake")))
        lake.expire(0.0)
        found.append(Disk("lake, two orders", _size(folder / "lake")))
    # The lake is closed: two libraries of SQLite in one process must not have the same file open.
    with duckdb.connect() as db:
        for name in ("ducklake", "sqlite_scanner"):
            db.execute(f"LOAD '{extension_path(name)}'")
        db.execute(f"ATTACH 'ducklake:sqlite:{folder}/beside.sqlite' AS beside (DATA_PATH '{folder}/beside')")
        # No few rows in the catalog in place of a file.
        db.execute("CALL beside.set_option('data_inlining_row_limit', 0)")
        db.register("rows", rows)
        db.execute("CREATE TABLE beside.posts AS SELECT * FROM rows")
        found.append(Disk("DuckLake, one order", _size(folder / "beside")))
        db.execute("CREATE TABLE beside.by_author AS SELECT * FROM rows ORDER BY author, created, id")
        found.append(Disk("DuckLake, two tables", _size(folder / "beside")))
    return found


def _rows(count: int) -> Any:
    dice = np.random.default_rng(3)
    words = np.array(_WORDS.split(), dtype=object)
    words = words[dice.integers(len(words), size=(count, _POST_WORDS))]
    moments = 1_700_000_000_000_000 + np.cumsum(dice.integers(1, 2_000_000, size=count))
    return pa.table(
        {
            "id": pa.array(np.arange(count)),
            "author": pa.array(dice.integers(max(1, count // 100), size=count)),
            "created": pa.array(moments, pa.timestamp("us")),
            "body": pa.array([" ".join(some) for some in words.tolist()]),
        }
    )


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))
