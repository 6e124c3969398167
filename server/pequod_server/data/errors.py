"""Errors of folders of data."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from pequod.errors import PequodError

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
#: The way out of a start on a full disk.
MAKE_ROOM: Final = "remove other files than the folder's from its disk, some MiB for a start, and start again"


def told(error: OSError) -> str:
    """Return what the operating system says, and what to do where that is known."""
    said = error.strerror or str(error)
    return f"{said}; {MAKE_ROOM}" if error.errno in _FULL else said


class FolderError(PequodError):
    """A folder of data cannot be used; nothing in it was changed."""

    def __init__(self, place: Path, reason: str) -> None:
        super().__init__(f"data {place}: {reason}")
        #: The folder, or the file of it.
        self.place = place
        self.reason = reason


class DamagedError(FolderError):
    """Something in a folder is not as it was written, and rows that were acknowledged may be missing."""

    def __init__(self, place: Path, folder: Path, reason: str) -> None:
        super().__init__(
            place,
            f"{reason}. Restore a backup, or `pequod data repair {folder}` keeps what can be read: "
            "see docs/operations.md, Damage",
        )


class LostDiskError(FolderError):
    """The disk has failed while a server ran: nobody knows what of the latest changes is on it."""

    def __init__(self, place: Path, reason: str) -> None:
        super().__init__(place, f"the disk fails: {reason}. The server ends; a start shows what is on the disk")
