"""Levels of freshness: the one place that decides whether a read may be answered now, and waits until it may.

    any       what is there, unless it is older than the operator's bound
    after     the databases that the range depends on have come as far as the token names them
    latest    these databases prove that they commit, and the engine has come to where they were
    max age   the oldest of them is fresh enough

    read of t|ann|   depends on A and B    after (A 41, B 7, C 12)   A: wait for 41   B: wait for 7
    its reply        token (A 43, B 7, C 9)   age: the greatest of the three

`DatabaseLevels` decides for one database. A server without a database is as fresh as can be; its tokens hold its own
number and revision.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError

from pequod.engine import Engine, PequodError
from pequod.errors import BackingUnavailableError, InvalidTokenError, StaleError, TokenLostError
from pequod.freshness import (
    NO_TIMELINE,
    After,
    AnyState,
    Freshness,
    Latest,
    Mark,
    MaxAge,
    Token,
    merged,
)
from pequod_server.backing import Backoff, History, Place
from pequod_server.database.databases import Databases
from pequod_server.database.loader import Loader
from pequod_server.freshness.database import DatabaseLevels
from pequod_server.freshness.demands import Demand, age_field, kind_of, known_level, token_field
from pequod_server.freshness.moments import KnownMoment, Moments
from pequod_server.freshness.own import LifeHistory, OwnHistory
from pequod_server.freshness.questions import LevelCounters
from pequod_server.wire.bounds import Bounds
from pequod_server.wire.publishing import of_one, public

T = TypeVar("T")


class Levels:
    """Decides about levels of freshness, and names the states that answer.

    Args:
        server_id: Names the states of a server without a database.
        own: Names them instead: the data outlive the server.
    """

    def __init__(self, engine: Engine, databases: Databases, server_id: int, own: OwnHistory | None = None) -> None:
        self._engine = engine
        self._databases = databases
        self.counters = LevelCounters()
        self._own = own or LifeHistory(server_id)
        #: The history whose tokens were asked for last, and these up to the revision.
        self._own_head: tuple[History | None, bytes] = (None, b"")
        #: Of a server without a database.
        self._moments = Moments()
        self._by_loader: dict[Loader, DatabaseLevels] = {}
        #: The last state whose token was asked for, its token, and its token as a field.
        self._named: tuple[object, bytes, bytes] = (None, b"", b"")

    def _of(self, loader: Loader) -> DatabaseLevels:
        one = self._by_loader.get(loader)
        if one is None:
            for gone in [one for one in self._by_loader if one not in self._databases.all]:
                self._by_loader.pop(gone).stop()
            one = self._by_loader[loader] = DatabaseLevels(loader, self.counters)
        return one

    # What replies say.

    @property
    def own_token_head(self) -> bytes:
        """The tokens of a server without a database, but for the revision at their end."""
        history, head = self._own_head
        if self._own.history is not history:
            history = self._own.history
            head = bytes(Token({history.mark: 0}))[:-1]
            self._own_head = history, head
        return head

    @property
    def token(self) -> bytes:
        """The token of the present state, of the databases whose feeds stand; empty if no feed stands yet."""
        return self._name()[1]

    @property
    def age_ms(self) -> int | None:
        """Everything that was committed longer ago than this is there; None if that is not known of some database."""
        greatest = 0
        for loader in self._databases.all:
            age_ms = self._of(loader).age_ms
            if age_ms is None:
                return None
            greatest = max(age_ms, greatest)
        return greatest

    def token_with(self, earlier: bytes) -> bytes:
        """Return the token of a reply that shows the present state, and earlier ones or writes.

        If a failover has lost these since, the token names them as well, so that the next read after it is told.

        Args:
            earlier: The token of the earlier states; empty if there are none.
        """
        lost = self._lost(earlier)
        return merged(self.token, lost) if lost else self.token

    def _lost(self, token: bytes) -> bytes:
        """Return the token of the states that a token names and failovers have lost; empty if they have lost none."""
        lost: dict[Mark, int] = {}
        if token:
            for loader in self._databases.all:
                lost |= self._of(loader).lost(Token.parse(token))
        return bytes(Token(lost)) if lost else b""

    def tail(self, earlier: bytes = b"") -> bytes:
        """Return token and age as fields of an ExecuteReply; see `token_with`.

        Cost:
            0.5 µs for each database, and 2 µs if the state is another one than the last time.
        """
        age_ms = self.age_ms
        lost = self._lost(earlier)
        field = token_field(merged(self.token, lost)) if lost else self._name()[2]
        return field if age_ms is None else field + age_field(age_ms)

    def _name(self) -> tuple[object, bytes, bytes]:
        loaders = self._databases.all
        if len(loaders) == 1:
            state: object = loaders[0].followed.token
        elif loaders:
            state = tuple([loader.followed.token for loader in loaders])
        else:
            state = self._engine.revision
        if state != self._named[0]:
            match state:
                case bytes():
                    token = state
                case tuple():
                    token = merged(*state)
                case _:
                    token = bytes(Token({self._own.history.mark: self._engine.revision}))
            self._named = state, token, token_field(token)
        return self._named

    def explain(self, first: bytes, last: bytes | None) -> str:
        """Return how fresh a range is, and what a read with a level would wait for, in words."""
        depends_on = self._databases.read_by([(first, last)])
        if not depends_on:
            return "as fresh as can be, since it depends on no database; a level waits for nothing"
        return "; and ".join(self._of(loader).explain() for loader in depends_on)

    # What reads ask for.

    def has_at_once(self, level: bytes) -> bool:
        """Return whether a level, a message as bytes, is met without a wait or a question.

        Cost:
            0.3 µs for a token of the present timeline that is reached, 1.2 where timelines are compared.
        """
        try:
            asked = known_level(level)
            return asked is None or (isinstance(asked, After) and self._has_everywhere(asked.token))
        except (InvalidTokenError, TokenLostError, DecodeError):
            # It is refused where the reads are judged one by one.
            return False

    def has_now(self, demand: Demand, bounds: Bounds) -> bool:
        """Return whether a read of a range is as fresh as demanded, without a wait or a question."""
        try:
            if self._databases.all:
                return all(self.is_met(demand, loader) for loader in self._databases.read_by([bounds]))
            return not isinstance(demand.level, After) or self._has_own(demand.level.token)
        except TokenLostError:
            # It is refused where the read is judged.
            return False

    def count(self, level: bytes) -> None:
        """Count a batch by its level, a message as bytes."""
        self.counters.reads[kind_of(known_level(level)) if level else "any"] += 1

    def demand(self, level: Freshness | None) -> Demand | None:
        """Count a call that begins now, and return its demand; None if the server's settings are enough for it."""
        self.counters.reads[kind_of(level)] += 1
        if level is None or isinstance(level, AnyState):
            return None
        return Demand(level, time.monotonic())

    async def read(self, ask: Callable[[], T], bounds: Sequence[Bounds], demand: Demand | None) -> T:
        """Return what ``ask`` reads of ranges, once they are as fresh as demanded and all that it lacks is loaded.

        Raises:
            StaleError, TokenLostError: The level cannot be had.
            BackingUnavailableError, BackingStaleError, UnassignedKeyError: As `Databases.read`.
        """
        if not self._databases.all:
            if demand is not None:
                self.refuse(demand)
                self.renew(bounds, demand)
            return await self._databases.read(ask, bounds)
        if demand is None:
            return await self._databases.read(ask, bounds)

        async def ready() -> None:
            await self._meet(bounds, demand)

        return await self._databases.read_when(ready, ask)

    async def _meet(self, bounds: Sequence[Bounds], demand: Demand) -> None:
        """Wait until reads of the ranges are as fresh as demanded, and no commit is half applied.

        Raises:
            StaleError, TokenLostError: That cannot be had.
        """
        while True:
            depends_on = self._databases.read_by(bounds)
            for error in (await self.reach(demand, depends_on)).values():
                raise error
            closed = [loader.gate for loader in depends_on if loader.gate.is_closed]
            if not closed:
                break
            await closed[0].opened()
        self.renew(bounds, demand)

    async def reach(self, demand: Demand, depends_on: Sequence[Loader]) -> dict[Loader, PequodError]:
        """Wait until what comes from databases is as fresh as demanded, of each as far as it can be had.

        Returns:
            The errors, StaleError or TokenLostError, of those databases of which it cannot be had.
        """
        errors: dict[Loader, PequodError] = {}
        waiting: list[DatabaseLevels] = []
        for loader in depends_on:
            try:
                if not self.is_met(demand, loader):
                    waiting.append(self._of(loader))
            except TokenLostError as error:
                errors[loader] = error
        if waiting:
            begun_s = time.monotonic()
            try:
                found = (
                    [await self._come_to(demand, waiting[0])]
                    if len(waiting) == 1
                    else await asyncio.gather(*(self._come_to(demand, one) for one in waiting))
                )
            finally:
                self.counters.waited(time.monotonic() - begun_s)
            for one, outcome in zip(waiting, found, strict=True):
                if outcome is not None:
                    errors[one.loader] = outcome
        for name in {type(error).__name__ for error in errors.values()}:
            self.counters.refusals[name] += 1
        return errors

    async def _come_to(self, demand: Demand, one: DatabaseLevels) -> StaleError | TokenLostError | None:
        """Wait until a demand is met by one database; return why it cannot be had.

        A database that does not answer is asked again until the time is over: it may come back, and of several homes
        the next one may answer.
        """
        unavailable: BackingUnavailableError | None = None
        backoff, failures = Backoff(most_s=0.5), 0
        try:
            async with asyncio.timeout(max(0.0, demand.deadline_s - time.monotonic())):
                while True:
                    try:
                        await one.come_to(demand)
                        return None
                    except BackingUnavailableError as error:
                        unavailable = error
                    failures += 1
                    await asyncio.sleep(backoff.wait_s(failures))
        except TimeoutError:
            if unavailable is None or one.loader in demand.places:
                return self.stale(demand, one.loader, "")
            stale = self.stale(demand, one.loader, str(public(of_one(one.name, unavailable))))
            stale.__cause__ = unavailable
            return stale
        except TokenLostError as error:
            return error

    def is_met(self, demand: Demand, loader: Loader) -> bool:
        """Return whether what comes from a database is as fresh as demanded.

        Raises:
            TokenLostError: It never will be.
        """
        if isinstance(demand.level, After):
            self._refuse_strange(demand.level.token)
        return self._of(loader).is_met(demand)

    def _has_everywhere(self, token: Token) -> bool:
        if not self._databases.all:
            return self._has_own(token)
        if len(self._databases.all) == 1 and self._databases.all[0].followed.has_passed(token):
            return True
        self._refuse_strange(token)
        # As in `Databases.are_stale`.
        for loader in self._databases.all:  # noqa: SIM110
            if not self._of(loader).has(token):
                return False
        return True

    def _refuse_strange(self, token: Token) -> None:
        """Raise TokenLostError if a token names a state that is of no database here, as far as that is known."""
        for database, timeline in token.positions:
            for loader in self._databases.all:
                history = loader.followed.history
                if history is None or history.database == database:
                    break
            else:
                raise TokenLostError(
                    "it is of a server without a database" if timeline == NO_TIMELINE else "it is of another database"
                )

    def refuse(self, demand: Demand) -> None:
        """Raise TokenLostError if a server without a database is not, and never will be, as fresh as demanded."""
        try:
            if isinstance(demand.level, After):
                self._has_own(demand.level.token)
        except TokenLostError:
            self.counters.refusals["TokenLostError"] += 1
            raise

    def _has_own(self, token: Token) -> bool:
        history = self._own.history
        for mark, position in token.positions.items():
            if mark.database != history.database:
                raise TokenLostError(
                    "it is of a server that has been started anew since, or of another one"
                    if mark.timeline == NO_TIMELINE
                    else "it is of a database or of other data, and no database is behind this server"
                )
            if mark.timeline == history.timeline:
                if position > self._engine.revision:
                    raise TokenLostError("this server has not come so far, and nobody but itself makes its tokens")
            elif position > history.ends.get(mark.timeline, -1):
                raise TokenLostError("the changes that it names were lost with the end of the data on disk")
        return True

    def stale(self, demand: Demand, loader: Loader, reason: str) -> StaleError:
        """Return the error of a read whose level cannot be had in time; without a reason, the feed is the reason."""
        one = self._of(loader)
        age_ms = one.age_ms
        return StaleError(None if age_ms is None else age_ms / 1000, demand.level.wait_s, reason or one.why_not(demand))

    # Snapshots.

    def renew(self, bounds: Sequence[Bounds], demand: Demand) -> None:
        """Drop snapshots of ranges that were taken before the engine was as fresh as demanded.

        Cost:
            Nothing where no join is a snapshot.
        """
        if not self._engine.is_timed:
            return
        for first, last in bounds:
            self._engine.drop_snapshots(first, last, self._since_s(demand, first, last))

    def _since_s(self, demand: Demand, first: bytes, last: bytes | None) -> float:
        """Return a moment at which the engine was as fresh as demanded, the earliest that is known."""
        level, depends_on = demand.level, self._databases.read_by([(first, last)])
        if depends_on:
            # Before a range got another owner, positions of the present one said nothing about it.
            return max(self._databases.assigned_s, *(self._of(loader).since_s(demand) for loader in depends_on))
        if isinstance(level, MaxAge):
            return demand.began_s - level.age_s
        if self._databases.all or isinstance(level, Latest):
            return demand.began_s
        revision, wanted = self._engine.revision, 0
        if isinstance(level, After):
            wanted = level.token.positions.get(self._own.history.mark, 0)
        now = KnownMoment(time.monotonic(), Place(NO_TIMELINE, revision), demand.began_s)
        return self._moments.since_s(now, lambda moment: moment.place.position >= wanted)

    def stop(self) -> None:
        """Ask the databases nothing more."""
        for one in self._by_loader.values():
            one.stop()
