"""A folder of data: its lock, its name and its history.

    DIR/lock         held by the server that has the folder open; its process number is in it
    DIR/folder.json  format, name, timelines and their ends
    DIR/note         how far the data had come, see note.py
    DIR/rows/        the rows, in the files of RocksDB

The name is random and made once. Positions mean something within it: they count changes, over all starts. A timeline
ends where a tail of changes was lost: tokens of positions behind that end are of no state that anybody can have.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self
from zlib import crc32

from pequod.freshness import database_of
from pequod_server.backing.store import History
from pequod_server.data.errors import DamagedError, FolderError, told
from pequod_server.data.note import PositionNote

#: The format that this version writes, and the only one that it reads.
FORMAT: Final = 1
ROWS: Final = "rows"
_ABOUT: Final = "folder.json"
_LOCK: Final = "lock"
NOTE: Final = "note"


@dataclass(frozen=True, slots=True)
class About:
    """The name and the history of a folder."""

    #: Names it, and no other folder.
    name: str
    timeline: int = 1
    #: Where each earlier timeline ended.
    ends: dict[int, int] = field(default_factory=dict)

    @property
    def history(self) -> History:
        """The history that positions belong to."""
        return History(database_of("data", self.name), self.timeline, self.ends)

    def after_loss(self, end: int) -> About:
        """Return what it says once the changes behind a position are lost.

        The next timeline has the time as its number, so that two folders that came of one do not give it twice.
        """
        following = max(self.timeline + 1, int(time.time()))
        return replace(self, timeline=following, ends={**self.ends, self.timeline: end})


class Folder:
    """A folder of data that this process has locked.

    Args:
        path: The folder.
        make: Whether it is made if it is not there.

    Raises:
        FolderError: Another process has it open, it is of another format, or it cannot be read.
        DamagedError: What it says of itself is damaged.
    """

    def __init__(self, path: Path, *, make: bool = True) -> None:
        self.path = path
        if not make and not (path / _ABOUT).exists() and not (path / ROWS).exists():
            raise FolderError(path, "there are no data in it")
        try:
            if make:
                path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(path)
        except (FileExistsError, NotADirectoryError) as error:
            raise FolderError(
                path, "it is a file, or below one, and data are in a folder; name another place"
            ) from error
        except OSError as error:
            raise FolderError(path, f"it cannot be opened: {told(error)}") from error
        try:
            self.about = self._read(make=make)
            self.note = PositionNote(path / NOTE)
        except OSError as error:
            self._unlock()
            raise FolderError(path, f"it cannot be opened: {told(error)}") from error
        except FolderError:
            self._unlock()
            raise

    @property
    def rows(self) -> Path:
        """Where the rows are."""
        return self.path / ROWS

    def _read(self, *, make: bool) -> About:
        file = self.path / _ABOUT
        try:
            return read_about(self.path)
        except FileNotFoundError:
            pass
        if (self.path / ROWS).exists() or not make:
            raise DamagedError(file, self.path, "the file is gone")
        about = About(secrets.token_hex(16))
        write_about(self.path, about)
        return about

    def lose_tail(self, end: int) -> None:
        """Begin a new timeline: the changes behind a position are lost.

        Raises:
            OSError: It cannot be written.
        """
        self.write(self.about.after_loss(end))

    def write(self, about: About) -> None:
        """Have the folder say this of itself.

        Raises:
            OSError: It cannot be written.
        """
        write_about(self.path, about)
        self.about = about

    def close(self) -> None:
        """Let others open it."""
        self.note.close()
        self._unlock()

    def _unlock(self) -> None:
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_about(folder: Path) -> About:
    """Return what a folder says of itself.

    Raises:
        FileNotFoundError: It says nothing.
        FolderError: It is of another format.
        DamagedError: It is damaged.
    """
    file = folder / _ABOUT
    text = file.read_bytes()
    try:
        found: dict[str, Any] = json.loads(text)
        _check_sum(found)
        if found["format"] != FORMAT:
            reason = f"it is of format {found['format']}, and this version of Pequod reads format {FORMAT}"
            raise FolderError(folder, reason)
        ends = {int(timeline): int(end) for timeline, end in found["ends"].items()}
        return About(str(found["name"]), int(found["timeline"]), ends)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(file, folder, f"the file is damaged ({error})") from error


def write_about(folder: Path, about: About) -> None:
    """Write what a folder says of itself: whole, or not at all.

    Raises:
        OSError: It cannot be written; the earlier file stays.
    """
    content = {"format": FORMAT, "name": about.name, "timeline": about.timeline, "ends": about.ends}
    ends = {str(timeline): end for timeline, end in about.ends.items()}
    content = {**content, "ends": ends}
    replace_file(folder / _ABOUT, json.dumps({**content, "checksum": _checksum(content)}, indent=1).encode() + b"\n")


def replace_file(file: Path, content: bytes) -> None:
    """Write a file so that it is there as a whole, or as it was before, whatever ends the machine.

    Raises:
        OSError: It cannot be written; it is as before.
    """
    draft = file.with_suffix(".new")
    with draft.open("wb") as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())
    draft.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _check_sum(found: dict[str, Any]) -> None:
    if found.pop("checksum") != _checksum(found):
        raise ValueError("its checksum is another one")


def _checksum(content: dict[str, Any]) -> int:
    return crc32(json.dumps(content, sort_keys=True).encode())


def _locked(path: Path) -> int:
    """Lock a folder for this process, and return the handle that holds the lock.

    Raises:
        FolderError: Another process holds it.
        OSError: The file cannot be opened, or written.
    """
    handle = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
    except BlockingIOError as error:
        holder = os.read(handle, 20).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise FolderError(path, f"the process {holder} has it open; a folder is for one server at a time") from error
    except OSError:
        os.close(handle)
        raise
    return handle
