"""A state of a lake, handed to tasks on other machines: they read its files, and open no catalog.

driver      snapshot -> LakeState with a lease          pickled, with the task or its part
task        LakeState -> LakeSnapshot                    while it reads, it renews the lease
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from pequod_lake.errors import LakeCorruptError, LeaseLostError
from pequod_lake.leases import ReadLease, renewed, take_lease
from pequod_lake.place import opened_files
from pequod_lake.query import LakeSnapshot
from pequod_lake.reading import LakeReader
from pequod_lake.runs import Run
from pequod_lake.schema import LakeSchema
from pequod_lake.store import LakeFiles


@dataclass(frozen=True, slots=True)
class LakeState:
    """A state of a lake that a lease keeps."""

    #: The folder as an absolute path, or the address.
    location: str
    #: The text of the lake's schema.
    schema: str
    number: int
    runs: tuple[Run, ...]
    lease: ReadLease

    @staticmethod
    def of(snapshot: LakeSnapshot, location: str, lease_s: float, *numbers: int) -> LakeState:
        """Return the state of a snapshot that is open, with a lease of it.

        Args:
            numbers: More snapshots that the lease is to keep.

        Raises:
            LakeError: The lease cannot be written.
        """
        kept = sorted({snapshot.number, *numbers})
        lease = take_lease(snapshot.reader.files, kept, lease_s)
        return LakeState(location, snapshot.schema.text, snapshot.number, snapshot.runs, lease)

    @property
    def scu(self) -> int:
        """The last SCU whose rows are seen."""
        return self.runs[-1].last_scu

    @contextmanager
    def opened(self) -> Iterator[LakeSnapshot]:
        """Give the state to be queried, and renew the lease until the block ends.

        Raises:
            LeaseLostError: The lease has run out, and files may have been deleted.
        """
        what = f"the state of {self.location} after SCU {self.scu}"
        schema, reader = _parsed(self.schema), reader_at(self.location)
        try:
            with renewed(reader.files, self.lease, what):
                for table in schema.tables:
                    reader.learn(table)
                yield LakeSnapshot(schema, reader, self.number, self.runs, 0.0, _Unlocked())
        except LakeCorruptError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise LeaseLostError(what, self.lease.lease_s) from error
            raise


class _Unlocked:
    """In place of a lock: the lease keeps the state."""

    id = ""

    def release(self) -> None:
        """Do nothing."""


@lru_cache(maxsize=64)
def files_at(location: str) -> LakeFiles:
    """Return the files at a place; a process has one connection to each store."""
    return opened_files(location)


@lru_cache(maxsize=64)
def reader_at(location: str) -> LakeReader:
    """Return the reader of the files at a place; a process has one for each."""
    return LakeReader(files_at(location))


@lru_cache(maxsize=64)
def _parsed(text: str) -> LakeSchema:
    return LakeSchema.parse(text)
