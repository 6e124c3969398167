"""The rows of the catalog that name files, in a table beside DuckLake's.

A file is in the snapshots from its begin to its end, as its run is. The authority's files stay when a merge leaves
them as they are, while the run is another one: they have the number of the first authority, 0, for good.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pequod_lake.contents import total
from pequod_lake.database import Session
from pequod_lake.ducklake_format import now_text
from pequod_lake.runs import LakeFile, Stage

#: The run of the authority's files.
AUTHORITY: Final = 0
#: The members of `LakeFile`.
_FACTS: Final = (
    "path, table_name, view_name, row_count, size_bytes, crc, footer_crc, footer_bytes, first_key, last_key, content"
)
#: What is in a snapshot.
WITHIN: Final = "begin_number <= ? AND (end_number IS NULL OR end_number > ?)"
_RAW: Final = f"""
SELECT {_FACTS} FROM lake_part JOIN (SELECT run FROM lake_run WHERE first_scu = ? AND last_scu = ? AND stage = ?) AS raw
USING (run) ORDER BY file
"""  # noqa: S608 - names of columns
#: So few that a transaction needs less room than `room` keeps.
_EXPIRED_MAX: Final = 256


def files_of(db: Session, runs: Sequence[tuple[int, Stage]], number: int) -> dict[int, list[LakeFile]]:
    """Return the files of runs of a snapshot, by run, in the order in which they were entered."""
    found: dict[int, list[LakeFile]] = {}
    for run, stage in runs:
        stored = AUTHORITY if stage is Stage.AUTHORITY else run
        rows = db.execute(
            f"SELECT {_FACTS} FROM lake_part WHERE run = ? AND {WITHIN} ORDER BY file",  # noqa: S608
            (stored, number, number),
        )
        found[run] = [LakeFile(*row) for row in rows]
    return found


def raw_files(db: Session, scu: int) -> list[LakeFile]:
    """Return the files of an SCU as it was committed; none if they are not kept."""
    return [LakeFile(*row) for row in db.execute(_RAW, (scu, scu, Stage.RAW.value))]


def contents_text(files: Sequence[LakeFile]) -> str:
    """Return what the views of a run say, as the row of the run has it: in JSON, by table and view.

    Each has its number of rows and the sum of its contents, so that a row of a file that is lost, doubled or another
    one shows.
    """
    views: dict[str, list[LakeFile]] = {}
    for file in files:
        views.setdefault(f"{file.table}/{file.view}", []).append(file)
    found = {
        name: [sum(file.row_count for file in some), total(file.content for file in some)]
        for name, some in sorted(views.items())
    }
    return json.dumps(found)


def known_paths(db: Session) -> set[str]:
    """Return the paths of all files that some snapshot has."""
    return {path for (path,) in db.execute("SELECT path FROM lake_part")}


def present(db: Session) -> list[tuple[LakeFile, bool]]:
    """Return the present files, each with whether it is raw."""
    rows = db.execute(
        f"SELECT {_FACTS}, (SELECT stage FROM lake_run WHERE lake_run.run = lake_part.run) FROM lake_part "  # noqa: S608
        "WHERE end_number IS NULL ORDER BY file"
    )
    return [(LakeFile(*facts), stage == Stage.RAW.value) for *facts, stage in rows.fetchall()]


def add_files(db: Session, number: int, run: int, stage: Stage, files: Sequence[LakeFile]) -> None:
    """Enter the files of a run, from a snapshot on."""
    stored = AUTHORITY if stage is Stage.AUTHORITY else run
    db.executemany(
        f"INSERT INTO lake_part (run, {_FACTS}, begin_number, end_number) "  # noqa: S608
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
        [
            (
                stored,
                one.path,
                one.table,
                one.view,
                one.row_count,
                one.size_bytes,
                one.crc,
                one.footer_crc,
                one.footer_bytes,
                one.first_key,
                one.last_key,
                one.content,
                number,
            )
            for one in files
        ],
    )


def end_files(db: Session, number: int, files: Sequence[LakeFile]) -> None:
    """Have files end with a snapshot: it is the first that has them no more."""
    db.executemany(
        "UPDATE lake_part SET end_number = ? WHERE path = ? AND end_number IS NULL",
        [(number, one.path) for one in files],
    )


def schedule(db: Session, floor: int, held: str) -> bool:
    """Take some files that nothing needs out of the catalog, to have them deleted; return if there were any, or runs.

    Args:
        held: The snapshots that readers have, as a table in SQL.
    """
    is_read = f"EXISTS (SELECT 1 FROM {held} WHERE held.column1 >= begin_number AND held.column1 < end_number)"  # noqa: S608
    found = db.execute(
        f"SELECT file, path FROM lake_part WHERE end_number <= ? AND NOT {is_read} ORDER BY end_number LIMIT ?",  # noqa: S608
        (floor, _EXPIRED_MAX),
    )
    files = found.fetchall()
    if not files:
        ended = db.execute(
            f"SELECT run FROM lake_run WHERE end_number <= ? AND NOT {is_read} LIMIT ?",  # noqa: S608
            (floor, _EXPIRED_MAX),
        )
        runs = ended.fetchall()
        db.executemany("DELETE FROM lake_run WHERE run = ?", runs)
        return bool(runs)
    db.executemany(
        "INSERT INTO ducklake_files_scheduled_for_deletion VALUES (?, ?, ?, ?)",
        [(file, path, True, now_text()) for file, path in files],
    )
    db.executemany("DELETE FROM ducklake_data_file WHERE path = ?", [(Path(path).name,) for _, path in files])
    db.executemany("DELETE FROM lake_part WHERE file = ?", [(file,) for file, _ in files])
    return True
