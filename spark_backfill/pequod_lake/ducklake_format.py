"""DuckLake's format, version 1.0: its tables in a database, and what they say of a lake without files.

So a catalog is made without DuckDB's extension, which there is for some versions of DuckDB only. The specification is
at ducklake.select/docs; a test holds this to what the extension makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

#: DuckLake's names of types.
TYPES: Final = {
    "bool": "boolean",
    "int32": "int32",
    "int64": "int64",
    "double": "float64",
    "string": "varchar",
    "binary": "blob",
    "timestamp[us]": "timestamp",
}
#: The tables without `ducklake_` before their names. A column is a whole number, unless another kind stands behind it.
_TABLES: Final = """
metadata: key text!, value text!, scope text, scope_id
snapshot: snapshot_id *, snapshot_time time, schema_version, next_catalog_id, next_file_id
snapshot_changes: snapshot_id *, changes_made text, author text, commit_message text, commit_extra_info text
schema: schema_id *, schema_uuid uuid, begin_snapshot, end_snapshot, schema_name text, path text, path_is_relative flag
table: table_id, table_uuid uuid, begin_snapshot, end_snapshot, schema_id, table_name text, path text, \
path_is_relative flag
view: view_id, view_uuid uuid, begin_snapshot, end_snapshot, schema_id, view_name text, dialect text, sql text, \
column_aliases text
tag: object_id, begin_snapshot, end_snapshot, key text, value text
column_tag: table_id, column_id, begin_snapshot, end_snapshot, key text, value text
data_file: data_file_id *, table_id, begin_snapshot, end_snapshot, file_order, path text, path_is_relative flag, \
file_format text, record_count, file_size_bytes, footer_size, row_id_start, partition_id, encryption_key text, \
mapping_id, partial_max
file_column_stats: data_file_id, table_id, column_id, column_size_bytes, value_count, null_count, min_value text, \
max_value text, contains_nan flag, extra_stats text
file_variant_stats: data_file_id, table_id, column_id, variant_path text, shredded_type text, column_size_bytes, \
value_count, null_count, min_value text, max_value text, contains_nan flag, extra_stats text
delete_file: delete_file_id *, table_id, begin_snapshot, end_snapshot, data_file_id, path text, \
path_is_relative flag, format text, delete_count, file_size_bytes, footer_size, encryption_key text, partial_max
column: column_id, begin_snapshot, end_snapshot, table_id, column_order, column_name text, column_type text, \
initial_default text, default_value text, nulls_allowed flag, parent_column, default_value_type text, \
default_value_dialect text
table_stats: table_id, record_count, next_row_id, file_size_bytes
table_column_stats: table_id, column_id, contains_null flag, contains_nan flag, min_value text, max_value text, \
extra_stats text
partition_info: partition_id, table_id, begin_snapshot, end_snapshot
partition_column: partition_id, table_id, partition_key_index, column_id, transform text
file_partition_value: data_file_id, table_id, partition_key_index, partition_value text
files_scheduled_for_deletion: data_file_id, path text, path_is_relative flag, schedule_start time
inlined_data_tables: table_id, table_name text, schema_version
column_mapping: mapping_id, table_id, type text
name_mapping: mapping_id, column_id, source_name text, target_field_id, parent_column, is_partition flag
schema_versions: begin_snapshot, schema_version, table_id
macro: schema_id, macro_id, macro_name text, begin_snapshot, end_snapshot
macro_impl: macro_id, impl_id, dialect text, sql text, type text
macro_parameters: macro_id, impl_id, column_id, parameter_name text, parameter_type text, default_value text, \
default_value_type text
sort_info: sort_id, table_id, begin_snapshot, end_snapshot
sort_expression: sort_id, table_id, sort_key_index, expression text, dialect text, sort_direction text, null_order text
"""
#: Kind -> its type in SQLite, as the extension has it, and in PostgreSQL.
_KINDS: Final = {
    "": ("BIGINT", "BIGINT"),
    "*": ("BIGINT PRIMARY KEY", "BIGINT PRIMARY KEY"),
    "text": ("VARCHAR", "VARCHAR"),
    "text!": ("VARCHAR NOT NULL", "VARCHAR NOT NULL"),
    "flag": ("BIGINT", "BOOLEAN"),
    "time": ("VARCHAR", "TIMESTAMP WITH TIME ZONE"),
    "uuid": ("VARCHAR", "UUID"),
}
#: A table's name, and its columns' names and types.
Definition = tuple[str, Sequence[tuple[str, str]]]


def now_text() -> str:
    """Return the present moment as DuckLake writes it."""
    return datetime.now(UTC).isoformat(sep=" ").replace("+00:00", "+00")


def table_statements(*, in_postgres: bool) -> Iterator[str]:
    """Yield the statements that make DuckLake's tables."""
    for line in _TABLES.strip().split("\n"):
        table, _, columns = line.partition(": ")
        spelt = ", ".join(
            _column(*column.partition(" ")[::2], in_postgres=in_postgres) for column in columns.split(", ")
        )
        yield f"CREATE TABLE ducklake_{table} ({spelt})"


def _column(name: str, kind: str, *, in_postgres: bool) -> str:
    return f'"{name}" {_KINDS[kind][in_postgres]}'


def first_rows(data_path: str, tables: Sequence[Definition]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield rows, each with the name of its table: of a lake with the snapshot 1, in which its tables are made.

    Args:
        data_path: Where the files are, with a slash at the end.
        tables: All tables; the types of their columns are those of DuckLake.
    """
    for key, value in (("version", "1.0"), ("created_by", "Pequod"), ("data_path", data_path), ("encrypted", "false")):
        yield "metadata", (key, value, None, None)
    changes = ('created_schema:"main"', ",".join(f'created_table:"main"."{name}"' for name, _ in tables))
    for number, (change, next_id) in enumerate(zip(changes, (1, len(tables) + 1), strict=True)):
        yield "snapshot", (number, now_text(), number, next_id, 0)
        yield "snapshot_changes", (number, change, None, None, None)
    yield "schema", (0, str(uuid4()), 0, None, "main", "main/", True)
    for table, (name, columns) in enumerate(tables, start=1):
        yield "table", (table, str(uuid4()), 1, None, 0, name, f"{name}/", True)
        yield "schema_versions", (1, 1, table)
        for place, (column, kind) in enumerate(columns, start=1):
            row = (place, 1, None, table, place, column, kind, None, "NULL", True, None, "literal", "duckdb")
            yield "column", row
