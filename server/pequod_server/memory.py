"""The limit on memory: what it is on this machine, and holding it between calls.

memory_limit = "75%"  --> of the container's limit, or else of the machine's memory
MemoryKeeper          --> evicts a little ahead of the limit, so that calls seldom have to
--> gives back to the system what the allocator keeps for itself
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pequod.engine import PINNED, UNLIMITED, Engine
from pequod_server.config import parse_memory_limit, parse_priorities

log = logging.getLogger("pequod.server")

#: Limits of the container that the process runs in: control groups of version 2 and 1.
_CGROUP_FILES: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
#: Eviction ahead begins when less than the second share of the limit is free, and ends when the first is.
_FREE_SHARE: Final = 1 / 32
_SHORT_SHARE: Final = 1 / 64
#: How much goes at a time: about a millisecond.
STEP_BYTES: Final = 1 << 20
_INTERVAL_S: Final = 0.05
#: How often what the process takes is looked at.
_RESIDENT_INTERVAL_S: Final = 0.5
#: The process may take so much more than the ledger has before the allocator is asked for what it keeps.
_TOLERANCE: Final = 1.03


def limit_bytes(setting: str) -> int:
    """Return the limit that a setting means on this machine."""
    amount = parse_memory_limit(setting)
    if amount is None:
        return UNLIMITED
    return amount if isinstance(amount, int) else int(amount * machine_bytes())


def priorities(setting: str) -> dict[str, int]:
    """Return the priorities of joins as the engine takes them."""
    return {join: PINNED if number is None else number for join, number in parse_priorities(setting).items()}


def machine_bytes() -> int:
    """Return the memory that this process may use: the machine's, or less in a container."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in _CGROUP_FILES:
        with suppress(OSError, ValueError):
            found.append(int(file.read_text("ascii")))
    return min(found)


def resident_bytes() -> int:
    """Return what the process takes of the machine's memory; 0 where that cannot be told."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def release() -> None:
    """Have the C library give back pages that nobody uses, where it can."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class MemoryKeeper:
    """Holds the limit of an engine between calls.

    Args:
        resident: What the process takes, in bytes.
    """

    def __init__(self, engine: Engine, resident: Callable[[], int] = resident_bytes) -> None:
        self._engine = engine
        self._resident = resident
        self._base_bytes = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; what the process takes now, beside the engine, is not the engine's."""
        ledger = self._engine.ledger
        if ledger.limit_bytes >= UNLIMITED:
            return
        self._engine.make_room()
        self._base_bytes = self._resident() - ledger.total_bytes
        self._tasks = [
            asyncio.create_task(self._keep_free(), name="pequod evict"),
            asyncio.create_task(self._keep_small(), name="pequod memory"),
        ]

    async def stop(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _keep_free(self) -> None:
        ledger = self._engine.ledger
        while True:
            await asyncio.sleep(_INTERVAL_S)
            if ledger.total_bytes <= ledger.limit_bytes - int(ledger.limit_bytes * _SHORT_SHARE):
                continue
            goal_bytes = ledger.limit_bytes - int(ledger.limit_bytes * _FREE_SHARE)
            # Calls have their turn; there is no event to wait for.
            while self._engine.evict_ahead(goal_bytes, STEP_BYTES):  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def _keep_small(self) -> None:
        ledger = self._engine.ledger
        while True:
            await asyncio.sleep(_RESIDENT_INTERVAL_S)
            if self._resident() - self._base_bytes > ledger.total_bytes * _TOLERANCE + STEP_BYTES:
                # 5 ms for a gigabyte; it needs no lock of Python's.
                await asyncio.to_thread(release)
