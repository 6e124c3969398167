"""What must hold of the rows of each run, for `pequod lake verify` and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.combining import live
from pequod_lake.errors import LakeCorruptError
from pequod_lake.keys import key_text
from pequod_lake.reading import LakeReader
from pequod_lake.runs import LakeFile, Run
from pequod_lake.schema import LakeTable, LakeView


def check_run(reader: LakeReader, table: LakeTable, run: Run) -> list[str]:
    """Return what is wrong with a table's files of a run: damage, counts, order, keys that are there twice, views."""
    problems = list[str]()
    counts = dict[str, int]()
    for view in (table.primary, *table.views) if run.stage.is_sorted else (table.primary,):
        before: tuple[LakeFile, Any] | None = None
        counts[view.name] = 0
        for file in run.of(table.name, view.name):
            try:
                reader.check(file)
                rows = reader.read(file, table.stored(view, raw=not run.stage.is_remapped).names)
            except LakeCorruptError as error:
                problems.append(str(error))
                continue
            problems += [f"file {file.path}: {one}" for one in _check_rows(table, view, run, file, rows)]
            counts[view.name] += rows.num_rows if view.name else live(table, rows).num_rows
            if before is not None and run.stage.is_sorted and not _follows(view.key, before[1], rows):
                problems.append(f"file {file.path}: its rows do not come after those of {before[0].path}")
            before = file, rows
    if not problems and len(set(counts.values())) > 1:
        told = ", ".join(f"{count} in {name or 'the primary view'}" for name, count in counts.items())
        problems.append(f"run {run.id}: its views of {table.name} have different rows: {told}")
    return problems


def _check_rows(table: LakeTable, view: LakeView, run: Run, file: LakeFile, rows: Any) -> list[str]:
    problems = []
    if rows.num_rows != file.row_count:
        problems.append(f"it has {rows.num_rows} rows; the catalog says {file.row_count}")
    if not run.stage.is_sorted:
        return problems
    edges = [key_text(rows, view.key, place) for place in (0, rows.num_rows - 1)] if file.first_key else []
    if edges and edges != [file.first_key, file.last_key]:
        problems.append("its first and its last key are not those that the catalog says")
    order = _order(rows, view.key)
    if not np.array_equal(order, np.arange(len(order))):
        problems.append(f"its rows are not in the order of {', '.join(view.key)}")
    keys = rows.select(list(table.key))
    if keys.group_by(list(table.key)).aggregate([]).num_rows != rows.num_rows:
        problems.append("a key is there twice")
    return problems


def _order(rows: Any, key: Sequence[str]) -> Any:
    return np.asarray(pc.sort_indices(rows, [(name, "ascending") for name in key]))


def _follows(key: Sequence[str], before: Any, rows: Any) -> bool:
    """Return whether the last row of a table comes before the first one of another."""
    pair = pa.concat_tables([before.slice(before.num_rows - 1), rows.slice(0, 1)]).select(list(key))
    return list(_order(pair, key)) == [0, 1] and not pair.slice(0, 1).equals(pair.slice(1, 1))
