"""`python -m tests.views.versioned.cassandra_stopped`: puts while one of three nodes of Cassandra is stopped.

A program writes to three nodes, one put after the other, W=1. Each node in turn is stopped, as by a long pause of its
JVM: its connections stay. The figures are those of all puts from that moment on, the first ones too, which wait until
the silent node is passed by; beside them are those of puts before it. `make views-cassandra` does it first.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from pequod_views.versioned import StoredCell, StoredColumn
from pequod_views.versioned.cassandra_store import CassandraReplicas

from tests.views.versioned.cassandra_servers import ADDRESS, COUNT, CassandraServers

_SLOW_S: Final = 0.05
_WARM: Final = 100


async def put_times(store: CassandraReplicas, puts: int, first: int) -> list[float]:
    """Return how long each of some puts took, in seconds."""
    times = []
    for at in range(first, first + puts):
        began = time.monotonic()
        await store.put("stopped", str(at), {StoredColumn("a"): StoredCell("x", at)}, 1)
        times.append(time.monotonic() - began)
    return times


def figures(times: list[float]) -> str:
    """Return what to print of times."""
    ordered = sorted(times)
    slow = sum(one > _SLOW_S for one in ordered)
    parts = (ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1])
    shown = ", ".join(f"{name} {1000 * part:.1f} ms" for name, part in zip(("p50", "p99", "max"), parts, strict=True))
    return f"{len(ordered)} puts: {shown}; {slow} took longer than {1000 * _SLOW_S:.0f} ms"


async def measure(servers: CassandraServers, puts: int) -> None:
    """Stop each node in turn, and print how long puts take."""
    store = await CassandraReplicas.open(ADDRESS, timeout_s=20.0)
    await put_times(store, _WARM, 0)
    for number in range(COUNT):
        print(f"load {os.getloadavg()[0]:.0f}, all nodes, {figures(await put_times(store, puts, 0))}", flush=True)
        servers.stop(number)
        try:
            times = await put_times(store, puts, puts)
        finally:
            servers.go_on(number)
        print(f"load {os.getloadavg()[0]:.0f}, node {number} stopped, {figures(times)}", flush=True)
        await asyncio.to_thread(servers.wait_until_up)
    await store.close()


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.views.versioned.cassandra_stopped", description=__doc__)
    parser.add_argument("--puts", type=int, default=400, help="how many, before and after each stop (400)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, CassandraServers(Path(folder)) as servers:
        asyncio.run(measure(servers, arguments.puts))


if __name__ == "__main__":
    main()
