"""Keys that all expire at one instant: how long the event loop is kept from others, and until all are gone.

The server is in this thread. Its turns are measured in CPU time of the thread, so what else runs on the machine does
not count: from one turn of a task that waits for nothing to the next one.
"""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Final, NamedTuple

from pequod_server import PequodServer, ServerConfig

from pequod.client import AsyncClient
from pequod.engine import Engine
from pequod_bench.collector import kept
from pequod_bench.report.printed import WrongAnswerError

_JOIN: Final = "alive|<group> = count s|<group>|<number:8>"
_GROUPS: Final = 1_000
_BATCH: Final = 5_000


class Expired(NamedTuple):
    """What a run has seen."""

    #: The longest turn, in CPU time of the thread.
    turn_ms: float
    #: From the instant to the last key, in CPU time of the thread: with the calls of others, that is.
    gone_s: float


def expire(key_count: int) -> Expired:
    """Have keys expire at a server, with counts over them that are read.

    Raises:
        WrongAnswerError: A count does not follow its keys.
    """
    with kept("tamed"):
        return asyncio.run(_expire(key_count))


async def _expire(key_count: int) -> Expired:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    try:
        async with AsyncClient(f"127.0.0.1:{port}") as client:
            await client.add_join(_JOIN)
            clock = server.databases.expiring
            # The time stands still until all keys are there.
            begun_ms = clock.clock_ms()
            clock.clock_ms = lambda: begun_ms
            await _fill(client, key_count)
            turns = asyncio.create_task(_longest_turn(server.engine))
            begun_s = time.thread_time()
            clock.clock_ms = lambda: begun_ms + 10_000
            await client.get("loose")
            random = Random(0)
            while not turns.done():
                group = random.randrange(_GROUPS)
                if await client.count(f"s|{group:04}|", f"s|{group:04}}}"):
                    raise WrongAnswerError("a read shows a key after its deadline")
            turn_ms, gone_s = await turns, time.thread_time() - begun_s
            if await client.get("alive|0001") is not None:
                raise WrongAnswerError("a count does not follow its keys")
            return Expired(turn_ms, gone_s)
    finally:
        await server.stop()


async def _fill(client: AsyncClient, key_count: int) -> None:
    for first in range(0, key_count, _BATCH):
        numbers = range(first, min(key_count, first + _BATCH))
        await client.multi_put({b"s|%04d|%08d" % (at % _GROUPS, at): b"1" for at in numbers}, ttl_s=5)
    for group in range(_GROUPS):
        await client.get(b"alive|%04d" % group)


async def _longest_turn(engine: Engine) -> float:
    """Return the CPU time of the longest turn until no key has a deadline, in ms."""
    longest, last = 0.0, time.thread_time()
    while engine.deadlines:
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    return longest * 1e3
