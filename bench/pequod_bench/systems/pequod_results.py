"""What Pequod's client gives back, taken up for a benchmark."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

from pequod_workloads.twip import timeline

from pequod.client import AsyncClient, PequodError, Result, Rows

#: How long a watch may take until it stands.
_STAND_S_MAX: Final = 60.0


async def timelines(client: AsyncClient, users: Sequence[int]) -> list[Rows]:
    """Scan whole timelines."""
    batch = client.batch()
    for user in users:
        batch.scan(*timeline(user))
    results = await batch.send()
    raise_first(results)
    return cast("list[Rows]", results)


def raise_first(results: Sequence[Result]) -> None:
    """Raise the error of the first command that failed, if any did."""
    for result in results:
        if isinstance(result, PequodError):
            raise result


async def checked(coming: Awaitable[Sequence[Result]]) -> Sequence[Result]:
    """Return the results of a batch that is under way; raise the error of the first command that failed."""
    results = await coming
    raise_first(results)
    return results


def count_rows(results: Sequence[Result]) -> int:
    """Return how many rows the scans and gets of a batch gave.

    Raises:
        PequodError: A command failed.
    """
    raise_first(results)
    return sum(len(result.keys) if isinstance(result, Rows) else result is not None for result in results)


async def empty(client: AsyncClient) -> None:
    """Take out all joins, the latest first, and all keys."""
    for join in reversed(await client.joins()):
        await client.drop_join(join.name)
    await client.remove_range(b"")


@asynccontextmanager
async def watched(
    client: AsyncClient, ranges: Collection[tuple[bytes, bytes]]
) -> AsyncIterator[defaultdict[bytes, asyncio.Future[float]]]:
    """Watch ranges; each key's future ends with the time at which its first change was told."""
    told: defaultdict[bytes, asyncio.Future[float]] = defaultdict(asyncio.get_running_loop().create_future)
    standing = asyncio.Semaphore(0)

    async def watch(first: bytes, last: bytes) -> None:
        async for event in client.watch(first, last):
            standing.release()
            now = time.perf_counter()
            for change in event.changes:
                if not told[change.key].done():
                    told[change.key].set_result(now)

    async with meanwhile(*(watch(*one) for one in ranges)):
        for _ in ranges:
            await asyncio.wait_for(standing.acquire(), _STAND_S_MAX)
        yield told


@asynccontextmanager
async def meanwhile(*works: Awaitable[None]) -> AsyncIterator[None]:
    """Do something until the block ends.

    Raises:
        Exception: What the work raised, once the block ends.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
