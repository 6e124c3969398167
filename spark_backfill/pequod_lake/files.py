"""Rows of a lake's tables in files: CSV with a header, Parquet, and JSON lines.

The columns of a file are those of its header, or of the object in its first line. They are read with the types of the
table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv, parquet
from pyarrow import json as json_lines

from pequod_lake.errors import UploadRefusedError
from pequod_lake.schema import LakeTable

_BLOCK_BYTES: Final = 8 << 20
_SUFFIXES: Final = (".csv", ".jsonl", ".ndjson", ".parquet")


def content_id(path: Path) -> str:
    """Return a name of a file's content, so that a file that is sent again has the same one."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


def file_batches(table: LakeTable, path: Path) -> Iterator[Any]:
    """Yield the rows of a file as batches of Arrow.

    Raises:
        UploadRefusedError: The file cannot be read as rows of the table.
    """
    try:
        if path.suffix == ".parquet":
            with parquet.ParquetFile(path) as file:
                yield from file.iter_batches()
        elif path.suffix == ".csv":
            yield from _csv(table, path)
        elif path.suffix in _SUFFIXES:
            yield from _json(table, path)
        else:
            raise UploadRefusedError(table.name, f"{path}: its name must end in one of {', '.join(_SUFFIXES)}")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UploadRefusedError(table.name, f"{path}: {error}") from error


def _csv(table: LakeTable, path: Path) -> Iterator[Any]:
    types = {column.name: column.type for column in table.columns}
    convert = csv.ConvertOptions(
        column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    with csv.open_csv(
        path, csv.ReadOptions(block_size=_BLOCK_BYTES), csv.ParseOptions(newlines_in_values=True), convert
    ) as rows:
        yield from rows


def _json(table: LakeTable, path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        first = json.loads(next((line for line in file if not line.isspace()), b"{}"))
    if not isinstance(first, dict):
        raise UploadRefusedError(table.name, f"{path}: its first line is no JSON object")
    kinds = [(name, table.column(name).type) for name in first if name in table.names]
    if len(kinds) < len(first):
        unknown = min(set(first) - set(table.names))
        raise UploadRefusedError(table.name, f"{unknown!r} is no column; there are {', '.join(table.names)}")
    parse = json_lines.ParseOptions(explicit_schema=pa.schema(kinds), unexpected_field_behavior="error")
    yield from json_lines.read_json(path, json_lines.ReadOptions(block_size=_BLOCK_BYTES), parse).to_batches()


def pieces(table: LakeTable, path: Path, rows: int) -> Iterator[Any]:
    """Yield the rows of a file as tables of ``rows`` rows; the last one has the rest.

    Raises:
        UploadRefusedError: The file cannot be read as rows of the table.
    """
    waiting = list[Any]()
    count = 0
    for batch in file_batches(table, path):
        rest = batch
        while count + rest.num_rows >= rows:
            waiting.append(rest.slice(0, rows - count))
            yield pa.Table.from_batches(waiting)
            rest, waiting, count = rest.slice(rows - count), [], 0
        if rest.num_rows:
            waiting.append(rest)
            count += rest.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting)
