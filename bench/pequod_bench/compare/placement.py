"""Which processors server and client run on.

    core 0      client
    core 1 ...  server      neither is moved, and neither takes the other's place

Only for servers whose work one thread does; those of several processes, PostgreSQL, are left to the scheduler.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def can_pin() -> bool:
    """Tell whether processes can be kept on cores here, and whether there are two."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


@contextmanager
def pinned() -> Iterator[None]:
    """Let the processes started in the block run on all cores but the first.

    Requires:
        `can_pin`.
    """
    cores = os.sched_getaffinity(0)
    # A process takes over the cores of the thread that starts it, and all its threads do.
    os.sched_setaffinity(0, cores - {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def on_first_core() -> Iterator[None]:
    """Keep this process with all its threads on the first core.

    Requires:
        `can_pin`.
    """
    cores = os.sched_getaffinity(0)
    _place({min(cores)})
    try:
        yield
    finally:
        _place(cores)


def _place(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)
