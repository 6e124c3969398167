"""What must hold of the catalog, without a look into files: runs, SCUs, uploads, sums, DuckLake's rows.

runs        0 ... newest SCU, each SCU once         their rows and sums are those of their files
files       each is of a run, is on the disk, and DuckLake's tables name it as the lake's own do
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from pequod_lake.database import Session
from pequod_lake.ducklake import DuckLakeCatalog
from pequod_lake.ducklake_files import AUTHORITY, contents_text
from pequod_lake.keys import parsed
from pequod_lake.runs import LakeFile, Run, Stage


def audit(catalog: DuckLakeCatalog) -> list[str]:
    """Return what is wrong with the catalog.

    Raises:
        LakeError: It cannot be read, or the files cannot be listed.
    """
    # Listed before the catalog is read: a file that is entered meanwhile is there, and one that expires is not named.
    there = set(catalog.files_of_rows.paths())
    with catalog.database.reading() as db:
        problems = [*_runs(db), *_scus(db), *_files(db), *_ducklake(db)]
        named = {path for (path,) in db.execute("SELECT path FROM lake_part WHERE end_number IS NULL").fetchall()}
    later = named - there
    if later:
        later -= set(catalog.files_of_rows.paths())
    return problems + [f"file {path}: the catalog names it, and it is gone" for path in sorted(later)]


def check_sums(run: Run, recorded: str | None) -> list[str]:
    """Return in which tables and views a run has other rows than it had when it was entered.

    Args:
        recorded: What `contents_text` said then; None if nobody knows.
    """
    return [
        f"run {run.id}: {_shown(name)} has {_rows(now)}; it had {_rows(then)} when the run was entered"
        for name, then, now in differing(run.files, recorded)
    ]


def differing(files: Sequence[LakeFile], recorded: str | None) -> list[tuple[str, Any, Any]]:
    """Return the tables and views whose rows are not those that were recorded, with both."""
    if recorded is None:
        return []
    then, now = json.loads(recorded), json.loads(contents_text(files))
    found = []
    for name in sorted({*then, *now}):
        before, after = then.get(name, [0, ""]), now.get(name, [0, ""])
        is_known = bool(before[1]) and bool(after[1])
        if before[0] != after[0] or (is_known and before[1] != after[1]):
            found.append((name, before, after))
    return found


def recorded_contents(catalog: DuckLakeCatalog) -> dict[int, str | None]:
    """Return what the present runs had when they were entered, by run; None if nobody knows."""
    found = catalog.database.connection.execute("SELECT run, contents FROM lake_run WHERE end_number IS NULL")
    return dict(found.fetchall())


def check_ranges(run: Run) -> list[str]:
    """Return which files of a sorted run do not follow each other in their keys."""
    problems = list[str]()
    views = {(file.table, file.view) for file in run.files}
    for table, view in sorted(views):
        for before, after in pairwise(run.of(table, view)):
            if before.last_key and after.first_key and parsed(before.last_key) >= parsed(after.first_key):
                problems.append(f"file {after.path}: its range overlaps that of {before.path}")
    return problems


def _shown(name: str) -> str:
    table, _, view = name.partition("/")
    return f"view {view} of {table}" if view else table


def _rows(found: Any) -> str:
    count, content = found
    return f"{count} rows with sum {content[:8] or 'unknown'}"


def _runs(db: Session) -> Iterator[str]:
    found = db.execute(
        "SELECT run, first_scu, last_scu, stage, row_count FROM lake_run WHERE end_number IS NULL ORDER BY first_scu"
    ).fetchall()
    expected, stages = 0, [stage for *_, stage, _ in found]
    for run, first, last, _, rows in found:
        if first > expected:
            yield f"run {run}: SCUs {expected} to {first - 1} before it are in no run"
        elif first < expected:
            yield f"run {run}: SCUs {first} to {min(last, expected - 1)} are in another run as well"
        expected = max(expected, last + 1)
        stored = AUTHORITY if stages and run == found[0][0] else run
        (there,) = db.execute(
            "SELECT coalesce(sum(row_count), 0) FROM lake_part WHERE run = ? AND view_name = '' AND end_number IS NULL",
            (stored,),
        ).fetchone()
        if there != rows:
            yield f"run {run}: it has {rows} rows, its files have {there}"
    (newest,) = db.execute("SELECT max(scu) FROM lake_scu").fetchone()
    if expected != newest + 1:
        yield f"the newest SCU is {newest}, the runs end with SCU {expected - 1}"
    old = [stage in {Stage.AUTHORITY.value, Stage.DELTA.value} for stage in stages]
    if stages[:1] != [Stage.AUTHORITY.value] or stages.count(Stage.AUTHORITY.value) != 1 or sorted(old)[::-1] != old:
        yield f"the stages of the runs are not in order: {', '.join(stages)}"


def _scus(db: Session) -> Iterator[str]:
    (least, newest, count) = db.execute("SELECT min(scu), max(scu), count(*) FROM lake_scu").fetchone()
    if (least, count) != (0, newest + 1):
        yield f"SCUs 0 to {newest} have {count} rows in the catalog, from {least} on"
    for upload, scu in db.execute("SELECT upload, scu FROM lake_upload WHERE scu < 1 OR scu > ?", (newest,)).fetchall():
        yield f"upload {upload!r}: it is said to be in SCU {scu}; the newest is {newest}"
    raw = db.execute(
        "SELECT run, scu, lake_run.row_count, lake_scu.row_count FROM lake_run JOIN lake_scu ON scu = first_scu "
        "WHERE stage = ? AND first_scu = last_scu",
        (Stage.RAW.value,),
    )
    for run, scu, rows, told in raw.fetchall():
        if rows != told:
            yield f"run {run}: SCU {scu} has {told} rows, the run {rows}"
    (last,) = db.execute("SELECT max(number) FROM lake_snapshot").fetchone()
    (told,) = db.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone()
    if last != told:
        yield f"the newest snapshot is {last}; DuckLake's is {told}"
    (floor,) = db.execute("SELECT value FROM lake_meta WHERE name = 'floor'").fetchone()
    if int(floor) > last:
        yield f"the oldest snapshot that is kept is {floor}, the newest {last}"


def _files(db: Session) -> Iterator[str]:
    lost = db.execute(
        "SELECT path, lake_part.run FROM lake_part LEFT JOIN lake_run ON lake_run.run = lake_part.run "
        "WHERE lake_part.end_number IS NULL AND lake_part.run <> ? "
        "AND (lake_run.run IS NULL OR lake_run.end_number IS NOT NULL)",
        (AUTHORITY,),
    )
    for path, run in lost.fetchall():
        yield f"file {path}: it is of run {run}, which is not there"
    twice = db.execute(
        "SELECT path, count(*) FROM lake_part WHERE end_number IS NULL GROUP BY path HAVING count(*) > 1"
    )
    for path, count in twice.fetchall():
        yield f"file {path}: the catalog has it {count} times"


def _ducklake(db: Session) -> Iterator[str]:
    own = db.execute("SELECT path, row_count, size_bytes FROM lake_part WHERE end_number IS NULL").fetchall()
    theirs = db.execute(
        "SELECT path, record_count, file_size_bytes FROM ducklake_data_file WHERE end_snapshot IS NULL"
    ).fetchall()
    ours = {PurePosixPath(path).name: (rows, size) for path, rows, size in own}
    told = {path: (rows, size) for path, rows, size in theirs}
    for name in sorted({*ours, *told}):
        if ours.get(name) != told.get(name):
            yield f"file {name}: DuckLake's tables have other facts than the lake's own"
