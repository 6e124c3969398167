"""Catalogs as earlier versions of Pequod left them."""

from __future__ import annotations

from pequod_lake import Lake
from pequod_lake.postgres import PostgresDatabase

_WITHOUT_CONTENTS = (
    "ALTER TABLE lake_part DROP COLUMN content",
    "ALTER TABLE lake_run DROP COLUMN contents",
)
_DOWN = (
    *_WITHOUT_CONTENTS,
    "DROP INDEX lake_part_run",
    "DROP INDEX lake_part_end",
    "DROP INDEX lake_part_path",
    "UPDATE lake_part SET run = (SELECT max(run) FROM lake_run WHERE stage = 'authority') WHERE run = 0",
    "ALTER TABLE lake_part DROP COLUMN first_key",
    "ALTER TABLE lake_part DROP COLUMN last_key",
    "ALTER TABLE lake_part DROP COLUMN begin_number",
    "ALTER TABLE lake_part DROP COLUMN end_number",
    "ALTER TABLE lake_part RENAME TO lake_file",
    "CREATE INDEX lake_file_run ON lake_file (run)",
)


def before_contents(lake: Lake) -> None:
    """Make the catalog one of the format before the contents of files."""
    with lake.place.database.writing() as db:
        for statement in _WITHOUT_CONTENTS:
            db.execute(statement)
        db.execute("UPDATE lake_meta SET value = '3' WHERE name = 'format'")


def before_ranges(lake: Lake) -> None:
    """Make the catalog one of the format before key ranges; no past state of the authority is kept."""
    lake.expire(0.0)
    with lake.place.database.writing() as db:
        for statement in _DOWN:
            db.execute(statement)
        if not isinstance(lake.place.database, PostgresDatabase):
            db.execute("DROP INDEX lake_data_file_path")
        db.execute("UPDATE lake_meta SET value = '2' WHERE name = 'format'")


def before_the_fence(lake: Lake) -> None:
    """Make the catalog one of the first format."""
    before_ranges(lake)
    with lake.place.database.writing() as db:
        db.execute("DROP TABLE lake_writer")
        db.execute("UPDATE lake_meta SET value = '1' WHERE name = 'format'")
