"""What Pequod's client gives back, taken up for a benchmark."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import cast

from pequod_workloads.twip import timeline

from pequod.client import AsyncClient, PequodError, Result, Rows


async def timelines(client: AsyncClient, users: Sequence[int]) -> list[Rows]:
    """Scan whole timelines."""
    batch = client.batch()
    for user in users:
        batch.scan(*timeline(user))
    return cast("list[Rows]", await checked(batch.send()))


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
    """Return how many rows the scans and gets of a batch gave."""
    raise_first(results)
    return sum(len(result.keys) if isinstance(result, Rows) else result is not None for result in results)


async def empty(client: AsyncClient) -> None:
    """Take out all joins, the latest first, and all keys."""
    for join in reversed(await client.joins()):
        await client.drop_join(join.name)
    await client.remove_range(b"")
