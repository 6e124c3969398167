"""A home of another server behind the cache: the store of a server that computes.

    load     PequodPeer.Load    rows as of one place; the feed is subscribed to them in the same turn
    changes  PequodPeer.Feed    what changed in the subscribed ranges; on to the next home when this one is gone
    write    PequodPeer.Write
    release  the engine has forgotten ranges: the home tells nothing more of them

The feed and all loads go to one home at a time. Another home of the same database continues from the place to which the
feed has come, if the home has kept the changes since; else everything is read again. A load that began at another
connection than the feed's present one is thrown away and done again, since no home would tell the changes after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from pequod_proto import pequod_pb2 as pb

from pequod.engine.transacting import TransactionLimits
from pequod.errors import (
    BackingUnavailableError,
    BadRequestError,
    NotHomeError,
    PequodError,
    PermissionDeniedError,
    SchemaError,
)
from pequod.language.missing import NextGroups
from pequod.language.ranges import prefix_end
from pequod.language.spec import DELIMITER
from pequod.language.transactions import Transaction
from pequod_server.backing.health import Backoff, Health
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.rows import Clip
from pequod_server.backing.store import (
    Added,
    Addition,
    Changes,
    ConditionalChange,
    Event,
    History,
    IsWanted,
    KeyRange,
    Loaded,
    Place,
    Reload,
    RowChange,
    Status,
    WrittenIf,
    WrittenThrough,
    WrittenTransaction,
    every_key,
)
from pequod_server.homes.compute.answers import keep_awake, lacking_of
from pequod_server.homes.compute.channel import Connect, PeerCredentials
from pequod_server.homes.compute.events import PeerEvents
from pequod_server.homes.compute.held import Held
from pequod_server.homes.compute.session import STAMP_BITS, DatabasePlace, PeerSession, SessionOverError

T = TypeVar("T")

#: A home that says nothing for this long is given up; it is asked four times a second.
SILENCE_S: Final = 5.0
BEHIND_ITSELF: Final = "it has its base data from this server; in `backing`, name servers that do not name this one"
#: How long loads and questions wait for a home that answers, before they fail.
SETTLE_S: Final = 3.0
_TRIES_MAX: Final = 16


class PequodStore:
    """The homes of one group, as the owner of some tables.

    Args:
        addresses: HOST:PORT of each home, in the order in which they are tried.
        tables: The names of the tables whose keys they own.
        connect: Opens a channel to an address.
        own_id: The compute's id in its cluster, for people at the homes.
        may_lack: Whether homes may lack some of the tables, whose loads they refuse: a map changes while servers run.

    Invariants:
        1. ``held`` has all ranges that the engine has loaded, or is about to load.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        tables: Sequence[bytes],
        *,
        connect: Connect | None = None,
        silence_s: float = SILENCE_S,
        settle_s: float = SETTLE_S,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        own_id: str = "",
        may_lack: bool = False,
    ) -> None:
        assert addresses, "a group has a home"
        self._may_lack = may_lack
        self.mappings: tuple[Mapping, ...] = ()
        self.tables = tuple(tables)
        self.knows_deadlines: Final = True
        self._addresses = list(addresses)
        self._connect = connect or PeerCredentials().connect
        self._silence_s = silence_s
        self._own_id = own_id
        self._settle_s = settle_s
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._health = Health(clock)
        self._closing = asyncio.Event()
        #: The connection that stands, None while no home answers; calls wait for the event.
        self._session: PeerSession | None = None
        self._stands = asyncio.Event()
        self._epoch = self._turn = 0
        #: Where the events that were processed have led to; None before the first.
        self._known: DatabasePlace | None = None
        self._history: History | None = None
        self.held = Held()
        #: Names this life of a server that others load from, so that it is never behind itself; 0: there are none.
        self.life = 0
        #: The lives of the servers through which the feed comes from the homes, the nearest first.
        self.relays: tuple[int, ...] = ()
        #: Why everything has to be read again; empty if it need not be.
        self._lost = ""
        self._standby: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The homes, for people."""
        return f"pequod://{','.join(self._addresses)}"

    @property
    def status(self) -> Status:
        """The state of the change feed."""
        return self._health.status

    @property
    def home(self) -> str:
        """The address of the feed's home; empty while there is none."""
        return "" if self._session is None else self._session.address

    def move_to(self, addresses: Sequence[str]) -> None:
        """Use other addresses from now on; a feed of a home that is not among them ends, and goes on elsewhere."""
        assert addresses, "a group has a home"
        self._addresses = list(addresses)
        self._turn = 0
        session = self._session
        if session is not None and session.address not in self._addresses:
            self._turn = -1
            session.give_up()

    def widen(self, tables: Sequence[bytes]) -> None:
        """Take these tables for the homes', too: when everything is read again, so is what is loaded of them.

        A table that is not the homes' any more stays: until what is loaded of it is forgotten, it is read again, too.
        """
        self.tables = tuple(dict.fromkeys((*self.tables, *tables)))

    async def check(self) -> list[str]:
        """Ask the homes for their version and tables; return which tables they lack, if they may.

        Raises:
            SchemaError: A home does not own the tables, or speaks another version.
            BackingUnavailableError: None answers.
        """
        reasons = []
        for address in self._addresses:
            channel = self._connect(address)
            try:
                async with asyncio.timeout(self._silence_s):
                    found = await channel.position(pb.PeerPositionRequest())
            except TimeoutError:
                reasons.append(f"{address} does not answer")
                continue
            except BackingUnavailableError as error:
                reasons.append(f"{address}: {error.reason}")
                continue
            except BadRequestError as error:
                raise SchemaError(self.name, [f"{address}: {error}"]) from error
            finally:
                await channel.close()
            return lacking_of(self.name, address, found, self.tables, may_lack=self._may_lack)
        raise BackingUnavailableError(self.name, "; ".join(reasons))

    # Loads and other calls.

    async def load(self, ranges: Sequence[KeyRange]) -> Loaded:
        """Read ranges as of one place, and have the feed tell their changes from there on."""
        return await self.load_and_prefetch(ranges, ())

    async def load_and_prefetch(self, ranges: Sequence[KeyRange], next_groups: Sequence[NextGroups]) -> Loaded:
        """Do the same, with those of the groups that keys of the ranges lead to of which the home tells nothing yet."""
        clip = Clip(ranges)

        held, before = self.held, (0, 0)

        async def load(session: PeerSession) -> Loaded:
            nonlocal before
            before = held.lapses, held.releases
            held.hold(clip.ranges)
            return await session.load(clip.ranges, next_groups)

        try:
            loaded = await self._call(lambda session: session.run(load(session)))
        except NotHomeError as error:
            # This server was paused, or hears of the map later: it is no fault of the reader.
            raise BackingUnavailableError(self.name, f"the home goes by another map: {error}") from error
        # In the turn in which the connection was seen to stand: the next one tells of these, too.
        held.hold(loaded.prefetched)
        if before[0] == held.lapses:
            held.begin(clip.ranges, loaded.horizon.position)
            if before[1] == held.releases:
                held.begin(loaded.prefetched, loaded.horizon.position)
        return loaded

    async def position(self) -> Place:
        """Ask the home where its database is now."""
        return await self._call(lambda session: session.run(session.position(latest=False)))

    async def latest(self) -> Place:
        """Ask the home for a proof that its database commits."""
        return await self._call(lambda session: session.run(session.position(latest=True)))

    async def write(self, changes: Sequence[RowChange]) -> WrittenThrough:
        """Have the home write changes in one transaction."""
        return await (await self._standing()).write(changes)

    async def write_if(self, change: ConditionalChange) -> WrittenIf:
        """Have the home write a change if its condition holds there."""
        return await self._call(lambda session: session.write_if(change))

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> WrittenTransaction:
        """Have the home run a transaction."""
        return await self._call(lambda session: session.transact(transaction, limits))

    async def add(self, addition: Addition) -> Added:
        """Have the home add."""
        return await self._call(lambda session: session.add(addition))

    async def _call(self, call: Callable[[PeerSession], Coroutine[Any, Any, T]]) -> T:
        """Return what a call at the present home returns; one that is cut off is made again at the next."""
        for _ in range(_TRIES_MAX):
            session = await self._standing()
            try:
                return await call(session)
            except SessionOverError:
                continue
        raise BackingUnavailableError(self.name, "its homes go away faster than they answer")

    async def _standing(self) -> PeerSession:
        """Return the connection that stands; wait a moment for it."""
        try:
            async with asyncio.timeout(self._settle_s):
                while self._session is None:
                    if self._closing.is_set():
                        raise BackingUnavailableError(self.name, "the store is closed")
                    await self._stands.wait()
        except TimeoutError:
            raise BackingUnavailableError(self.name, self.status.error or "no home answers") from None
        return self._session

    def release(self, ranges: Sequence[KeyRange]) -> None:
        """Have the home tell nothing more of ranges that the engine has forgotten.

        Requires:
            They are not loaded, and no load of them is under way.
        """
        self.held.forget(ranges)
        if self._session is not None:
            self._session.release(ranges)

    def hurry(self, position: int) -> None:
        """Have the home tell when it has come to a position."""
        if self._session is not None:
            self._session.hurry(position)

    async def mark(self) -> str:
        """Return a text that no later store knows: what a compute holds is soft state."""
        return ""

    async def knows(self, mark: str) -> bool:  # noqa: ARG002 - none is known
        """Return false: the homes do not know what was subscribed."""
        return False

    async def close(self) -> None:
        """End the feed."""
        self._closing.set()
        self._stands.set()
        if self._standby is not None:
            self._standby.cancel()
        if self._session is not None:
            await self._session.end()
        self._health.closed()

    # The feed.

    async def changes(
        self,
        since: int | None = None,
        is_wanted: IsWanted = every_key,  # noqa: ARG002 - the home tells what was loaded from it
    ) -> AsyncIterator[Event]:
        """Yield the events of one home after another.

        Requires:
            Nothing is loaded yet, so that ``since`` is None.
        """
        assert since is None, "nothing of a home outlives the process"
        self._standby = asyncio.create_task(
            keep_awake(self._others, self._connect, self._silence_s), name="pequod standby homes"
        )
        failures = 0
        while not self._closing.is_set():
            address = self._addresses[self._turn % len(self._addresses)]
            reason = "the home ended the feed"
            try:
                async with contextlib.aclosing(self._events(address)) as events:
                    async for event in events:
                        failures = 0
                        yield event
            except (PermissionDeniedError, NotHomeError) as error:
                # It may hold ranges that it, or the home, had before: those that it still may have are loaded again.
                reason = self._lost = str(error)
            except PequodError as error:
                reason = str(error)
            self._turn += 1
            failures += 1
            self._health.down(reason)
            # All homes are tried before the first pause that is longer than a moment.
            wait_s = self._backoff.wait_s(1 + failures // len(self._addresses))
            if failures % len(self._addresses):
                wait_s = min(wait_s, 0.01)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), wait_s)

    async def _events(self, address: str) -> AsyncGenerator[Event, None]:
        """Yield the events of one connection, which calls can use once its first message has come."""
        self._epoch += 1
        session = PeerSession(self._connect(address), address, self._epoch, self._clock, self._silence_s, self._own_id)
        known, lost = self._known, self._lost
        held = [] if known is None or lost else self.held.ranges()
        position = None if known is None else known.place.position
        made = PeerEvents(self._epoch << STAMP_BITS, self._everything, position, lost)
        try:
            async for reply in session.replies(known, held):
                self._pass_through(reply, address)
                for event in made.of(reply):
                    if isinstance(event, Reload):
                        self._health.reloading()
                        if event.ranges == self._everything():
                            self.held.clear()
                        else:
                            self.held.missed(event.ranges)
                    self._health.told(event)
                    yield event
                    self._note(event)
                self._lost = ""
                if self._session is None:
                    self._session = session
                    self._stands.set()
                if (fresh_s := session.fresh_s(reply)) is not None or self.status.state != "ok":
                    self._health.stands(fresh_s, 0)
        finally:
            self._session = None
            self.relays = ()
            self._stands.clear()
            await session.end()

    def _pass_through(self, reply: pb.PeerFeedReply, address: str) -> None:
        """Note through which servers the feed comes.

        Raises:
            BackingUnavailableError: This server is among them. It goes on elsewhere, or waits until they do.
        """
        if reply.relays:
            self.relays = tuple(reply.relays)
            if self.life in self.relays:
                raise BackingUnavailableError(f"the home {address}", BEHIND_ITSELF)

    def _note(self, event: Event) -> None:
        """Note where an event that is processed has led to."""
        shown = 0
        if isinstance(event, Changes):
            shown = event.shown or 0
        elif event.history is not None:
            self._history = event.history
        if self._history is not None:
            place = Place(self._history.timeline, max(event.position, shown))
            self._known = DatabasePlace(self._history.database, place)

    def _others(self) -> list[str] | None:
        """Return the homes that the feed does not follow; None while it follows none."""
        session = self._session
        return None if session is None else [one for one in self._addresses if one != session.address]

    def _everything(self) -> tuple[KeyRange, ...]:
        return tuple(KeyRange(table + DELIMITER, prefix_end(table + DELIMITER)) for table in self.tables)
