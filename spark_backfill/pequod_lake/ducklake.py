"""The catalog in the tables of DuckLake 1.0, in SQLite or PostgreSQL: the same statements.

DuckLake is a specification: a catalog is tables in a database, data is Parquet files. DuckDB's extension makes the
tables (ducklake_tables.py). Commits write their rows with plain SQL, in one transaction with Pequod's own tables
(`lake_run`, `lake_part` and the others), which tell what DuckLake does not know: SCUs, stages, checksums, uploads,
leases. So an SCU, the ids of its uploads and its files appear together or not at all, in 1 to 5 ms where a transaction
of the extension takes 35. Any DuckDB can attach the lake and read its tables, with time travel: `posts` and
`posts__by_author` have one row for each key as soon as everything is merged, and `posts__raw` holds what is not sorted
yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pequod_lake import ducklake_files, ducklake_upgrades, fence
from pequod_lake.altering import change_text
from pequod_lake.catalog import AlreadyTaken, CatalogSnapshot, Committed, NewRun, NewScu
from pequod_lake.clock import Stamp
from pequod_lake.database import Session
from pequod_lake.ducklake_files import WITHIN, contents_text
from pequod_lake.ducklake_rows import SnapshotRows
from pequod_lake.ducklake_tables import FORMAT
from pequod_lake.errors import (
    LakeBusyError,
    LakeError,
    LakeSchemaError,
    NoLakeError,
    NoSuchScuError,
    SnapshotGoneError,
    StepLostError,
)
from pequod_lake.leases import leased_numbers
from pequod_lake.locks import Lock
from pequod_lake.place import LakePlace
from pequod_lake.ranges import in_key_order
from pequod_lake.runs import LakeFile, Run, Stage, check_runs
from pequod_lake.schema import LakeSchema

#: The version of the tables that the statements below are written for.
_VERSION: Final = "1.0"
_RUNS: Final = f"""
SELECT run, first_scu, last_scu, stage, level, boot, elapsed_s, wall_us
FROM lake_run LEFT JOIN lake_scu ON scu = first_scu
WHERE {WITHIN} ORDER BY first_scu
"""  # noqa: S608 - names of columns
_NEWEST: Final = "SELECT max(number) FROM lake_snapshot"


class DuckLakeCatalog:
    """A catalog of DuckLake."""

    def __init__(self, place: LakePlace) -> None:
        """Open it.

        Raises:
            NoLakeError: There is none, or of another version.
        """
        self.files_of_rows = place.files
        self.database = place.database
        self.locks = place.locks
        self.now = place.now
        try:
            with self.database.reading() as db:
                (version,) = db.execute("SELECT value FROM ducklake_metadata WHERE key = 'version'").fetchone()
                meta = dict(
                    db.execute("SELECT name, value FROM lake_meta WHERE name IN ('format', 'schema')").fetchall()
                )
                self._rows = SnapshotRows(db)
        except LakeBusyError:
            raise
        except (LakeError, TypeError) as error:
            raise NoLakeError(place.name, f"its catalog cannot be read: {error}") from error
        if version == _VERSION and meta.get("format") in ducklake_upgrades.OLD:
            meta["format"] = ducklake_upgrades.upgrade(self.database, self.locks)
        if (version, meta.get("format")) != (_VERSION, FORMAT):
            raise NoLakeError(place.name, f"its catalog is of version {version}, format {meta.get('format')}")
        self.schema = LakeSchema.parse(meta["schema"])
        self._last: CatalogSnapshot | None = None

    def begin_writer(self) -> Lock:
        """Return the lock of a new writer, under whose id files are written."""
        lock = self.locks.write()
        try:
            with self.database.writing() as db:
                fence.begin(db, self.locks, lock.id)
        except BaseException:
            lock.release()
            raise
        return lock

    def commit(self, scu: NewScu) -> Committed | AlreadyTaken:
        """Add an SCU with all its tables; it gets the next number."""
        with self.database.writing() as db:
            if taken := taken_uploads(db, scu.uploads):
                return AlreadyTaken(taken)
            fence.check(db, scu.files)
            last, *before = db.execute(
                "SELECT scu, boot, elapsed_s, wall_us FROM lake_scu ORDER BY scu DESC LIMIT 1"
            ).fetchone()
            now = _not_before(self.now(), Stamp(*before))
            number = self._rows.begin(db, now, len(scu.files), [(file, True) for file in scu.files], [])
            new = last + 1
            rows = sum(file.row_count for file in scu.files)
            db.execute(
                "INSERT INTO lake_scu VALUES (?, ?, ?, ?, ?, ?)",
                (new, number, rows, now.boot, now.elapsed_s, now.wall_us),
            )
            _add_run(db, number, (new, new), NewRun(Stage.RAW, 0, scu.files), scu.files)
            db.executemany(
                "INSERT INTO lake_upload VALUES (?, ?, ?)", [(upload, new, now.wall_us) for upload in scu.uploads]
            )
        return Committed(new)

    def replace(self, old: Sequence[Run], new: NewRun) -> int:
        """Put a run in the place of runs that follow each other, and return the number of the snapshot."""
        ids = [run.id for run in old]
        before = {file.path for run in old for file in run.files}
        added = [file for file in new.files if file.path not in before]
        # Files of the authority that nothing has touched: the catalog has them, and their writers may be gone.
        kept = before & {file.path for file in new.files}
        with self.database.writing() as db:
            there = db.execute(
                f"SELECT count(*) FROM lake_run WHERE end_number IS NULL AND run IN ({_marks(ids)})",  # noqa: S608
                ids,
            )
            if there.fetchone()[0] != len(ids):
                raise StepLostError(tuple(ids))
            if new.schema and new.schema != _schema_text(db):
                # Without a column that was added meanwhile, its values would be lost.
                raise StepLostError(tuple(ids))
            fence.check(db, added)
            number = self._rows.begin(
                db,
                self.now(),
                len(added),
                [(file, False) for file in added],
                [(file, run.stage is Stage.RAW) for run in old for file in run.files if file.path not in kept],
            )
            db.execute(f"UPDATE lake_run SET end_number = ? WHERE run IN ({_marks(ids)})", (number, *ids))  # noqa: S608
            db.execute(f"DELETE FROM lake_lease WHERE run IN ({_marks(ids)})", ids)  # noqa: S608
            ducklake_files.end_files(db, number, [file for run in old for file in run.files if file.path not in kept])
            _add_run(db, number, (old[0].first_scu, old[-1].last_scu), new, added)
        return number

    def files(self, table: str, max_scu: int | None = None) -> list[LakeFile]:
        """Return the present files of a table, of all its views, of runs up to an SCU."""
        runs = self.snapshot().runs
        chosen = runs if max_scu is None else [run for run in runs if run.last_scu <= max_scu]
        return [file for run in chosen for file in run.files if file.table == table]

    def snapshot(self, number: int | None = None) -> CatalogSnapshot:
        """Return the lake at the present moment, or at a past snapshot."""
        with self.database.reading() as db:
            (newest,) = db.execute(_NEWEST).fetchone()
            wanted = newest if number is None else number
            last = self._last
            if last is not None and last.number == wanted:
                if number is not None:
                    self._check_kept(db, wanted, newest)
                return last
            self._check_kept(db, wanted, newest)
            if number is None and (text := _schema_text(db)) != self.schema.text:
                self.schema = LakeSchema.parse(text)
            found = db.execute(_RUNS, (wanted, wanted)).fetchall()
            # A run never changes: those that were read before are not read again.
            known = {run.id: run for run in last.runs} if last is not None else {}
            new = [(run, Stage(stage)) for run, _, _, stage, *_ in found if run not in known]
            files = ducklake_files.files_of(db, new, wanted)
        runs = [
            known[run] if run in known else _run(run, first, last_scu, stage, level, stamp, files[run])
            for run, first, last_scu, stage, level, *stamp in found
        ]
        try:
            check_runs(runs)
        except AssertionError as error:
            raise LakeError(
                f"the catalog {self.database.name} is damaged: its runs do not have each SCU once"
            ) from error
        snapshot = CatalogSnapshot(wanted, tuple(runs))
        if number is None:
            self._last = snapshot
        return snapshot

    def is_newest(self, snapshot: CatalogSnapshot) -> bool:
        """Return whether a snapshot is the newest one; one statement, which needs no transaction."""
        (newest,) = self.database.connection.execute(_NEWEST).fetchone()
        return bool(newest == snapshot.number)

    @property
    def last(self) -> CatalogSnapshot | None:
        """The newest snapshot that this process has read; None if it has read none."""
        return self._last

    def alter(self, table: str, what: str, name: str, kind: str | None = None) -> None:
        """Add a column to a table, or drop one; files stay as they are.

        Raises:
            LakeSchemaError: It cannot be done; nothing is changed.
        """
        with self.database.writing() as db:
            before = LakeSchema.parse(_schema_text(db))
            if table not in {one.name for one in before.tables}:
                raise LakeSchemaError(f"table {table}", "the lake has no such table")
            text = before.text + change_text(table, what, name, kind)
            after = LakeSchema.parse(text)
            db.execute("UPDATE lake_meta SET value = ? WHERE name = 'schema'", (text,))
            # A snapshot of its own: who looks for a newer one sees the columns with it.
            self._rows.alter(db, self.now(), before.table(table), after.table(table))
        self.snapshot()

    def number_of(self, scu: int) -> int:
        """Return the last snapshot whose newest SCU is this one.

        Raises:
            NoSuchScuError: There is no such SCU.
        """
        with self.database.reading() as db:
            (newest,) = db.execute("SELECT max(scu) FROM lake_scu").fetchone()
            if not 0 <= scu <= newest:
                raise NoSuchScuError(scu, newest)
            row = db.execute("SELECT number - 1 FROM lake_scu WHERE scu = ?", (scu + 1,)).fetchone()
            if row is None:
                row = db.execute(_NEWEST).fetchone()
        return int(row[0])

    def committed_files(self, scu: int) -> list[LakeFile]:
        """Return the files of an SCU as it was committed; none if they are not kept."""
        return ducklake_files.raw_files(self.database.connection, scu)

    def past_count(self) -> int:
        """Return how many files only older states have."""
        past = "SELECT count(*) FROM lake_part WHERE end_number IS NOT NULL"
        return int(self.database.connection.execute(past).fetchone()[0])

    @property
    def name(self) -> str:
        """What tells this lake from others."""
        return str(self.database.connection.execute("SELECT value FROM lake_meta WHERE name = 'name'").fetchone()[0])

    def mark(self) -> str:
        """Return a text by which `knows` recognises the lake with its present history."""
        (mark,) = self.database.connection.execute(f"{_MARK} ORDER BY scu DESC LIMIT 1").fetchone()
        return f"{self.name} {mark}"

    def knows(self, mark: str) -> bool:
        """Return whether the history of the mark is the lake's own."""
        name, _, at = mark.partition(" ")
        scu = at.partition(" ")[0]
        if name != self.name or not scu.isdecimal():
            return False
        row = self.database.connection.execute(f"{_MARK} WHERE scu = ?", (int(scu),)).fetchone()
        return row is not None and row[0] == at

    def number_at(self, age_s: float) -> int:
        """Return the last snapshot that is at least so old; the oldest that is kept if all are younger."""
        now = self.now()
        for number, *stamp in self.database.connection.execute(
            "SELECT number, boot, elapsed_s, wall_us FROM lake_snapshot ORDER BY number DESC"
        ):
            if Stamp(*stamp).age_s(now) >= age_s:
                return int(number)
        return self.floor

    @property
    def floor(self) -> int:
        """The oldest snapshot that is kept."""
        return int(self.database.connection.execute("SELECT value FROM lake_meta WHERE name = 'floor'").fetchone()[0])

    def expire(self, before: int) -> list[str]:
        """Delete the files that no snapshot from ``before`` on has and no reader holds, and return their paths."""
        with self.database.writing() as db:
            (newest,) = db.execute(_NEWEST).fetchone()
            floor = max(self.floor, min(before, newest))
            db.execute("UPDATE lake_meta SET value = ? WHERE name = 'floor'", (floor,))
        # Readers look at the floor when they hold their lock: those that are not listed here will not begin below it.
        held = f"(VALUES {', '.join(f'({number})' for number in self._held_numbers())}) AS held"
        gone = self._delete_scheduled()
        while self._has_scheduled(floor, held):
            # Before the next ones are scheduled: each batch makes room for the next on a full disk.
            gone += self._delete_scheduled()
        with self.database.writing() as db:
            for table, number in (
                ("lake_snapshot", "number"),
                ("ducklake_snapshot", "snapshot_id"),
                ("ducklake_snapshot_changes", "snapshot_id"),
            ):
                is_kept = f"{number} IN (SELECT column1 FROM {held})"  # noqa: S608 - numbers
                db.execute(f"DELETE FROM {table} WHERE {number} < ? AND NOT {is_kept}", (floor,))  # noqa: S608
        return gone

    def _held_numbers(self) -> set[int]:
        """Return the snapshots that are read, and one that never is."""
        # Locks first: a lease is written while the lock of its snapshot is held.
        held = {-1, *self.locks.numbers()}
        return held | leased_numbers(self.files_of_rows)

    def _has_scheduled(self, floor: int, held: str) -> bool:
        with self.database.writing() as db:
            return ducklake_files.schedule(db, floor, held)

    def _delete_scheduled(self) -> list[str]:
        """Delete the files that are scheduled for it, also by an expiry that broke off, and return their paths."""
        gone = [path for (path,) in self.database.connection.execute(_SCHEDULED)]
        for path in gone:
            self.files_of_rows.remove(path)
        with self.database.writing() as db:
            db.executemany("DELETE FROM ducklake_files_scheduled_for_deletion WHERE path = ?", [(one,) for one in gone])
        return gone

    def orphans(self) -> list[str]:
        """End the writers that are dead, and return files that no snapshot has and no other writer is writing."""
        if not fence.named_writers(self.database.connection) <= self.locks.writers():
            with self.database.writing() as db:
                fence.living(db, self.locks)
        there = self.files_of_rows.paths()
        # Read after the files were listed: what a writer without a row has not committed now is never committed.
        with self.database.reading() as db:
            writers = fence.named_writers(db)
            known = ducklake_files.known_paths(db)
            known |= {path for (path,) in db.execute(_SCHEDULED)}
        return sorted(path for path in there if path not in known and fence.writer_of(path) not in writers)

    def restore_ducklake(self) -> int:
        """Have DuckLake's tables name the present files as the lake's own do; return how many rows were not right."""
        with self.database.writing() as db:
            return self._rows.restore(db, ducklake_files.present(db))

    def restore_count(self, run: Run) -> bool:
        """Have the row of a run say how many rows it has; return whether it said another number."""
        with self.database.writing() as db:
            (told,) = db.execute("SELECT row_count FROM lake_run WHERE run = ?", (run.id,)).fetchone()
            db.execute("UPDATE lake_run SET row_count = ? WHERE run = ?", (run.row_count, run.id))
        return bool(told != run.row_count)

    def set_next_id(self, name: str, number: int) -> None:
        """Have the next new text get an id of at least this number."""
        with self.database.writing() as db:
            db.execute(
                "INSERT INTO lake_meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (f"next id of {name}", number),
            )

    def close(self) -> None:
        """Close the connections."""
        self.database.close()

    def _check_kept(self, db: Session, number: int, newest: int) -> None:
        (floor,) = db.execute("SELECT value FROM lake_meta WHERE name = 'floor'").fetchone()
        if not int(floor) <= number <= newest:
            raise SnapshotGoneError(f"snapshot {number}", int(floor))


#: An SCU with its moment: a copy of the catalog that went another way has other ones.
_MARK: Final = "SELECT scu || ' ' || wall_us || ' ' || elapsed_s FROM lake_scu"
_SCHEDULED: Final = "SELECT path FROM ducklake_files_scheduled_for_deletion"


def _schema_text(db: Session) -> str:
    return str(db.execute("SELECT value FROM lake_meta WHERE name = 'schema'").fetchone()[0])


def taken_uploads(db: Session, uploads: Sequence[str]) -> dict[str, int]:
    """Return the uploads that are in the lake, each with its SCU."""
    found = {}
    for upload in uploads:
        row = db.execute("SELECT scu FROM lake_upload WHERE upload = ?", (upload,)).fetchone()
        if row is not None:
            found[upload] = int(row[0])
    return found


def _not_before(now: Stamp, last: Stamp) -> Stamp:
    """Return the present moment, or the last stamp if the present was taken before others had committed."""
    return last if now.boot == last.boot and now.elapsed_s < last.elapsed_s else now


def _run(
    run: int, first: int, last: int, stage: str, level: int, stamp: Sequence[Any], files: Sequence[LakeFile]
) -> Run:
    is_ranged = Stage(stage) is Stage.AUTHORITY
    return Run(run, first, last, Stage(stage), level, Stamp(*stamp), tuple(in_key_order(files) if is_ranged else files))


def _add_run(db: Session, number: int, span: tuple[int, int], new: NewRun, added: Sequence[LakeFile]) -> None:
    (run,) = db.execute("SELECT max(run) + 1 FROM lake_run").fetchone()
    rows = sum(file.row_count for file in new.files if not file.view)
    contents = contents_text(new.files) if new.stage.is_sorted else None
    db.execute(
        "INSERT INTO lake_run VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?)",
        (run, *span, new.stage.value, new.level, rows, number, contents),
    )
    ducklake_files.add_files(db, number, run, new.stage, added)


def _marks(values: Sequence[int]) -> str:
    return ", ".join("?" * len(values))
