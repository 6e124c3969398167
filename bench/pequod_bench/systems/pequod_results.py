"""What Pequod's client gives back, taken up for a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pequod.client import AsyncClient, PequodError, Result, Rows
from pequod_bench.workloads import keys


async def timelines(client: AsyncClient, users: Sequence[int]) -> list[Rows]:
    """Scan whole timelines."""
    batch = client.batch()
    for user in users:
        batch.scan(keys.timeline_first(user, 0), keys.timeline_last(user))
    results = await batch.send()
    raise_first(results)
    return cast("list[Rows]", results)


def raise_first(results: Sequence[Result]) -> None:
    """Raise the error of the first command that failed, if any did."""
    for result in results:
        if isinstance(result, PequodError):
            raise result


def count_rows(results: Sequence[Result]) -> int:
    """Return how many rows the scans of a batch gave.

    Raises:
        PequodError: A command failed.
    """
    count = 0
    for result in results:
        if isinstance(result, Rows):
            count += len(result.keys)
        elif result is not None:
            raise_first(results)
    return count


async def empty(client: AsyncClient) -> None:
    """Take out all joins, the latest first, and all keys."""
    for join in reversed(await client.joins()):
        await client.drop_join(join.name)
    await client.remove_range(b"")
