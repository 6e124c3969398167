"""Locks that end with their process: who writes files, and which snapshots are read.

    locks/w-3f9a01bc            a writer: files whose names have 3f9a01bc may be on their way
    locks/r-42-77d0e1aa         a reader of snapshot 42: its files stay
    locks/.51b9c0de             on its way to be one of these, or kept for the next reader

A lock is a file held with flock. The kernel releases it when the process ends, however it ends, so there is no clock
and no renewal.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

#: How many files of readers a process keeps for later ones.
_SPARE_MAX: Final = 8


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


class _LockFile:
    """A file that this process holds, under a name that nobody looks for: `.3f9a01bc`."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - as below
        while True:
            self.id = secrets.token_hex(6)
            self.hidden = f"{folder}/.{self.id}"
            self._file = os.open(self.hidden, os.O_CREAT | os.O_RDWR, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            # A sweep may have come between these two, and taken it for one of a process that ended.
            if os.fstat(self._file).st_nlink:
                return
            os.close(self._file)

    def end(self, path: str) -> None:
        """Delete the file, which has this path now, and let it go."""
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - as below
        os.close(self._file)


class _Spare:
    """Files that this process holds, for the locks of later readers; threads share it."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.files = list[_LockFile]()

    def take(self, folder: str) -> _LockFile:
        """Return one, or a new one."""
        try:
            return self.files.pop()
        except IndexError:
            return _LockFile(folder)


class HeldLock:
    """A lock of this process."""

    def __init__(self, folder: str, name: str, spare: _Spare) -> None:
        """Hold a lock.

        Args:
            spare: Where its file is from, and goes in the end.
        """
        self._spare = spare
        file = spare.take(folder)
        self.id = file.id
        self._path = f"{folder}/{name}-{file.id}"
        # Renamed when it is held: a sweep never meets it unheld. Not by pathlib: each query does this.
        os.rename(file.hidden, self._path)  # noqa: PTH104
        self._file: _LockFile | None = file

    def release(self) -> None:
        """Give the lock back; later calls do nothing."""
        file, self._file = self._file, None
        if file is None:
            return
        if len(self._spare.files) < self._spare.count_max:
            # Without it, the lake itself has been deleted.
            with suppress(FileNotFoundError):
                os.rename(self._path, file.hidden)  # noqa: PTH104 - as above
                self._spare.files.append(file)
                return
        file.end(self._path)


class FileLocks:
    """The locks of a lake on one machine.

    Files of readers that ended are kept for the next ones: two renames take a quarter of the time of a new file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spares = dict[int, _Spare]()

    def write(self) -> Lock:
        """Hold the lock of a new writer."""
        # Its id is in names of files, so it is of one writer only.
        return HeldLock(str(self._folder), "w", _Spare(0))

    def read(self, number: int) -> Lock:
        """Hold a lock by which the files of a snapshot stay."""
        return HeldLock(str(self._folder), f"r-{number}", self._spare())

    def _spare(self) -> _Spare:
        # By process: a fork has the files of its parent, and would rename them.
        return self._spares.setdefault(os.getpid(), _Spare(_SPARE_MAX))

    def writers(self) -> set[str]:
        """Return the ids of the writers whose locks are held."""
        return {name.split("-")[1] for name in self._held("w-")}

    def numbers(self) -> list[int]:
        """Return the snapshots that are read, one for each reader."""
        # What processes that ended had kept for later goes, too.
        self._held(".")
        return [int(name.split("-")[1]) for name in self._held("r-")]

    def close(self) -> None:
        """Let go of the files that are kept for later; each lock that is held has a file of its own."""
        spare = self._spare()
        # What is released later is not kept.
        spare.count_max = 0
        while spare.files:
            file = spare.files.pop()
            file.end(file.hidden)

    def _held(self, begin: str) -> list[str]:
        """Return the names of the locks that processes hold, and remove those of processes that ended."""
        held = list[str]()
        for path in self._folder.glob(f"{begin}*"):
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
