"""Histories of writers and of those who watch, whose connections are cut and who go on in other ones.

    writers -> pequod serve -> relays that are cut -> watchers: base keys twice, a part of them, and two joins over them

Each history has keys of its own. Every value is written once, so that each change that a watch tells can be told apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final, Self

from pequod import AsyncClient, Put, Remove
from pequod.client import WatchEvent
from pequod.errors import UnavailableError
from tests.client.relay import Relay

#: What the computed ranges follow from.
JOINS: Final = "t|<h>|<key>|<part> = copy x|<h>|<part>|<key>; n|<h>|<part> = count x|<h>|<part>|<key>"
PARTS: Final = 2
KEYS: Final = 4
WRITERS: Final = 2
OPERATIONS: Final = 10
#: What the watches of a history follow: the first two the same.
RANGES: Final = (
    ("x|{}|", "x|{}}}"),
    ("x|{}|", "x|{}}}"),
    ("x|{}|1|", "x|{}|1}}"),
    ("t|{}|", "t|{}}}"),
    ("n|{}|", "n|{}}}"),
)
_WAIT_S: Final = 60.0


@dataclass
class Write:
    """A write that was acknowledged."""

    writer: int
    #: The keys and their new values, None for those that were removed; one moment has all of them.
    rows: dict[bytes, bytes | None]
    #: What the writer knew of the server's revision before the call, and what the reply says.
    before: int
    after: int
    #: The order in which calls began and ended, in all of the history.
    called: int
    returned: int


@dataclass
class Watched:
    """What one watch was told."""

    first: bytes
    last: bytes
    events: list[WatchEvent] = field(default_factory=list)
    #: What a scan says at the end.
    rows: dict[bytes, bytes] = field(default_factory=dict)
    resumed: int = 0


@dataclass
class History:
    """What happened."""

    name: str
    writes: list[Write] = field(default_factory=list)
    watches: list[Watched] = field(default_factory=list)
    moments: int = 0

    def moment(self) -> int:
        """Return the number of the next moment."""
        self.moments += 1
        return self.moments


class Recorder:
    """Records histories at one server, by clients of which each watch has two, behind a relay."""

    def __init__(self, target: str, random: Random) -> None:
        self._target = target
        self._random = random
        self._stack = AsyncExitStack()
        self._relays: list[Relay] = []
        self._writers: list[AsyncClient] = []
        self._watchers: list[tuple[AsyncClient, AsyncClient]] = []

    async def __aenter__(self) -> Self:
        enter = self._stack.enter_async_context
        self._writers = [await enter(AsyncClient(self._target)) for _ in range(WRITERS)]
        await self._writers[0].add_join(JOINS)
        for _ in RANGES:
            relay = await enter(Relay(self._target))
            self._relays.append(relay)
            self._watchers.append((await enter(AsyncClient(relay.target)), await enter(AsyncClient(relay.target))))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def record_some(self, names: Sequence[str]) -> list[History]:
        """Record histories at the same time."""
        return await asyncio.gather(*map(self.record, names))

    async def record(self, name: str) -> History:
        """Record one history, in which each connection of a watch may be cut."""
        history = History(name)
        history.watches = [Watched(first.format(name).encode(), last.format(name).encode()) for first, last in RANGES]
        ends = asyncio.Event()
        stands = [asyncio.Event() for _ in RANGES]
        async with asyncio.timeout(_WAIT_S), asyncio.TaskGroup() as tasks:
            for number, watched in enumerate(history.watches):
                tasks.create_task(self._watch(history, watched, self._watchers[number], stands[number], ends))
            await asyncio.gather(*(each.wait() for each in stands))
            cuts = tasks.create_task(self._cut())
            await asyncio.gather(*(self._write(history, number) for number in range(WRITERS)))
            cuts.cancel()
            ends.set()
        for watched in history.watches:
            watched.rows = dict(await self._writers[0].scan(watched.first, watched.last))
        return history

    async def _write(self, history: History, writer: int) -> None:
        client, random = self._writers[writer], self._random
        for number in range(OPERATIONS):
            keys = [self._key(history.name) for _ in range(3 if random.random() < 0.3 else 1)]
            rows: dict[bytes, bytes | None] = {
                key: None if random.random() < 0.3 else f"{writer}.{number}.{at}".encode()
                for at, key in enumerate(keys)
            }
            before, called = client.revision, history.moment()
            if len(rows) > 1:
                commands = [Remove(key) if value is None else Put(key, value) for key, value in rows.items()]
                await client.transaction([], commands)
            else:
                ((key, value),) = rows.items()
                await (client.remove(key) if value is None else client.put(key, value))
            history.writes.append(Write(writer, rows, before, client.revision, called, history.moment()))
            if random.random() < 0.3:
                await asyncio.sleep(random.random() * 0.01)

    def _key(self, name: str) -> bytes:
        return f"x|{name}|{self._random.randrange(PARTS)}|{self._random.randrange(KEYS)}".encode()

    async def _cut(self) -> None:
        while True:
            await asyncio.sleep(self._random.random() * 0.03)
            self._random.choice(self._relays).cut()

    async def _watch(
        self,
        history: History,
        watched: Watched,
        clients: Sequence[AsyncClient],
        stands: asyncio.Event,
        ends: asyncio.Event,
    ) -> None:
        """Watch until the end is known, and go on from the last event by another client now and then."""
        after: WatchEvent | None = None
        while True:
            client = self._random.choice(clients)
            events = client.watch(watched.first, watched.last, rows=after is None, after=after, progress_s=0.02)
            # What is cut before a watch stands ends it.
            with suppress(UnavailableError):
                async with aclosing(events):
                    async for event in events:
                        # The first event of a watch that goes on says where it does.
                        if after is None or event.changes or event.revision != after.revision:
                            watched.events.append(event)
                        after = event
                        stands.set()
                        if ends.is_set() and event.revision >= max(write.after for write in history.writes):
                            return
                        if self._random.random() < 0.1:
                            watched.resumed += 1
                            break
