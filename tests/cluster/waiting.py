"""Waiting for what comes by itself."""

import asyncio
from collections.abc import Callable


async def eventually(holds: Callable[[], object]) -> None:
    """Wait until something holds; the time limit of the test bounds it."""
    while not holds():  # noqa: ASYNC110 - what is waited for is of any kind
        await asyncio.sleep(0.01)
