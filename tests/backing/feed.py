"""A cache that follows a store: what the tests compare with the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from pequod_server.backing import (
    BackingStore,
    BackingUnavailableError,
    Changes,
    KeyRange,
    Landing,
    Progress,
    Reload,
    SchemaError,
)


class Follower:
    """Loads ranges and applies changes as a server does; `rows` is what it has."""

    def __init__(self, store: BackingStore) -> None:
        self.store = store
        self.landing = Landing()
        self.rows: dict[bytes, bytes] = {}
        self.ranges: list[KeyRange] = []
        self.events: list[Changes | Progress | Reload] = []
        #: How far the events have been taken care of.
        self.position = 0
        #: What the cache showed after each event, if somebody wants to know.
        self.shown: list[dict[bytes, bytes]] | None = None
        self.stands = asyncio.Event()
        #: Whether the store is closed: a load that fails is not tried again.
        self.is_over = False
        self._moved = asyncio.Condition()

    async def load(self, *ranges: KeyRange) -> None:
        """Load ranges, again and again if changes of theirs may have been missed meanwhile."""
        while True:
            token = self.landing.start(ranges)
            try:
                loaded = await self.store.load(ranges)
            except (BackingUnavailableError, SchemaError):
                self.landing.abandon(token)
                if self.is_over:
                    return
                await asyncio.sleep(0.05)
                continue
            rows = self.landing.land(token, loaded)
            if rows is not None:
                break
        for key in [key for key in self.rows if any(one.holds(key) for one in ranges)]:
            del self.rows[key]
        self.rows.update(rows)
        self.ranges += ranges

    def forget(self, *ranges: KeyRange) -> None:
        """Forget what was loaded of ranges."""
        for one in ranges:
            self.ranges.remove(one)
        self.rows = {key: value for key, value in self.rows.items() if any(one.holds(key) for one in self.ranges)}

    def is_wanted(self, key: bytes) -> bool:
        """Tell whether a change of the key concerns this cache."""
        return self.landing.is_flying(key) or any(one.holds(key) for one in self.ranges)

    async def follow(self, since: int | None) -> None:
        async for event in self.store.changes(since, self.is_wanted):
            self.events.append(event)
            match event:
                case Changes():
                    for change in self.landing.arrive(event):
                        if not any(one.holds(change.key) for one in self.ranges):
                            continue
                        if change.value is None:
                            self.rows.pop(change.key, None)
                        else:
                            self.rows[change.key] = change.value
                case Progress(position, seen):
                    self.landing.pass_by(position)
                    if seen is not None:
                        self.landing.see(seen)
                case Reload(position, ranges, _):
                    self.landing.reload(ranges)
                    self.landing.pass_by(position)
                    # Whoever waits for the reload need not wait for the load.
                    async with self._moved:
                        self._moved.notify_all()
                    await self.load(*self.ranges)
            self.position = max(self.position, event.position)
            if self.shown is not None:
                self.shown.append(dict(self.rows))
            self.stands.set()
            async with self._moved:
                self._moved.notify_all()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that an event brings about."""
        async with asyncio.timeout(30), self._moved:
            await self._moved.wait_for(holds)

    async def caught_up(self) -> None:
        """Wait until the feed has passed everything that is in the database now."""
        (_, position) = await self.store.position()
        await self.until(lambda: self.position >= position)

    @property
    def reloads(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, Reload)]


@asynccontextmanager
async def following(
    store: BackingStore, since: int | None = None, ranges: Sequence[KeyRange] = ()
) -> AsyncIterator[Follower]:
    """Follow a store after ``since``, with ranges that were loaded before."""
    follower = Follower(store)
    follower.ranges = list(ranges)
    task = asyncio.create_task(follower.follow(since))
    try:
        async with asyncio.timeout(30):
            await follower.stands.wait()
        yield follower
    finally:
        follower.is_over = True
        await store.close()
        done, _ = await asyncio.wait([task], timeout=30)
        assert done, "the feed goes on although its store is closed"
        with suppress(asyncio.CancelledError):
            task.result()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that no event tells of."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - a status has no event to wait for
            await asyncio.sleep(0.005)


def prefix(*prefixes: str) -> Sequence[KeyRange]:
    return [KeyRange(one.encode(), one.encode()[:-1] + b"}") for one in prefixes]
