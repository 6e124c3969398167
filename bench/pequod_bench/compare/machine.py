"""Where, with what, and from which sources something was measured."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
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
