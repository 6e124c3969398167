"""Transactions that are done again when others were in their way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from pequod_views.errors import TargetBusyError

#: Before each further time; a manager of Kafka that was fenced off comes back after half a second.
_PAUSES_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)

T = TypeVar("T")


async def again_if_busy(work: Callable[[], Awaitable[T]]) -> T:
    """Do work that is one transaction, and do it again if the database has rolled it back for another one.

    Raises:
        TargetBusyError: Others were in the way each time.
    """
    for pause_s in _PAUSES_S:
        try:
            return await work()
        except TargetBusyError:
            await asyncio.sleep(pause_s)
    return await work()
