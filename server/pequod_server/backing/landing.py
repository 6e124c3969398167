"""Bring loads and changes together: a change that comes while its range is loaded is neither lost nor applied twice.

A load may see further than the feed has come, or less far, and it may come back before or after the changes that it
holds. So changes are kept for as long as a load of their key is under way, and told from what the load holds by its
horizon, until the feed has passed the horizon.

A feed may also tell of a change that a load which begins afterwards does not see yet: PostgreSQL sends a commit once it
is logged, and makes it visible a moment later, or much later if it waits for a standby. Such changes are kept until
loads are known to see them.

    token = landing.start(ranges)          before store.load(ranges)
    rows = landing.land(token, loaded)     after it: these rows are right as of now
    now = landing.arrive(changes)          for each `Changes` of the feed: these are to be applied
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pequod_server.backing.store import Change, Changes, Horizon, KeyRange, Loaded


@dataclass(slots=True)
class _Flight:
    ranges: tuple[KeyRange, ...]
    arrived: list[Changes] = field(default_factory=list)


class Landing:
    """The loads that are under way, and those that the feed has not caught up with.

    Invariants:
        1. The oldest landed load that is kept sees further than the feed has come.
    """

    __slots__ = ("_flights", "_landed", "_next", "_unseen", "position")

    def __init__(self) -> None:
        #: How far the feed has come.
        self.position = 0
        self._flights: dict[int, _Flight] = {}
        #: Ranges in the order in which they landed, and what those loads hold. The last that holds a key decides on
        #: it, so a load is kept for as long as an older one is, which it may have replaced with less recent rows.
        self._landed: deque[tuple[tuple[KeyRange, ...], Horizon]] = deque()
        self._next = 0
        #: Changes that came, and may not be in a load that begins now.
        self._unseen: list[Changes] = []

    def start(self, ranges: Sequence[KeyRange]) -> int:
        """Note that these ranges are about to be loaded and return a token for it."""
        self._next += 1
        self._flights[self._next] = _Flight(tuple(ranges), self._unseen.copy())
        return self._next

    def abandon(self, token: int) -> None:
        """Note that a load failed or is not wanted any more; a token that is not known is fine."""
        self._flights.pop(token, None)

    def land(self, token: int, loaded: Loaded) -> list[tuple[bytes, bytes]] | None:
        """Return the rows of a load with the changes that it does not hold; None if the load was abandoned.

        Cost:
            O(rows + changes that came meanwhile).
        """
        flight = self._flights.pop(token, None)
        if flight is None:
            return None
        rows = dict(loaded.rows)
        for changes in flight.arrived:
            if loaded.horizon.covers(changes):
                continue
            for change in changes.changes:
                if not _holds(flight.ranges, change.key):
                    continue
                if change.value is None:
                    rows.pop(change.key, None)
                else:
                    rows[change.key] = change.value
        self._landed.append((flight.ranges, loaded.horizon))
        self._drop_passed()
        self.see(loaded.horizon)
        return sorted(rows.items())

    def arrive(self, changes: Changes) -> list[Change]:
        """Return what is to be applied of these changes: all but what landed loads hold already.

        Keys that are being loaded are among them; it does no harm to skip those, since `land` has them too.
        """
        for flight in self._flights.values():
            flight.arrived.append(changes)
        if not changes.are_seen:
            self._unseen.append(changes)
        fresh = [change for change in changes.changes if not self._is_held(change.key, changes)]
        self.pass_by(changes.position)
        return fresh

    def pass_by(self, position: int) -> None:
        """Note that the feed has come this far."""
        self.position = max(self.position, position)
        self._drop_passed()

    def see(self, horizon: Horizon) -> None:
        """Note that every load that begins from now on sees at least what this one did."""
        self._unseen = [changes for changes in self._unseen if not horizon.covers(changes)]

    def reload(self, ranges: Sequence[KeyRange]) -> None:
        """Abandon the loads that touch these ranges: changes of theirs may have been missed."""
        self._unseen = [
            changes for changes in self._unseen if not any(_holds(ranges, change.key) for change in changes.changes)
        ]
        self._flights = {
            token: flight
            for token, flight in self._flights.items()
            if not any(_touch(one, other) for one in flight.ranges for other in ranges)
        }

    def _is_held(self, key: bytes, changes: Changes) -> bool:
        for ranges, horizon in reversed(self._landed):
            if _holds(ranges, key):
                return horizon.covers(changes)
        return False

    def _drop_passed(self) -> None:
        while self._landed and self._landed[0][1].position <= self.position:
            self._landed.popleft()

    def _check(self) -> None:
        assert not self._landed or self._landed[0][1].position > self.position, "invariant 1"


def _holds(ranges: Sequence[KeyRange], key: bytes) -> bool:
    return any(one.holds(key) for one in ranges)


def _touch(one: KeyRange, other: KeyRange) -> bool:
    return (other.last is None or one.first < other.last) and (one.last is None or other.first < one.last)
