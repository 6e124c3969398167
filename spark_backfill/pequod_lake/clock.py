"""The time, so that clock steps cannot make an answer older than a query allows.

A stamp has the wall clock's time, and the time since the machine was started with the name of that start. As long as
the machine runs, ages come from the latter, which no clock step changes. After a restart only the wall clock is left;
a stamp from the future then counts as infinitely old, which makes a query read more and never less. Stamps of a
database that several machines use have its wall clock alone.

>>> stamp = Stamp("boot-1", 50.0, 1_000_000)
>>> stamp.age_s(Stamp("boot-1", 53.0, 0))
3.0
>>> stamp.age_s(Stamp("boot-2", 1.0, 3_000_000)), stamp.age_s(Stamp("boot-2", 1.0, 0))
(2.0, inf)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Stamp:
    """A moment."""

    #: The name of the machine's start; empty if there is only a wall clock.
    boot: str
    #: Seconds since then.
    elapsed_s: float
    #: Microseconds since 1970, by the wall clock.
    wall_us: int

    def age_s(self, now: Stamp) -> float:
        """Return the seconds from this moment to ``now``, or more."""
        if self.boot and self.boot == now.boot:
            return max(0.0, now.elapsed_s - self.elapsed_s)
        age_us = now.wall_us - self.wall_us
        return age_us / 1e6 if age_us >= 0 else inf


#: Returns the present moment.
Clock = Callable[[], Stamp]


@cache
def _boot() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return "unknown"


def machine_clock() -> Stamp:
    """Return the present moment of this machine."""
    return Stamp(_boot(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time_ns() // 1000)
