r"""A lake: a folder with a catalog, files, and locks.

    DIR/catalog.sqlite      the catalog
    DIR/data/               the files
    DIR/staging/            files of jobs that are not committed yet, on their way into data
    DIR/leases/             which snapshots tasks of jobs read
    DIR/locks/              who writes, and who reads which snapshot
    DIR/reserve             room for `expire` on a full disk

Its catalog may be in PostgreSQL, and its files in an object store: place.py has that.

>>> from tempfile import mkdtemp
>>> schema = '[[table]]\nname = "posts"\nkey = ["id"]\ncolumns = { id = "int64", body = "text" }'
>>> with Lake.create(Path(mkdtemp()) / "lake", schema) as lake, lake.ingestor() as ingestor:
...     upload = ingestor.upload("first")
...     upload.put("posts", {"id": [1, 2], "body": ["hello", "world"]})
...     print(ingestor.take(upload))
...     with lake.snapshot("newest") as snapshot:
...         print(snapshot.scu, snapshot.get("posts", 2))
Acknowledged(scu=1, is_repeated=False)
1 {'id': 2, 'body': 'world'}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from pequod_lake.auditing import audit, check_ranges, check_sums, recorded_contents
from pequod_lake.authority import StageLimits
from pequod_lake.blocks import CacheLimits
from pequod_lake.catalog import CatalogSnapshot
from pequod_lake.checking import check_ids, check_run, next_ids
from pequod_lake.clock import Clock, machine_clock
from pequod_lake.closing import Closing
from pequod_lake.coordination import Coordinator
from pequod_lake.ducklake import DuckLakeCatalog
from pequod_lake.errors import LakeError, LakeStaleError, NoLakeError
from pequod_lake.freshness import Level, chosen_runs, parse_level, staleness_s
from pequod_lake.ingest import Acknowledged, AtPoint, IngestLimits, Ingestor, no_point
from pequod_lake.locks import Lock
from pequod_lake.place import create, opened
from pequod_lake.query import LakeSnapshot
from pequod_lake.reading import LakeReader
from pequod_lake.repairing import Repairer, RepairReport
from pequod_lake.runs import LakeFile, MergePolicy, Stage, authority_count
from pequod_lake.schema import LakeSchema
from pequod_lake.slices import Bulk
from pequod_lake.stages import Stages
from pequod_lake.staging import StagedCommit, StagingJob, sweep_staged
from pequod_lake.worker import LakeWorker
from pequod_lake.writing import FileWriter

_POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class StageStatus:
    """The runs of one stage."""

    stage: Stage
    run_count: int
    row_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LakeStatus:
    """What a lake is at one moment."""

    snapshot: int
    #: The oldest snapshot that is kept.
    oldest_snapshot: int
    #: The newest SCU, and the last one that is in the authority.
    scu: int
    authority_scu: int
    #: How old the state is that a query of the authority sees.
    authority_age_s: float
    stages: tuple[StageStatus, ...]
    worker_count: int
    reader_count: int
    orphan_count: int


class Lake(Closing):
    """A lake that is open in this process; threads may share it."""

    def __init__(
        self,
        location: Path | str,
        *,
        clock: Clock = machine_clock,
        at_point: AtPoint = no_point,
        cache: CacheLimits | None = None,
    ) -> None:
        """Open a lake.

        Args:
            cache: What this process keeps of the files that it reads.
            location: Its folder, or the address of an object store, such as `s3://bucket/lake`.
            clock: The clock of a lake that is on one machine; others have that of their catalog.

        Raises:
            NoLakeError: There is none, or of another version.
        """
        self.place = opened(location, clock)
        try:
            self.catalog = self._catalog()
        except BaseException:
            self.place.close()
            raise
        self.coordinator = Coordinator(self.catalog)
        self.reader = LakeReader(self.place.files, cache, lambda: self.catalog.schema)
        self._at_point = at_point
        self._writer: FileWriter | None = None

    @staticmethod
    def create(location: Path | str, schema: str, *, catalog: str | None = None, clock: Clock = machine_clock) -> Lake:
        """Make an empty lake and open it.

        Args:
            location: A new folder, or the address of an object store where nothing is.
            catalog: The connection string of an empty database of PostgreSQL, for lakes of several machines; None for a
                catalog in the folder.

        Raises:
            LakeSchemaError: The schema is not right.
            LakeExistsError: The location, or the database, holds something.
        """
        create(location, LakeSchema.parse(schema), catalog, clock)
        return Lake(location, clock=clock)

    def _catalog(self) -> DuckLakeCatalog:
        try:
            return DuckLakeCatalog(self.place)
        except NoLakeError:
            if not self.place.is_short:
                raise
            self.place.give_room()
            return DuckLakeCatalog(self.place)

    @property
    def schema(self) -> LakeSchema:
        """The tables; columns may have been added and dropped by other processes since the last snapshot."""
        return self.catalog.schema

    def add_column(self, table: str, name: str, kind: str) -> None:
        """Add a column, beside readers, writers and workers; rows that are there have null in it.

        Args:
            kind: A type of the schema, without ids.

        Raises:
            LakeSchemaError: The name is taken, or was taken by a column that was dropped; or the type is none.
        """
        self.catalog.alter(table, "add", name, kind)

    def drop_column(self, table: str, name: str) -> None:
        """Drop a column, beside readers, writers and workers; merges leave it out of new files.

        Raises:
            LakeSchemaError: It is part of a key or the timestamp, or it has ids.
        """
        self.catalog.alter(table, "drop", name)

    @property
    def folder(self) -> Path:
        """The folder of its files.

        Raises:
            LakeError: They are in none.
        """
        if self.place.folder is None:
            raise LakeError(f"the files of {self.place.name} are in no folder of this machine")
        return self.place.folder

    def close(self) -> None:
        """Close the connections; snapshots that are open keep their files, if the catalog is in their folder."""
        if self._writer is not None:
            self._writer.close()
        self.reader.close()
        self.place.close()

    @property
    def writer(self) -> FileWriter:
        """What writes the files of this process."""
        if self._writer is None:
            self._writer = FileWriter(self.place.files, self.catalog.begin_writer)
            self.place.keep_room()
        return self._writer

    def ingestor(self, limits: IngestLimits | None = None) -> Ingestor:
        """Return what takes uploads; close it to write what waits."""
        limits = limits or IngestLimits()
        return Ingestor(self.schema, self.catalog, self.coordinator, self.writer, limits, self._at_point)

    def take_staged(self, job: StagingJob, upload: str, staged: Sequence[LakeFile]) -> Acknowledged:
        """Make files that tasks of a job have staged visible in one SCU, under the id of an upload.

        Raises:
            LakeBusyError: The lake is out of reach; whether the upload was taken is not known, and it may be tried
                again.
            LakeError: The files cannot be taken; nothing of them is visible.
        """
        commit = StagedCommit(self.schema, self.catalog, self.place.files, self.writer, self._at_point)
        return commit.take(job, upload, staged)

    def worker(
        self,
        policy: MergePolicy | None = None,
        limits: StageLimits | None = None,
        *,
        lease_s: float = 30.0,
        bulk: Bulk | None = None,
    ) -> LakeWorker:
        """Return a worker for the stages.

        Args:
            bulk: Takes over steps of more than ``limits.bulk_rows`` rows, as `pequod_spark.lake_bulk.SparkBulk` does;
                None if this process does all of them.
        """
        # Two workers of one process have writers of their own: the names of leases are those of writers.
        writer = FileWriter(self.place.files, self.catalog.begin_writer)
        stages = Stages(
            self.schema,
            self.catalog,
            self.coordinator,
            self.reader,
            writer,
            limits or StageLimits(),
            self._at_point,
            bulk,
        )
        return LakeWorker(
            self.catalog,
            self.coordinator,
            stages,
            writer,
            has_ids=self.schema.has_ids,
            policy=policy or MergePolicy(),
            at_point=self._at_point,
            lease_s=lease_s,
        )

    def snapshot(self, freshness: Level | str = "newest", *, wait_s: float = 0.0) -> LakeSnapshot:
        """Return the lake as of one SCU, as fresh as is asked; close it to let its files go.

        Args:
            wait_s: How long to wait for an SCU that ``freshness`` names and that is not there yet.

        Raises:
            LakeStaleError: The SCU did not come.
        """
        level = parse_level(freshness) if isinstance(freshness, str) else freshness
        until_s = monotonic() + wait_s
        while True:
            found, lock = self._held(None)
            try:
                now = self.catalog.now()
                runs = chosen_runs(found.runs, level, now)
            except LakeStaleError:
                lock.release()
                if monotonic() >= until_s:
                    raise
                sleep(_POLL_S)
                continue
            age_s = staleness_s(found.runs, len(runs), now)
            return LakeSnapshot(self.schema, self.reader, found.number, runs, age_s, lock)

    def snapshot_at(
        self, *, scu: int | None = None, number: int | None = None, last_scu: int | None = None
    ) -> LakeSnapshot:
        """Return the lake as it was: after an SCU, or at a snapshot of the catalog.

        Args:
            last_scu: The last SCU to be seen of a snapshot; a run ends with it.

        Raises:
            SnapshotGoneError: That state is not kept.
        """
        found, lock = self._held(number if scu is None else self.catalog.number_of(scu))
        runs = [run for run in found.runs if last_scu is None or run.last_scu <= last_scu]
        return LakeSnapshot(self.schema, self.reader, found.number, runs, 0.0, lock)

    def _held(self, number: int | None) -> tuple[CatalogSnapshot, Lock]:
        """Return a snapshot whose files stay."""
        if number is None and (last := self.catalog.last) is not None:
            # Most queries find what the last one found. The newest snapshot is never below the floor.
            lock = self.catalog.locks.read(last.number)
            try:
                is_newest = self.catalog.is_newest(last)
            except BaseException:
                lock.release()
                raise
            if is_newest:
                return last, lock
            lock.release()
        while True:
            found = self.catalog.snapshot(number)
            lock = self.catalog.locks.read(found.number)
            # `expire` raises the floor before it looks for readers: either it sees this lock, or this sees the floor.
            if self.catalog.floor <= found.number:
                return found, lock
            lock.release()

    def expire(self, retention_s: float) -> tuple[list[str], list[str]]:
        """Delete files of states that are older than ``retention_s``, and orphans; return the paths of both.

        What snapshots that are open have stays, and nothing that lies between them. It works on a full disk, too.
        """
        self.place.give_room()
        try:
            orphans = self.catalog.orphans()
            for path in orphans:
                self.place.files.remove(path)
            orphans += sweep_staged(self.place.files)
            expired = self.catalog.expire(self.catalog.number_at(retention_s))
            self.coordinator.forget_uploads()
        finally:
            self.place.keep_room()
        return expired, orphans

    def status(self) -> LakeStatus:
        """Return what the lake is now."""
        snapshot = self.catalog.snapshot()
        count = authority_count(snapshot.runs)
        stages = []
        for stage in Stage:
            runs = [run for run in snapshot.runs if run.stage is stage]
            size_bytes = sum(file.size_bytes for run in runs for file in run.files)
            stages.append(StageStatus(stage, len(runs), sum(run.row_count for run in runs), size_bytes))
        return LakeStatus(
            snapshot.number,
            self.catalog.floor,
            snapshot.scu,
            snapshot.runs[count - 1].last_scu,
            staleness_s(snapshot.runs, count, self.catalog.now()),
            tuple(stages),
            len(set(self.coordinator.leases().values())),
            len(self.catalog.locks.numbers()),
            len(self.catalog.orphans()),
        )

    def verify(self) -> list[str]:
        """Return what is wrong with the catalog and the present files.

        Every file is read: damage, order, keys that are there twice, rows that are not those that were written, views
        that differ, ids. Files that no catalog names are left to `expire`.
        """
        problems = audit(self.catalog)
        try:
            found, lock = self._held(None)
        except LakeError as error:
            return [*problems, str(error)]
        try:
            recorded = recorded_contents(self.catalog)
            for run in found.runs:
                if run.stage.is_sorted:
                    problems += [*check_sums(run, recorded.get(run.id)), *check_ranges(run)]
                for table in self.schema.all_tables:
                    problems += check_run(self.reader, table, run)
            if not problems:
                problems += check_ids(self.reader, self.schema, found.runs, next_ids(self.catalog))
        finally:
            lock.release()
        return list(dict.fromkeys(problems))

    def repair(self, limits: StageLimits | None = None) -> RepairReport:
        """Make damaged files of sorted runs anew from what other views and SCUs have.

        Raises:
            LakeError: The catalog is damaged itself, or cannot be written.
        """
        found, lock = self._held(None)
        try:
            range_rows = (limits or StageLimits()).range_rows
            return Repairer(self.schema, self.catalog, self.reader, self.writer, range_rows).repair(found.runs)
        finally:
            lock.release()
