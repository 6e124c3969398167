"""Seeded runs of a cluster under faults: `python -m tests.cluster_faults.chaos --runs 200` (`make cluster-chaos`).

writers   sessions that put and remove posts, and read timelines that must show their certain writes
faults    servers are killed and started again, or stopped for a while, or links are cut, one after another
the end   all is well again: every timeline is what the database has, and it has every certain write
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from pequod.client.sessions import AsyncServerSession
from pequod.errors import BackingUnavailableError, DeadlineExceededError, StaleError, UnavailableError
from tests.cluster_faults.site import LATEST, FaultSite
from tests.peer.homes import expected

#: What a call may end with while servers are killed and stopped.
AWAY = (UnavailableError, StaleError, BackingUnavailableError, DeadlineExceededError)
READERS = ("ann", "cat")


@dataclass
class Written:
    """What one writer knows of its keys."""

    #: None: it is certain that the key is not there.
    certain: dict[bytes, bytes | None] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    #: Calls that were answered, and those that were not.
    answered: int = 0
    away: int = 0


async def write(session: AsyncServerSession, poster: str, rng: random.Random, written: Written, until_s: float) -> None:
    """Put and remove posts, and read them back."""
    tick = 0
    while time.monotonic() < until_s:
        tick += 1
        there = [key for key, value in written.certain.items() if value is not None]
        removes = there and rng.random() < 0.2
        key = rng.choice(there) if removes else b"p|%b|%04d" % (poster.encode(), tick)
        value = b"%d" % tick
        try:
            await (session.remove(key) if removes else session.put(key, value))
        except AWAY:
            written.away += 1
            written.certain.pop(key, None)
            written.unknown.add(key)
            continue
        written.answered += 1
        written.certain[key] = None if removes else value
        await read(session, rng.choice(READERS), poster.encode(), written)
        await asyncio.sleep(rng.random() * 0.02)


async def read(session: AsyncServerSession, reader: str, poster: bytes, written: Written) -> None:
    """Read a timeline; if it is answered, it shows all certain writes of the session."""
    try:
        rows = dict(await session.scan(prefix=f"t|{reader}|"))
    except AWAY:
        written.away += 1
        return
    written.answered += 1
    for key, value in written.certain.items():
        shown = rows.get(b"t|%b|%b|%b" % (reader.encode(), key.split(b"|")[2], poster))
        assert shown == value, f"{key!r} is {shown!r} in {reader}'s timeline, and was written as {value!r}"


async def torment(site: FaultSite, rng: random.Random, count: int) -> None:
    """Have faults happen, one after another; afterwards all servers run."""
    for _ in range(count):
        await asyncio.sleep(rng.random())
        if site.proxies and rng.random() < 0.4:
            await cut(site, rng)
            continue
        names = rng.choice([["h1"], ["h2"], ["c1"], ["c2"], ["c3"], ["h1", "h2"], ["c1", "h1"], ["c2", "c3"]])
        if rng.random() < 0.5:
            site.kill(*names)
            await asyncio.sleep(rng.random())
            for name in names:
                await asyncio.to_thread(site.start, name)
        else:
            site.pause(*names)
            await asyncio.sleep(rng.random() * rng.choice([1, 1, 5]))
            site.go_on(*names)


async def cut(site: FaultSite, rng: random.Random) -> None:
    """Cut a compute off from some of its homes for a while: connections break, or say nothing more."""
    proxies = [proxy for proxy in site.proxies.values() if rng.random() < 0.7]
    is_broken = rng.random() < 0.5
    for proxy in proxies:
        if is_broken:
            proxy.take_away()
        else:
            proxy.hold_on()
    await asyncio.sleep(rng.random() * rng.choice([1, 1, 6]))
    for proxy in proxies:
        proxy.let_go()


async def run(seed: int, folder: Path, faults: int = 3) -> Written:
    """Make one run, and return what happened in all."""
    rng = random.Random(seed)
    # Every second run has two home groups, one of a single home: timelines are of both. In every third one, a compute
    # has links of its own that are cut.
    cluster = FaultSite(folder, has_group_b=seed % 2 == 1, behind_proxies="c1" if seed % 3 == 2 else "")
    async with cluster as site, site.client(timeout_s=20) as client:
        posters = ["bob", "dan", "zoe"]
        await client.multi_put({f"s|{reader}|{poster}": "1" for reader in READERS for poster in posters})
        found = {poster: Written() for poster in posters}
        tormenting = asyncio.create_task(torment(site, rng, faults))
        until_s = time.monotonic() + 3.0 + faults
        try:
            await asyncio.gather(
                *[
                    write(client.session(), poster, random.Random(f"{seed} {poster}"), found[poster], until_s)
                    for poster in posters
                ]
            )
        finally:
            await tormenting
        whole = Written()
        for written in found.values():
            whole.certain |= written.certain
            whole.unknown |= written.unknown
            whole.answered += written.answered
            whole.away += written.away
        await check(site, whole)
        return whole


async def check(site: FaultSite, written: Written) -> None:
    """Compare all with what the database has."""
    async with site.client() as client, asyncio.timeout(120):
        while True:
            rows = site.all_rows()
            timelines = {reader: await client.scan(prefix=f"t|{reader}|", freshness=LATEST) for reader in READERS}
            # A write of unknown outcome may still come.
            if site.all_rows() == rows:
                break
    for reader, timeline in timelines.items():
        assert timeline == expected(rows.items(), reader.encode()), reader
    for key, value in written.certain.items():
        if key not in written.unknown:
            assert rows.get(key) == value, key


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        with tempfile.TemporaryDirectory(prefix="pequod-chaos-") as folder:
            try:
                whole = asyncio.run(run(seed, Path(folder)))
            except BaseException:
                print(f"seed {seed} failed", file=sys.stderr)
                raise
        print(f"seed {seed}: {whole.answered} calls answered, {whole.away} not, {len(whole.unknown)} writes unknown")


if __name__ == "__main__":
    main()
