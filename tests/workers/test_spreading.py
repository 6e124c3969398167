"""Hot groups are read at several workers, and exactly so while that begins and ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_server.heat.meter import HeatMeter
from pequod_server.passing.spreading import Spreading
from pequod_server.worker import Worker, heat_file

from pequod.cluster.grouping import Placement
from pequod.engine.testing import NaiveModel
from tests.workers.pair import IDS, JOINS, OTHER, THEIRS, Pair, fill, make_pair, posts, timeline

GROUP = b"t|" + THEIRS + b"|"


class Clock:
    """The time of both workers, which passes when a test says so; half of it is the processor's."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def process_s(self) -> float:
        return self.now_s / 2


class Heated:
    """What spreads groups at both workers, with the heat that a test says."""

    def __init__(self, pair: Pair, workers_max: int = 2) -> None:
        self._pair = pair
        self.clock = Clock()
        self._meters = {name: HeatMeter(self.clock, self.clock.process_s) for name in IDS}
        self.parts = {}
        for name, server in zip(IDS, (pair.home, pair.compute), strict=True):
            assert server.member is not None
            worker = Worker(name, f"unix:{pair.folder / name}.sock")
            self.parts[name] = Spreading(worker, server.member, self._meters[name], workers_max, self.clock)

    async def look(self, *keys: bytes, age_s: int = 1, names: tuple[str, ...] = ("w1", "w0")) -> None:
        """Have both look, when so many seconds have gone to reads of some keys at the home; wait for what comes of it.

        Reads take all of what the processor does, half of each second.
        """
        for _ in range(age_s):
            for key in keys:
                for _ in range(100):
                    self._meters["w0"].note(key, False, 0.005)
            self.clock.now_s += 1
            for meter in self._meters.values():
                meter.tick()
        for name in names:
            await self.parts[name].look()
        members = [server.member for server in (self._pair.home, self._pair.compute)]
        versions = {member.map.version for member in members if member is not None}
        await self._pair.until(lambda: {member.entry.map_version for member in members if member} == {max(versions)})

    async def spread(self) -> None:
        """Have the group be hot, and nothing else."""
        await self.look(GROUP, age_s=60)

    async def end(self) -> None:
        """Have the group be cold."""
        await self.look(b"x|1", age_s=600)


def placements(pair: Pair) -> tuple[Placement, ...]:
    assert pair.compute.member is not None
    return pair.compute.member.map.placements


async def answered_by(stub: Any, key: bytes) -> int:
    reply = await stub.Get(pb.GetRequest(key=key))
    assert reply.value == b"post 1"
    return int(reply.header.server_id)


async def test_a_hot_group_is_answered_by_the_worker_that_is_asked_while_it_is_hot(tmp_path: Path) -> None:
    async with make_pair(tmp_path) as pair, pair.stub() as stub:
        await fill(stub)
        heated = Heated(pair)
        home, compute = (server.service.server_id for server in (pair.home, pair.compute))
        key, other = posts(THEIRS)[1], posts(OTHER)[1]
        assert {await answered_by(stub, key) for _ in range(3)} == {home}
        await heated.spread()
        assert placements(pair) == (Placement(GROUP, 1, 2),)
        assert {await answered_by(stub, key) for _ in range(3)} == {compute}
        # What is not hot is read where it was.
        assert await answered_by(stub, other) == home
        await heated.look(GROUP)
        assert placements(pair) == (Placement(GROUP, 1, 2),), "it stays as it is"
        await heated.end()
        assert GROUP not in {one.prefix for one in placements(pair)}


async def test_a_worker_that_says_nothing_may_be_busy_with_a_group(tmp_path: Path) -> None:
    async with make_pair(tmp_path) as pair, pair.stub() as stub:
        await fill(stub)
        heated = Heated(pair)
        await heated.spread()
        # The compute is silent: the group stays spread, though the home has no work with it.
        await heated.look(b"x|1", age_s=600, names=("w0",))
        assert GROUP in {one.prefix for one in placements(pair)}
        heat_file(tmp_path, "w1").unlink()
        await heated.look(age_s=600, names=("w0",))
        assert GROUP in {one.prefix for one in placements(pair)}


async def test_a_bound_of_one_spreads_nothing(tmp_path: Path) -> None:
    async with make_pair(tmp_path) as pair, pair.stub() as stub:
        await fill(stub)
        await Heated(pair, workers_max=1).spread()
        assert placements(pair) == ()


class Written:
    """What was written, one change after another, and the timeline of each moment."""

    def __init__(self) -> None:
        self._model = NaiveModel()
        for spec in parse(JOINS):
            self._model.add(spec)
        self._model.put(b"s|%b|bob" % THEIRS, b"1")
        for at in range(5):
            self._model.put(b"p|bob|%010d" % at, b"post %d" % at)
        self.moments = [self._rows()]
        #: The moments whose writes are acknowledged.
        self.done = 1

    def _rows(self) -> list[tuple[bytes, bytes]]:
        return list(self._model.scan(GROUP, GROUP[:-1] + b"}"))

    def put(self, key: bytes, value: bytes) -> None:
        self._model.put(key, value)
        self.moments.append(self._rows())

    def remove(self, key: bytes) -> None:
        self._model.remove(key)
        self.moments.append(self._rows())


async def write(stubs: list[Any], written: Written, tokens: dict[str, bytes], over: asyncio.Event) -> None:
    """Write at any worker, until it is over."""
    random = Random(7)
    while not over.is_set():
        stub, key = random.choice(stubs), b"p|bob|%010d" % random.randrange(12)
        if random.random() < 0.3:
            written.remove(key)
            reply = await stub.Remove(pb.RemoveRequest(key=key))
        else:
            # Each value is another one, so that a moment is told by its rows.
            value = b"value %d" % len(written.moments)
            written.put(key, value)
            reply = await stub.Put(pb.PutRequest(key=key, value=value))
        tokens["last"], written.done = reply.header.token, len(written.moments)


async def read(stub: Any, written: Written, tokens: dict[str, bytes], over: asyncio.Event) -> int:
    """Read at a worker, until it is over; return how many reads there were."""
    count = 0
    while not over.is_set():
        done, level = written.done, pb.Freshness(after=tokens["last"], wait_ms=60_000)
        chunks = [chunk async for chunk in stub.Scan(timeline(THEIRS, freshness=level))]
        rows = [pair for chunk in chunks for pair in zip(chunk.keys, chunk.values, strict=True)]
        assert rows in written.moments[done - 1 :], f"it is of no moment from {done - 1} on"
        count += 1
    return count


@pytest.mark.timeout(180)
async def test_reads_are_exact_while_a_group_is_spread_and_gathered_again_under_puts(tmp_path: Path) -> None:
    async with make_pair(tmp_path) as pair, pair.stub("w0") as at_home, pair.stub("w1") as at_compute:
        await fill(at_compute)
        token = (await at_home.Get(pb.GetRequest(key=posts(THEIRS)[1]))).header.token
        written, tokens, over = Written(), {"last": token}, asyncio.Event()
        heated = Heated(pair)
        writer = asyncio.create_task(write([at_home, at_compute], written, tokens, over))
        stubs = (at_home, at_compute, at_compute)
        readers = [asyncio.create_task(read(stub, written, tokens, over)) for stub in stubs]
        try:
            for _ in range(3):
                for turn in (heated.spread, heated.end):
                    before = written.done
                    await turn()
                    # Writes and reads go on in each of the states.
                    await pair.until(lambda before=before: written.done > before + 20 or over.is_set())  # type: ignore[misc]
        finally:
            over.set()
        await writer
        assert min(await asyncio.gather(*readers)) > 5
        assert pair.compute.member is not None
        assert pair.compute.member.map.version == 7
