"""The note of a folder: how far its data had come, for a start to compare with what is there.

    boot     which run of the machine wrote it    the page cache outlives a process, and not the machine
    ended    whether the server closed the folder in order
    written  the position that the operating system has: a start of the same boot has to find it
    synced   the position that the disk has: every start has to find it
    newest   the number of the newest file of rows: a list of files that lacks it is an old one

A log that is cut off in its middle looks like one that ends there: without the note, nobody would know. The note is a
mapped file, so that it costs no call for each commit, and it is right after any end of the process. Each position is
there twice, since a process may end between two stores, and a bit may flip: the lesser one counts, and never refuses
what is right.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final, Self

_MAGIC: Final = b"pequod\n1"
_BOOT: Final = slice(8, 44)
_ENDED_AT: Final = 44
_WRITTEN_AT: Final = 48
_SYNCED_AT: Final = 64
_NEWEST_AT: Final = 80
_SIZE: Final = 96
_PAIR: Final = Struct("<QQ")
_BOOT_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


class PositionNote:
    """The note of one open folder.

    Args:
        file: It is made if it is not there.
    """

    __slots__ = ("_map", "_newest", "_synced", "_written", "had_ended", "is_same_boot", "is_whole")

    def __init__(self, file: Path) -> None:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size < _SIZE:
                os.ftruncate(handle, _SIZE)
            self._map = mmap.mmap(handle, _SIZE)
        finally:
            os.close(handle)
        #: Whether it is one; a new file is none yet.
        self.is_whole = size == _SIZE and self._map[: len(_MAGIC)] == _MAGIC
        boot = boot_of_machine()
        #: Whether the process that wrote it ran since this machine was started.
        self.is_same_boot = bool(boot) and self._map[_BOOT] == boot
        #: Whether its server closed the folder in order.
        self.had_ended = self._map[_ENDED_AT] == 1
        self._written, self._synced, self._newest = map(self._lesser, (_WRITTEN_AT, _SYNCED_AT, _NEWEST_AT))

    def _lesser(self, at: int) -> int:
        first, second = _PAIR.unpack_from(self._map, at)
        return int(min(first, second))

    @property
    def written(self) -> int:
        """The position that the operating system had."""
        return self._written

    @written.setter
    def written(self, position: int) -> None:
        self._written = position
        _PAIR.pack_into(self._map, _WRITTEN_AT, position, position)

    @property
    def synced(self) -> int:
        """The position that the disk had."""
        return self._synced

    @synced.setter
    def synced(self, position: int) -> None:
        self._synced = position
        _PAIR.pack_into(self._map, _SYNCED_AT, position, position)

    @property
    def newest(self) -> int:
        """The number of the newest file of rows; files that are made later have greater ones."""
        return self._newest

    @newest.setter
    def newest(self, number: int) -> None:
        if number != self._newest:
            self._newest = number
            _PAIR.pack_into(self._map, _NEWEST_AT, number, number)

    @property
    def least(self) -> int:
        """The position that a start has to find."""
        return max(self._written, self._synced) if self.had_ended or self.is_same_boot else self._synced

    def begin(self, position: int) -> None:
        """Note that this process writes from now on, from a position that is on disk."""
        self.written = self.synced = position
        self.is_whole, self.is_same_boot, self.had_ended = True, bool(boot_of_machine()), False
        self._map[: len(_MAGIC)] = _MAGIC
        self._map[_BOOT] = boot_of_machine() or bytes(_BOOT.stop - _BOOT.start)
        self._map[_ENDED_AT] = 0
        self.flush()

    def end(self) -> None:
        """Note that the folder is closed in order, and all of it is on disk."""
        self._map[_ENDED_AT] = 1
        self.flush()

    def flush(self) -> None:
        """Have the disk take the note."""
        self._map.flush()

    def close(self) -> None:
        """Write no more."""
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def boot_of_machine() -> bytes:
    """Return what names the present run of the machine; empty where the system does not tell."""
    try:
        return _BOOT_FILE.read_bytes().strip()[: _BOOT.stop - _BOOT.start].ljust(_BOOT.stop - _BOOT.start)
    except OSError:
        return b""
