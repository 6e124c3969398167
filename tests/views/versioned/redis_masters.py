"""`python -m tests.views.versioned.redis_masters`, which is `make views-redis`: processes that write records of Redis.

As in `masters`, over three servers, which are stopped and killed as well, and out of reach of one process or another.
Each run has tables of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pequod_views.versioned import RecordStore
from pequod_views.versioned.records import Cells
from pequod_views.versioned.redis_store import RedisReplicas

from tests.views.versioned.masters import begin, records, run, wrong_runs
from tests.views.versioned.schedules import of_seed
from tests.views.versioned.servers import RedisServers

#: Of the faults of servers; the others are stops.
_KILLS: Final = 0.4


class Redis:
    """Tables for one run."""

    def __init__(self, folder: Path, servers: RedisServers, seed: int) -> None:
        self.folder = folder
        self.view = replace(of_seed(seed), name=f"assigned_to_{seed}", base=f"ticket_{seed}")
        self.lease_s = 1.0
        self._urls = servers.urls
        self._servers: RedisServers | None = servers

    def __getstate__(self) -> dict[str, object]:
        # Processes that write have no hold on the servers.
        return {**self.__dict__, "_servers": None}

    async def open(self) -> RedisReplicas:
        """Connect."""
        return RedisReplicas(self._urls, timeout_s=1.0)

    async def close(self, store: RecordStore) -> None:
        """Disconnect."""
        assert isinstance(store, RedisReplicas)
        await store.close()

    async def cut_off(self, store: RecordStore, rng: random.Random) -> None:
        """Have servers be out of reach, mostly one."""
        assert isinstance(store, RedisReplicas)
        while True:
            await asyncio.sleep(rng.uniform(0, 0.1))
            store.down = set(rng.sample(range(3), rng.choice([0, 0, 1, 1, 2])))

    def torment(self, rng: random.Random) -> None:
        """Stop a server for a while, or kill and start it."""
        assert self._servers is not None
        number = rng.randrange(len(self._urls))
        if rng.random() < _KILLS:
            self._servers.kill(number)
            time.sleep(rng.uniform(0, self.lease_s))
            self._servers.start(number)
        else:
            self._servers.stop(number)
            time.sleep(rng.uniform(0, 1.5 * self.lease_s))
            self._servers.go_on(number)

    async def states(self, store: RecordStore) -> list[dict[str, dict[str, Cells]]]:
        """Bring the servers to one state, and read each two of three."""
        assert isinstance(store, RedisReplicas)
        tables, found = (self.view.base, self.view.name), []
        for table in tables:
            await store.spread(table)
        for pair in itertools.combinations(range(3), 2):
            store.down = set(range(3)) - set(pair)
            found.append({table: await records(store, table) for table in tables})
        store.down = set()
        return found


def main(seed: int, runs: int) -> int:
    """Carry out runs over three servers; return how many were wrong."""
    with tempfile.TemporaryDirectory() as folder, RedisServers(Path(folder)) as servers:

        def carry_out(at: int) -> Sequence[str]:
            place = Path(folder) / str(at)
            place.mkdir()
            return run(seed + at, Redis(place, servers, seed + at))

        return wrong_runs(runs, carry_out)


if __name__ == "__main__":
    begin("redis_masters", __doc__, 200, main)
