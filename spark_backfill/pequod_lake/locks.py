"""Locks that end with their process: who writes files, and which snapshots are read.

    locks/w-3f9a01bc            a writer: files whose names have 3f9a01bc may be on their way
    locks/r-42-77d0e1aa         a reader of snapshot 42: its files stay

A lock is a file held with flock. The kernel releases it when the process ends, however it ends, so there is no clock
and no renewal.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path
from typing import Protocol


class Lock(Protocol):
    """A lock that this process holds until it releases it or ends."""

    #: What tells it from other locks; of a writer, the part of files' names by which they are known.
    id: str

    def release(self) -> None:
        """Give the lock back; later calls do nothing."""
        ...


class Locks(Protocol):
    """The locks of a lake."""

    def write(self) -> Lock:
        """Hold the lock of a new writer."""
        ...

    def read(self, number: int) -> Lock:
        """Hold a lock by which the files of a snapshot stay."""
        ...

    def writers(self) -> set[str]:
        """Return the ids of the writers whose locks are held."""
        ...

    def numbers(self) -> list[int]:
        """Return the snapshots that are read, one for each reader."""
        ...

    def close(self) -> None:
        """End what is open; locks that are held in files stay until they are released."""
        ...


class HeldLock:
    """A lock of this process."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        self.id = secrets.token_hex(6)
        self._path = folder / f"{name}-{self.id}"
        # Made under a name that nobody looks for and renamed when it is held: a sweep never meets it unheld.
        hidden = folder / f".{self.id}"
        self._file = os.open(hidden, os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        hidden.rename(self._path)

    def release(self) -> None:
        """Give the lock back; later calls do nothing."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


class FileLocks:
    """The locks of a lake on one machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self) -> Lock:
        """Hold the lock of a new writer."""
        return HeldLock(self._folder, "w")

    def read(self, number: int) -> Lock:
        """Hold a lock by which the files of a snapshot stay."""
        return HeldLock(self._folder, f"r-{number}")

    def writers(self) -> set[str]:
        """Return the ids of the writers whose locks are held."""
        return {name.split("-")[1] for name in self._held("w")}

    def numbers(self) -> list[int]:
        """Return the snapshots that are read, one for each reader."""
        return [int(name.split("-")[1]) for name in self._held("r")]

    def close(self) -> None:
        """Do nothing: each lock has a file of its own."""

    def _held(self, kind: str) -> list[str]:
        """Return the names of the locks that processes hold, and remove those of processes that ended."""
        held = list[str]()
        for path in self._folder.glob(f"{kind}-*"):
            try:
                file = os.open(path, os.O_RDWR)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
            except BlockingIOError:
                held.append(path.name)
            finally:
                os.close(file)
        return held
