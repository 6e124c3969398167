"""Prefetching: what reads will lack is loaded before they ask, with another load or after a change.

With a load of a read come the groups that the read would lack next, if the store can prefetch:

    read     s|ann|                   and the groups of its keys
    store    s|ann|, p|bob|, p|liz|   the last two are told of from now on, and nobody here has asked for them
    release  p|bob|                   was on its way when the store read it: whether it is told of is not known

A prefetched range is taken in unless the store was told, since the load began, that it is not held any more: the store
may have heard that after it read the range. From then on it is under way like any other.

After a change that contexts select by, the `Prefetcher` loads what these contexts will need:

    feed      s|ann|bob      s|liz|bob s|eve|dan               ann's timeline, which was read, will need bob's posts
    load      [p|bob|]                  [p|dan|]               one load at a time, of all that was asked for meanwhile
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pequod.engine import Engine, Loadable, NextGroups, PequodError, Range
from pequod_server.backing import BackingStore, Changes, Event, KeyRange, Loaded, Prefetching
from pequod_server.backing.rows import Clip
from pequod_server.backing.turns import ended

#: For a commit with more changes, which are looked at in one turn, reads load what they need.
_CHANGES_MAX: Final = 1024
#: While more ranges wait for a load, nothing more is prefetched.
_WANTED_MAX: Final = 4096


class Load:
    """One load with what it prefetches, from its beginning until it is taken in or given up.

    Args:
        owned: Returns the parts of ranges that may be taken in.

    Invariants:
        1. The store tells the changes of ``coming``, and goes on to do so.
    """

    __slots__ = ("_next_groups", "_owned", "_store", "coming", "dropped", "released")

    def __init__(
        self,
        store: BackingStore,
        next_groups: Sequence[NextGroups],
        owned: Callable[[Sequence[KeyRange]], list[KeyRange]],
    ) -> None:
        self._store = store
        self._next_groups = next_groups
        self._owned = owned
        #: The ranges that the store was told to release since the load began.
        self.released: list[KeyRange] = []
        #: The prefetched ranges: those that are to be taken in, and the others.
        self.coming: list[KeyRange] = []
        self.dropped: list[KeyRange] = []

    async def read(self, ranges: Sequence[KeyRange]) -> Loaded:
        """Read ranges, with the groups that their keys lead to where the store can do that."""
        self.give_up()
        if not self._next_groups or not isinstance(self._store, Prefetching):
            return await self._store.load(ranges)
        loaded = await self._store.load_and_prefetch(ranges, self._next_groups)
        released = Clip(self.released)
        self.coming = self._owned([one for one in loaded.prefetched if not released.touches(one)])
        coming = set(self.coming)
        self.dropped += [one for one in loaded.prefetched if one not in coming]
        return replace(loaded, prefetched=tuple(self.coming))

    def give_up(self) -> None:
        """Note that what has come will not be taken in."""
        self.dropped += self.coming
        self.coming = []


class Loads:
    """The loads under way."""

    __slots__ = ("_dropped", "_under_way")

    def __init__(self) -> None:
        self._under_way: list[Load] = []
        #: The ranges that came with loads that have ended, and were not taken in.
        self._dropped: list[KeyRange] = []

    @property
    def coming(self) -> list[KeyRange]:
        """The prefetched ranges that are to be taken in."""
        return [one for load in self._under_way for one in load.coming]

    @contextmanager
    def load(self, load: Load) -> Iterator[Load]:
        """Have a load under way; if it fails, nothing of it was taken in."""
        self._under_way.append(load)
        try:
            yield load
        except BaseException:
            load.give_up()
            raise
        finally:
            self._under_way.remove(load)
            self._dropped += load.dropped

    def take_dropped(self) -> list[Range]:
        """Return what was not taken in since the last time, of loads that have ended."""
        dropped, self._dropped = self._dropped, []
        return [Range(one.first, one.last) for one in dropped if one.last is not None]

    def note_released(self, ranges: Sequence[KeyRange]) -> None:
        """Note, in the turn in which the store is told, which ranges are not held any more."""
        for load in self._under_way:
            load.released += ranges


class Prefetcher:
    """Loads what reads of one engine will lack since changes of the database were taken in.

    Args:
        load: Loads what is lacking.

    Invariants:
        1. One load is under way while ``_wanted`` is not empty.
    """

    __slots__ = ("_engine", "_load", "_task", "_wanted")

    def __init__(self, engine: Engine, load: Callable[[Sequence[Loadable]], Awaitable[None]]) -> None:
        self._engine = engine
        self._load = load
        self._wanted: dict[Range, None] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, event: Event) -> None:
        """Begin to load what reads will lack since an event of a database was taken in."""
        if isinstance(event, Changes) and len(event.changes) <= _CHANGES_MAX and len(self._wanted) < _WANTED_MAX:
            self._wanted |= dict.fromkeys(self._engine.foresee([change.key for change in event.changes]))
        if self._wanted and self._task is None:
            self._task = asyncio.create_task(self._run(), name="pequod prefetch")

    async def _run(self) -> None:
        try:
            while self._wanted:
                wanted = list(self._wanted)
                self._wanted.clear()
                try:
                    await self._load(wanted)
                except PequodError:
                    # The read that needs it says why it cannot be loaded.
                    continue
                for one in wanted:
                    self._engine.release(*one)
        finally:
            self._task = None

    async def stop(self) -> None:
        """End the load under way."""
        if self._task is not None:
            await ended([self._task])
