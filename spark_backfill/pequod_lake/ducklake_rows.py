"""What DuckLake's own tables say of a snapshot: its files, its changes, and the statistics of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pequod_lake.clock import Stamp
from pequod_lake.database import Session
from pequod_lake.ducklake_format import TYPES, now_text
from pequod_lake.ducklake_tables import table_name
from pequod_lake.runs import LakeFile
from pequod_lake.schema import LakeTable


class SnapshotRows:
    """Writes the rows of snapshots."""

    def __init__(self, db: Session) -> None:
        found = db.execute("SELECT table_name, table_id FROM ducklake_table WHERE end_snapshot IS NULL")
        self._tables = {str(name): int(number) for name, number in found.fetchall()}

    def begin(
        self,
        db: Session,
        now: Stamp,
        count: int,
        added: Sequence[tuple[LakeFile, bool]],
        ended: Sequence[tuple[LakeFile, bool]],
    ) -> int:
        """Write DuckLake's rows of one snapshot; with each file stands whether it is raw."""
        last, version, catalog_id, file_id = db.execute(
            "SELECT snapshot_id, schema_version, next_catalog_id, next_file_id FROM ducklake_snapshot "
            "ORDER BY snapshot_id DESC LIMIT 1"
        ).fetchone()
        number = last + 1
        db.execute(
            "INSERT INTO ducklake_snapshot VALUES (?, ?, ?, ?, ?)",
            (number, now_text(), version, catalog_id, file_id + count),
        )
        db.execute("INSERT INTO lake_snapshot VALUES (?, ?, ?, ?)", (number, now.boot, now.elapsed_s, now.wall_us))
        inserted = sorted({self._table_id(file, raw=raw) for file, raw in added})
        deleted = sorted({self._table_id(file, raw=raw) for file, raw in ended} - set(inserted))
        changes = [f"inserted_into_table:{one}" for one in inserted]
        changes += [f"deleted_from_table:{one}" for one in deleted]
        db.execute(
            "INSERT INTO ducklake_snapshot_changes VALUES (?, ?, 'pequod', NULL, NULL)", (number, ",".join(changes))
        )
        for file, raw in ended:
            db.execute(
                "UPDATE ducklake_data_file SET end_snapshot = ? WHERE path = ? AND end_snapshot IS NULL",
                (number, Path(file.path).name),
            )
            self._count(db, file, raw=raw, sign=-1)
        for place, (file, raw) in enumerate(added):
            table = self._table_id(file, raw=raw)
            first = self._count(db, file, raw=raw, sign=1)
            self._insert(db, file_id + place, number, table, file, first)
        return int(number)

    def alter(self, db: Session, now: Stamp, before: LakeTable, after: LakeTable) -> None:
        """Write DuckLake's rows of a snapshot in which a table has other columns than before."""
        number = self.begin(db, now, 0, [], [])
        version = db.execute("SELECT schema_version FROM ducklake_snapshot WHERE snapshot_id = ?", (number,)).fetchone()
        later = int(version[0]) + 1
        db.execute("UPDATE ducklake_snapshot SET schema_version = ? WHERE snapshot_id = ?", (later, number))
        changed = list[int]()
        for view, raw in [("", True), ("", False), *((one.name, False) for one in after.views)]:
            table = int(self._tables[table_name(after.name, view, raw=raw)])
            had = {field.name for field in before.stored(before.view(view), raw=raw)}
            has = {field.name: field for field in after.stored(after.view(view), raw=raw)}
            for name in sorted(had - set(has)):
                db.execute(
                    "UPDATE ducklake_column SET end_snapshot = ? WHERE table_id = ? AND column_name = ?",
                    (number, table, name),
                )
            for name in [one for one in has if one not in had]:
                place = int(has[name].metadata[b"PARQUET:field_id"])
                db.execute(
                    "INSERT INTO ducklake_column (column_id, begin_snapshot, table_id, column_order, column_name, "
                    "column_type, default_value, nulls_allowed, default_value_type, default_value_dialect) "
                    "VALUES (?, ?, ?, ?, ?, ?, 'NULL', ?, 'literal', 'duckdb')",
                    (place, number, table, place, name, TYPES[str(has[name].type)], True),
                )
            if had != set(has):
                changed.append(table)
                db.execute("INSERT INTO ducklake_schema_versions VALUES (?, ?, ?)", (number, later, table))
        db.execute(
            "UPDATE ducklake_snapshot_changes SET changes_made = ? WHERE snapshot_id = ?",
            (",".join(f"altered_table:{one}" for one in changed), number),
        )

    def restore(self, db: Session, files: Sequence[tuple[LakeFile, bool]]) -> int:
        """Write the rows of present files that are missing or wrong, and end those of others; return their number."""
        found = db.execute(
            "SELECT path, record_count, file_size_bytes FROM ducklake_data_file WHERE end_snapshot IS NULL"
        ).fetchall()
        told = {path: (rows, size) for path, rows, size in found}
        ours = {Path(file.path).name: (file, raw) for file, raw in files}
        wrong = {
            name
            for name in {*told, *ours}
            if name not in ours or told.get(name) != (ours[name][0].row_count, ours[name][0].size_bytes)
        }
        number, next_file = db.execute(
            "SELECT snapshot_id, next_file_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
        ).fetchone()
        for place, name in enumerate(sorted(wrong)):
            db.execute("DELETE FROM ducklake_data_file WHERE path = ? AND end_snapshot IS NULL", (name,))
            if name in ours:
                file, raw = ours[name]
                self._insert(db, next_file + place, number, self._table_id(file, raw=raw), file, 0)
        db.execute(
            "UPDATE ducklake_snapshot SET next_file_id = ? WHERE snapshot_id = ?", (next_file + len(wrong), number)
        )
        return len(wrong)

    def _insert(self, db: Session, id_: int, number: int, table: int, file: LakeFile, first_row: int) -> None:
        db.execute(
            "INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, "
            "file_format, record_count, file_size_bytes, footer_size, row_id_start) "
            "VALUES (?, ?, ?, ?, ?, 'parquet', ?, ?, ?, ?)",
            (
                id_,
                table,
                number,
                Path(file.path).name,
                True,
                file.row_count,
                file.size_bytes,
                file.footer_bytes,
                first_row,
            ),
        )

    def _table_id(self, file: LakeFile, *, raw: bool) -> int:
        return int(self._tables[table_name(file.table, file.view, raw=raw)])

    def _count(self, db: Session, file: LakeFile, *, raw: bool, sign: int) -> int:
        """Add to the statistics of a DuckLake table, and return the number of the first of its new rows."""
        table = self._table_id(file, raw=raw)
        row = db.execute("SELECT next_row_id FROM ducklake_table_stats WHERE table_id = ?", (table,)).fetchone()
        first = int(row[0]) if row else 0
        if row is None:
            db.execute("INSERT INTO ducklake_table_stats VALUES (?, 0, 0, 0)", (table,))
        db.execute(
            "UPDATE ducklake_table_stats SET record_count = record_count + ?, next_row_id = next_row_id + ?, "
            "file_size_bytes = file_size_bytes + ? WHERE table_id = ?",
            (sign * file.row_count, file.row_count if sign > 0 else 0, sign * file.size_bytes, table),
        )
        return first
