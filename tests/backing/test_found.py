"""What a search of the database finds comes into the engine as a whole, or leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from pequod_grammar import parse
from pequod_server.backing import History, KeyRange, Progress, turns
from pequod_server.backing.store import Loaded, SequenceHorizon
from pequod_server.database.arrivals import Refused
from pequod_server.database.intake import Intake

from pequod.engine import Engine, LimitExceededError, MissingError, SearchRange

#: The first event of a feed.
STANDS = Progress(0, history=History(b"fake"))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every look at the clock end a slice."""
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    monkeypatch.setattr(turns, "WORK_MAX", 1)


class Searching:
    """Reads articles by their authors, which the database is asked for."""

    def __init__(self, memory_limit: int) -> None:
        self.engine = Engine(backed=[b"article"], can_search=lambda _: True, memory_limit=memory_limit)
        self.engine.add_joins(parse("by|<author>|<id> = copy article|<id> with author = <author>"))
        self.intake = Intake(self.engine)

    async def search(self, author: str, count: int) -> Refused | None:
        """Have the articles of an author loaded."""
        record = b'{"author":"%b","body":"%b"}' % (author.encode(), b"x" * 100)
        rows = tuple((b"article|%b%04d" % (author.encode(), number), record) for number in range(count))

        async def read(_ranges: Sequence[KeyRange]) -> Loaded:
            return Loaded(rows, SequenceHorizon(0, 0))

        with pytest.raises(MissingError) as missing:
            self.read(author)
        return await self.intake.load([], read, missing.value.searches)

    def read(self, author: str) -> int:
        return len(self.engine.scan(f"by|{author}|".encode(), f"by|{author}}}".encode()).keys)

    @property
    def row_count(self) -> int:
        table = self.engine.statistics().tables.get(b"article")
        return 0 if table is None else table.keys


async def test_a_search_for_which_there_is_no_memory_is_refused_and_leaves_nothing(small_parts: None) -> None:
    searching = Searching(memory_limit=200_000)
    await searching.intake.take(STANDS)
    refused = await searching.search("bob", 2_000)
    assert refused is not None
    ((found, error),) = refused.items()
    assert isinstance(found, SearchRange)
    assert (found.first, found.last) == (b"article|bob|", b"article|bob}")
    assert isinstance(error, LimitExceededError)
    assert searching.row_count == 0
    searching.engine._check()
    assert await searching.search("liz", 300) == {}
    assert searching.read("liz") == searching.row_count == 300


async def test_a_search_that_is_cancelled_in_the_middle_leaves_nothing(small_parts: None) -> None:
    searching = Searching(memory_limit=1 << 30)
    await searching.intake.take(STANDS)
    loading = asyncio.create_task(searching.search("bob", 2_000))
    async with asyncio.timeout(60):
        while searching.row_count == 0:  # noqa: ASYNC110 - each turn of the loop takes in a part
            await asyncio.sleep(0)
    assert searching.row_count < 2_000
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert searching.row_count == 0
    searching.engine._check()
    assert await searching.search("bob", 300) == {}
    assert searching.read("bob") == searching.row_count == 300
