"""How the reads of one hot timeline are shared by the workers of a server: the CPU of each worker, shared and not.

python -m pequod_bench.fleet.hot --workers 4 --connections 64 --seconds 15

worker_spread   reads   share of CPU of w0, w1, ...   reads a CPU second of the busiest
1               ...
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod import AsyncClient
from pequod_bench.systems.site import ClusterSite, started_workers

_JOINS: Final = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
_POSTS: Final = 500
#: Each channel has a connection of its own.
_OF_ITS_OWN: Final = [("grpc.use_local_subchannel_pool", 1)]
#: Reads of one connection that are under way.
_AT_ONCE: Final = 2
#: By then what is hot has been found, and is shared.
_WARM_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class HotRun:
    """What the workers took for the reads."""

    spread: int
    reads: int
    #: The CPU of each worker.
    cpu_s: tuple[float, ...]

    @property
    def reads_per_busiest_s(self) -> float:
        """The reads for each second of CPU of the worker that has most to do."""
        return self.reads / max(self.cpu_s)


def _spent(site: ClusterSite) -> list[float]:
    usages = [server.usage() for server in site.servers]
    return [usage.cpu_s if usage is not None else 0.0 for usage in usages]


async def _read(channel: aio.Channel, counts: list[int], at: int) -> None:
    """Read by the calls of a plain client: a batch is computed by the worker that it comes to."""
    # Rows are not decoded: the machine's cores are the workers'.
    scan: Any = channel.unary_stream("/pequod.v1.Pequod/Scan")
    request = pb.ScanRequest(first=b"t|ann|", last=b"t|ann}").SerializeToString()
    while True:
        async for _ in scan(request):
            pass
        counts[at] += 1


async def measure(workers: int, spread: int, connections: int, seconds: float) -> HotRun:
    """Read one timeline on some connections, each of which meets a worker by chance, and count what that takes."""
    flags = ("--worker-spread", str(spread))
    with started_workers(workers, _JOINS, *flags) as site:
        address = site.servers[0].entry.address
        async with AsyncClient(address) as client:
            await client.put("s|ann|bob", "1")
            for number in range(_POSTS):
                await client.put(f"p|bob|{number:010}", "x" * 100)
        channels = [aio.insecure_channel(address, options=_OF_ITS_OWN) for _ in range(connections)]
        counts = [0] * connections
        tasks = [
            asyncio.create_task(_read(one, counts, at)) for at, one in enumerate(channels) for _ in range(_AT_ONCE)
        ]
        try:
            await asyncio.sleep(_WARM_S)
            before_s, before = _spent(site), sum(counts)
            await asyncio.sleep(seconds)
            reads, after_s = sum(counts) - before, _spent(site)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for one in channels:
                await one.close()
    return HotRun(spread, reads, tuple(after - first for first, after in zip(before_s, after_s, strict=True)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each number of workers that may share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15.0)
    given = parser.parse_args(arguments)
    print(f"{'worker_spread':<15} {'reads':>10}  share of CPU, reads a CPU second of the busiest")
    for spread in (1, given.workers):
        run = asyncio.run(measure(given.workers, spread, given.connections, given.seconds))
        shares = "  ".join(f"{one / sum(run.cpu_s):.2f}" for one in run.cpu_s)
        print(f"{spread:<15} {run.reads:>10,}  {shares}  {run.reads_per_busiest_s:,.0f}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
