"""Takes the events of the database into the engine in slices, so that a commit becomes visible as a whole.

    commit   [ which of its rows are loaded? ][ apply ][ apply ][ apply ]     reads of the database's ranges wait here
    load     [ rows in order ][ a part ][ a part ][ a part ]                  each part is there once it is in
    reload   [ forget ][ forget ][ forget ]                                   reads wait here, too

One commit, load or reload at a time. A load is of one moment already, and each of its rows is right for the present, so
its parts may become visible one by one; those of a commit may not.

A load may see commits that the feed has not delivered. It waits until the feed has come that far: so all rows of the
engine are of one moment, the feed's position.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from pequod.engine import Engine, Loadable, Range, SearchRange
from pequod_server.backing import (
    BackingUnavailableError,
    Changes,
    Event,
    History,
    KeyRange,
    Landing,
    Loaded,
    Place,
    Progress,
    Reload,
    RowChange,
)
from pequod_server.backing.rows import Clip
from pequod_server.backing.timed import untimed, untimed_changes
from pequod_server.backing.turns import Turns, in_turns
from pequod_server.database.arrivals import Arrivals, Refused
from pequod_server.database.assignment import Assignment
from pequod_server.database.counters import DatabaseCounters
from pequod_server.database.followed import FEED, Followed, Reached
from pequod_server.database.gate import Gate, Gates

log = logging.getLogger("pequod.backing")

#: Reads ranges of the database.
ReadRanges = Callable[[Sequence[KeyRange]], Awaitable[Loaded]]

#: Of a commit that has more changes, those that matter are found first, while reads go on; those of a smaller one are
#: found as they are applied. Tests make it small.
_SMALL: Final = 1024
#: Changes that are examined between two looks at the clock: 0.3 ms.
_LOOKED_AT: Final = 128
#: How long a load waits for the feed.
WAIT_S: Final = 30.0
#: Reads wait while a commit is applied. After this time, the rest of the commit is forgotten instead, and loaded again
#: by the reads that need it: a row may be in 100,000 timelines, and forgetting does not look at them.
APPLY_S: Final = 5.0


class Tap(Protocol):
    """Is told each event once the engine has all of it."""

    @property
    def is_awake(self) -> bool:
        """Whether it wants the changes of all keys, loaded or not."""
        ...

    def taken(self, event: Event, history: History, position: int) -> None:
        """Take an event, in the turn in which it became visible, with the engine's place afterwards."""
        ...


class Intake:
    """Takes events and loads into an engine.

    Args:
        gates: The gates of all databases behind the engine.
        hurry: Has the feed come to a position as soon as it can.
        wait_s: How long a load waits for the feed.

    Invariants, beside that of `Followed`:
        1. The gate is closed while the engine has a part of a commit and not the whole, and only between two slices.
        2. No load lands while an event is taken: a load that holds the commit would show it in its ranges alone.
        3. Rows outside of the ranges of ``own`` are neither brought in nor changed nor forgotten.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        gates: Gates | None = None,
        apply_s: float = APPLY_S,
        hurry: Callable[[int], None] = lambda _: None,
        wait_s: float = WAIT_S,
    ) -> None:
        self._engine = engine
        self._apply_s = apply_s
        self._hurry = hurry
        self._wait_s = wait_s
        self.followed = Followed()
        self.counters = DatabaseCounters()
        self.gate = Gate(gates or Gates())
        self.landing = Landing()
        #: The relay or the exports, which get the same changes; None if no server computes from this one's data.
        self.tap: Tap | None = None
        self._arrivals = Arrivals(engine, self.counters)
        #: The ranges of the load that is being taken in.
        self._arriving: Clip | None = None
        #: Held while an event or a load is taken in.
        self.one_at_a_time = asyncio.Lock()
        #: The ranges that the database owns; None: all keys.
        self._owned: Sequence[KeyRange] | None = None
        #: The same, to find those of a key.
        self._owning = _owning(None)
        self._owned_clip: Clip | None = None

    def own(self, ranges: Sequence[KeyRange] | None) -> None:
        """Note which keys the database owns from now on; None: all of backed tables.

        Requires:
            Nothing is loaded of the ranges that come or go, and the caller holds ``one_at_a_time``.
        """
        self._owned = ranges
        self._owning = _owning(ranges)
        self._owned_clip = None if ranges is None else Clip(ranges)
        # Loads of ranges that are not the database's any more must not land; the others are tried again.
        self.landing.abandon_all()
        self.followed.wake()

    def owned(self, ranges: Sequence[KeyRange]) -> list[KeyRange]:
        """Return the parts of ranges that the database owns."""
        if self._owned is None:
            return list(ranges)
        return [part for one in ranges for part, is_own in self._owning.split(one.first, one.last) if is_own]

    def not_loaded(self, ranges: Sequence[KeyRange]) -> list[KeyRange]:
        """Return the parts of ranges of which nothing of the database is loaded: they are absent, or another's."""
        absent: list[KeyRange] = []
        for one in ranges:
            for part, is_own in self._owning.split(one.first, one.last):
                if not is_own:
                    absent.append(part)
                elif part.last is not None:
                    absent += [KeyRange(*gap) for gap in self._engine.absent(part.first, part.last)]
        return absent

    @property
    def loaded_range_count(self) -> int:
        """How many ranges are loaded, as the engine keeps them."""
        if self._owned is None:
            return self._engine.loaded_range_count
        return sum(self._engine.count_loaded(one.first, one.last) for one in self._owned)

    def is_wanted(self, key: bytes) -> bool:
        """Return whether the key is loaded or under way, or its table is searched, or others want all keys.

        A feed may drop a change of another key if every load that begins from now on sees it.

        Cost:
            1 µs, and 0.5 for each load under way.
        """
        if self.tap is not None and self.tap.is_awake:
            return True
        if self._owned_clip is not None and not self._owned_clip.holds(key):
            return False
        if self._engine.is_followed(key) or self.landing.is_flying(key):
            return True
        return self._arriving is not None and self._arriving.holds(key)

    def arriving(self, one: Loadable) -> Loadable:
        """Return the range that is loaded in part, if it holds ``one``, else ``one`` itself."""
        partial = self._arrivals.partial
        if partial is None or isinstance(one, SearchRange):
            return one
        return one if one.first < partial.first or partial.last < one.last else partial

    async def take(self, event: Event) -> None:
        """Take in an event, before the next one."""
        have_waited = False
        async with self.one_at_a_time:
            match event:
                case Changes():
                    have_waited = await self._take_changes(event)
                case Progress(position, seen, history):
                    if seen is not None:
                        self.landing.see(seen)
                    self._pass_by(position, history=history)
                case Reload(position, ranges, reason, history):
                    self.counters.reloads += 1
                    log.warning("reading ranges of the database again", extra={"reason": reason, "ranges": len(ranges)})
                    self.landing.reload(ranges)
                    await self.forget(ranges)
                    if position < self.landing.position:
                        self.landing.start_over(position)
                    self._pass_by(position, history=history)
            followed = self.followed
            if self.tap is not None and followed.history is not None and followed.position is not None:
                self.tap.taken(event, followed.history, followed.position)
        if have_waited:
            # Those reads go on before the next commit closes the gate again.
            await asyncio.sleep(0)

    def _pass_by(self, position: int, *, history: History | None = None, shown: int | None = None) -> None:
        """Note, in the turn in which the engine has all of an event, that it is taken in."""
        self.landing.pass_by(position)
        self.followed.move(self.landing.position, history=history, shown=shown)

    async def forget_everything(self) -> None:
        """Forget everything of the database that is loaded or being loaded."""
        async with self.one_at_a_time:
            everything = [KeyRange(b"", None)]
            self.landing.reload(everything)
            await self.forget(everything)

    async def load(
        self, ranges: Sequence[Range], read: ReadRanges, searches: Sequence[SearchRange] = ()
    ) -> Refused | None:
        """Read ranges and searches, and take them in; None if changes of them may have been missed meanwhile.

        Prefetched ranges are taken in, too.

        Returns:
            Those for which there is no memory; they are not loaded.

        Raises:
            BackingUnavailableError: The feed does not come as far as the load sees.
            BackingUnavailableError, SchemaError: As ``read`` says.
        """
        wanted = [KeyRange(*one) for one in ranges]
        token = self.landing.start(arriving := [*wanted, *(KeyRange(*one.search.keys) for one in searches)])
        try:
            loaded = await read(wanted)
            if loaded.prefetched and not self.landing.widen(token, loaded.prefetched):
                return None
            place = Place(loaded.timeline, loaded.horizon.position)
            if not await self._come_to(place, lambda: self.landing.is_under_way(token)):
                return None
            async with self.one_at_a_time:
                # The database may have failed over while another load was taken in.
                if self.followed.reached(place) is Reached.LOST:
                    return None
                turns = Turns()
                rows = await in_turns(self.landing.land_in_steps(token, loaded), turns)
                if rows is None:
                    return None
                prefetched, deadlines = loaded.prefetched, await in_turns(untimed(rows), turns)
                # So that the rows can be freed piece by piece below: to free a million at once takes 0.1 s.
                del loaded
                self._arriving = Clip([*arriving, *prefetched])
                also = [Range(one.first, one.last) for one in prefetched if one.last is not None]
                try:
                    return await self._arrivals.take([*ranges, *also], searches, rows, turns, deadlines)
                finally:
                    self._arriving = None
        finally:
            self.landing.abandon(token)

    async def _come_to(self, place: Place, is_under_way: Callable[[], bool]) -> bool:
        """Wait until the feed has come to the place of a load; return whether the load is still of use there."""
        followed = self.followed

        def is_decided() -> bool:
            return not is_under_way() or followed.reached(place) is not Reached.NOT_YET

        if not is_decided():
            self._hurry(place.position)
            if not await followed.until(is_decided, self._wait_s):
                raise BackingUnavailableError(
                    FEED, f"it has not come to what a load sees after {self._wait_s:g} s; it does not move"
                )
        return is_under_way() and followed.reached(place) is Reached.YES

    async def _take_changes(self, event: Changes) -> bool:
        """Take in a commit; return whether reads have waited meanwhile."""
        self.counters.changes += len(event.changes)
        # First: `Landing.note` says why changes of keys that are not loaded may be dropped.
        self.landing.note(event)
        turns = Turns()
        # No loaded row holds these changes already: its load waited for the feed to come as far as it sees.
        changes: Sequence[RowChange] = event.changes
        if len(changes) > _SMALL:
            changes = await self._of_use(changes, turns)
        elif self._owned_clip is not None:
            is_own = self._owned_clip.holds
            changes = [change for change in changes if is_own(change.key)]
        have_waited = await self._apply(changes, turns)
        self._pass_by(event.position, shown=event.shown)
        return have_waited

    async def _of_use(self, changes: Sequence[RowChange], turns: Turns) -> list[RowChange]:
        """Return the changes of keys that the database owns, and that are loaded or searched; reads go on meanwhile."""
        is_followed = self._engine.is_followed
        is_own = None if self._owned_clip is None else self._owned_clip.holds
        found: list[RowChange] = []
        for at in range(0, len(changes), _LOOKED_AT):
            some = changes[at : at + _LOOKED_AT]
            found += [change for change in some if is_followed(change.key) and (is_own is None or is_own(change.key))]
            await turns.give_if_due()
        return found

    async def _apply(self, changes: Sequence[RowChange], turns: Turns) -> bool:
        """Apply the changes of one commit; reads wait, and True is returned, if it takes more than a slice."""
        changes, deadlines = untimed_changes(changes)
        at, end_s = 0, time.perf_counter() + self._apply_s
        while at < len(changes):
            # A row that was evicted meanwhile is not loaded any more.
            begun_at = at
            at, applied = self._engine.apply_some(changes, at, turns.work_max)
            self.counters.changes_applied += applied
            if deadlines or self._engine.deadlines:
                self._engine.follow_deadlines((change.key for change in changes[begun_at:at]), deadlines)
            if turns.are_due() and at < len(changes):
                self.gate.close()
                if time.perf_counter() > end_s:
                    await self._forget_parts(changes[at:], turns)
                    break
                await turns.give()
        have_waited = self.gate.is_closed
        self.gate.open()
        return have_waited

    async def _forget_parts(self, changes: Sequence[RowChange], turns: Turns) -> None:
        """Forget the loaded parts that hold the keys of changes: a new load has the whole commit."""
        log.warning("forgetting what a large commit changed, since to apply it takes too long")
        for change in changes:
            # Of a key that is not loaded, what was searched for is forgotten.
            part = self._engine.part_of(change.key) or Range(change.key, change.key + b"\0")
            while self._engine.forget_some(*part):
                await turns.give_if_due()
            await turns.give_if_due()

    async def forget(self, ranges: Sequence[KeyRange]) -> None:
        """Forget what is loaded of ranges that the database owns, while reads wait.

        Requires:
            ``one_at_a_time`` is held.
        """
        assert self.one_at_a_time.locked(), "or the gate would open in the middle of a commit"
        turns = Turns()
        for one in self.owned(ranges):
            while self._engine.forget_some(one.first, one.last):
                if turns.are_due():
                    self.gate.close()
                    await turns.give()
            if turns.are_due():
                self.gate.close()
                await turns.give()
        self.gate.open()


def _owning(ranges: Sequence[KeyRange] | None) -> Assignment[bool]:
    return Assignment((one, True) for one in ((KeyRange(b"", None),) if ranges is None else ranges))
