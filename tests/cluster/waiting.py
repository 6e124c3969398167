"""Waiting for what comes by itself."""

import asyncio
from collections.abc import Awaitable, Callable


async def eventually(holds: Callable[[], object]) -> None:
    """Wait until something holds; the time limit of the test bounds it."""
    while not holds():  # noqa: ASYNC110 - what is waited for is of any kind
        await asyncio.sleep(0.01)


async def answered(asks: Callable[[], Awaitable[object]]) -> None:
    """Ask again and again until the answer is true; the time limit of the test bounds it."""
    while not await asks():  # noqa: ASYNC110 - a server is asked
        await asyncio.sleep(0.01)
