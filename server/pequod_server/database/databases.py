"""The databases behind one engine: which of them owns which keys, and what reads and writes need of each.

    read     engine.scan -> MissingError(ranges) -> load, of each database its pieces, at the same time -> engine.scan
                         -> MissingError(indexes) -> make them in slices                                -> engine.scan
    write    the changes of one transaction are of one database, or refused
    gates    a read waits while a database on which its range depends is in the middle of a commit
    assign   p|m .. p} from A to B:  hold A and B, forget what is loaded of it, then B's loads and changes count

A database is whatever stands behind a `BackingStore`: a PostgreSQL, a file of SQLite, a home group of a cluster. Each
has a feed and positions of its own, so an answer is exact at a vector of positions, one for each database; across
databases there is no common moment. No database at all is a server whose clients own all base data.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from math import inf
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from pequod.calls import BackingStatistics
from pequod.engine import BackedKeyError, Due, Engine, Lacking, Loadable, MissingError, NextGroups, Range
from pequod.errors import BackingStaleError, BackingUnavailableError, MixedWriteError, UnassignedKeyError
from pequod.language.ranges import prefix_end
from pequod_server.backing import BackingStore, Backoff, KeyRange, Releasing, RowChange
from pequod_server.backing.turns import all_of, ended
from pequod_server.database.assignment import Assignment, tables_of
from pequod_server.database.expiring import Expiring
from pequod_server.database.flights import ROUNDS_MAX
from pequod_server.database.gate import Gates
from pequod_server.database.loader import Loader
from pequod_server.database.own_disk import OwnDisk, told_apart
from pequod_server.database.prefetch import Prefetcher
from pequod_server.database.slicing import Slicing
from pequod_server.database.whole_tables import WholeTables
from pequod_server.wire.bounds import Bounds
from pequod_server.wire.publishing import never_there, of_one

T = TypeVar("T")

#: With the longest timelines and positions, the entries of these databases fit into a token.
DATABASES_MAX: Final = 48
EVERYTHING: Final = KeyRange(b"", None)
NO_POSITIONS: Final[Mapping[str, int]] = MappingProxyType({})


class MakeLoader(Protocol):
    """Makes what keeps an engine in step with a database."""

    def __call__(self, engine: Engine, store: BackingStore, *, name: str, gates: Gates) -> Loader:
        """Return it."""


@dataclass(frozen=True, slots=True)
class HomeGroup:
    """One source of base data, and the keys that it owns."""

    #: In messages, metrics and snapshots; empty for the only one of a server.
    name: str
    store: BackingStore
    #: Each within one table, or none; None: all keys of the engine's backed tables, for the only group of a server.
    ranges: tuple[KeyRange, ...] | None = None


class Databases:
    """The databases behind an engine; none, one or several.

    Args:
        groups: Those of the start.
        make: Makes what keeps the engine in step with a database.
        whole: The tables that are loaded as a whole; none.

    Invariants:
        1. Every range that is assigned lies in a backed table of the engine, and its owner is one of ``all``.
        2. The loaded rows of a range are of its owner.

    Raises:
        ValueError: Groups do not go together, or do not go with the engine's tables.
    """

    def __init__(
        self,
        engine: Engine,
        groups: Sequence[HomeGroup] = (),
        make: MakeLoader = Loader,
        whole: WholeTables | None = None,
    ) -> None:
        self._engine = engine
        self._whole = whole or WholeTables(engine)
        self._make = make
        #: In the order of their groups.
        self.all: tuple[Loader, ...] = ()
        self.assignment: Assignment[Loader] = Assignment()
        #: When a range got another owner for the last time.
        self.assigned_s = -inf
        #: Closed while a commit of some database is half applied.
        self.gate = Gates()
        #: Ranges that were forgotten, for the databases that have not asked yet.
        self._forgotten: dict[Loader, list[Range]] = {}
        self._assigning = asyncio.Lock()
        self._prefetcher = Prefetcher(engine, self.load)
        self._making = Slicing(engine, self.load)
        self.own_disk: OwnDisk | None = None
        #: Removes keys that are due.
        self.expiring = Expiring(engine)
        self._take(*self._prepared(groups))

    def named(self, name: str) -> Loader:
        """Return what keeps the engine in step with the database of a name; KeyError if there is none."""
        return {loader.name: loader for loader in self.all}[name]

    # Life.

    async def start(self, since: Mapping[str, int] = NO_POSITIONS) -> None:
        """Wait until the feeds of all databases stand.

        Args:
            since: By names of databases, the positions as of which the engine's loaded rows are.

        Raises:
            SchemaError: A database does not have what its mapping needs.
            BackingUnavailableError: One does not answer. All are stopped.
        """
        self.expiring.start()
        starts = [asyncio.create_task(loader.start(since.get(loader.name))) for loader in self.all]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            await ended(starts)
            await self.stop()
            raise

    def begin(self) -> None:
        """Follow each database as soon as it answers; until then, what is to be loaded of it is unavailable."""
        for loader in self.all:
            loader.begin()

    @property
    def start_step(self) -> str:
        """The step that the start waits for now; empty before and afterwards."""
        return next((loader.start_step for loader in self.all if loader.start_step), "")

    async def caught_up(self) -> None:
        """Wait until the cache has everything that is in the databases now; see `Loader.caught_up`."""
        await asyncio.gather(*(loader.caught_up() for loader in self.all))

    async def halt(self) -> None:
        """Take no more events: what the engine has stays as it is now."""
        await asyncio.gather(*(loader.halt() for loader in self.all))

    async def stop(self) -> None:
        """End the feeds and the loads."""
        await asyncio.gather(self._prefetcher.stop(), self._making.stop(), self.expiring.stop())
        await asyncio.gather(*(loader.stop() for loader in self.all))

    def statistics(self) -> list[BackingStatistics]:
        """Return the state of each database's feed, and counts of the requests to it."""
        return [loader.statistics() for loader in self.all]

    # Who owns what.

    async def assign(self, groups: Sequence[HomeGroup]) -> None:
        """Have these groups own base data from now on: new ones are followed, those that are not named are left.

        The rows of a range that gets another owner are forgotten before rows of this owner are taken in.

        Args:
            groups: One with a known name is the known one, whose store stays.

        Raises:
            ValueError: Groups do not go together, or do not go with the engine's tables; nothing is changed.
        """
        async with self._assigning, AsyncExitStack() as held:
            kept, assignment = self._prepared(groups)
            moved = list(self.assignment.changes(assignment))
            before = self.all
            touched = [loader for loader in before if any(loader in (old, new) for _, old, new in moved)]
            for loader in touched:
                await held.enter_async_context(loader.one_at_a_time)
            for loader in touched:
                await loader.forget([piece for piece, old, _ in moved if old is loader])
            self._take(kept, assignment)
            for loader in kept:
                if loader not in before:
                    loader.begin()
        for loader in before:
            if loader not in kept:
                await loader.stop()

    def _prepared(self, groups: Sequence[HomeGroup]) -> tuple[tuple[Loader, ...], Assignment[Loader]]:
        """Return the databases of groups, the known ones among them, and what they own.

        Raises:
            ValueError: They do not go together.
        """
        names = [group.name for group in groups]
        if len(set(names)) < len(names) or len(names) > DATABASES_MAX:
            raise ValueError(f"there may be {DATABASES_MAX} groups, each with a name of its own; they are {names}")
        if len(groups) > 1 and any(group.ranges is None for group in groups):
            raise ValueError("of several groups each needs its ranges")
        known = {loader.name: loader for loader in self.all}
        kept = tuple(
            known.get(group.name) or self._make(self._engine, group.store, name=group.name, gates=self.gate)
            for group in groups
        )
        owned = [
            (one, loader)
            for group, loader in zip(groups, kept, strict=True)
            for one in ((EVERYTHING,) if group.ranges is None else group.ranges)
        ]
        assignment = Assignment(owned)
        self._engine.back(tables_of(one for one, _ in owned if one is not EVERYTHING))
        return kept, assignment

    def _take(self, kept: tuple[Loader, ...], assignment: Assignment[Loader]) -> None:
        """Have databases own what is assigned to them, in one turn."""
        self._collect_forgotten()
        for loader in {*self.all, *kept}:
            loader.flights.forgotten = partial(self._forgotten_of, loader)
            loader.on_event = self._prefetcher.note
            ranges = assignment.ranges_of(loader)
            if ranges != self.assignment.ranges_of(loader):
                loader.own(None if ranges == (EVERYTHING,) else ranges)
        self.all, self.assignment, self.assigned_s = kept, assignment, time.monotonic()
        self._engine.has_backed_deadlines = bool(kept) and all(loader.keeps_deadlines for loader in kept)

    def _collect_forgotten(self) -> None:
        """Note which of their ranges the engine has forgotten, for the databases that want to know."""
        asking = [loader for loader in self.all if isinstance(loader.store, Releasing)]
        for one in self._engine.forgotten() if asking else ():
            for piece, owner in self.assignment.split(*one):
                if owner in asking and owner is not None and piece.last is not None:
                    self._forgotten.setdefault(owner, []).append(Range(piece.first, piece.last))

    def _forgotten_of(self, loader: Loader) -> list[Range]:
        """Return the ranges of a database that the engine has forgotten since this was asked for the last time."""
        self._collect_forgotten()
        return self._forgotten.pop(loader, [])

    def owner_of(self, key: bytes) -> Loader:
        """Return the database that owns a key of a backed table.

        Raises:
            UnassignedKeyError: None does.
        """
        owner = self.assignment.owner_of(key)
        if owner is None:
            raise UnassignedKeyError(key)
        return owner

    def read_by(self, bounds: Sequence[Bounds]) -> list[Loader]:
        """Return the databases whose rows reads of ranges show, directly or through joins."""
        if len(self.all) < 2:
            return [*self.all] if any(self._engine.reads_backed(*one) for one in bounds) else []
        found: dict[Loader, None] = {}
        for first, last in bounds:
            for one in self._engine.backed_reads(first, last):
                found |= dict.fromkeys(self.assignment.owners_of(*one))
        return [loader for loader in self.all if loader in found]

    # Reads.

    async def read(self, ask: Callable[[], T], bounds: Sequence[Bounds]) -> T:
        """Return what ``ask`` reads of ranges, once all that it lacks is loaded or made.

        One MissingError of ``ask`` names the ranges that all of it lacks.

        Raises:
            BackingStaleError: A feed is older than it may be, and a range depends on its database.
            BackingUnavailableError, UnassignedKeyError: As `load`.
        """

        async def ready() -> None:
            await self.whole(bounds)
            for first, last in bounds:
                if (error := self.stale_error(first, last)) is not None:
                    raise error

        return await self.read_when(ready, ask)

    async def read_when(self, ready: Callable[[], Awaitable[None]], ask: Callable[[], T]) -> T:
        """Return what ``ask`` reads, once all that it lacks is loaded or made.

        Args:
            ready: Waits until what comes from the databases may be read. It is called before each attempt.
        """
        for _ in range(ROUNDS_MAX):
            await ready()
            self.expiring.pass_due()
            try:
                return ask()
            except MissingError as error:
                await self.load(error.lacking, error.next_groups)
        raise never_there(ROUNDS_MAX)

    async def whole(self, bounds: Sequence[Bounds]) -> None:
        """Wait until no commit is half applied of which reads of the ranges show rows."""
        while self.gate.closed:
            closed = [loader.gate for loader in self.read_by(bounds) if loader.gate.is_closed]
            if not closed:
                return
            await closed[0].opened()

    @property
    def are_stale(self) -> bool:
        """Whether the feed of some database is older than it may be."""
        for loader in self.all:  # noqa: SIM110 - a generator would take as long again, for each batch of commands
            if loader.is_stale:
                return True
        return False

    def stale_error(self, first: bytes, last: bytes | None) -> BackingStaleError | None:
        """Return the error of a read of the range if it may show rows that are older than they may be."""
        if not self.are_stale:
            return None
        return next((loader.stale_error() for loader in self.read_by([(first, last)]) if loader.is_stale), None)

    async def load(self, lacking: Iterable[Lacking], next_groups: Sequence[NextGroups] = ()) -> None:
        """Load what reads lack, each piece from its database, at the same time; make indexes, remove what is due.

        Args:
            next_groups: What they will lack next, which databases may give with it.

        Raises:
            BackingUnavailableError, SchemaError, LimitExceededError: As `Flights.load`.
            UnassignedKeyError: A range is of no database; nothing is loaded.
        """
        paged, own, wanted = told_apart(self._engine, lacking)
        if paged and self.own_disk is not None:
            await self.own_disk.load(paged)
        loads = [self._load(*one, next_groups) for one in self.assignment.divided(wanted).items()]
        loads += [self.expiring.gone(one) if isinstance(one, Due) else self._making.make(one) for one in own]
        await (loads[0] if len(loads) == 1 else all_of(loads))

    async def _load(self, loader: Loader, lacking: Sequence[Loadable], next_groups: Sequence[NextGroups]) -> None:
        def owned(one: KeyRange) -> list[KeyRange]:
            return [piece for piece, owner in self.assignment.split(one.first, one.last) if owner is loader]

        try:
            own = [one for one in next_groups if owned(KeyRange(one.before, prefix_end(one.before)))]
            await loader.flights.load(self._whole.widened(lacking, owned), own)
        except BackingUnavailableError as error:
            raise of_one(loader.title, error) from error

    async def load_patiently(self, lacking: Iterable[Lacking]) -> None:
        """Load what is lacking, and try again for as long as a database does not answer."""
        wanted, backoff, failures = tuple(lacking), Backoff(), 0
        while True:
            try:
                return await self.load(wanted)
            except BackingUnavailableError:
                failures += 1
                await asyncio.sleep(backoff.wait_s(failures))

    # Writes.

    async def write(self, changes: Sequence[RowChange]) -> tuple[bytes, Sequence[bool]]:
        """Write to the database that owns the keys, in one transaction; see `Loader.write`.

        Raises:
            UnassignedKeyError: No database owns a key; nothing is written.
            BackedKeyError: The database takes no writes from here; nothing is written.
            MixedWriteError: The keys are of several databases; nothing is written.
            PackError, WriteRefusedError, BackingUnavailableError: As `Loader.write`.
        """
        if not changes:
            return b"", ()
        loader = self.taker_of([change.key for change in changes])
        try:
            return await loader.write(changes)
        except BackingUnavailableError as error:
            raise of_one(loader.title, error) from error

    def taker_of(self, keys: Sequence[bytes]) -> Loader:
        """Return the database that takes a write of keys in one transaction.

        Raises:
            UnassignedKeyError, BackedKeyError, MixedWriteError: As `write`.
        """
        pieces = list(self.assignment.split(min(keys), max(keys) + b"\0"))
        # One look where all lie in one range, however many they are.
        some = keys[:1] if len(pieces) == 1 else keys
        taker, *others = dict.fromkeys(map(self.owner_of, some))
        if not taker.is_write_through:
            raise BackedKeyError(keys[0])
        if others:
            raise MixedWriteError("the call")
        return taker

    def _check(self) -> None:
        for one in self._engine.loaded():
            assert all(owner in self.all for _, owner in self.assignment.split(*one)), "invariant 2"
