"""The copy of one range at its new home, while clients write to the old one.

    old home    [ page 1 ][ page 2 ][ page 3 ] ...     each read as of a place, its changes told from there on
    new home    [ page 1 ][ page 2 ] <- changes        a page is written whole, and after it what was told meanwhile
    request ids                      <- ids            what the old home remembers of writes; see `IdCopy`
    compare     page 1 at the old home, with what was told since, is page 1 at the new home

Nobody else writes the range at the new home: so what it has is what was written here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pequod.cluster.map import HomeRange
from pequod.errors import ClusterMapError
from pequod.escapes import shown
from pequod_server.backing import KeyRange, Place
from pequod_server.cluster.copied_ids import IdCopy
from pequod_server.cluster.followed_home import FollowedHome, HomeAccess, Rows, lasting
from pequod_server.homes.messages import copies_request

#: A row, or the key of one that is removed.
Change = tuple[bytes, bytes | None]
#: Rows of a page, and of a message.
PAGE_ROWS: Final = 500
#: A message of copied rows has one row, or fewer bytes than this.
_MESSAGE_BYTES: Final = 1 << 20
#: A row may expire at one home a moment before it does at the other: then a page is compared again.
_COMPARED_MAX: Final = 5
_AGAIN_S: Final = 0.2
#: How often the copy may try to come near the writes.
_ROUNDS_MAX: Final = 200


class UnequalError(ClusterMapError):
    """The rows at the new home are not those of the old one."""


@dataclass(slots=True)
class CopyCounts:
    """The counts of a copy."""

    rows: int = 0
    #: Changes that were written at the old home meanwhile.
    changes: int = 0


class RangeCopy:
    """A range on its way.

    Args:
        home: The range as the map has it while it is copied.
        old: A home of the group that it comes from.
        new: A home of the group that it comes to.
    """

    def __init__(self, home: HomeRange, old: HomeAccess, new: HomeAccess) -> None:
        self.home = home
        self.old = old
        self.new = new
        self.counts = CopyCounts()
        self._feed = FollowedHome(old.channel, old.entry.id)
        self._ids = IdCopy(old, new, home.move)
        self._pages: list[KeyRange] = []

    async def start(self) -> None:
        """Follow the old home."""
        await self._feed.start()

    @property
    def database(self) -> bytes:
        """The name of the old home's database in tokens."""
        return self._feed.database

    async def close(self) -> None:
        """Follow it no more, and end the connections."""
        await self._feed.close()
        await self.old.close()
        await self.new.close()

    async def copy(self) -> None:
        """Have the new home have the rows of the old one, and no others: rests of an earlier try go.

        Raises:
            PequodError: A home does not answer, or refuses.
        """
        async for page in self._pages_of_old():
            loaded = await self._feed.load(page)
            rows: list[Change] = [(key, lasting(value)) for key, value in loaded.rows]
            there = {key for key, value in rows if value is not None}
            async for some in _scanned(self.new, page):
                await self._write([(key, None) for key, _ in some if key not in there])
            await self._write(rows)
            self.counts.rows += len(there)
            await self.carry()

    async def compare(self) -> None:
        """Compare all pages as they are now, while writes go on.

        Raises:
            UnequalError: A page is not the same at both homes.
            PequodError: A home does not answer, or refuses.
        """
        if not self._pages:
            # The rows were copied by other means.
            async for page in self._pages_of_old():
                self.counts.rows += len((await self._feed.load(page)).rows)
        for page in self._pages:
            for _ in range(_COMPARED_MAX):
                expected, found = await self._both(page)
                if found == expected:
                    break
                await asyncio.sleep(_AGAIN_S)
            else:
                self._refuse(expected, found)

    def _refuse(self, expected: dict[bytes, bytes], found: dict[bytes, bytes]) -> None:
        """Raise the difference between two states of a page."""
        if more := sorted(found.keys() - expected.keys()):
            raise UnequalError(
                str(self.home),
                f"{self.new.entry.id} has keys in it that {self.old.entry.id} does not have, as {shown(more[0])}; "
                "nothing has moved yet",
            )
        key = min(key for key in expected if found.get(key) != expected[key])
        raise UnequalError(
            str(self.home),
            f"it is not the same at {self.new.entry.id} as at {self.old.entry.id}, as {shown(key)}; "
            "nothing has moved yet",
        )

    async def _both(self, page: KeyRange) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        """Return the rows of a page at the old home as of now, and those at the new one once it has as much."""
        await self.carry()
        loaded = await self._feed.load(page)
        await self._feed.come_to(Place(loaded.timeline, loaded.horizon.position))
        told = await self.carry()
        expected: dict[bytes, bytes | None] = {key: lasting(value) for key, value in loaded.rows}
        expected |= {key: value for key, value in told if page.first <= key and (page.last is None or key < page.last)}
        found = dict(await self.new.scan(page.first, page.last))
        # A row that is due by now is at none of them.
        return {
            key: value for key, value in expected.items() if lasting(value) is not None and value is not None
        }, found

    async def carry(self) -> Sequence[Change]:
        """Write what was told since the last call; return it."""
        told = self._feed.take()
        await self._write(told)
        self.counts.changes += len(told)
        return told

    async def come_near(self) -> None:
        """Write what was told until it is little at a time: the rest is written when writes are refused.

        Raises:
            ClusterMapError: Writes come faster than they are carried.
        """
        for _ in range(_ROUNDS_MAX):
            await self._feed.come_to_latest()
            if len(await self.carry()) <= PAGE_ROWS:
                await self._ids.come_near()
                return
        raise ClusterMapError(
            str(self.home),
            "it is written faster than it is copied; nothing has moved: undo the move, and move a smaller range, or "
            "when less is written",
        )

    async def come_to_end(self) -> None:
        """Write all that was committed before this call, and then the request ids of that."""
        await self._feed.come_to_latest()
        await self.carry()
        await self.carry_ids()

    async def carry_ids(self) -> None:
        """Have the new home remember the request ids of all writes that the old one has done before this call."""
        await self._ids.carry()

    async def lost(self) -> list[bytes]:
        """Return the keys that programs have written to the old database since `come_to_end`, but not at the new home.

        Raises:
            PequodError: A home does not answer.
        """
        await self._feed.come_to_latest()
        found = []
        for key, value in self._feed.take():
            rows = await self.new.scan(key, key + b"\0")
            # What expires is gone at both.
            if (rows[0][1] if rows else None) != value:
                found.append(key)
        return sorted(found)

    async def _pages_of_old(self) -> AsyncIterator[KeyRange]:
        """Yield pages of the range, by the rows that the old home has; together they are all of it."""
        first: bytes = self.home.first
        while True:
            rows = await self.old.scan(first, self.home.last, PAGE_ROWS)
            is_last = len(rows) < PAGE_ROWS or rows[-1][0] + b"\0" == self.home.last
            page = KeyRange(first, self.home.last if is_last else rows[-1][0] + b"\0")
            self._pages.append(page)
            yield page
            if is_last or page.last is None:
                return
            first = page.last

    async def _write(self, changes: Sequence[Change]) -> None:
        for some in _messages(changes):
            await self.new.channel.write(copies_request(some, self.home.move))


async def _scanned(home: HomeAccess, page: KeyRange) -> AsyncIterator[Rows]:
    first = page.first
    while rows := await home.scan(first, page.last, PAGE_ROWS):
        yield rows
        first = rows[-1][0] + b"\0"


def _messages(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield changes in messages that servers take."""
    rest = iter(changes)
    while some := list(islice(rest, PAGE_ROWS)):
        part: list[Change] = []
        size = 0
        for key, value in some:
            size += len(key) + len(value or b"")
            if part and size > _MESSAGE_BYTES:
                yield part
                part, size = [], len(key) + len(value or b"")
            part.append((key, value))
        yield part
