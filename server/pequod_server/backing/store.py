"""What a database behind the cache does for it: the protocol, and the values that pass through it.

    load(ranges)    -> Loaded(rows, horizon)         base data as of one moment
    changes(since)  -> Progress, Changes, Reload...  what happened after it, in commit order
    write(changes)  -> position                      write-through, in one transaction
    mark, knows                                      whether what was known of it yesterday holds today

A position is a number that grows with every commit. A writer that knows the position of its write waits until the
feed has passed it. Which changes a load already holds is for its horizon to say: databases show commits to readers
in another order than they log them, so that a position alone could not tell.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pequod_server.backing.mapping import Mapping


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys ``[first, last)``; a ``last`` of None is unbounded."""

    first: bytes
    last: bytes | None

    def holds(self, key: bytes) -> bool:
        """Tell whether the key lies in the range."""
        return self.first <= key and (self.last is None or key < self.last)


@dataclass(frozen=True, slots=True)
class Change:
    """What a key is now; None if it is gone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What one commit, or a few that are seen together, did to keys that are mapped."""

    position: int
    #: What a horizon tells these changes by: of meaning to the store that they come from only.
    stamp: int
    changes: tuple[Change, ...]
    #: Whether every load that begins now sees them. If not, a load tells by its horizon, and so does `Progress.seen`.
    are_seen: bool = True


@dataclass(frozen=True, slots=True)
class Progress:
    """Every change up to here has been delivered."""

    position: int
    #: What every load that begins now sees at least, if that is known.
    seen: Horizon | None = None


@dataclass(frozen=True, slots=True)
class Reload:
    """Changes in these ranges may have been missed: what is cached of them has to be read again."""

    position: int
    ranges: tuple[KeyRange, ...]
    reason: str


Event = Changes | Progress | Reload


class Horizon(Protocol):
    """How far a load sees."""

    @property
    def position(self) -> int:
        """No change after this position is in the load; some before it may not be, either."""
        ...

    def covers(self, changes: Changes) -> bool:
        """Tell whether the load already holds what these changes did."""
        ...


@dataclass(frozen=True, slots=True)
class SequenceHorizon:
    """A load that holds exactly the changes up to a stamp."""

    position: int
    stamp: int

    def covers(self, changes: Changes) -> bool:
        """Tell whether the load already holds what these changes did."""
        return changes.stamp <= self.stamp


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rows of some ranges, all as of one moment."""

    #: In the order of their keys, each key once.
    rows: tuple[tuple[bytes, bytes], ...]
    horizon: Horizon


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the change feed is."""

    state: Literal["starting", "ok", "down", "closed"]
    #: When the state began, in seconds since 1970.
    since_s: float
    #: The feed has told everything that was committed before this moment, in seconds since 1970; None before the first.
    fresh_s: float | None
    #: What is wrong, or was last; empty if nothing ever was.
    error: str
    #: What the database has that the feed has not passed yet, in its own unit; None if it is not known.
    lag: int | None
    #: How often the feed broke, and how often that cost a reload.
    failure_count: int
    reload_count: int
    #: Rows met that have no key under their mapping, and why the last of them has none.
    unpackable_count: int
    unpackable: str


#: Tells whether changes of a key are wanted.
IsWanted = Callable[[bytes], bool]


def every_key(_key: bytes) -> bool:
    """Want the changes of all keys."""
    return True


class BackingStore(Protocol):
    """A database behind the cache."""

    @property
    def mappings(self) -> tuple[Mapping, ...]:
        """The patterns whose keys the database owns."""
        ...

    @property
    def status(self) -> Status:
        """How the change feed is."""
        ...

    async def check(self) -> list[str]:
        """Compare the mappings with the real schema and return advice, such as an index that is missing.

        Raises:
            SchemaError: With everything that does not fit.
            BackingUnavailableError: The database does not answer.
        """
        ...

    async def load(self, ranges: Sequence[KeyRange]) -> Loaded:
        """Read ranges, of one pattern or several, as of one moment, with one statement for each pattern.

        Requires:
            For a cache: the feed's first event has been received, so that what happens after the load is told.

        Raises:
            BackingUnavailableError: The database does not answer; nothing is known about the ranges.
            SchemaError: The database no longer has what the mappings need.
        """
        ...

    def changes(self, since: int | None = None, is_wanted: IsWanted = every_key) -> AsyncIterator[Event]:
        """Yield what happens after position ``since``, or (None) from now on, until the store is closed.

        Args:
            is_wanted: Tells whether a key is loaded, or may be in a load that has begun. Changes of other keys may be
                left out.

        The first event says that the feed stands. Asking for the next event says that the last one is taken care
        of. A break is not an error here: the feed mends itself, `status` tells of it, and a `Reload` follows if
        changes may have been missed.

        Requires:
            One feed at a time.
        """
        ...

    async def write(self, changes: Sequence[Change]) -> int:
        """Carry changes out in one transaction and return a position that the feed passes after delivering them.

        Raises:
            PackError: A key or value makes no row.
            WriteRefusedError: The database refuses; nothing is written.
            BackingUnavailableError: The database does not answer; whether it was written is not known.
        """
        ...

    async def position(self) -> int:
        """Return the position of the database now: a feed that has passed it has told everything until now."""
        ...

    async def mark(self) -> str:
        """Return a text by which the database knows itself again, as it is now; for `knows`.

        Raises:
            BackingUnavailableError: The database does not answer.
            SchemaError: It no longer has what the mappings need.
        """
        ...

    async def knows(self, mark: str) -> bool:
        """Tell whether this is the database that gave the mark, with the past that it had then.

        If so, a feed that starts after a position of then tells all that happened since, or has everything reloaded.

        Raises:
            BackingUnavailableError: The database does not answer.
            SchemaError: It no longer has what the mappings need.
        """
        ...

    async def close(self) -> None:
        """End the feed and let go of all connections."""
        ...
