"""The stores that are compared, each with the same table: posts by their number, and by author and time."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, Final

import duckdb
import pyarrow as pa
from pequod_lake import IngestLimits, Lake
from pequod_lake.ducklake_tables import extension_path
from pequod_lake.worker import StepReport
from pyarrow import compute as pc
from pyarrow import csv

from pequod_bench.systems.postgres_cluster import find_postgres, started_cluster
from pequod_bench.systems.server import tree_usage
from pequod_bench.systems.system import Missing

_SCHEMA: Final = """
[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "int64", created = "timestamp", body = "text" }
views.by_author = ["author", "created", "id"]
"""
#: PostgreSQL as its manual sets it for loads, and durable.
_POSTGRES: Final = {"shared_buffers": "512MB", "max_wal_size": "4GB", "listen_addresses": "127.0.0.1"}
_COLUMNS: Final = "id, author, created, body"


class Store(ABC):
    """A table of posts."""

    @property
    def stages_cpu_s(self) -> dict[str, float]:
        """The CPU that each stage has taken so far, where a store has stages."""
        return {}

    @abstractmethod
    def load(self, rows: pa.Table) -> None:
        """Take rows of other numbers than those that are there, durable and visible in the end."""

    def index(self) -> None:  # noqa: B027 - a store without orders has nothing to do
        """Bring the rows into both orders, as far as the store has such."""

    @abstractmethod
    def point(self, number: int) -> str | None:
        """Return the text of a post."""

    @abstractmethod
    def between(self, low: int, high: int) -> pa.Table:
        """Return the posts from a number on and below another one."""

    @abstractmethod
    def of_author(self, author: int) -> pa.Table:
        """Return the posts of an author."""

    @abstractmethod
    def upsert(self, rows: pa.Table) -> None:
        """Take rows in the place of those with their numbers."""

    def cpu_s(self) -> float:
        """Return the CPU that it has taken so far, of all its processes."""
        return process_time()

    def close(self) -> None:  # noqa: B027 - some have nothing open
        """End it."""


class PequodLake(Store):
    """The lake."""

    def __init__(self, folder: Path) -> None:
        self._lake = Lake.create(folder / "lake", _SCHEMA)
        self._count = 0
        self._stages_cpu_s = defaultdict[str, float](float)

    @property
    def stages_cpu_s(self) -> dict[str, float]:
        return dict(self._stages_cpu_s)

    def load(self, rows: pa.Table) -> None:
        begun_s = process_time()
        with self._lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
            upload = ingestor.upload(f"load {self._count}")
            upload.put("posts", rows)
            ingestor.take(upload)
        self._count += 1
        self._stages_cpu_s["ingest"] += process_time() - begun_s

    def index(self) -> None:
        worker = self._lake.worker()
        worker.compact(self._done)
        worker.close()
        self._lake.expire(0.0)

    def point(self, number: int) -> str | None:
        with self._lake.snapshot() as snapshot:
            found = snapshot.get("posts", number)
        return str(found["body"]) if found else None

    def between(self, low: int, high: int) -> pa.Table:
        with self._lake.snapshot() as snapshot:
            return snapshot.scan("posts", [("id", ">=", low), ("id", "<", high)]).rows

    def of_author(self, author: int) -> pa.Table:
        with self._lake.snapshot() as snapshot:
            return snapshot.scan("posts", [("author", "=", author)], view="by_author").rows

    def upsert(self, rows: pa.Table) -> None:
        self.load(rows)

    def close(self) -> None:
        self._lake.close()

    def _done(self, report: StepReport) -> None:
        self._stages_cpu_s[report.step.kind.value] += report.cpu_s


class Postgres(Store):
    """PostgreSQL: COPY, then both indexes."""

    def __init__(self, dsn: str, pid: int) -> None:
        import psycopg  # noqa: PLC0415 - not all that is here needs it

        self._pid = pid
        self._db = psycopg.connect(dsn, autocommit=True)
        self._db.execute("CREATE TABLE posts (id bigint, author bigint, created timestamp, body text)")

    def load(self, rows: pa.Table) -> None:
        self._copy("posts", rows)

    def index(self) -> None:
        self._db.execute("ALTER TABLE posts ADD PRIMARY KEY (id)")
        self._db.execute("CREATE INDEX ON posts (author, created, id)")
        self._db.execute("ANALYZE posts")

    def point(self, number: int) -> str | None:
        row = self._db.execute("SELECT body FROM posts WHERE id = %s", (number,)).fetchone()
        return str(row[0]) if row else None

    def between(self, low: int, high: int) -> pa.Table:
        return self._table("SELECT * FROM posts WHERE id >= %s AND id < %s", (low, high))

    def of_author(self, author: int) -> pa.Table:
        return self._table("SELECT * FROM posts WHERE author = %s", (author,))

    def upsert(self, rows: pa.Table) -> None:
        with self._db.transaction():
            self._db.execute("CREATE TEMP TABLE coming (LIKE posts) ON COMMIT DROP")
            self._copy("coming", rows)
            self._db.execute(
                "INSERT INTO posts SELECT * FROM coming ON CONFLICT (id) DO UPDATE SET author = excluded.author, "
                "created = excluded.created, body = excluded.body"
            )

    def cpu_s(self) -> float:
        return process_time() + tree_usage(self._pid).cpu_s

    def close(self) -> None:
        self._db.close()

    def _copy(self, table: str, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        csv.write_csv(rows, sink, csv.WriteOptions(include_header=False))
        with self._db.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
            copy.write(sink.getvalue())

    def _table(self, query: str, values: tuple[int, ...]) -> pa.Table:
        found = self._db.execute(query, values)
        return pa.Table.from_pylist([dict(zip(_COLUMNS.split(", "), row, strict=True)) for row in found])


class DuckLake(Store):
    """DuckLake with its catalog in SQLite."""

    def __init__(self, folder: Path) -> None:
        self._db = duckdb.connect()
        for name in ("sqlite_scanner", "ducklake"):
            self._db.execute(f"LOAD '{extension_path(name)}'")
        self._db.execute(f"ATTACH 'ducklake:sqlite:{folder}/catalog.sqlite' AS lake (DATA_PATH '{folder}/data/')")
        self._db.execute("CREATE TABLE lake.posts (id BIGINT, author BIGINT, created TIMESTAMP, body VARCHAR)")

    def load(self, rows: pa.Table) -> None:  # noqa: ARG002 - the query names it
        self._db.execute("INSERT INTO lake.posts SELECT * FROM rows")

    def point(self, number: int) -> str | None:
        row = self._db.execute("SELECT body FROM lake.posts WHERE id = ?", (number,)).fetchone()
        return str(row[0]) if row else None

    def between(self, low: int, high: int) -> pa.Table:
        return self._db.execute("SELECT * FROM lake.posts WHERE id >= ? AND id < ?", (low, high)).to_arrow_table()

    def of_author(self, author: int) -> pa.Table:
        return self._db.execute("SELECT * FROM lake.posts WHERE author = ?", (author,)).to_arrow_table()

    def upsert(self, rows: pa.Table) -> None:  # noqa: ARG002 - as above
        self._db.execute("BEGIN")
        self._db.execute("DELETE FROM lake.posts WHERE id IN (SELECT id FROM rows)")
        self._db.execute("INSERT INTO lake.posts SELECT * FROM rows")
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()


class Delta(Store):
    """Delta Lake, in one order of both columns."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "delta")

    def load(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake  # noqa: PLC0415 - it is seldom installed

        write_deltalake(self._path, rows, mode="append")

    def index(self) -> None:
        self._opened().optimize.z_order(["id", "author"])
        self._opened().vacuum(0, dry_run=False, enforce_retention_duration=False)

    def point(self, number: int) -> str | None:
        found = self._opened().to_pyarrow_dataset().to_table(["body"], filter=pc.field("id") == number)
        return str(found["body"][0]) if found.num_rows else None

    def between(self, low: int, high: int) -> pa.Table:
        within = (pc.field("id") >= low) & (pc.field("id") < high)
        return self._opened().to_pyarrow_dataset().to_table(filter=within)

    def of_author(self, author: int) -> pa.Table:
        return self._opened().to_pyarrow_dataset().to_table(filter=pc.field("author") == author)

    def upsert(self, rows: pa.Table) -> None:
        merge = self._opened().merge(rows, "there.id = new.id", source_alias="new", target_alias="there")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def _opened(self) -> Any:
        from deltalake import DeltaTable  # noqa: PLC0415 - as above

        return DeltaTable(self._path)


class ClickHouse(Store):
    """ClickHouse in this process: the last row of a number wins, and a projection has the other order."""

    def __init__(self, folder: Path) -> None:
        # It has no types.
        self._db: Any = import_module("chdb.session").Session(str(folder / "clickhouse"))
        self._ask(
            "CREATE TABLE posts (id Int64, author Int64, created DateTime64(6), body String, "
            "PROJECTION by_author (SELECT * ORDER BY author, created, id)) ENGINE = ReplacingMergeTree ORDER BY id "
            "SETTINGS deduplicate_merge_projection_mode = 'rebuild'"
        )

    def load(self, rows: pa.Table) -> None:  # noqa: ARG002 - the query names it
        self._db.query("INSERT INTO posts SELECT id, author, created, body FROM Python(rows)")

    def index(self) -> None:
        self._ask("OPTIMIZE TABLE posts FINAL")

    def point(self, number: int) -> str | None:
        found = self._ask(f"SELECT body FROM posts FINAL WHERE id = {number}")  # noqa: S608 - a number
        return str(found["body"][0]) if found.num_rows else None

    def between(self, low: int, high: int) -> pa.Table:
        return self._ask(f"SELECT * FROM posts FINAL WHERE id >= {low} AND id < {high}")  # noqa: S608 - a number

    def of_author(self, author: int) -> pa.Table:
        return self._ask(f"SELECT * FROM posts FINAL WHERE author = {author}")  # noqa: S608 - a number

    def upsert(self, rows: pa.Table) -> None:
        self.load(rows)

    def close(self) -> None:
        self._db.close()

    def _ask(self, query: str) -> pa.Table:
        found = bytes(self._db.query(query, "ArrowStream").bytes())
        return pa.ipc.open_stream(found).read_all() if found else pa.table({"body": pa.array([], pa.binary())})


@contextmanager
def _postgres(folder: Path) -> Iterator[Store]:
    with started_cluster(folder, _POSTGRES) as server:
        yield Postgres(server.dsn, server.pid)


@contextmanager
def _here(make: Callable[[Path], Store], folder: Path) -> Iterator[Store]:
    yield make(folder)


_STORES: Final[dict[str, Callable[[Path], Any]]] = {
    "lake": lambda folder: _here(PequodLake, folder),
    "postgres": _postgres,
    "ducklake": lambda folder: _here(DuckLake, folder),
    "delta": lambda folder: _here(Delta, folder),
    "clickhouse": lambda folder: _here(ClickHouse, folder),
}
NAMES: Final = tuple(_STORES)
#: What is not always there, with the package that has it.
_PACKAGES: Final = {"postgres": "psycopg", "delta": "deltalake", "clickhouse": "chdb"}


def missing(name: str) -> str:
    """Return what a store wants that is not here; empty if it can be used."""
    if name == "postgres" and isinstance(found := find_postgres(), Missing):
        return found.reason
    package = _PACKAGES.get(name)
    return f"the package {package} is not installed" if package and find_spec(package) is None else ""


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Store]:
    """Make an empty store in a folder, and end it with the block."""
    with _STORES[name](folder) as store:
        try:
            yield store
        finally:
            store.close()
    shutil.rmtree(folder, ignore_errors=True)


def disk_bytes(folder: Path) -> int:
    """Return what the files of a folder have, each once."""
    stats = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum({(one.st_dev, one.st_ino): one.st_blocks * 512 for one in stats}.values())
