"""Which base keys this server takes writes of, by the map of its cluster.

    map       [p| .. p|m) a   [p|m .. p}) a, copies_to b  a, moves_to b  b, moves_to b   [s| .. s}) b    no group's
    home a     takes           takes                       refuses        refuses         refuses         refuses
    home b     refuses         takes copies of its rows    takes copies   refuses         takes           refuses
    compute    passes on       passes on                   refuses        refuses         passes on       refuses

A map without home ranges says nothing of keys: then each server takes what it took without a cluster.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from pequod.answers.transacted import Transacted
from pequod.cluster.map import ClusterMap, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.engine import Engine
from pequod.engine.transacting import TransactionLimits
from pequod.errors import BackingUnavailableError, BadRequestError, NotHomeError
from pequod.escapes import shown
from pequod.language.ranges import within
from pequod.language.spec import DELIMITER
from pequod.language.transactions import Transaction
from pequod_server.backing import Addition, ConditionalChange, RowChange
from pequod_server.database.databases import Databases
from pequod_server.database.write_through import CarriedOut, RemovedRange, WriteThrough
from pequod_server.wire.publishing import HOME

log = logging.getLogger("pequod.server")

#: Where ranges start, and where they end.
Bounds = tuple[list[bytes], list[bytes | None]]
_NO_KEYS: Final[Bounds] = ([], [])
#: A process that did not run for this long was paused: others may have found its lease ended after 4 s.
PAUSE_S: Final = 3.0
_LACKING_HINT: Final = "name them in backing_tables or in the mapping of all homes of the group, or move them elsewhere"
_PAUSED: Final = "this home was paused, and asks for the map of the cluster before it takes writes"


def _clock() -> float:
    """Return the seconds since the machine started; those in which it slept count, which `monotonic` leaves out."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class HomeRules:
    """Refuses writes of keys that belong elsewhere, and knows which writes are under way.

    Args:
        tables: What the database behind a home has, and what the home exports; None: it takes keys of any table.
        takes_all: Whether it takes keys of no home range as well: it is the only home.

    Before the first map everything is taken. A home that was paused may go by an old map: its lease has ended, and a
    range may have moved without it. So it refuses writes until it has asked for the map.

    Invariants:
        1. ``_bounds`` are the keys that are taken, by the map ``_known``; None: the map says nothing of keys.
    """

    def __init__(
        self,
        entry: ServerEntry,
        clock: Callable[[], float] = _clock,
        *,
        tables: Collection[bytes] | None = None,
        takes_all: bool = False,
    ) -> None:
        self._entry = entry
        self._takes_all = takes_all
        self._tables = tables
        self._clock = clock
        #: When the process last ran for certain; None: it does not say.
        self._ran_s: float | None = None
        self._was_paused = False
        self._known: ClusterMap | None = None
        self._bounds: Bounds | None = None
        #: Writes under way that were let in, each with a moment of its own.
        self._under_way: set[asyncio.Event] = set()

    @property
    def bounds(self) -> Bounds | None:
        """Where the ranges start whose writes are taken, and where they end (None: nowhere); None: all are taken."""
        return _NO_KEYS if self._bounds is not None and self.must_confirm() else self._bounds

    def beat(self) -> None:
        """Note that the process runs; a home calls this more often than every `PAUSE_S`."""
        self.must_confirm()
        self._ran_s = self._clock()

    def must_confirm(self) -> bool:
        """Return whether the process was paused since the map was confirmed."""
        if self._ran_s is not None and self._clock() - self._ran_s > PAUSE_S:
            self._was_paused = True
        return self._was_paused

    def confirm(self, cluster_map: ClusterMap) -> None:
        """Go by a map that was asked for after the pause."""
        self._known, self._bounds = cluster_map, self._bounds_by(cluster_map)
        self._ran_s, self._was_paused = self._clock(), False

    async def take_in(self, cluster_map: ClusterMap) -> None:
        """Go by a map from now on; return when writes are done that were let in by the one before."""
        if cluster_map != self._known and (lacking := self._lacking(cluster_map)):
            log.error(
                "the database of this home lacks tables that the map gives it; writes of their keys are refused",
                extra={"ranges": ", ".join(map(str, lacking)), "hint": _LACKING_HINT},
            )
        self._known, self._bounds = cluster_map, self._bounds_by(cluster_map)
        for done in tuple(self._under_way):
            await done.wait()

    def refuse(self, keys: Iterable[bytes]) -> None:
        """Pass if writes of all keys are taken.

        Raises:
            NotHomeError: One belongs elsewhere, or moves.
            BackingUnavailableError: The process was paused, and the map is not confirmed.
        """
        if self._bounds is not None:
            for key in keys:
                if (error := self.error_of(key)) is not None:
                    raise error

    def error_of(self, key: bytes) -> NotHomeError | BackingUnavailableError | None:
        """Return the error of a write of a key, None if it is taken."""
        known = self._known
        if known is None or self._bounds is None:
            return None
        if self.must_confirm():
            return BackingUnavailableError(HOME, _PAUSED)
        home = known.home_range_of(key)
        if home is not None and self._takes(home):
            return None
        return NotHomeError(key, known.version)

    def refuse_copies(self, keys: Iterable[bytes], move: int) -> None:
        """Pass if all keys are of ranges that a move copies here.

        Args:
            move: Its number: what a command that was overtaken still writes is old.

        Raises:
            NotHomeError: One is not.
            BackingUnavailableError: The process was paused, and the map is not confirmed.
        """
        known = self._known
        if self.must_confirm():
            raise BackingUnavailableError(HOME, _PAUSED)
        for key in keys:
            home = None if known is None else known.home_range_of(key)
            if home is None or home.move != move or not self._comes(home):
                raise NotHomeError(key, 0 if known is None else known.version)

    def refuse_move(self, move: int) -> None:
        """Pass if a range comes here by a move; raises as `refuse_copies`."""
        known = self._known
        if self.must_confirm():
            raise BackingUnavailableError(HOME, _PAUSED)
        if known is None or not any(home.move == move and self._comes(home) for home in known.home_ranges):
            raise BadRequestError(
                "no range comes here by this move: it was undone, or another command has overtaken it"
            )

    def refuse_rests(self, keys: Iterable[bytes]) -> None:
        """Pass if rows of all keys may be removed as rests of a move: they belong to other groups, and do not move.

        Raises:
            BadRequestError: One is this home's, or on its way here, or of no group, or a server may read it here.
            BackingUnavailableError: The process was paused, and the map is not confirmed.
        """
        known = self._known
        if self.must_confirm():
            raise BackingUnavailableError(HOME, _PAUSED)
        for key in keys:
            home = None if known is None else known.home_range_of(key)
            if home is None or home.moves_to or self._entry.group in (home.group, home.copies_to):
                raise BadRequestError(
                    f"{shown(key)} is not removed: by the map that this home goes by, it belongs to this home, is on "
                    "its way, or belongs to no group"
                )

    def refuse_range(self, first: bytes, last: bytes | None) -> None:
        """Pass if writes of all keys of a range are taken.

        Raises:
            NotHomeError: A part of it belongs elsewhere, or moves.
            BackingUnavailableError: The process was paused, and the map is not confirmed.
        """
        if self._bounds is None or self._known is None or (last is not None and last <= first):
            return
        if self.must_confirm():
            raise BackingUnavailableError(HOME, _PAUSED)
        starts, ends = self._bounds
        at = bisect_right(starts, first) - 1
        end = ends[at] if at >= 0 else first
        if end is not None and (last is None or last > end):
            raise NotHomeError(first, self._known.version)

    def refuse_load(self, first: bytes, last: bytes | None) -> None:
        """Pass if other servers may load a range here: this server has all of it, also while it moves away.

        Raises:
            NotHomeError: A part of it belongs elsewhere.
        """
        if self._known is None or self._bounds is None:
            return
        at: bytes | None = first
        while at is not None and (last is None or at < last):
            home = self._known.home_range_of(at)
            if home is None or home.group != self._entry.group:
                raise NotHomeError(at, self._known.version)
            at = home.last

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Hold a write that was let in and takes a while: a range does not move before it is done."""
        done = asyncio.Event()
        self._under_way.add(done)
        try:
            yield
        finally:
            done.set()
            self._under_way.discard(done)

    def _bounds_by(self, known: ClusterMap) -> Bounds | None:
        if not known.home_ranges or self._takes_all:
            return None
        starts: list[bytes] = []
        ends: list[bytes | None] = []
        for home in known.home_ranges:
            if not self._takes(home):
                continue
            if ends and ends[-1] == home.first:
                ends[-1] = home.last
            else:
                starts.append(home.first)
                ends.append(home.last)
        return starts, ends

    def _takes(self, home: HomeRange) -> bool:
        """Return whether the server takes writes of a range: its own, or those that it passes on, unless it moves."""
        if home.moves_to or self._lacks(home):
            return False
        return home.group == self._entry.group or ServerRole.COMPUTE in self._entry.roles

    def _comes(self, home: HomeRange) -> bool:
        """Return whether a range is copied or moves here, and has not come."""
        return home.coming_to != "" and home.coming_to == self._entry.group and not self._lacks(home)

    def _lacking(self, known: ClusterMap) -> list[HomeRange]:
        mine = self._entry.group
        return [home for home in known.home_ranges if mine in (home.group, home.coming_to) and self._lacks(home)]

    def _lacks(self, home: HomeRange) -> bool:
        """Return whether a range is of a table that the database behind a home does not have."""
        if self._tables is None:
            return False
        table = home.first.partition(DELIMITER)[0]
        return within(table + DELIMITER, home.first, home.last) == (home.first, home.last) and table not in self._tables

    def _check(self) -> None:
        assert self._known is None or self._bounds == self._bounds_by(self._known), "1"


class HeldWrites(WriteThrough):
    """Writes to databases that are let in by the rules, in the same turn in which they begin."""

    def __init__(self, engine: Engine, databases: Databases, rules: HomeRules) -> None:
        super().__init__(engine, databases)
        self._rules = rules

    async def carry_out(self, changes: Sequence[RowChange]) -> CarriedOut:
        """Carry out the changes that are taken; see `WriteThrough.carry_out`."""
        errors = {change.key: error for change in changes if (error := self._rules.error_of(change.key)) is not None}
        async with self._rules.writing():
            if not errors:
                return await super().carry_out(changes)
            taken = [change for change in changes if change.key not in errors]
            some = await super().carry_out(taken)
        outcomes = iter(some.outcomes)
        all_outcomes = [errors[change.key] if change.key in errors else next(outcomes) for change in changes]
        return CarriedOut(all_outcomes, some.token)

    async def write_if(self, change: ConditionalChange) -> CarriedOut:
        """Carry a change out if it is taken and its condition holds; see `WriteThrough.write_if`."""
        if (error := self._rules.error_of(change.key)) is not None:
            return CarriedOut([error], b"")
        async with self._rules.writing():
            return await super().write_if(change)

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> tuple[Transacted, bytes]:
        """Have a database run a transaction if its keys are taken; see `WriteThrough.transact`.

        Raises:
            NotHomeError: A key belongs elsewhere, or moves; nothing is done.
        """
        self._rules.refuse(transaction.decided_by())
        async with self._rules.writing():
            return await super().transact(transaction, limits)

    async def add(self, addition: Addition) -> CarriedOut:
        """Carry an addition out if its key is taken; see `WriteThrough.add`."""
        if (error := self._rules.error_of(addition.key)) is not None:
            return CarriedOut([error], b"")
        async with self._rules.writing():
            return await super().add(addition)

    async def put_all(self, keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
        """Put rows, all or none; see `WriteThrough.put_all`.

        Raises:
            NotHomeError: A key belongs elsewhere, or moves; nothing is written.
        """
        self._rules.refuse(keys)
        async with self._rules.writing():
            return await super().put_all(keys, values)

    async def remove_range(self, first: bytes, last: bytes | None) -> RemovedRange:
        """Remove the keys that are there now; see `WriteThrough.remove_range`.

        Raises:
            NotHomeError: A part of the range belongs elsewhere, or moves; nothing is removed.
        """
        self._rules.refuse_range(first, last)
        async with self._rules.writing():
            return await super().remove_range(first, last)
