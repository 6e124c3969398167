"""The tables of an empty catalog: DuckLake's, and Pequod's beside them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from importlib.resources import files as resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import duckdb

from pequod_lake.clock import Clock
from pequod_lake.database import Database
from pequod_lake.ducklake_format import TYPES, Definition, first_rows, table_statements
from pequod_lake.errors import LakeError
from pequod_lake.fence import TABLE as WRITERS
from pequod_lake.runs import Stage
from pequod_lake.schema import LakeSchema

#: The version of Pequod's tables.
FORMAT: Final = "4"
_TABLES: Final = """
CREATE TABLE lake_meta (name TEXT PRIMARY KEY, value NOT NULL);
CREATE TABLE lake_snapshot (number INTEGER PRIMARY KEY, boot TEXT, elapsed_s REAL, wall_us INTEGER);
CREATE TABLE lake_scu (scu INTEGER PRIMARY KEY, number INTEGER, row_count INTEGER,
    boot TEXT, elapsed_s REAL, wall_us INTEGER);
CREATE TABLE lake_run (run INTEGER PRIMARY KEY, first_scu INTEGER, last_scu INTEGER, stage TEXT, level INTEGER,
    row_count INTEGER, begin_number INTEGER, end_number INTEGER, contents TEXT);
CREATE INDEX lake_run_end ON lake_run (end_number);
CREATE TABLE lake_part (file INTEGER PRIMARY KEY, run INTEGER, path TEXT, table_name TEXT, view_name TEXT,
    row_count INTEGER, size_bytes INTEGER, crc INTEGER, footer_crc INTEGER, footer_bytes INTEGER,
    first_key TEXT NOT NULL, last_key TEXT NOT NULL, content TEXT NOT NULL, begin_number INTEGER, end_number INTEGER);
CREATE TABLE lake_lease (run INTEGER PRIMARY KEY, worker TEXT, boot TEXT, until_s REAL);
CREATE TABLE lake_upload (upload TEXT PRIMARY KEY, scu INTEGER, wall_us INTEGER);
"""
#: By which files are found; also among DuckLake's own rows, which have no index.
INDEXES: Final = (
    "CREATE INDEX lake_part_run ON lake_part (run)",
    "CREATE INDEX lake_part_end ON lake_part (end_number)",
    "CREATE INDEX lake_part_path ON lake_part (path)",
    "CREATE INDEX IF NOT EXISTS lake_data_file_path ON ducklake_data_file (path)",
)


def extension_path(name: str) -> Path:
    """Return the file of a DuckDB extension that came as a Python package, so nothing is fetched.

    Raises:
        LakeError: There is none for this version of DuckDB.
    """
    package = f"duckdb_extension_{name}"
    if find_spec(package) is not None:
        found = Path(str(resources(package))).glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")
        if (path := next(found, None)) is not None:
            return path
    version = duckdb.__version__
    raise LakeError(f"there is no {package} for DuckDB {version} here; install it with the DuckDB that it is for")


def table_name(table: str, view: str, *, raw: bool = False) -> str:
    """Return the name of a DuckLake table."""
    return f"{table}__raw" if raw else f"{table}__{view}" if view else table


def create_tables(
    data_path: str, schema: LakeSchema, database: Database, clock: Clock, *more: str, in_postgres: bool = False
) -> None:
    """Make the catalog of an empty lake.

    Args:
        data_path: Where DuckLake finds the files, with a slash at the end.
        more: Statements for tables that such a database has beside the others.
        in_postgres: Whether the database is PostgreSQL, and not SQLite.

    Raises:
        LakeError: It cannot be made.
    """
    tables = _in_postgres(_TABLES) if in_postgres else _TABLES
    with database.writing() as db:
        now = clock()
        ours = [*tables.strip().split(";\n"), *INDEXES, WRITERS, *more]
        for statement in [*table_statements(in_postgres=in_postgres), *ours]:
            db.execute(statement.rstrip(";\n"))
        for name, row in first_rows(data_path, list(_definitions(schema))):
            db.execute(f"INSERT INTO ducklake_{name} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - our names
        (number,) = db.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone()
        meta = {"format": FORMAT, "schema": schema.text, "floor": number, "name": secrets.token_hex(8)}
        db.executemany("INSERT INTO lake_meta VALUES (?, ?)", list(meta.items()))
        db.execute("INSERT INTO lake_run VALUES (0, 0, 0, ?, 0, 0, ?, NULL, '{}')", (Stage.AUTHORITY.value, number))
        db.execute("INSERT INTO lake_snapshot VALUES (?, ?, ?, ?)", (number, now.boot, now.elapsed_s, now.wall_us))
        db.execute("INSERT INTO lake_scu VALUES (0, ?, 0, ?, ?, ?)", (number, now.boot, now.elapsed_s, now.wall_us))


def _in_postgres(tables: str) -> str:
    """Return statements for SQLite as PostgreSQL has them."""
    numbered = tables.replace("file INTEGER PRIMARY KEY", "file BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    typed = numbered.replace(" INTEGER", " BIGINT").replace(" REAL", " DOUBLE PRECISION")
    return typed.replace("value NOT NULL", "value TEXT NOT NULL")


def _definitions(schema: LakeSchema) -> Iterator[Definition]:
    for table in schema.all_tables:
        for view in (table.primary, *table.views):
            yield table_name(table.name, view.name), _columns(table.stored(view))
        yield table_name(table.name, "", raw=True), _columns(table.stored(table.primary, raw=True))


def _columns(stored: Iterable[Any]) -> list[tuple[str, str]]:
    return [(field.name, TYPES[str(field.type)]) for field in stored]
