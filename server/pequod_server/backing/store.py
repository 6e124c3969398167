"""The protocol of a database behind the cache, and the values that pass through it.

    load(ranges)    -> Loaded(rows, horizon)         base data as of one moment
    changes(since)  -> Progress, Changes, Reload...  what happened after it, in commit order
    write(changes)  -> place                         write-through, in one transaction
    latest()        -> place                         a proof that nothing newer is committed anywhere
    mark, knows                                      whether the database still has the history that it had yesterday

A position is a number that grows with every commit. A writer that knows the position of its write waits until the feed
has passed it. A failover begins another timeline, whose positions continue those of the last one from where it was
left: a position means something only with its timeline, and both are a place. The horizon of a load says which changes
the load holds: databases show commits to readers in another order than they log them, so a position is not enough.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Iterable, Sequence
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from pequod.answers.transacted import Transacted
from pequod.engine.transacting import TransactionLimits
from pequod.freshness import Mark
from pequod.language.conditions import Condition, Met, Unmet
from pequod.language.missing import NextGroups
from pequod.language.transactions import Transaction
from pequod_server.backing.mapping import Mapping


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys ``[first, last)``; a ``last`` of None is unbounded."""

    first: bytes
    last: bytes | None

    def holds(self, key: bytes) -> bool:
        """Return whether the key lies in the range."""
        return self.first <= key and (self.last is None or key < self.last)


def whole(mappings: Iterable[Mapping]) -> tuple[KeyRange, ...]:
    """Return the ranges in which all keys of mappings lie."""
    return tuple(KeyRange(*one) for mapping in mappings for one in mapping.bounds)


class Place(NamedTuple):
    """A position of a timeline."""

    timeline: int
    position: int


@dataclass(frozen=True, slots=True)
class History:
    """A timeline of a database, and those before it: a position means something only in its history."""

    #: Names the database in tokens, see `pequod.freshness.database_of`.
    database: bytes
    #: From 1 on.
    timeline: int = 1
    #: Where the database left each earlier timeline, as far as that is known.
    ends: AnyMapping[int, int] = field(default_factory=dict)

    @property
    def mark(self) -> Mark:
        """The mark of tokens."""
        return Mark(self.database, self.timeline)


class RowChange(NamedTuple):
    """The present value of a key; None if it is gone."""

    key: bytes
    value: bytes | None


class ConditionalChange(NamedTuple):
    """A value that a key is to have, None to remove it, if its present value meets a condition."""

    key: bytes
    value: bytes | None
    condition: Condition
    request_id: bytes = b""


class Addition(NamedTuple):
    """A number that is to be added to the value of a key, which is 0 if it is absent."""

    key: bytes
    delta: bytes
    request_id: bytes = b""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of mapped keys by one commit, or by a few that become visible together."""

    position: int
    #: Identifies these changes to a horizon; it has a meaning only to the store that they come from.
    stamp: int
    changes: tuple[RowChange, ...]
    #: Whether every load that begins now sees them. If not, the horizon of a load says it, and `Progress.seen`.
    are_seen: bool = True
    #: A position that is not before any commit that the changes show, if ``position`` is: the other commits before it
    #: may not be shown.
    shown: int | None = None
    #: Of several commits with stamps that ascend to ``stamp``: the stamp of each, and the end of its changes.
    commits: tuple[tuple[int, int], ...] = ()

    def after(self, horizon: Horizon) -> Sequence[RowChange]:
        """Return the changes that a load does not hold."""
        if horizon.covers(self.stamp):
            return ()
        for stamp, stop in reversed(self.commits):
            if horizon.covers(stamp):
                return self.changes[stop:]
        return self.changes


@dataclass(frozen=True, slots=True)
class Progress:
    """Every change up to here has been delivered."""

    position: int
    #: A horizon that every load sees that begins now, if one is known.
    seen: Horizon | None = None
    #: The history of the positions from here on; None: as before.
    history: History | None = None


@dataclass(frozen=True, slots=True)
class Reload:
    """Changes in these ranges may have been missed: cached rows of them have to be read again."""

    position: int
    ranges: tuple[KeyRange, ...]
    reason: str
    #: The history of the positions from here on; None: as before.
    history: History | None = None


Event = Changes | Progress | Reload


class WrittenTransaction(NamedTuple):
    """The outcome of a transaction that the database has decided."""

    #: The feed passes it after delivering the state that has decided, and the writes.
    place: Place
    done: Transacted


class WrittenIf(NamedTuple):
    """The answer of the database to a write under a condition."""

    #: The feed passes it after delivering the state that has decided.
    place: Place
    outcome: Met | Unmet


class Added(NamedTuple):
    """The sum of an addition, as the database shows it now; the feed passes the place after delivering it."""

    place: Place
    total: bytes


class WrittenThrough(NamedTuple):
    """The answer of the database to a write."""

    #: The feed passes it after delivering the changes.
    place: Place
    #: For each change whether the database had a row of its key just before it; True for puts, which do not ask.
    were_there: Sequence[bool]


def were_there(changes: Sequence[RowChange], before: Container[bytes]) -> list[bool]:
    """Return for each change whether its key was there just before it; True for puts.

    Args:
        changes: In their order.
        before: The removed keys that the database had before the first of them.
    """
    latest: dict[bytes, bool] = {}
    found = []
    for key, value in changes:
        found.append(value is not None or latest.get(key, key in before))
        latest[key] = value is not None
    return found


class Horizon(Protocol):
    """How far a load sees."""

    @property
    def position(self) -> int:
        """A position after which no change is in the load; some changes before it may not be in it, either."""
        ...

    def covers(self, stamp: int) -> bool:
        """Return whether the load already holds the changes of a stamp."""
        ...


@dataclass(frozen=True, slots=True)
class SequenceHorizon:
    """A load that holds exactly the changes up to a stamp."""

    position: int
    stamp: int

    def covers(self, stamp: int) -> bool:
        """Return whether the load already holds the changes of a stamp."""
        return stamp <= self.stamp


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rows of some ranges, all as of one moment."""

    #: In the order of their keys, each key once.
    rows: tuple[tuple[bytes, bytes], ...]
    horizon: Horizon
    #: Of the horizon's position.
    timeline: int = 1
    #: Ranges that were prefetched beside those that were asked for; their rows are among the others.
    prefetched: tuple[KeyRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of the change feed."""

    state: Literal["starting", "ok", "down", "closed"]
    #: When the state began, by the monotonic clock, as all times here.
    since_s: float
    #: The feed has delivered everything that was committed before this moment; None at first.
    fresh_s: float | None
    #: The present or last error; empty if there was none.
    error: str
    #: How far the database is beyond the feed, in its own unit; None if it is not known.
    lag: int | None
    #: How often the feed broke, and how often ranges were reloaded for that.
    failure_count: int
    reload_count: int
    #: The number of rows that have no key under their mapping, and the reason of the last one.
    unpackable_count: int
    unpackable: str


#: Returns whether changes of a key are wanted.
IsWanted = Callable[[bytes], bool]


def every_key(_key: bytes) -> bool:
    """Want the changes of all keys."""
    return True


@runtime_checkable
class Releasing(Protocol):
    """A store that tells the changes of loaded ranges alone, and is told which ranges are not loaded any more."""

    def release(self, ranges: Sequence[KeyRange]) -> None:
        """Tell no changes of ranges any more.

        Requires:
            They are not loaded, and no load of them is under way.
        """
        ...


@runtime_checkable
class Prefetching(Protocol):
    """A store that can prefetch, with the ranges of a load, those that a read will need next."""

    async def load_and_prefetch(self, ranges: Sequence[KeyRange], next_groups: Sequence[NextGroups]) -> Loaded:
        """Read ranges as `BackingStore.load` does, and perhaps some of the groups that their keys lead to."""
        ...


class BackingStore(Protocol):
    """A database behind the cache."""

    @property
    def mappings(self) -> tuple[Mapping, ...]:
        """The patterns whose keys the database owns."""
        ...

    @property
    def status(self) -> Status:
        """The state of the feed."""
        ...

    async def check(self) -> list[str]:
        """Compare the mappings with the real schema and return advice, such as a missing index.

        Raises:
            SchemaError: With everything that does not fit.
            BackingUnavailableError: The database does not answer.
        """
        ...

    async def load(self, ranges: Sequence[KeyRange]) -> Loaded:
        """Read ranges, of one pattern or several, as of one moment, with one statement for each pattern.

        Requires:
            For a cache: the feed's first event has been received, so that changes after the load are delivered.

        Raises:
            BackingUnavailableError: The database does not answer; nothing is known about the ranges.
            SchemaError: The database no longer has what the mappings need.
        """
        ...

    def changes(self, since: int | None = None, is_wanted: IsWanted = every_key) -> AsyncIterator[Event]:
        """Yield the events after position ``since``, or (None) from now on, until the store is closed.

        Args:
            is_wanted: Returns whether a key is loaded, or may be in a load that has begun. Changes of other keys may be
                left out.

        The first event says that the feed is established, and of which history its positions are. Asking for the next
        event says that the last one is processed. A break is not an error here: the feed recovers by itself, `status`
        shows it, and a `Reload` follows if changes may have been missed.

        Requires:
            One feed at a time.
        """
        ...

    async def write(self, changes: Sequence[RowChange]) -> WrittenThrough:
        """Write changes in one transaction, each after those before it, and return what the database says of them.

        Raises:
            PackError: A key or value makes no row.
            WriteRefusedError: The database refuses; nothing is written.
            BackingUnavailableError: The database does not answer; whether it was written is unknown.
        """
        ...

    async def write_if(self, change: ConditionalChange) -> WrittenIf:
        """Write a change if the present row meets its condition, in one transaction; raises as `write`."""
        ...

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> WrittenTransaction:
        """Run a transaction whose keys are all of this database; one transaction of the database decides and writes.

        Raises:
            LimitExceededError, NotNumberError, SumTooLongError: As `outcomes_of`; nothing is written.
            PackError, WriteRefusedError, BackingUnavailableError: As `write`.
        """
        ...

    async def add(self, addition: Addition) -> Added:
        """Add to the row of a key, in one transaction; raises as `added` and `write`, and then nothing is written."""

    async def position(self) -> Place:
        """Return the present place of the database: a feed that has passed it has delivered everything until now."""
        ...

    async def latest(self) -> Place:
        """Do the same, and prove that this is the database that commits: one that was replaced cannot answer.

        Raises:
            BackingUnavailableError: The database does not answer, or cannot commit.
        """
        ...

    def hurry(self, position: int) -> None:
        """Have the feed come to a position of its timeline as soon as it can; it is waited for."""
        ...

    async def mark(self) -> str:
        """Return a text by which `knows` recognises the database with its present history.

        Raises:
            BackingUnavailableError: The database does not answer.
            SchemaError: It no longer has what the mappings need.
        """
        ...

    async def knows(self, mark: str) -> bool:
        """Return whether this is the database that gave the mark, with the same history up to it.

        If so, a feed that starts after a position of that time delivers all changes since, or has everything reloaded.

        Raises:
            BackingUnavailableError: The database does not answer.
            SchemaError: It no longer has what the mappings need.
        """
        ...

    async def close(self) -> None:
        """End the feed and close all connections."""
        ...
