"""Small ranges of a load go into the engine together, and each by itself where there is no memory for all."""

from __future__ import annotations

from collections.abc import Sequence

from pequod_server.backing import History, KeyRange, Progress
from pequod_server.backing.store import Loaded, SequenceHorizon
from pequod_server.database.intake import Intake

from pequod.engine import Engine, LimitExceededError, Range

#: The first event of a feed.
STANDS = Progress(0, history=History(b"fake"))
ROW_BYTES = 60


def posts(count: int) -> dict[bytes, bytes]:
    return {b"p|%03d|1" % number: b"x" * ROW_BYTES for number in range(count)}


def ranges(count: int) -> list[Range]:
    return [Range(b"p|%03d|" % number, b"p|%03d}" % number) for number in range(count)]


async def loaded(engine: Engine, wanted: Sequence[Range], rows: dict[bytes, bytes]) -> object:
    intake = Intake(engine)
    await intake.take(STANDS)

    async def read(_ranges: Sequence[KeyRange]) -> Loaded:
        return Loaded(tuple(sorted(rows.items())), SequenceHorizon(0, 0))

    refused = await intake.load(wanted, read)
    assert intake.counters.ranges == len(wanted)
    return refused


async def test_many_small_ranges_and_a_large_one_between_are_loaded_with_their_rows() -> None:
    engine = Engine(backed=[b"p"])
    rows = posts(300) | {b"p|150|%04d" % number: b"more" for number in range(500)}
    assert await loaded(engine, ranges(300), rows) == {}
    assert engine.loaded() == ranges(300)
    for one in ranges(300):
        found = engine.scan(one.first, one.last)
        expected = {key: value for key, value in rows.items() if one.first <= key < one.last}
        assert dict(zip(found.keys, found.values, strict=True)) == expected
    engine._check()


async def test_where_there_is_no_memory_for_all_the_others_are_loaded() -> None:
    engine = Engine(backed=[b"p"], memory_limit=60_000)
    rows = posts(40) | {b"p|017|1": b"x" * 50_000}
    refused = await loaded(engine, ranges(40), rows)
    assert isinstance(refused, dict)
    assert list(refused) == [ranges(40)[17]]
    assert isinstance(refused[ranges(40)[17]], LimitExceededError)
    assert not engine.is_loaded(b"p|017|1")
    assert engine.is_loaded(b"p|039|1")
    engine._check()
