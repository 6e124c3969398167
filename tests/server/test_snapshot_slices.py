"""The rows of a snapshot are those of one moment, though others write while they are taken."""

from __future__ import annotations

import asyncio
import random

import pytest
from pequod_server.snapshots import slices
from pequod_server.snapshots.slices import Taken, take_rows

from pequod.engine import Engine


def rows_of(taken: Taken) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, int]]]:
    rows: list[tuple[bytes, bytes]] = []
    deadlines: list[tuple[bytes, int]] = []
    for one in taken.drain():
        assert {key for key, _ in one.deadlines} <= {*one.rows.keys}
        rows += zip(one.rows.keys, one.rows.values, strict=True)
        deadlines += one.deadlines
    assert not taken.slices, "each slice is let go"
    return rows, deadlines


def write(engine: Engine, rng: random.Random) -> None:
    for _ in range(rng.randrange(6)):
        key = rng.choice((b"a", b"p|%02d", b"z|%02d"))
        key = key % rng.randrange(40) if b"%" in key else key
        if rng.random() < 0.3:
            engine.remove(key)
        elif rng.random() < 0.3:
            engine.expire(key, rng.randrange(1_000_000, 2_000_000))
        else:
            engine.put(key, b"%d" % rng.randrange(1000))


@pytest.mark.parametrize("seed", range(200))
async def test_rows_are_those_of_the_moment_at_which_the_walk_ends(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(slices, "SLICE_ROWS", rng.randrange(1, 12))
    engine = Engine()
    for _ in range(rng.randrange(30)):
        write(engine, rng)

    async def others() -> None:
        while True:
            write(engine, rng)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(others())
        taken = await take_rows(engine, bool)
        present = engine.base_rows()
        writing.cancel()
    has_deadlines = taken.has_deadlines
    rows, deadlines = rows_of(taken)
    assert rows == [*zip(present.keys, present.values, strict=True)]
    assert deadlines == sorted(engine.deadlines.among(present.keys))
    assert has_deadlines or not deadlines


async def test_a_walk_that_is_stopped_notes_nothing_more() -> None:
    engine = Engine()
    for number in range(20_000):
        engine.put(b"p|%05d" % number, b"")
    stops = iter([False, False, True])
    assert len((await take_rows(engine, lambda: next(stops))).slices) == 2
    engine.put(b"p|00000", b"1")
    assert not engine._effects
