"""Ids: numbers that stand for texts in files. A text keeps its number for good, so what was read once stays true.

The numbers are rows of a table of the lake, `ids_NAME`, in the order of the texts and, as a view, of the numbers. They
pass through the stages with the SCU in which their text was new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.conditions import Bound
from pequod_lake.errors import LakeError
from pequod_lake.ranges import files_within
from pequod_lake.reading import LakeReader, ReadCounts
from pequod_lake.runs import Run
from pequod_lake.schema import ids_table

#: Not of arrays: with the first one, Arrow imports pandas where it is installed, which takes 0.4 s.
_EMPTY = pa.Table.from_batches([], pa.schema({"key": pa.string(), "id": pa.int64()}))


def known_ids(reader: LakeReader, runs: Sequence[Run], name: str, texts: Any, counts: ReadCounts | None = None) -> Any:
    """Return the texts that have ids, with these, as a table of ``key`` and ``id``."""
    return _found(reader, runs, name, "key", texts, counts)


def texts_of(reader: LakeReader, runs: Sequence[Run], name: str, ids: Any, counts: ReadCounts | None = None) -> Any:
    """Return the texts of numbers, in their order; a null stays null.

    Raises:
        LakeError: A number has none: the lake is damaged.
    """
    distinct = pc.unique(ids).drop_null()
    found = _found(reader, runs, name, "id", _flat(distinct), counts)
    places = pc.index_in(ids, value_set=_flat(found["id"]))
    if places.null_count != ids.null_count:
        raise LakeError(f"ids of {name}: a number has no text; `pequod lake verify` says what is damaged")
    return found["key"].take(places)


def _found(
    reader: LakeReader, runs: Sequence[Run], name: str, column: str, values: Any, counts: ReadCounts | None
) -> Any:
    if len(values) == 0:
        return _EMPTY
    bounds = pc.min_max(values)
    conditions = [
        Bound(column, ">=", bounds["min"]),
        Bound(column, "<=", bounds["max"]),
        Bound(column, "in", values),
    ]
    table = ids_table(name)
    view = "by_id" if column == "id" else ""
    pieces = [
        reader.read(file, ("key", "id"), conditions, counts, table.view(view).key if run.stage.is_sorted else ())
        for run in runs
        for file in files_within(run, table, view if run.stage.is_sorted else "", conditions)
    ]
    return pa.concat_tables([_EMPTY, *pieces]).combine_chunks()


def _flat(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
