"""Files that the tasks of a job write before the job is committed: in other processes, without a catalog.

    task      rows -> staging/JOB/part-LABEL.parquet          no lock, no catalog; it may be killed, and be run twice
    driver    files of the tasks that succeeded -> data/      under a writer's lock; one SCU under one upload id
    sweep     deletes staging/JOB                             when nobody has said for its time that it is alive

Nothing in `staging` is part of the lake, so nothing that happens there can be seen. Only the commit counts: it takes an
upload id once, and files that a sweep has deleted make it fail before anything is visible.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from time import sleep
from typing import Any, Final, assert_never

from pequod_lake.catalog import AlreadyTaken, Committed, LakeCatalog, NewScu
from pequod_lake.errors import LakeBusyError, LakeCorruptError, LakeError, LeaseLostError, WriterLostError
from pequod_lake.ingest import Acknowledged, AtPoint
from pequod_lake.leases import aged, kept
from pequod_lake.runs import LakeFile
from pequod_lake.schema import LakeSchema, LakeTable
from pequod_lake.store import LakeFiles
from pequod_lake.uploads import Upload
from pequod_lake.writing import FileWriter, write_file

_FOLDER: Final = "staging"
_ALIVE: Final = "alive"
#: Copies at once, where a store copies them.
_COPIES: Final = 16
#: How often a commit is tried, and how long it waits before the next time, growing.
_TRIES: Final = 6
_WAIT_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class StagingJob:
    """A job whose tasks stage files."""

    id: str
    #: For how long its files stay after a task has said the last time that the job is alive.
    lease_s: float

    @staticmethod
    def new(lease_s: float) -> StagingJob:
        """Return a new job."""
        return StagingJob(secrets.token_hex(6), lease_s)

    @property
    def folder(self) -> str:
        """Where its files are."""
        return f"{_FOLDER}/{self.id}-{self.lease_s:g}"

    @contextmanager
    def alive(self, files: LakeFiles) -> Iterator[None]:
        """Say that the job is alive until the block ends.

        Raises:
            LakeError: The store cannot be reached.
        """
        with kept(files, f"{self.folder}/{_ALIVE}-{secrets.token_hex(4)}", b"", self.lease_s):
            yield

    def write(self, files: LakeFiles, label: str, table: LakeTable, batches: Iterable[Any]) -> LakeFile | None:
        """Write rows in the form of raw files into one file; None if there are no rows.

        Args:
            label: What no other task of the job has, nor another attempt at the same task.

        Raises:
            LakeError: It cannot be written; nothing is left.
        """
        return write_file(files, f"{self.folder}/part-{label}.parquet", table, table.primary, batches, raw=True)

    def drop(self, files: LakeFiles) -> None:
        """Delete its files. If they cannot be deleted now, a sweep does it later."""
        with suppress(LakeError):
            files.remove_folder(self.folder)


class StagedCommit:
    """Makes staged files one SCU."""

    def __init__(
        self, schema: LakeSchema, catalog: LakeCatalog, files: LakeFiles, writer: FileWriter, at_point: AtPoint
    ) -> None:
        self._schema = schema
        self._catalog = catalog
        self._files = files
        self._writer = writer
        self._at_point = at_point

    def take(self, job: StagingJob, upload: str, staged: Sequence[LakeFile]) -> Acknowledged:
        """Make files of a job visible in one SCU, in their order, unless the upload is in the lake.

        If the answer of the catalog is lost, it is asked again: the upload is taken once.

        Raises:
            UploadRefusedError: The upload's id is not right.
            LeaseLostError: The files have been swept.
            LakeBusyError: The lake is out of reach for some seconds; whether the upload was taken is not known.
            LakeError: The files cannot be taken; nothing of them is visible.
        """
        Upload(self._schema, upload)
        for attempt in range(_TRIES):
            try:
                return self._once(job, upload, staged)
            except WriterLostError as error:
                self._writer.renew(error.writer)
            except LakeBusyError:
                if attempt == _TRIES - 1:
                    raise
            sleep(_WAIT_S * 2**attempt)
        raise LakeBusyError("its writer was taken for dead again and again")

    def _once(self, job: StagingJob, upload: str, staged: Sequence[LakeFile]) -> Acknowledged:
        # Copies in a store may take longer than the job's time.
        with job.alive(self._files):
            linked = self._linked(job, staged)
        self._at_point("staged.linked")
        # If this fails, nobody knows whether the catalog has the files. They stay, and a sweep finds out.
        result = self._catalog.commit(NewScu((upload,), tuple(linked)))
        self._at_point("staged.committed")
        match result:
            case Committed(scu):
                return Acknowledged(scu, is_repeated=False)
            case AlreadyTaken(scus):
                # Perhaps by a commit of this one whose answer was lost: then these are further copies.
                self._writer.remove(linked)
                return Acknowledged(scus[upload], is_repeated=True)
            case _:
                assert_never(result)

    def _linked(self, job: StagingJob, staged: Sequence[LakeFile]) -> list[LakeFile]:
        """Give the files names of the writer, under which they may be committed."""
        work = [partial(self._writer.link, "raw", self._schema.table(one.table), one, raw=True) for one in staged]
        with ThreadPoolExecutor(_COPIES) as pool:
            futures = [pool.submit(one) for one in work]
        linked = [future.result() for future in futures if future.exception() is None]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            self._writer.remove(linked)
            if isinstance(errors[0], LakeCorruptError):
                raise LeaseLostError(f"the staged files of job {job.id}", job.lease_s) from errors[0]
            raise errors[0]
        return linked


def sweep_staged(files: LakeFiles) -> list[str]:
    """Delete the files of jobs whose time has run out, and return their paths.

    Raises:
        LakeError: The store cannot be reached.
    """
    if not files.listed(_FOLDER):
        return []
    jobs: dict[str, list[tuple[str, float]]] = {}
    for path, age_s in aged(files, _FOLDER):
        jobs.setdefault(PurePosixPath(path).parts[1], []).append((path, age_s))
    gone = list[str]()
    for name, found in jobs.items():
        lease_s = float(name.partition("-")[2])
        if min(age_s for _, age_s in found) > lease_s:
            files.remove_folder(f"{_FOLDER}/{name}")
            gone += [path for path, _ in found if path.endswith(".parquet")]
    return sorted(gone)
