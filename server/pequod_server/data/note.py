"""The note of a folder: how far its data had come, for a start to compare with what is there.

    boot     which run of the machine wrote it    the page cache outlives a process, and not the machine
    ended    whether the server closed the folder in order
    written  the position that the operating system has: a start of the same boot has to find it
    synced   the position that the disk has: every start has to find it
    logs     where the logs began when the folder was opened: a list of files that has lost its end asks for others
    opening  whether that opening has not come to its end

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

from pequod_server.data.library import Logs

_MAGIC: Final = b"pequod\n1"
_BOOT: Final = slice(8, 44)
_ENDED_AT: Final = 44
_OPENING_AT: Final = 45
_WRITTEN_AT: Final = 48
_SYNCED_AT: Final = 64
_ASKED_AT: Final = 80
_FIRST_AT: Final = 96
_SIZE: Final = 112
_PAIR: Final = Struct("<QQ")
#: The logs of a folder without rows: none.
_NO_LOGS: Final = Logs(0, 0)
_BOOT_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


class PositionNote:
    """The note of one open folder.

    Args:
        file: It is made if it is not there.
    """

    __slots__ = ("_map", "_synced", "_written", "had_ended", "is_opening", "is_same_boot", "is_whole", "logs")

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
        self._written, self._synced = (min(self._pair(at)) for at in (_WRITTEN_AT, _SYNCED_AT))
        #: Whether an opening has begun, and has not come to its end.
        self.is_opening = self._map[_OPENING_AT] == 1
        asked, first = self._pair(_ASKED_AT), self._pair(_FIRST_AT)
        #: Where the logs began at the last opening; None: nobody knows.
        self.logs = (
            Logs(asked[0], first[0]) if self.is_whole and asked[0] == asked[1] and first[0] == first[1] else None
        )

    def _pair(self, at: int) -> tuple[int, int]:
        first, second = _PAIR.unpack_from(self._map, at)
        return first, second

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
    def least(self) -> int:
        """The position that a start has to find."""
        return max(self._written, self._synced) if self.had_ended or self.is_same_boot else self._synced

    def opens(self, logs: Logs) -> None:
        """Note that this process opens the rows, and where their logs begin; nothing is written until `begin`."""
        self._note_opening(logs, is_opening=True)
        self.flush()

    def _note_opening(self, logs: Logs, *, is_opening: bool) -> None:
        self.logs, self.is_opening = logs, is_opening
        _PAIR.pack_into(self._map, _ASKED_AT, logs.asked, logs.asked)
        _PAIR.pack_into(self._map, _FIRST_AT, logs.first, logs.first)
        self._map[_OPENING_AT] = is_opening

    def begin(self, position: int, logs: Logs = _NO_LOGS) -> None:
        """Note that this process writes from now on, from a position that is on disk, and where the logs begin."""
        self._note_opening(logs, is_opening=False)
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
