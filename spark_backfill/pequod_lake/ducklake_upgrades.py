"""Catalogs of earlier versions of Pequod, brought up by whatever opens them; each step is one transaction.

    1   before the fence: no rows of writers
    2   before key ranges: files belong to one run, and nobody knows their keys
    3   before contents: nobody knows what the rows of files say

A process of an earlier version that has the lake open meanwhile does not find the table of files any more: what it
tries then fails, and changes nothing.
"""

from __future__ import annotations

from typing import Final

from pequod_lake import fence
from pequod_lake.database import Database, Session
from pequod_lake.ducklake_files import AUTHORITY
from pequod_lake.ducklake_tables import FORMAT, INDEXES
from pequod_lake.locks import Locks
from pequod_lake.runs import Stage

_UNFENCED: Final = "1"
_WHOLE: Final = "2"
_UNSUMMED: Final = "3"
#: The formats that are brought up.
OLD: Final = frozenset({_UNFENCED, _WHOLE, _UNSUMMED})
_RANGES: Final = (
    "ALTER TABLE lake_file RENAME TO lake_part",
    "ALTER TABLE lake_part ADD COLUMN first_key TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE lake_part ADD COLUMN last_key TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE lake_part ADD COLUMN begin_number BIGINT",
    "ALTER TABLE lake_part ADD COLUMN end_number BIGINT",
    "UPDATE lake_part SET begin_number = (SELECT begin_number FROM lake_run WHERE lake_run.run = lake_part.run)",
    "UPDATE lake_part SET end_number = (SELECT end_number FROM lake_run WHERE lake_run.run = lake_part.run)",
    "DROP INDEX lake_file_run",
    *INDEXES,
)


_CONTENTS: Final = (
    "ALTER TABLE lake_part ADD COLUMN content TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE lake_run ADD COLUMN contents TEXT",
)


def upgrade(database: Database, locks: Locks) -> str:
    """Bring a catalog of one of the formats `OLD` up, and return the format that it has then.

    Raises:
        LakeBusyError: Others wrote for too long.
        LakeError: The disk is full; nothing was changed.
    """
    with database.writing() as db:
        # Another process may have done it meanwhile.
        if _format(db) == _UNFENCED:
            db.execute(fence.TABLE)
            db.executemany("INSERT INTO lake_writer VALUES (?)", [(one,) for one in locks.writers()])
        if _format(db) in {_UNFENCED, _WHOLE}:
            for statement in _RANGES:
                db.execute(statement)
            db.execute(
                "UPDATE lake_part SET run = ? WHERE run IN (SELECT run FROM lake_run WHERE stage = ?)",
                (AUTHORITY, Stage.AUTHORITY.value),
            )
        if _format(db) in OLD:
            for statement in _CONTENTS:
                db.execute(statement)
            db.execute("UPDATE lake_meta SET value = ? WHERE name = 'format'", (FORMAT,))
    return FORMAT


def _format(db: Session) -> str:
    return str(db.execute("SELECT value FROM lake_meta WHERE name = 'format'").fetchone()[0])
