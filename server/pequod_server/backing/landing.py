"""Unites loads and changes: a change that comes while its range is loaded is neither lost nor applied twice.

A load may see more or fewer commits than the feed has delivered, and it may come back before or after the changes that
it holds. So changes are kept while a load of their key is under way; until the feed has passed the load's horizon, the
horizon says which changes the load already holds.

A feed may also deliver a change that a load which begins afterwards does not see yet: PostgreSQL sends a commit when it
is logged, and makes it visible a moment later, or much later if it waits for a standby. Such changes are kept until
loads are known to see them.

    token = landing.start(ranges)          before store.load(ranges)
    rows = landing.land(token, loaded)     after it: these rows are right for the present
    now = landing.arrive(changes)          for each `Changes` of the feed: these have to be applied
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pequod_server.backing.rows import Clip, result_of, sorted_in_steps
from pequod_server.backing.store import Changes, Horizon, KeyRange, Loaded, RowChange

#: Keys with their values, in the order of the keys.
RowList = list[tuple[bytes, bytes]]
#: Rows and changes that are examined in one step: about a millisecond.
_STEP: Final = 1024


@dataclass(slots=True)
class _Unseen:
    """Changes that loads may not see yet, except those of ranges that were read again since."""

    changes: Changes
    but: tuple[Clip, ...] = ()


@dataclass(slots=True)
class _Flight:
    ranges: Clip
    arrived: list[_Unseen] = field(default_factory=list)
    #: Other ranges that were reloaded meanwhile.
    reloaded: list[KeyRange] = field(default_factory=list)


class Landing:
    """The loads under way, and the loads that see further than the feed has come.

    Invariants:
        1. The oldest landed load that is kept sees further than the feed has come.
    """

    __slots__ = ("_flights", "_landed", "_next", "_unseen", "position")

    def __init__(self) -> None:
        #: How far the feed has come.
        self.position = 0
        self._flights: dict[int, _Flight] = {}
        #: Loaded ranges in the order of landing, with the loads' horizons. The last one with a key decides about it, so
        #: a load is kept as long as an older one, whose rows it may have replaced with earlier ones.
        self._landed: deque[tuple[Clip, Horizon]] = deque()
        self._next = 0
        #: Changes that came, and that a load which begins now may not see.
        self._unseen: list[_Unseen] = []

    def start(self, ranges: Sequence[KeyRange]) -> int:
        """Note that these ranges are about to be loaded and return a token for it."""
        self._next += 1
        self._flights[self._next] = _Flight(Clip(ranges), self._unseen.copy())
        return self._next

    def widen(self, token: int, prefetched: Sequence[KeyRange]) -> bool:
        """Add ranges to a load under way that brings them, too; return whether it is still of use.

        The changes of all keys are kept for a load, so it makes no difference that these ranges are named late. It is
        of no use if any of them was reloaded meanwhile.
        """
        flight = self._flights.get(token)
        reloaded = Clip(flight.reloaded if flight is not None else ())
        if flight is None or any(reloaded.touches(one) for one in prefetched):
            return False
        flight.ranges = Clip([*flight.ranges.ranges, *prefetched])
        return True

    def abandon(self, token: int) -> None:
        """Note that a load failed or is not wanted any more; an unknown token is no error."""
        self._flights.pop(token, None)

    def abandon_all(self) -> None:
        """Note that no load under way is wanted any more."""
        self._flights.clear()

    def is_under_way(self, token: int) -> bool:
        """Return whether a load may land: it did not, and no change in its ranges may have been missed."""
        return token in self._flights

    def is_flying(self, key: bytes) -> bool:
        """Return whether a load of the key is under way."""
        return bool(self._flights) and any(flight.ranges.holds(key) for flight in self._flights.values())

    def land(self, token: int, loaded: Loaded) -> RowList | None:
        """Return the rows of a load with the changes that it does not hold; None if the load was abandoned.

        Cost:
            O(rows + changes that came meanwhile).
        """
        return result_of(self.land_in_steps(token, loaded))

    def land_in_steps(self, token: int, loaded: Loaded) -> Generator[None, None, RowList | None]:
        """Do the same in steps of a millisecond or so.

        Requires:
            No change arrives between the steps.

        Yields:
            None, after each step. The rows are what the generator returns.
        """
        flight = self._flights.get(token)
        if flight is None:
            return None
        late: dict[bytes, bytes | None] = {}
        for arrived in flight.arrived:
            changes = arrived.changes.after(loaded.horizon)
            for at in range(0, len(changes), _STEP):
                for change in changes[at : at + _STEP]:
                    key = change.key
                    if flight.ranges.holds(key) and not any(but.holds(key) for but in arrived.but):
                        late[key] = change.value
                yield
        rows = yield from with_changes(loaded.rows, late)
        if self._flights.pop(token, None) is None:
            return None
        self._landed.append((flight.ranges, loaded.horizon))
        self._drop_passed()
        self.see(loaded.horizon)
        return rows

    def arrive(self, changes: Changes) -> list[RowChange]:
        """Return the changes that have to be applied: all but those that landed loads already hold.

        Keys that are being loaded are among them; it does no harm to skip these, since `land` applies them too.
        """
        self.note(changes)
        fresh = [change for change in changes.changes if not self.is_held(change.key, changes)]
        self.pass_by(changes.position)
        return fresh

    def note(self, changes: Changes) -> None:
        """Keep changes for the loads under way, and for later ones that may not see them.

        From here on a change of a key that is not loaded may be dropped: a load that is under way gets it, and so does
        a later one that does not see it. Check the others with `is_held`, apply them, and then call `pass_by`.
        """
        for flight in self._flights.values():
            flight.arrived.append(_Unseen(changes))
        if not changes.are_seen:
            self._unseen.append(_Unseen(changes))

    def is_held(self, key: bytes, changes: Changes) -> bool:
        """Return whether the loaded row of a key already holds these changes."""
        for ranges, horizon in reversed(self._landed):
            if ranges.holds(key):
                return horizon.covers(changes.stamp)
        return False

    def pass_by(self, position: int) -> None:
        """Note that the feed has come this far."""
        self.position = max(self.position, position)
        self._drop_passed()

    def start_over(self, position: int) -> None:
        """Note that the feed continues in another log, at a lower position, and that everything is read again."""
        self.position = position
        self._landed.clear()

    def see(self, horizon: Horizon) -> None:
        """Note that every load that begins from now on sees at least as much as this one."""
        self._unseen = [unseen for unseen in self._unseen if not horizon.covers(unseen.changes.stamp)]

    def reload(self, ranges: Sequence[KeyRange]) -> None:
        """Abandon the loads that touch these ranges: changes in them may have been missed."""
        clip = Clip(ranges)
        self._unseen = [
            _Unseen(unseen.changes, (*unseen.but, clip))
            for unseen in self._unseen
            # Examining all changes of a large commit would take too long; they are kept until loads see them.
            if len(unseen.changes.changes) > _STEP or not all(clip.holds(one.key) for one in unseen.changes.changes)
        ]
        self._flights = {
            token: flight
            for token, flight in self._flights.items()
            if not any(flight.ranges.touches(one) for one in ranges)
        }
        for flight in self._flights.values():
            flight.reloaded += ranges

    def _drop_passed(self) -> None:
        while self._landed and self._landed[0][1].position <= self.position:
            self._landed.popleft()

    def _check(self) -> None:
        assert not self._landed or self._landed[0][1].position > self.position, "invariant 1"


def with_changes(
    rows: tuple[tuple[bytes, bytes], ...], changes: dict[bytes, bytes | None]
) -> Generator[None, None, RowList]:
    """Return the rows with changes applied, in order; rows between two changed keys are copied in one slice."""
    if not changes:
        return list(rows)
    merged: RowList = []
    at = 0
    for number, key in enumerate((yield from sorted_in_steps(changes))):
        stop = bisect_left(rows, (key,), at)
        merged += rows[at:stop]
        at = stop + (stop < len(rows) and rows[stop][0] == key)
        value = changes[key]
        if value is not None:
            merged.append((key, value))
        if number % _STEP == 0:
            yield
    return merged + list(rows[at:])
