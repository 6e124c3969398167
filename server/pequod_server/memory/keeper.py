"""The limit of memory: its value on this machine, and how a process is held to it.

memory_limit = "75%"   of the container's limit, or else of the machine's memory

    |<--------------------------- limit ---------------------------->|
    |<---------------------- held ------------------------->| reserve |
    | interpreter, packages, messages, allocators | budget |<-- squeeze -->|
    |<------------- resident ------------------------------------>|

The reserve is for messages on their way, for calls under way, and for what comes before the keeper looks again. The
rest of the limit is held.
The budget is the limit of the engine's ledger. While the process is within what is held, the budget is what the rest of
the process leaves. Above it, the budget shrinks in proportion, down to the data that cannot be evicted. Evicted
data leave holes that the allocator cannot give back; so if the budget followed the size of the process all the way
down, more would be evicted in vain, and if it followed less, the process would grow. The excess is subtracted from
later budgets, and comes back slowly.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Final

from pequod.engine import PINNED, UNLIMITED, Engine
from pequod.errors import SettingError
from pequod.machine import machine_bytes
from pequod_server.memory.periodic import Periodic
from pequod_server.setting_kinds import parse_memory_limit, parse_priorities

log = logging.getLogger("pequod.server")

#: Eviction begins when less than the second share of the budget is free, and ends when the first share is.
_FREE_SHARE: Final = 1 / 32
_SHORT_SHARE: Final = 1 / 64
#: The bytes evicted in one step: at most some ms, where what goes are small parts of paged tables.
STEP_BYTES: Final = 256 << 10
_INTERVAL_S: Final = 0.05
_STATM_BYTES_MAX: Final = 200
#: Eviction pauses after this time for a look at the size of the process.
_EVICT_S: Final = 0.05
#: Memory for messages up to this share of the limit, which is the default, shrinks where the limit is tight; more than
#: that was asked for by an operator, so it has to fit.
_MESSAGES_SHARE: Final = 1 / 16
#: This share of the limit is reserved for what comes between two looks, which may be late on a busy machine; and as
#: much for the calls themselves, which clients begin by the hundred. Each is at most `_SHARE_BYTES`. Data that is
#: stored cannot be evicted: where it is all of the budget, the crowds and the heavy clients of `make soak-memory` take
#: a process to 267 of 256 MiB on a machine with ten times the load that it can carry.
_LATE_SHARE: Final = 1 / 32
_CALLS_SHARE: Final = 1 / 32
_SHARE_BYTES: Final = 64 << 20
#: When the process is above its limit by this share of it, everything has been evicted that can be.
_SQUEEZE_SHARE: Final = 1 / 20
#: At this share of the limit, the allocators are asked to give back free memory, unless that was done a moment ago.
_TIGHT_SHARE: Final = 31 / 32
_RELEASE_INTERVAL_S: Final = 0.5
#: Or if the process has grown by this share of the limit since: gRPC reads messages into the heaps of its threads.
_RELEASE_SHARE: Final = 1 / 64
#: Above the limit, the cyclic collector examines all objects: no more often than this, and for no larger share of the
#: time. No known code leaves it work; it is there for unknown cases.
_COLLECT_INTERVAL_S: Final = 10.0
_COLLECT_SHARE: Final = 1 / 50
#: A budget that was reduced grows again by these shares of the free memory and of the limit at each look: in half a
#: minute while the process has room, and slowly where the memory that the allocators keep has to be used again.
_FREE_BACK_SHARE: Final = 1 / 512
_BACK_SHARE: Final = 1 / 8192
#: Blocks of this size and more are given back at once, which costs more for smaller ones; the second is kept at the
#: heap's top.
LARGE_BYTES: Final = 512 << 10
_TOP_BYTES: Final = 4 << 20
#: Their names in malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
#: The engine learns of changes of its budget that are larger than this share of the limit.
_STEADY_SHARE: Final = 1 / 256
#: The least that a budget leaves beside the client-written keys, as a share of the limit: reads need it.
_READ_SHARE: Final = 1 / 16
#: A server does not start if the limit leaves less than this beside the empty process.
BUDGET_MIN: Final = 16 << 20


def limit_bytes(setting: str) -> int:
    """Return the limit in bytes that a setting means on this machine."""
    amount = parse_memory_limit(setting)
    if amount is None:
        return UNLIMITED
    return amount if isinstance(amount, int) else int(amount * machine_bytes())


def priorities(setting: str) -> dict[str, int]:
    """Return the priorities of joins in the engine's form."""
    return {join: PINNED if number is None else number for join, number in parse_priorities(setting).items()}


def resident_bytes() -> int:
    """Return the resident size of the process; 0 if the system does not tell it."""
    # Twenty times a second: a Path takes four times as long, which a server without calls shows.
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(file, _STATM_BYTES_MAX).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    finally:
        os.close(file)


def tame_allocator() -> None:
    """Have the C library return large blocks to the system at once, if it has this option.

    By default it begins to keep them after the first one is freed; free memory between others then does not fit other
    sizes.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _TOP_BYTES)


def release() -> None:
    """Have the C library return unused pages, if it can."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _reserve_bytes(limit_bytes: int, least_bytes: int, messages_bytes: int) -> int:
    """Return what is reserved of a limit for messages, for calls, and for what comes between two looks.

    Raises:
        SettingError: The messages do not fit beside these and the least bytes that the process and its data need.
    """
    other_bytes = sum(min(int(limit_bytes * share), _SHARE_BYTES) for share in (_LATE_SHARE, _CALLS_SHARE))
    most_bytes = max(limit_bytes - least_bytes - other_bytes, int(limit_bytes * _MESSAGES_SHARE))
    if messages_bytes > most_bytes:
        # The others are a share of the greater limit, too.
        enough_bytes = int((least_bytes + messages_bytes) / (1 - _LATE_SHARE - _CALLS_SHARE)) + 1
        raise SettingError(
            "messages_bytes_max",
            f"{messages_bytes} bytes are too many for a memory_limit of {limit_bytes} bytes, of which the process and "
            f"its least data take {least_bytes}: give messages_bytes_max {most_bytes >> 20}MiB at most, "
            f"or memory_limit {-(-enough_bytes >> 20)}MiB or more",
        )
    return min(messages_bytes + other_bytes, limit_bytes - least_bytes)


class MemoryKeeper:
    """Holds a process to its limit, by the budget of its engine.

    Args:
        limit_bytes: The limit of the process; UNLIMITED: the engine's own limit is held, and never changed.
        resident: Returns the size of the process in bytes; 0 if that is unknown. Then the limit is for the data alone.
        messages_bytes: The memory for messages on their way; so much is reserved of the limit. None: nothing is.

    Raises:
        SettingError: The empty process takes too much of the limit, or leaves too little of it for the messages.
    """

    def __init__(
        self,
        engine: Engine,
        limit_bytes: int,
        resident: Callable[[], int] = resident_bytes,
        *,
        messages_bytes: int | None = None,
    ) -> None:
        self._engine = engine
        self._resident = resident
        ledger = engine.ledger
        #: The size to which the process is held.
        self._limit_bytes = limit_bytes
        if limit_bytes >= UNLIMITED:
            self._most_bytes = self._calm_bytes = ledger.limit_bytes
        else:
            ledger.note_process(resident())
            base_bytes = max(ledger.process_bytes - ledger.total_bytes, 0)
            least_bytes = base_bytes + BUDGET_MIN
            if base_bytes and limit_bytes < least_bytes:
                text = f"{limit_bytes} bytes are too few, since the process takes {base_bytes} with no data at all"
                raise SettingError("memory_limit", f"{text}: give it {-(-least_bytes >> 20)}MiB or more")
            if base_bytes and messages_bytes is not None:
                self._limit_bytes -= _reserve_bytes(limit_bytes, least_bytes, messages_bytes)
            #: The largest budget: that of a process within its limit.
            self._most_bytes = self._calm_bytes = self._limit_bytes - base_bytes
            ledger.limit_process(limit_bytes)
            engine.limit_memory(self._calm_bytes)
        #: The largest size of the process since it is above its limit.
        self._high_bytes = self._limit_bytes
        #: The least budget.
        self._least_bytes = min(self._calm_bytes, BUDGET_MIN)
        #: When the allocators were asked last, and the size of the process then.
        self._released_s = 0.0
        self._released_bytes = 0
        #: When the cyclic collector may be asked again.
        self._collect_at_s = -inf
        self._keeping = Periodic(self._keep, lambda: _INTERVAL_S, "pequod memory")
        self._relieve: Callable[[], None] = lambda: None

    def start(self, relieve: Callable[[], None] = lambda: None) -> None:
        """Start the looks at the process.

        Args:
            relieve: Drops data for slow clients, if everything is over the engine's limit without it.
        """
        self._relieve = relieve
        if self._engine.ledger.limit_bytes < UNLIMITED:
            self._engine.make_room()
            self._keeping.start()

    async def stop(self) -> None:
        """Stop them."""
        await self._keeping.stop()

    async def _keep(self) -> None:
        ledger = self._engine.ledger
        self._engine.weigh()
        budget_bytes = self.look()
        if ledger.process_bytes > self._limit_bytes * _TIGHT_SHARE:
            await self._release()
            budget_bytes = self.look()
        if ledger.process_bytes > self._limit_bytes:
            self._collect()
        if abs(budget_bytes - ledger.limit_bytes) > self._most_bytes * _STEADY_SHARE:
            # The excess is evicted in steps; until then nothing may grow, so that no call has to evict all of it.
            self._engine.limit_memory(max(budget_bytes, min(ledger.total_bytes, ledger.limit_bytes)))
        if ledger.total_bytes > budget_bytes * (1 - _SHORT_SHARE):
            await self._evict(int(budget_bytes * (1 - _FREE_SHARE)))
            self._relieve()

    async def _release(self) -> None:
        grown_bytes = self._engine.ledger.process_bytes - self._released_bytes
        is_grown = grown_bytes > self._limit_bytes * _RELEASE_SHARE
        if (now_s := time.monotonic()) - self._released_s > _RELEASE_INTERVAL_S or is_grown:
            # 5 ms for a gigabyte; it does not need Python's lock.
            await asyncio.to_thread(release)
            self._released_s, self._released_bytes = now_s, self._resident()

    def _collect(self) -> None:
        if (started_s := time.monotonic()) >= self._collect_at_s:
            gc.collect()
            ended_s = time.monotonic()
            self._collect_at_s = ended_s + max(_COLLECT_INTERVAL_S, (ended_s - started_s) / _COLLECT_SHARE)

    async def _evict(self, goal_bytes: int) -> None:
        end_s = time.monotonic() + _EVICT_S
        # Calls run in between; there is no event to wait for.
        while self._engine.evict_ahead(goal_bytes, STEP_BYTES) and time.monotonic() < end_s:  # noqa: ASYNC110
            await asyncio.sleep(0)

    def look(self) -> int:
        """Look at the size of the process, and return the budget that follows."""
        limit_bytes, ledger = self._limit_bytes, self._engine.ledger
        if limit_bytes >= UNLIMITED:
            return ledger.limit_bytes
        taken_bytes = self._resident()
        ledger.note_process(taken_bytes)
        if taken_bytes <= limit_bytes:
            self._high_bytes = limit_bytes
            self._least_bytes = ledger.stored_bytes + int(limit_bytes * _READ_SHARE)
            free_bytes = ledger.total_bytes + limit_bytes - taken_bytes - self._calm_bytes
            back_bytes = max(free_bytes * _FREE_BACK_SHARE, limit_bytes * _BACK_SHARE)
            self._calm_bytes = min(self._calm_bytes + int(back_bytes), self._most_bytes)
            return max(self._calm_bytes, min(self._least_bytes, self._most_bytes))
        self._calm_bytes = max(self._calm_bytes - max(taken_bytes - self._high_bytes, 0), 0)
        self._high_bytes = max(self._high_bytes, taken_bytes)
        squeeze = min((taken_bytes - limit_bytes) / (limit_bytes * _SQUEEZE_SHARE), 1.0)
        return max(int(self._calm_bytes * (1 - squeeze)), min(self._least_bytes, self._most_bytes))
