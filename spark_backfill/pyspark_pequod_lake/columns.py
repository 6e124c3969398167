"""Columns of Spark and of a lake's tables: their types, and rows with an operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pequod_lake.errors import LakeSchemaError, UploadRefusedError
from pequod_lake.schema import LakeTable
from pequod_lake.uploads import deleted_rows, put_rows
from pyarrow import compute as pc
from pyspark.sql.types import StructType

#: Types of the lake as Spark has them.
SPARK: Final = {
    "bool": "boolean",
    "int32": "int",
    "int64": "bigint",
    "double": "double",
    "text": "string",
    "bytes": "binary",
    "timestamp": "timestamp_ntz",
}
#: What Spark's types may be written as; all values fit.
_WRITTEN: Final = {
    "boolean": {"bool"},
    "tinyint": {"int32", "int64", "double"},
    "smallint": {"int32", "int64", "double"},
    "int": {"int32", "int64", "double"},
    "bigint": {"int64"},
    "float": {"double"},
    "double": {"double"},
    "string": {"text"},
    "binary": {"bytes"},
    "timestamp": {"timestamp"},
    "timestamp_ntz": {"timestamp"},
}
INSERT, UPDATE, DELETE = "insert", "update", "delete"
OPERATIONS: Final = (INSERT, UPDATE, DELETE)
#: Rows of one row group of a raw file.
_GROUP_ROWS: Final = 131_072


def schema_of(table: LakeTable, names: Iterable[str]) -> str:
    """Return columns of a table with their types, as Spark has them."""
    return ", ".join(f"`{name}` {SPARK[table.column(name).kind]}" for name in names)


def refuse_read(schema: StructType, table: LakeTable, more: Iterable[str | None]) -> None:
    """Refuse a schema of a read that names columns which are not there, or gives them other types.

    Args:
        more: Columns that the read adds; None for one that it does not.

    Raises:
        LakeSchemaError: It does.
    """
    for field in schema.fields:
        if field.name in more:
            continue
        told, has = field.dataType.simpleString(), SPARK[table.column(field.name).kind]
        if told != has and not (has == "timestamp_ntz" and told == "timestamp"):
            raise LakeSchemaError(
                "schema", f"column {field.name} is {told}; the lake has {has}: cast it after the read"
            )


def refuse_written(schema: StructType, table: LakeTable, operation_column: str | None) -> None:
    """Refuse rows whose columns do not fit the table.

    Raises:
        UploadRefusedError: A column is missing, unknown, there twice or of another type.
    """
    names = schema.fieldNames()
    known = {*table.names, *([] if operation_column is None else [operation_column])}
    for name in names:
        if name not in known:
            raise UploadRefusedError(table.name, f"{name!r} is no column; there are {', '.join(table.names)}")
        if names.count(name) > 1:
            raise UploadRefusedError(table.name, f"the column {name} is there twice")
    wanted = {*table.key, *([table.timestamp] if table.timestamp else [])} if table.is_partial else set(table.names)
    if operation_column is not None:
        wanted.add(operation_column)
    if missing := wanted - set(names):
        raise UploadRefusedError(table.name, f"the column {min(missing)} is missing")
    for field in schema.fields:
        told = field.dataType.typeName() if field.name == operation_column else field.dataType.simpleString()
        if field.name == operation_column:
            if told != "string":
                raise UploadRefusedError(table.name, f"the column {field.name} holds operations, so it is a string")
            continue
        kind = table.column(field.name).kind
        if kind not in _WRITTEN.get(told.partition("(")[0].replace("varchar", "string").replace("char", "string"), ()):
            raise UploadRefusedError(
                table.name, f"the column {field.name} is {told}; the lake has {kind}: cast it to {SPARK[kind]} first"
            )


def formed(table: LakeTable, operation_column: str | None, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield rows in the form of raw files.

    Raises:
        UploadRefusedError: A row cannot be taken.
    """
    waiting, count = list[Any](), 0
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]))
        count += batch.num_rows
        if count >= _GROUP_ROWS:
            yield _formed(table, operation_column, pa.concat_tables(waiting))
            waiting, count = [], 0
    if count:
        yield _formed(table, operation_column, pa.concat_tables(waiting))


def _formed(table: LakeTable, operation_column: str | None, rows: Any) -> Any:
    if operation_column is None:
        return put_rows(table, rows)
    operations = pc.utf8_lower(rows[operation_column].cast(pa.string()))
    is_known = pc.fill_null(pc.is_in(operations, value_set=pa.array(OPERATIONS)), fill_value=False)
    if not pc.all(is_known).as_py():
        wrong = rows[operation_column].filter(pc.invert(is_known))[0].as_py()
        raise UploadRefusedError(
            table.name, f"the column {operation_column} holds {wrong!r}; an operation is {', '.join(OPERATIONS)}"
        )
    is_deleted = pc.equal(operations, DELETE)
    rest = rows.drop_columns([operation_column])
    named = [name for name in rest.schema.names if name in table.key or name == table.timestamp]
    put = put_rows(table, rest.filter(pc.invert(is_deleted)))
    deleted = deleted_rows(table, rest.filter(is_deleted).select(named))
    # Back in the order of the rows: of one key the last one wins.
    places = pa.concat_arrays([_places(pc.invert(is_deleted)), _places(is_deleted)])
    return pa.concat_tables([put, deleted]).take(pc.sort_indices(places))


def _places(mask: Any) -> Any:
    return pc.indices_nonzero(mask)
