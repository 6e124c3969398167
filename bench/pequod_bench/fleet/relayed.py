"""What a home pays for a put that many computes follow: directly, and through relays.

python -m pequod_bench.fleet.relayed --computes 48 --relays 6 --puts 2000

followed by              home, µs a put   at rest, ms/s   a relay, µs   at rest, ms/s
nobody                   ...

The home and the relays are processes of their own, whose CPU is measured. The computes are the real client side of a
feed, without an engine, in this process: they ask four times a second as computes do. What that takes at rest is taken
off the puts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from pequod_server.backing import Changes, KeyRange
from pequod_server.homes.compute.store import PequodStore

from pequod import AsyncClient
from pequod_bench.systems.server import started_server, usage

_TABLE: Final = b"p"
_WHOLE: Final = KeyRange(b"p|", b"p}")
_REST_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class RelayedRun:
    """What the home and the relays took."""

    followed_by: str
    #: For a put, in microseconds; and at rest, in milliseconds of a second.
    home_us: float
    home_rest_ms: float
    #: The same of a relay, on average; 0 without relays.
    relay_us: float = 0.0
    relay_rest_ms: float = 0.0


class _Follower:
    """The client side of a compute, which counts what it is told."""

    def __init__(self, address: str) -> None:
        self._store = PequodStore([address], [_TABLE])
        self.stands = asyncio.Event()
        self.told = 0

    async def follow(self) -> None:
        async for event in self._store.changes():
            self.stands.set()
            if isinstance(event, Changes):
                self.told += len(event.changes)

    async def load(self) -> None:
        await self.stands.wait()
        await self._store.load([_WHOLE])

    async def close(self) -> None:
        await self._store.close()


@asynccontextmanager
async def _following(addresses: Sequence[str], count: int) -> AsyncIterator[list[_Follower]]:
    followers = [_Follower(addresses[number % len(addresses)]) for number in range(count)]
    tasks = [asyncio.create_task(one.follow()) for one in followers]
    try:
        for one in followers:
            await one.load()
        yield followers
    finally:
        for one in followers:
            await one.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def measure(computes: int, relays: int, puts: int) -> RelayedRun:
    """Put at a home, whose changes go to computes, through relays if there are some."""
    async with AsyncExitStack() as stack:
        home, home_pid = stack.enter_context(started_server())
        flags = ("--backing", f"pequod://{home}", "--backing-tables", "p")
        between = [stack.enter_context(started_server(*flags)) for _ in range(relays)]
        addresses = [address for address, _ in between] or [home]
        followers = await stack.enter_async_context(_following(addresses, computes))
        client = await stack.enter_async_context(AsyncClient(home))

        def spent() -> tuple[float, float, float]:
            total = sum(usage(pid).cpu_s for _, pid in between)
            return time.monotonic(), usage(home_pid).cpu_s, total / max(len(between), 1)

        await client.put("p|warm", "x")
        began = spent()
        await asyncio.sleep(_REST_S)
        rested = spent()
        for number in range(puts):
            await client.put(f"p|bob|{number:010}", "x" * 100)
        while any(one.told < puts for one in followers):  # noqa: ASYNC110 - a follower tells nobody
            await asyncio.sleep(0.01)
        ended = spent()
    rest = [(one - other) / (rested[0] - began[0]) for one, other in zip(rested[1:], began[1:], strict=True)]
    took_s = ended[0] - rested[0]
    each = [
        1e6 * (one - other - at * took_s) / puts for one, other, at in zip(ended[1:], rested[1:], rest, strict=True)
    ]
    name = "nobody" if not computes else f"{computes} computes" + (f" through {relays} relays" if relays else "")
    return RelayedRun(name, each[0], 1e3 * rest[0], each[1], 1e3 * rest[1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for nobody, for computes, and for computes behind relays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--computes", type=int, default=48)
    parser.add_argument("--relays", type=int, default=6)
    parser.add_argument("--puts", type=int, default=2000)
    given = parser.parse_args(arguments)
    print(f"{'followed by':<32} {'home, µs a put':>15} {'at rest, ms/s':>14} {'a relay, µs':>18} {'at rest, ms/s':>14}")
    for computes, relays in ((0, 0), (given.computes, 0), (given.computes, given.relays)):
        run = asyncio.run(measure(computes, relays, given.puts))
        print(
            f"{run.followed_by:<32} {run.home_us:>15.0f} {run.home_rest_ms:>14.1f} "
            f"{run.relay_us:>18.0f} {run.relay_rest_ms:>14.1f}"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
