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


def held_names(folder: Path) -> list[str]:
    """Return the names of the locks that processes hold, and remove those of processes that ended."""
    held = list[str]()
    for path in folder.glob("[wr]-*"):
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
