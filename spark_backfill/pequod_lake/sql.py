"""SQL over a snapshot, by DuckDB: each table of the lake is a view, whatever stages its rows are in.

DuckDB reads the Parquet files of sorted runs itself; their checksums are compared before. Runs that are not sorted yet
are combined in memory: they are what a short while brought.
"""

from __future__ import annotations

import re
from typing import Any

import duckdb
import pyarrow as pa

from pequod_lake.combining import combined
from pequod_lake.duckdb_files import table_of
from pequod_lake.errors import LakeSchemaError
from pequod_lake.query import LakeSnapshot
from pequod_lake.relational import RUN, combined_sql, live_sql
from pequod_lake.runs import Run
from pequod_lake.schema import LakeTable, ids_table


def run_sql(snapshot: LakeSnapshot, query: str) -> Any:
    """Return the result of a query in SQL as a table of Arrow.

    Only tables that the query names are made views. Secondary views are sort orders, not tables of their own.

    Raises:
        LakeSchemaError: The query is wrong; the text says where.
        LakeCorruptError: A file is damaged.
    """
    with duckdb.connect() as db:
        views = LakeViews(snapshot, db)
        for table in snapshot.schema.tables:
            if re.search(rf"\b{table.name}\b", query):
                views.make(table)
        try:
            found = db.sql(query)
            if found is None:
                raise LakeSchemaError("query", "it gives no rows; SELECT some")
            return found.to_arrow_table()
        except duckdb.Error as error:
            raise LakeSchemaError("query", str(error)) from error


class LakeViews:
    """The tables of a snapshot as views of a DuckDB connection, for as long as the snapshot is open."""

    def __init__(self, snapshot: LakeSnapshot, db: duckdb.DuckDBPyConnection) -> None:
        self._snapshot = snapshot
        self._db = db
        self._ids = set[str]()

    def make(self, table: LakeTable) -> None:
        """Make the view of a table.

        Raises:
            LakeCorruptError: A file is damaged.
        """
        parts = [run for run in self._snapshot.runs if run.of(table.name)]
        if not parts:
            columns = pa.schema([(column.name, column.type) for column in table.columns])
            self._db.register(table.name, columns.empty_table())
            return
        pieces = [self._piece(table, run, number) for number, run in enumerate(parts)]
        whole = " UNION ALL ".join(pieces)
        is_one = len(parts) == 1 and parts[0].stage.is_sorted
        rows = live_sql(table, whole if is_one else combined_sql(table, whole))
        self._db.execute(f'CREATE VIEW "{table.name}" AS {rows}')

    def _piece(self, table: LakeTable, run: Run, number: int) -> str:
        """Return a query for the rows of one run, as users see them, each key once."""
        if run.stage.is_sorted:
            source = self._files(table, run.of(table.name))
        else:
            source = f'"_{table.name}_{number}"'
            stored = table.stored(table.primary, raw=not run.stage.is_remapped).names
            rows = [self._snapshot.reader.read(file, stored) for file in run.of(table.name)]
            self._db.register(source.strip('"'), combined(table, rows))
        joins, columns = "", list[str]()
        for place, column in enumerate(table.columns):
            if column.ids and run.stage.is_remapped:
                joins += f' LEFT JOIN {self._ids_of(column.ids)} AS k{place} ON p."{column.name}" = k{place}.id'
                columns.append(f'k{place}.key AS "{column.name}"')
            else:
                columns.append(f'p."{column.name}"')
        columns += [f'p."{name}"' for name, _ in table.hidden()]
        return f"SELECT {', '.join(columns)}, {number} AS {RUN} FROM {source} AS p{joins}"  # noqa: S608 - names of the schema

    def _ids_of(self, name: str) -> str:
        """Return the view of the texts of numbers: a text keeps its number, so runs are only put together."""
        table = ids_table(name)
        if name not in self._ids:
            self._ids.add(name)
            files = [file for run in self._snapshot.runs for file in run.of(table.name)]
            # There is no file if no row has a text.
            source = self._files(table, files) if files else "(SELECT '' AS key, 0 AS id WHERE false)"
            self._db.execute(f'CREATE VIEW "_{table.name}" AS SELECT key, id FROM {source}')  # noqa: S608
        return f'"_{table.name}"'

    def _files(self, table: LakeTable, files: Any) -> str:
        return table_of(self._db, self._snapshot.reader, files, table.stored(table.primary))
