"""A server whose folder has several times more base data than its limit of memory, under Zipf reads.

All answers are compared with what is there, and the size of the process with its limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import psutil

from pequod.client import Client
from pequod_bench.report.printed import WrongAnswerError
from pequod_bench.store.filled import ROW_BYTES, ROWS_A_GROUP, key_of, value_of
from pequod_bench.systems.server import started_server

_READS_A_BATCH: Final = 64


class Seen(NamedTuple):
    """What a run has seen."""

    row_count: int
    reads: int
    writes: int
    #: The largest size of the process.
    resident_bytes: int
    #: From the start of the process to the first answer.
    answered_s: float


def rows_for(limit_mib: int, times: float) -> int:
    """Return how many rows take some times the limit of memory."""
    return int(times * (limit_mib << 20) / ROW_BYTES)


def zipf(random: Random, count: int) -> Iterator[int]:
    """Yield numbers below ``count``; the n-th most frequent one comes with a probability of about 1/n."""
    while True:
        # The most frequent ones lie apart.
        yield int(count ** random.random() - 1) * 7919 % count


def pressed(path: Path, row_count: int, seconds: float, limit_mib: int, seed: int = 0) -> Seen:
    """Read and write rows of a server for some seconds, and compare.

    Raises:
        WrongAnswerError: An answer is not what was written.
    """
    random = Random(seed)
    numbers = zipf(random, row_count)
    versions: dict[int, int] = {}
    begun_s = time.monotonic()
    reads = writes = resident_bytes = 0
    # Messages have their share of the limit, whatever the environment says: it decides how much data is in memory.
    limits = "--memory-limit", f"{limit_mib}MiB", "--messages-bytes-max", "0"
    with started_server("--data", str(path), *limits) as (target, pid):
        process = psutil.Process(pid)
        with Client(target) as client:
            client.get(key_of(0))
            answered_s = time.monotonic() - begun_s
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                some = [next(numbers) for _ in range(_READS_A_BATCH)]
                found = client.multi_get([key_of(number) for number in some])
                if found != [value_of(number, versions.get(number, 0)) for number in some]:
                    raise WrongAnswerError(f"of the rows {some} one is not as it was written")
                number = next(numbers)
                versions[number] = versions.get(number, 0) + 1
                client.put(key_of(number), value_of(number, versions[number]))
                group = next(numbers) // ROWS_A_GROUP * ROWS_A_GROUP
                first = key_of(group)[:-2]
                group_rows = range(group, min(group + ROWS_A_GROUP, row_count))
                expected = [(key_of(one), value_of(one, versions.get(one, 0))) for one in group_rows]
                if client.scan(prefix=first) != expected:
                    raise WrongAnswerError(f"the rows of {first!r} are not as they were written")
                reads += len(some) + len(expected)
                writes += 1
                resident_bytes = max(resident_bytes, process.memory_info().rss)
    return Seen(row_count, reads, writes, resident_bytes, answered_s)
