"""A server whose folder has several times more base data than its limit of memory, under Zipf reads.

All answers are compared with what is there, and the size of the process with its limit.

python -m tests.disk.beyond --seconds 60 --limit-mib 256 --times 4
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import psutil
from pequod_bench.systems.server import started_server
from pequod_server.data.folder import Folder
from pequod_server.data.opening import open_rows

from pequod.client import Client

#: What a row of 100 bytes takes in memory, with its key.
_ROW_BYTES: Final = 216
_ROWS_A_GROUP: Final = 20
_ROWS_A_BATCH: Final = 5000
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


def key_of(number: int) -> bytes:
    """Return the key of a row."""
    return b"p|%07d|%02d" % divmod(number, _ROWS_A_GROUP)


def value_of(number: int, version: int) -> bytes:
    """Return the value of a row after some writes."""
    return Random(number * 1000 + version).randbytes(100)


def fill(path: Path, row_count: int) -> None:
    """Write a folder with rows, as a server has closed it."""
    with Folder(path) as folder:
        rows = open_rows(folder)
        for first in range(0, row_count, _ROWS_A_BATCH):
            stop = min(row_count, first + _ROWS_A_BATCH)
            rows.write({key_of(number): value_of(number, 0) for number in range(first, stop)}, stop)
        rows.sync()
        folder.note.written = folder.note.synced = row_count
        rows.close()
        folder.note.end()


def zipf(random: Random, count: int) -> Iterator[int]:
    """Yield numbers below ``count``; the n-th most frequent one comes with a probability of about 1/n."""
    while True:
        # The most frequent ones lie apart.
        yield int(count ** random.random() - 1) * 7919 % count


def pressed(path: Path, row_count: int, seconds: float, limit_mib: int, seed: int = 0) -> Seen:
    """Read and write rows of a server for some seconds, and compare.

    Raises:
        AssertionError: An answer is not what was written.
    """
    random = Random(seed)
    numbers = zipf(random, row_count)
    versions: dict[int, int] = {}
    begun_s = time.monotonic()
    reads = writes = resident_bytes = 0
    with started_server("--data", str(path), "--memory-limit", f"{limit_mib}MiB") as (target, pid):
        process = psutil.Process(pid)
        with Client(target) as client:
            client.get(key_of(0))
            answered_s = time.monotonic() - begun_s
            end_s = time.monotonic() + seconds
            while time.monotonic() < end_s:
                some = [next(numbers) for _ in range(_READS_A_BATCH)]
                found = client.multi_get([key_of(number) for number in some])
                assert found == [value_of(number, versions.get(number, 0)) for number in some], "rows as written"
                number = next(numbers)
                versions[number] = versions.get(number, 0) + 1
                client.put(key_of(number), value_of(number, versions[number]))
                group = next(numbers) // _ROWS_A_GROUP * _ROWS_A_GROUP
                first = key_of(group)[:-2]
                group_rows = range(group, min(group + _ROWS_A_GROUP, row_count))
                expected = [(key_of(one), value_of(one, versions.get(one, 0))) for one in group_rows]
                assert client.scan(prefix=first) == expected, "groups as written"
                reads += len(some) + len(expected)
                writes += 1
                resident_bytes = max(resident_bytes, process.memory_info().rss)
    return Seen(row_count, reads, writes, resident_bytes, answered_s)


def main() -> None:
    """Press a server, and say what was seen."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--limit-mib", type=int, default=256)
    options.add_argument("--times", type=float, default=4.0)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    row_count = int(chosen.times * (chosen.limit_mib << 20) / _ROW_BYTES)
    with TemporaryDirectory() as scratch:
        fill(Path(scratch) / "data", row_count)
        seen = pressed(Path(scratch) / "data", row_count, chosen.seconds, chosen.limit_mib, chosen.seed)
    share = seen.resident_bytes / (chosen.limit_mib << 20)
    print(
        f"{seen.row_count} rows, answering after {seen.answered_s:.2f} s; {seen.reads} rows read and {seen.writes} "
        f"written in {chosen.seconds:g} s, all exact; at most {share:.0%} of {chosen.limit_mib} MiB resident"
    )
    assert share <= 1.1, "the limit of memory bounds the process"


if __name__ == "__main__":
    main()
