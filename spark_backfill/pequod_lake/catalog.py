"""The catalog: which files make up the lake at each snapshot.

Everything else sees it through the methods of `LakeCatalog`, so that another catalog can take the place of
`ducklake.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pequod_lake.clock import Stamp
from pequod_lake.locks import Lock
from pequod_lake.runs import LakeFile, Run, Stage
from pequod_lake.schema import LakeSchema


@dataclass(frozen=True, slots=True)
class CatalogSnapshot:
    """The lake at one moment.

    Invariants:
        1. The runs cover every SCU once, from 0 on (`check_runs`).
    """

    #: Grows with every change of the catalog, by an SCU or by a step.
    number: int
    runs: tuple[Run, ...]

    @property
    def scu(self) -> int:
        """The newest SCU."""
        return self.runs[-1].last_scu


@dataclass(frozen=True, slots=True)
class NewScu:
    """The files of an SCU that is durable and not yet in the catalog."""

    #: The ids of the uploads that it is made of.
    uploads: tuple[str, ...]
    files: tuple[LakeFile, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """An SCU is in the catalog."""

    scu: int


@dataclass(frozen=True, slots=True)
class AlreadyTaken:
    """Nothing was done: some of the uploads are in the lake, each under its SCU."""

    scus: dict[str, int]


@dataclass(frozen=True, slots=True)
class NewRun:
    """The files that take the place of runs."""

    stage: Stage
    level: int
    files: tuple[LakeFile, ...]
    #: The text of the schema that they were written by; empty if any will do.
    schema: str = ""


class LakeCatalog(Protocol):
    """The methods of a catalog; each is one transaction."""

    #: The tables, as of the last call of `snapshot`.
    schema: LakeSchema

    def begin_writer(self) -> Lock:
        """Return the lock of a new writer, under whose id files are written.

        The fence: the catalog has a row for each writer, and takes files of writers that have one. A sweep deletes the
        row of a writer that it takes for dead before it deletes files, so it deletes none that is committed later.
        """
        ...

    def now(self) -> Stamp:
        """Return the present moment, by the one clock of the lake."""
        ...

    def commit(self, scu: NewScu) -> Committed | AlreadyTaken:
        """Add an SCU with all its tables; it gets the next number.

        Raises:
            WriterLostError: A file is of a writer that was taken for dead.
        """
        ...

    def replace(self, old: Sequence[Run], new: NewRun) -> int:
        """Put a run in the place of runs that follow each other, and return the number of the snapshot.

        Raises:
            StepLostError: One of the old runs is not there any more, or columns were added or dropped meanwhile.
            WriterLostError: As for `commit`.
        """
        ...

    def files(self, table: str, max_scu: int | None = None) -> list[LakeFile]:
        """Return the present files of a table, of all its views, of runs up to an SCU."""
        ...

    def snapshot(self, number: int | None = None) -> CatalogSnapshot:
        """Return the lake at the present moment, or at a past snapshot.

        Raises:
            SnapshotGoneError: The past snapshot is not kept.
        """
        ...

    def expire(self, before: int) -> list[str]:
        """Delete the files that no snapshot from ``before`` on has and no reader holds, and return their paths."""
        ...

    def orphans(self) -> list[str]:
        """End the writers that are dead, and return files that no snapshot has and no other writer is writing."""
        ...
