"""Where, with what, and from which sources something was measured; and which processors server and client run on.

    core 0      client
    core 1 ...  server      neither is moved, and neither takes the other's place

Only a server whose work one thread does gets its own; PostgreSQL, which has several processes, is left to the
scheduler.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was measured."""

    system: str
    processor: str
    cores: int
    memory_gib: float
    python: str
    #: Mean number of runnable processes at the start: others that work at the same time.
    load_at_start: float


def this_machine() -> Machine:
    """Describe the machine."""
    return Machine(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(),
        cores=psutil.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        load_at_start=round(os.getloadavg()[0], 2),
    )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def this_commit() -> str:
    """Return the commit of the sources, with ``+`` if they were changed since; ``unknown`` outside a checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("+" if status.stdout.strip() else "")


def this_command() -> str:
    """Return the command line, to be typed again."""
    return " ".join(["pequod", *sys.argv[1:]])


def can_pin() -> bool:
    """Return whether processes can be kept on cores here, and there are at least two cores."""
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
