"""The clock of a server: it tells the engine, which has none, what time it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from pequod.engine import Engine

#: How often the engine is told the time; nothing that goes by it needs more.
TICK_S: Final = 0.1


async def keep_time(engine: Engine, on_late: Callable[[float], None] | None = None) -> None:
    """Tell the engine the time, again and again, until cancelled.

    Args:
        on_late: Takes how late the event loop was each time, in seconds: whatever holds it up, clients wait for it too.
    """
    while True:
        engine.tell_time(due_s := time.monotonic())
        due_s += TICK_S
        await asyncio.sleep(TICK_S)
        if on_late is not None:
            on_late(max(0.0, time.monotonic() - due_s))
