"""What the machine tells: the memory that this process may use, and whether a file is another one."""

from __future__ import annotations

import os
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
