"""A server under a limit of memory, and clients that do what they can to pass it.

    python -m tests.server.memory_soak --seconds 300 --limit-mib 256

Many timelines, values up to the largest, joins over joins over joins, watches that nobody reads, in phases that
follow each other at random, so that what one leaves behind is in the way of the next. The process, all of it, may take
110 % of the limit; what it answers in the end must be what the acknowledged writes make of it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import psutil
from pequod_bench.systems.server import started_server

from pequod.client import AsyncClient
from pequod.errors import LimitExceededError, WatchCompactedError
from tests.soak import heavy

JOINS: Final = """
t|<user>|<time:8>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:8>;
d|<user>|<time:8>|<poster> = copy t|<user>|<time:8>|<poster>;
e|<user>|<time:8>|<poster> = copy d|<user>|<time:8>|<poster>;
n|<user>|<poster> = count e|<user>|<time:8>|<poster>;
m|<user>|<poster> = max t|<user>|<time:8>|<poster>
"""
#: What pools of gRPC and Python may take more after calls that are refused; their requests are 100 KB.
GROWTH_BYTES_MAX: Final = 16 << 20
USERS: Final = 20_000
POSTERS: Final = 400


@dataclass
class Report:
    """What was seen."""

    limit_bytes: int
    start_bytes: int = 0
    peak_bytes: int = 0
    calls: int = 0
    refused: int = 0
    evictions: int = 0
    checked: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def allowed_bytes(self) -> int:
        """What the process may take."""
        return int(1.1 * self.limit_bytes)


class Adversary:
    """Phases of load, and a model of what was acknowledged."""

    def __init__(self, target: str, client: AsyncClient, random: Random, report: Report) -> None:
        self._target = target
        self._client = client
        self._random = random
        self._report = report
        self._times = count()
        self._rows: dict[bytes, bytes] = {}
        self._follows: dict[int, set[int]] = {}
        self._watches: list[asyncio.Task[None]] = []

    async def phase(self) -> None:
        """Go through one phase, any."""
        phases = [self.posts, self.follows, self.timelines, self.timelines, self.deep, self.blobs, self.watches]
        await self._random.choice([*phases, self.forget, self.heavy_clients, self.crowds])()

    async def _all(self, *calls: object) -> None:
        for outcome in await asyncio.gather(*calls, return_exceptions=True):  # type: ignore[call-overload]
            self._report.calls += 1
            if isinstance(outcome, LimitExceededError) and outcome.setting == "memory_limit":
                self._report.refused += 1
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _put(self, key: bytes, value: bytes) -> None:
        await self._client.put(key, value)
        self._rows[key] = value

    async def _remove(self, key: bytes) -> None:
        await self._client.remove(key)
        del self._rows[key]

    async def fill(self, size_mib: int) -> None:
        """Write so much in large values."""
        keys = [b"fill|%08d" % number for number in range(size_mib)]
        await self._all(*[self._put(key, bytes(1 << 20)) for key in keys])

    async def posts(self) -> None:
        """Small posts of all posters."""
        size = self._random.choice([5, 50, 500])
        keys = [b"p|%03d|%08d" % (self._random.randrange(POSTERS), next(self._times)) for _ in range(2000)]
        await self._all(*[self._put(key, key + bytes(size)) for key in keys])

    async def follows(self) -> None:
        """Subscriptions of some users."""
        pairs = [(self._random.randrange(USERS), self._random.randrange(POSTERS)) for _ in range(3000)]

        async def follow(user: int, poster: int) -> None:
            await self._put(b"s|%05d|%03d" % (user, poster), b"1")
            self._follows.setdefault(user, set()).add(poster)

        await self._all(*[follow(*pair) for pair in pairs])

    async def timelines(self) -> None:
        """Timelines of many users."""
        users = [self._random.randrange(USERS) for _ in range(1500)]
        await self._all(*[self._client.scan(b"t|%05d|" % user, b"t|%05d}" % user, limit=20) for user in users])

    async def deep(self) -> None:
        """Three joins deep, and aggregates of them."""
        users = [self._random.randrange(USERS) for _ in range(300)]
        tables = [self._random.choice([b"e", b"n", b"m"]) for _ in users]
        scans = [(b"%b|%05d|" % pair, b"%b|%05d}" % pair) for pair in zip(tables, users, strict=True)]
        await self._all(*[self._client.scan(*bounds, limit=20) for bounds in scans])

    async def blobs(self) -> None:
        """Values of all sizes up to the largest; half of them in posts."""
        for _ in range(6):
            size = self._random.choice([2_000, 20_000, 200_000, 1_000_000])
            names = [self._random.choice([b"blob|%08d", b"p|%03d|%%08d" % self._random.randrange(POSTERS)])]
            keys = [self._random.choice(names) % next(self._times) for _ in range(8)]
            await self._all(*[self._put(key, key + bytes(size)) for key in keys])

    async def heavy_clients(self) -> None:
        """Clients of their own that send messages of all sizes at once, and leave scans unread."""
        tricks = [(name, count) for name, (_, count) in heavy.LARGE.items() if name != "put-much"]
        await asyncio.gather(*[heavy.in_a_process(self._target, *trick) for trick in [*tricks, ("scans-unread", 100)]])

    async def crowds(self) -> None:
        """Clients of their own that begin calls without bodies, and more calls at once than one connection may have."""
        tricks = [("bodies-missing", 500), ("calls-at-once", 1500)]
        for trick in [*tricks, ("puts-beside-watches", 2000), ("puts-at-once", 3000)]:
            codes = await heavy.in_a_process(self._target, *trick)
            # While memory is full, puts are refused.
            if unforeseen := codes.keys() - {"OK", "RESOURCE_EXHAUSTED"}:
                self._report.wrong.append(f"{trick}: {unforeseen}")

    async def watches(self) -> None:
        """Watches that are read slowly or not at all; some end."""
        while len(self._watches) > 8:
            self._watches.pop(0).cancel()
        user = self._random.randrange(USERS)
        bounds = self._random.choice([(b"t|%05d|" % user, b"t|%05d}" % user), (b"blob|", b"blob}"), (b"p|", b"p}")])
        self._watches.append(asyncio.create_task(self._watch(*bounds)))
        await asyncio.sleep(0)

    async def _watch(self, first: bytes, last: bytes) -> None:
        with suppress(WatchCompactedError, LimitExceededError):
            async for _ in self._client.watch(first, last):
                await asyncio.sleep(self._random.choice([0.0, 0.1, 30.0]))

    async def forget(self) -> None:
        """Remove much of what was written; the larger values first."""
        keys = sorted(self._rows, key=lambda key: (len(self._rows[key]), key), reverse=True)
        keys = [key for key in keys if not key.startswith(b"s|")][: len(keys) // 3]
        # In pieces, since each removal of a post changes hundreds of timelines, and a call has a deadline.
        for start in range(0, len(keys), 1000):
            await self._all(*[self._remove(key) for key in keys[start : start + 1000]])

    async def check(self) -> None:
        """Compare timelines and stored values with the model."""
        for watch in self._watches:
            watch.cancel()
        by_poster: dict[bytes, list[bytes]] = {}
        for key in self._rows:
            if key.startswith(b"p|"):
                by_poster.setdefault(key.split(b"|")[1], []).append(key)
        for user in self._random.sample(sorted(self._follows), min(200, len(self._follows))):
            posters = [b"%03d" % poster for poster in self._follows[user]]
            posts = sorted((key.split(b"|")[2], poster) for poster in posters for key in by_poster.get(poster, ()))
            for table in (b"t", b"e"):
                with suppress(LimitExceededError):
                    rows = await self._client.scan(b"%b|%05d|" % (table, user), b"%b|%05d}" % (table, user), limit=50)
                    expected = [b"%b|%05d|%b|%b" % (table, user, *post) for post in posts][:50]
                    self._report.checked += 1
                    if [key for key, _ in rows] != expected:
                        self._report.wrong.append(f"{table!r} of {user}")
        for key in self._random.sample(sorted(self._rows), min(500, len(self._rows))):
            # While the process is above its limit, streams that wait for a batch are ended: this one, too.
            with suppress(LimitExceededError):
                is_right = await self._client.get(key) == self._rows[key]
                self._report.checked += 1
                if not is_right:
                    self._report.wrong.append(f"{key!r}")


async def soak(seconds: float, limit_mib: int, seed: int, *, phases: Sequence[str] = (), filled_mib: int = 0) -> Report:
    """Press a server of its own, and look at what the process takes.

    Args:
        seconds: How long phases follow each other at random.
        phases: Those to go through before, by name.
        filled_mib: What is written at first, so that few phases are enough to fill the rest.
    """
    report = Report(limit_mib << 20)
    # Memory for messages is kept free of data: with more of it, more calls are refused, and fewer answers are compared.
    with started_server("--memory-limit", f"{limit_mib}MiB", "--messages-bytes-max", "0") as (target, pid):
        process = psutil.Process(pid)
        report.start_bytes = process.memory_info().rss

        async def look() -> None:
            while True:
                report.peak_bytes = max(report.peak_bytes, process.memory_info().rss)
                await asyncio.sleep(0.05)

        async with AsyncClient(target, timeout_s=300) as client:
            await client.add_join(JOINS)
            looking = asyncio.create_task(look())
            adversary = Adversary(target, client, Random(seed), report)
            await adversary.fill(filled_mib)
            for name in phases:
                await getattr(adversary, name)()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await adversary.phase()
            await adversary.check()
            looking.cancel()
            report.evictions = (await client.statistics()).memory.evictions
    return report


async def refuse_many(limit_mib: int, count: int, folder: Path) -> dict[str, int]:
    """Have servers refuse many calls of each kind, and return by kind how many bytes they have grown by."""
    access = folder / "access.toml"
    access.write_text(heavy.ACCESS)
    grown: dict[str, int] = {}
    for tricks, settings in ((heavy.REFUSED, ()), (heavy.REFUSED_BY_ACCESS, ("--access-file", str(access)))):
        with started_server("--memory-limit", f"{limit_mib}MiB", *heavy.SETTINGS, *settings) as (target, pid):
            for trick in tricks:
                await heavy.in_a_process(target, trick, count // 10)
                before_bytes = psutil.Process(pid).memory_info().rss
                codes = await heavy.in_a_process(target, trick, count)
                assert "OK" not in codes, f"{trick}: {codes}"
                grown[trick] = psutil.Process(pid).memory_info().rss - before_bytes
    return grown


def main() -> int:
    """Run and print a report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--limit-mib", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--refused", type=int, default=10_000, help="calls of each kind that are refused at last")
    options = parser.parse_args()
    report = asyncio.run(soak(options.seconds, options.limit_mib, options.seed))
    print(f"limit {report.limit_bytes >> 20} MiB, at the start {report.start_bytes >> 20} MiB")
    print(f"peak {report.peak_bytes >> 20} MiB of {report.allowed_bytes >> 20} MiB allowed")
    print(f"{report.calls} calls, {report.refused} refused, {report.evictions} evictions")
    print(f"{report.checked} answers checked, wrong: {report.wrong}")
    with TemporaryDirectory() as folder:
        grown = asyncio.run(refuse_many(options.limit_mib, options.refused, Path(folder)))
    print(f"grown by {options.refused} calls of each kind that are refused: {grown}")
    is_kept = max(grown.values()) > GROWTH_BYTES_MAX
    return int(bool(report.wrong) or report.peak_bytes > report.allowed_bytes or is_kept)


if __name__ == "__main__":
    sys.exit(main())
