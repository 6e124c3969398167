"""What the machine tells: the memory that this process may use, and of files whether one is new, and open to others."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The files with the limits of the container that the process runs in: control groups of version 2 and 1.
_CGROUP_FILES: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def machine_bytes() -> int:
    """Return the memory that this process may use: the machine's, or the container's if that is less."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in _CGROUP_FILES:
        with suppress(OSError, ValueError):
            found.append(int(file.read_text("ascii")))
    return min(found)


def stamp_of(file: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is written or replaced; None if there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def fault_of_secret(file: Path) -> str:
    """Return why a file is not safe for a secret: other users may read it, or write it; an empty text if it is.

    A file that cannot be looked at is no fault: who reads it says why.
    """
    try:
        mode = file.stat().st_mode
    except OSError:
        return ""
    may = [what for what, bit in (("read", stat.S_IROTH), ("write", stat.S_IWOTH)) if mode & bit]
    return f"other users may {' and '.join(may)} {file}; take the rights away: chmod o-rw {file}" if may else ""
