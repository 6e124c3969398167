"""Loads that see further than the feed has come, and loads of other timelines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from pequod_server.backing import BackingUnavailableError, Changes, History, KeyRange, Progress, Reload, RowChange
from pequod_server.backing.store import Loaded, SequenceHorizon
from pequod_server.database.intake import Intake

from pequod.engine import Engine, Range

ALL = KeyRange(b"", None)
STANDS = Progress(0, history=History(b"fake"))


async def test_a_load_waits_until_the_feed_has_come_to_it() -> None:
    engine, hurried = Engine(backed=[b"p"]), list[int]()
    intake = Intake(engine, hurry=hurried.append)
    await intake.take(STANDS)
    bob = Range(b"p|bob|", b"p|bob}")

    async def read(_ranges: Sequence[KeyRange]) -> Loaded:
        return Loaded(((b"p|bob|1", b"second"),), SequenceHorizon(2, 2))

    loading = asyncio.create_task(intake.load([bob], read))
    await asyncio.sleep(0.01)
    assert (loading.done(), hurried) == (False, [2])
    await intake.take(Changes(1, 1, (RowChange(b"p|bob|1", b"first"), RowChange(b"p|liz|1", b"first"))))
    await asyncio.sleep(0.01)
    assert not loading.done()
    await intake.take(Changes(2, 2, (RowChange(b"p|bob|1", b"second"),)))
    assert await loading == {}
    assert engine.get(b"p|bob|1") == b"second"


async def test_a_load_that_the_feed_does_not_come_to_fails_in_time() -> None:
    intake = Intake(Engine(backed=[b"p"]), wait_s=0.05)
    await intake.take(STANDS)

    async def read(_ranges: Sequence[KeyRange]) -> Loaded:
        return Loaded((), SequenceHorizon(1, 1))

    with pytest.raises(BackingUnavailableError, match="does not move"):
        await intake.load([Range(b"p|", b"p}")], read)
    # Nothing is left of it.
    assert not intake.is_wanted(b"p|bob|1")


@pytest.mark.parametrize(("timeline", "position"), [(1, 9), (2, 5)])
async def test_a_load_of_another_timeline_does_not_land(timeline: int, position: int) -> None:
    """The load saw what the failover lost, or the feed has not heard of the failover that the load saw."""
    engine = Engine(backed=[b"p"])
    intake = Intake(engine)
    await intake.take(Progress(10, history=History(b"fake")))
    if timeline == 1:
        await intake.take(Reload(10, (ALL,), "failed over", History(b"fake", 2, {1: 8})))

    async def read(_ranges: Sequence[KeyRange]) -> Loaded:
        return Loaded((), SequenceHorizon(position, position), timeline)

    loading = asyncio.create_task(intake.load([Range(b"p|", b"p}")], read))
    await asyncio.sleep(0.01)
    if timeline == 2:
        assert not loading.done()
        await intake.take(Reload(10, (ALL,), "failed over", History(b"fake", 2, {1: 8})))
    assert await loading is None
    assert not engine.is_loaded(b"p|")


async def test_a_load_is_not_set_back_in_a_log_that_is_shorter_than_the_last_one() -> None:
    """A standby that takes over may be at a lower position than its primary was."""
    engine = Engine(backed=[b"p"])
    intake = Intake(engine)
    await intake.take(Progress(1000, history=History(b"fake")))
    await intake.take(Reload(10, (ALL,), "another log", History(b"fake", 2, {1: 8})))
    bob = Range(b"p|bob|", b"p|bob}")

    async def read(_ranges: Sequence[KeyRange]) -> Loaded:
        return Loaded(((b"p|bob|1", b"second"),), SequenceHorizon(20, 2), timeline=2)

    loading = asyncio.create_task(intake.load([bob], read))
    await asyncio.sleep(0)
    # The load holds this change, and one after it.
    await intake.take(Changes(15, 1, (RowChange(b"p|bob|1", b"first"),)))
    await intake.take(Changes(20, 2, (RowChange(b"p|bob|1", b"second"),)))
    await loading
    assert engine.get(b"p|bob|1") == b"second"
