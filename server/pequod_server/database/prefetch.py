"""What loads bring beside the ranges that were asked for: the groups that a read would lack next.

    read     s|ann|                   and the groups of its keys
    store    s|ann|, p|bob|, p|liz|   the last two are told of from now on, and nobody here has asked for them
    release  p|bob|                   was on its way when the store read it: whether it is told of is not known

Such a range is taken in unless the store was told, since the load began, that it is not held any more: the store may
have heard that after it read the range. From then on it is under way like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pequod.engine import NextGroups, Range
from pequod_server.backing import BackingStore, KeyRange, Loaded, LoadingAhead
from pequod_server.backing.rows import Clip


class LoadAhead:
    """One load, from its beginning until it is taken in or given up.

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
        #: What the store was told since the load began.
        self.released: list[KeyRange] = []
        #: The ranges beside those that were asked for: those that are to be taken in, and the others.
        self.coming: list[KeyRange] = []
        self.dropped: list[KeyRange] = []

    async def read(self, ranges: Sequence[KeyRange]) -> Loaded:
        """Read ranges, with the groups that their keys lead to where the store can do that."""
        self.give_up()
        if not self._next_groups or not isinstance(self._store, LoadingAhead):
            return await self._store.load(ranges)
        loaded = await self._store.load_ahead(ranges, self._next_groups)
        released = Clip(self.released)
        self.coming = self._owned([one for one in loaded.more if not released.touches(one)])
        coming = set(self.coming)
        self.dropped += [one for one in loaded.more if one not in coming]
        return replace(loaded, more=tuple(self.coming))

    def give_up(self) -> None:
        """Note that what has come will not be taken in."""
        self.dropped += self.coming
        self.coming = []


class LoadsAhead:
    """The loads under way."""

    __slots__ = ("_dropped", "_under_way")

    def __init__(self) -> None:
        self._under_way: list[LoadAhead] = []
        #: What came with those that have ended, and was not taken in.
        self._dropped: list[KeyRange] = []

    @property
    def coming(self) -> list[KeyRange]:
        """The ranges that come beside those that were asked for."""
        return [one for load in self._under_way for one in load.coming]

    @contextmanager
    def load(self, load: LoadAhead) -> Iterator[LoadAhead]:
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
