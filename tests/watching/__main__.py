"""Record histories of watches, and look for what watches must not do: python -m tests.watching --histories 10000."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from random import Random
from typing import Final

from pequod_bench.systems.server import started_server

from tests.watching.history import History, Recorder
from tests.watching.judge import wrong

#: Histories at a time.
TOGETHER: Final = 8
_TELL_S: Final = 30.0


class WrongHistoryError(AssertionError):
    """A watch did what it must not do."""


class Count:
    """What was recorded."""

    def __init__(self) -> None:
        self.histories = self.writes = self.changes = self.resumed = 0

    def add(self, history: History) -> None:
        """Count a history."""
        self.histories += 1
        self.writes += len(history.writes)
        self.changes += sum(len(event.changes) for watched in history.watches for event in watched.events)
        self.resumed += sum(watched.resumed for watched in history.watches)

    def __str__(self) -> str:
        return (
            f"{self.histories:,} histories, {self.writes:,} writes, {self.changes:,} changes told, "
            f"{self.resumed:,} times gone on elsewhere"
        )


async def run(target: str, histories: int, seed: int) -> Count:
    """Record and judge.

    Raises:
        WrongHistoryError: With what is wrong.
    """
    count, told_s = Count(), time.monotonic()
    async with Recorder(target, Random(seed)) as recorder:
        for start in range(0, histories, TOGETHER):
            names = [f"{seed}.{number}" for number in range(start, min(histories, start + TOGETHER))]
            for history in await recorder.record_some(names):
                if fault := wrong(history):
                    raise WrongHistoryError(f"history {history.name}: {fault}")
                count.add(history)
            if time.monotonic() > told_s + _TELL_S:
                told_s = time.monotonic()
                print(count, flush=True)
    return count


def main() -> int:
    """Record and judge, until there are enough or one is wrong."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--histories", type=int, default=10_000)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    with started_server() as (target, _):
        try:
            print(f"{asyncio.run(run(target, chosen.histories, chosen.seed))}: all as watches promise")
        except WrongHistoryError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
