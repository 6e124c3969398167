"""What must hold of the rows of each file, for `pequod lake verify` and for tests."""

from __future__ import annotations

from pyarrow import compute as pc

from pequod_lake.combining import live
from pequod_lake.reading import LakeReader
from pequod_lake.runs import LakeFile, Run
from pequod_lake.schema import LakeTable


def check_rows(reader: LakeReader, table: LakeTable, run: Run, file: LakeFile) -> list[str]:
    """Return what is wrong with a file: its rows are counted, in order, and of one key each.

    Raises:
        LakeCorruptError: The file is damaged.
    """
    view = table.view(file.view)
    stored = table.stored(view, raw=not run.stage.is_remapped)
    rows = reader.read(file, stored.names)
    problems = []
    if rows.num_rows != file.row_count:
        problems.append(f"file {file.path}: it has {rows.num_rows} rows; the catalog says {file.row_count}")
    if not run.stage.is_sorted:
        return problems
    order = pc.sort_indices(rows, [(name, "ascending") for name in view.key])
    if not order.equals(pc.sort_indices(order)):
        problems.append(f"file {file.path}: its rows are not in the order of {', '.join(view.key)}")
    keys = rows.select(list(table.key))
    if keys.group_by(list(table.key)).aggregate([]).num_rows != rows.num_rows:
        problems.append(f"file {file.path}: a key is there twice")
    if not file.view:
        count = live(table, rows).num_rows
        for other in table.views:
            there = sum(one.row_count for one in run.of(table.name, other.name))
            if there != count:
                problems.append(f"run {run.id}: view {other.name} of {table.name} has {there} rows; {count} are there")
    return problems
