"""`slicing` whose memory is short at random times: what can be made again goes, a little of it or all.

python -m tests.backing.chaos.evicting --listen 127.0.0.1:7744 ...        flags as `pequod serve` takes them
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence

from pequod_server.app import PequodServer

from tests.backing.chaos import slicing


class EvictingServer(PequodServer):
    """Evicts as long as it serves, also while a read waits for what it lacks."""

    async def start(self, *, joins_from: str = "joins") -> int:
        """Start, and begin to evict."""
        port = await super().start(joins_from=joins_from)
        self._evicting = asyncio.create_task(self._evict())
        return port

    async def _evict(self) -> None:
        ledger = self.engine.ledger
        limit_bytes = ledger.limit_bytes
        while True:
            await asyncio.sleep(random.expovariate(100))
            chance = random.random()
            if chance < 0.9:
                self.engine.evict(random.choice([1, 2, 10]))
            elif chance < 0.95:
                self.engine.evict(ledger.evictable_count)
            else:
                self.engine.limit_memory(int(ledger.total_bytes * random.uniform(0.5, 1.0)))
                await asyncio.sleep(random.uniform(0.0, 0.05))
                self.engine.limit_memory(limit_bytes)


def main(arguments: Sequence[str]) -> int:
    """Serve as the flags say; return the exit code."""
    return slicing.main(arguments, EvictingServer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
