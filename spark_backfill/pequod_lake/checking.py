"""What must hold of the rows of each run, for `pequod lake verify` and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from pequod_lake.combining import live
from pequod_lake.contents import content_of, total
from pequod_lake.ducklake import DuckLakeCatalog
from pequod_lake.errors import LakeCorruptError
from pequod_lake.keys import key_text
from pequod_lake.reading import LakeReader
from pequod_lake.runs import LakeFile, Run
from pequod_lake.schema import LakeSchema, LakeTable, LakeView, ids_table


def check_run(reader: LakeReader, table: LakeTable, run: Run) -> list[str]:
    """Return what is wrong with a table's files of a run: damage, counts, order, keys that are there twice, views."""
    views = (table.primary, *table.views) if run.stage.is_sorted else (table.primary,)
    checked = {view.name: check_view(reader, table, view, run) for view in views}
    problems = [problem for found, _ in checked.values() for problem in found]
    if not problems and run.stage.is_sorted:
        said = checked[""][1]
        problems += [
            f"run {run.id}: its view {view.name} of {table.name} has other rows than the table"
            for view in table.views
            if total(said[view.name]) != total(checked[view.name][1][view.name])
        ]
    return problems


def check_view(
    reader: LakeReader, table: LakeTable, view: LakeView, run: Run
) -> tuple[list[str], dict[str, list[str]]]:
    """Return what is wrong with one view of a table in a run, and what its files say.

    The latter are sums by view: of a secondary view those of its files, of the primary one what its rows say as each of
    the secondary views has them.
    """
    of = [view] if view.name else table.views
    problems = list[str]()
    sums: dict[str, list[str]] = {one.name: [] for one in of}
    before: tuple[LakeFile, Any] | None = None
    for file in run.of(table.name, view.name):
        try:
            reader.check(file)
            rows = reader.read(file, table.stored(view, raw=not run.stage.is_remapped).names)
        except LakeCorruptError as error:
            problems.append(str(error))
            continue
        # Also columns that were dropped later.
        whole = (
            rows if set(reader.names_of(file)) <= set(rows.schema.names) else reader.read(file, reader.names_of(file))
        )
        problems += [f"file {file.path}: {one}" for one in _check_rows(table, view, run, file, rows, whole)]
        if run.stage.is_sorted:
            there = rows if view.name else live(table, rows)
            for one in of:
                sums[one.name].append(content_of(there.select(list(one.columns))))
            if before is not None and not _follows(view.key, before[1], rows):
                problems.append(f"file {file.path}: its rows do not come after those of {before[0].path}")
        before = file, rows
    return problems, sums


def next_ids(catalog: DuckLakeCatalog) -> dict[str, int]:
    """Return the number that the next new text gets, by the name of the ids."""
    found = catalog.database.connection.execute(
        "SELECT name, value FROM lake_meta WHERE name LIKE ?", ("next id of %",)
    )
    return {str(name).removeprefix("next id of "): int(value) for name, value in found.fetchall()}


def check_ids(reader: LakeReader, schema: LakeSchema, runs: Sequence[Run], next_ids: dict[str, int]) -> list[str]:
    """Return what is wrong with ids: one that two texts have, a text with two, numbers without a text.

    Args:
        next_ids: The number that the next new text would get, by the name of the ids.

    Requires:
        `check_run` has found nothing.
    """
    problems = list[str]()
    known = dict[str, Any]()
    for name in schema.ids:
        table = ids_table(name)
        pieces = [reader.read(file, ["key", "id"]) for run in runs for file in run.of(table.name)]
        rows = (
            pa.concat_tables(pieces)
            if pieces
            else pa.table({"key": pa.array([], pa.string()), "id": pa.array([], pa.int64())})
        )
        known[name] = rows["id"].combine_chunks()
        for column, what in (("id", "is that of two texts"), ("key", "has two ids")):
            counts = pc.value_counts(rows[column].combine_chunks())
            twice = counts.filter(pc.greater(counts.field("counts"), 1))
            if len(twice):
                problems.append(f"ids {name}: {column} {twice[0]['values'].as_py()!r} {what}")
        if len(rows) and pc.max(rows["id"]).as_py() >= next_ids.get(name, 0):
            problems.append(f"ids {name}: the next one would be {next_ids.get(name, 0)}, which a text has")
    for chosen in schema.tables:
        for one in chosen.columns:
            for run in runs if one.ids else ():
                for file in run.of(chosen.name) if run.stage.is_remapped else ():
                    numbers = reader.read(file, [one.name])[one.name].drop_null()
                    missing = numbers.filter(pc.invert(pc.is_in(numbers, value_set=known[one.ids or ""])))
                    if len(missing):
                        problems.append(f"file {file.path}: {one.name} {missing[0].as_py()} is an id without a text")
    return problems


def _check_rows(table: LakeTable, view: LakeView, run: Run, file: LakeFile, rows: Any, whole: Any) -> list[str]:
    problems = []
    if rows.num_rows != file.row_count:
        problems.append(f"it has {rows.num_rows} rows; the catalog says {file.row_count}")
    if not run.stage.is_sorted:
        return problems
    if file.content and content_of(whole) != file.content:
        problems.append("its rows are not those that were written")
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
