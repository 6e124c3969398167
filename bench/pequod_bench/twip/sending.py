"""Commands of Twip on their way: in batches through the client's batch stream, some of them under way at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from pequod.client import AsyncClient, Results
from pequod.freshness import Freshness as Level
from pequod_bench.report.progress import Advance
from pequod_bench.workloads.stream import CommandBatch
from pequod_bench.workloads.verify import Reply

#: First checks of a graph with large timelines may take a while.
TIMEOUT_S: Final = 120.0


def sent(client: AsyncClient, commands: CommandBatch, level: Level | None = None) -> asyncio.Future[Results]:
    """Send commands as one batch; reads are as fresh as ``level`` says."""
    batch = client.batch(level)
    batch.kinds += commands.kinds
    batch.arguments += commands.arguments
    return batch.send()


async def execute_all(
    client: AsyncClient,
    batches: Iterable[CommandBatch],
    window: int,
    advance: Advance = lambda _: None,
    level: Level | None = None,
) -> list[Reply]:
    """Send batches with ``window`` of them under way, and return their results."""
    replies: list[Reply] = []
    waiting: deque[asyncio.Future[Results]] = deque()

    async def take() -> None:
        reply = await waiting.popleft()
        replies.append(reply)
        advance(len(reply))

    try:
        for batch in batches:
            if len(waiting) == window:
                await take()
            waiting.append(sent(client, batch, level))
        while waiting:
            await take()
    finally:
        # After an error or Ctrl-C no code takes the batches that are still under way.
        for future in waiting:
            future.cancel()
    return replies
