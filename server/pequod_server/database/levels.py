"""Levels of freshness: the one place that decides whether a read may be answered now, and waits until it may.

    any       what is there, unless it is older than the operator's bound
    after     the feed has passed the token's position: nothing to do, or a wait for the feed
    latest    the database proves that it commits, at a place: a wait for the feed to come there
    max age   the feed is known to be fresh enough; else the database is asked for its place, and so on

    reader 1   latest ----[ question 1 ]---- place 41 --- the feed has passed 41: read
    reader 2      latest -------------[ question 2 ]---- place 43 ---- ...
    reader 3        latest -----------[ question 2 ]                      a question asked before it began is of no use

A level is met before the read begins, and stays met: positions never go back, but by a failover, which is noticed. Ages
are counted from the moment at which a call began. A server without a database is as fresh as can be; its tokens hold
its own number and revision.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from pequod_proto import pequod_pb2 as pb

from pequod.engine import Engine
from pequod.errors import BackingUnavailableError, InvalidTokenError, StaleError, TokenLostError
from pequod.freshness import NO_TIMELINE, After, Freshness, Latest, Mark, MaxAge, Token, Whatever, database_of
from pequod_server.backing import Place
from pequod_server.database.followed import Reached
from pequod_server.database.loader import Loader
from pequod_server.database.questions import LevelCounters, Questions
from pequod_server.wire.bounds import Bounds
from pequod_server.wire.freshness import WAIT_S_MAX, age_field, kind_of, read_level, token_field
from pequod_server.wire.publishing import public

T = TypeVar("T")

#: Moments that are kept to tell which snapshots are fresh enough.
_MOMENTS_MAX: Final = 256
#: Answers of the database that are kept while the feed does not move.
_ASKED_MAX: Final = 64


@lru_cache(maxsize=1024)
def _level_of(message: bytes) -> Freshness | None:
    return read_level(pb.Freshness.FromString(message))


class _Moment(NamedTuple):
    """What was there at a moment, for snapshots that were taken later."""

    moment_s: float
    place: Place
    #: Everything that was committed before this was there.
    fresh_s: float


class Demand:
    """The level that one call asks for, from the moment at which the call began."""

    __slots__ = ("began_s", "deadline_s", "level", "place")

    def __init__(self, level: Freshness, began_s: float) -> None:
        self.level = level
        self.began_s = began_s
        self.deadline_s = began_s + level.wait_s
        #: Where the database was when it was asked for its latest state.
        self.place: Place | None = None


class Levels:
    """Decides about levels of freshness, and names the states that answer.

    Args:
        server_id: Names the states of a server without a database.
    """

    def __init__(self, engine: Engine, loader: Loader | None, server_id: int) -> None:
        self._engine = engine
        self._loader = loader
        self.counters = LevelCounters()
        self._mark = Mark(database_of("server", server_id), NO_TIMELINE)
        #: The latest first.
        self._moments: deque[_Moment] = deque(maxlen=_MOMENTS_MAX)
        #: Everything that was committed before this is there, by the answers of the database to our questions.
        self._fresh_s = -inf
        #: Answers that the feed has not passed, the latest of them.
        self._asked: deque[tuple[float, Place]] = deque(maxlen=_ASKED_MAX)
        #: The last state whose token was asked for, its token, and its token as a field.
        self._named: tuple[object, bytes, bytes] = (None, b"", b"")
        if loader is not None:
            self._latest = Questions(loader.store.latest, self._answered)
            self._position = Questions(loader.store.position, self._answered)

    # What replies say.

    @property
    def token(self) -> bytes:
        """The token of the present state; empty if there is none yet."""
        return self._name()[1]

    @property
    def age_ms(self) -> int | None:
        """Everything that was committed longer ago than this is there; None if that is not known."""
        if self._loader is None:
            return 0
        fresh_s = self.fresh_s
        return None if fresh_s == -inf else max(0, int((time.monotonic() - fresh_s) * 1000))

    def tail(self) -> bytes:
        """Return token and age as fields of an ExecuteReply.

        Cost:
            0.3 µs, and 2 µs if the state is another one than the last time.
        """
        age_ms = self.age_ms
        field = self._name()[2]
        return field if age_ms is None else field + age_field(age_ms)

    def _name(self) -> tuple[object, bytes, bytes]:
        state: object = self._engine.revision if self._loader is None else self._loader.followed.token
        if state != self._named[0]:
            token = bytes(Token({self._mark: self._engine.revision})) if self._loader is None else state
            assert isinstance(token, bytes)
            self._named = state, token, token_field(token)
        return self._named

    @property
    def fresh_s(self) -> float:
        """Everything that was committed before this moment is there; minus infinity if that is not known."""
        if self._loader is None:
            return time.monotonic()
        while self._asked and self._loader.followed.reached(self._asked[0][1]) is not Reached.NOT_YET:
            begun_s, place = self._asked.popleft()
            if self._loader.followed.reached(place) is Reached.YES:
                self._fresh_s = max(self._fresh_s, begun_s)
        told_s = self._loader.status.fresh_s
        return self._fresh_s if told_s is None else max(self._fresh_s, told_s)

    def _answered(self, begun_s: float, place: Place) -> None:
        self.counters.questions += 1
        self._asked.append((begun_s, place))

    def explain(self, first: bytes, last: bytes | None) -> str:
        """Return how fresh a range is, and what a read with a level would wait for, in words."""
        loader = self._loader
        if loader is None or not loader.reads_backed(first, last):
            return "as fresh as can be, since it depends on no database; a level waits for nothing"
        followed = loader.followed
        age_ms, timeline = self.age_ms, 0 if followed.history is None else followed.history.timeline
        age = "of unknown age" if age_ms is None else f"{age_ms / 1000:.1f} s old"
        return (
            f"{age}, at position {followed.position} of timeline {timeline}; a level waits for the feed of the "
            f"database, which is {loader.status.state}"
        )

    # What reads ask for.

    def has_at_once(self, level: bytes) -> bool:
        """Return whether a level, a message as bytes, is met without a wait or a question, and counts it if so.

        Cost:
            0.6 µs for a token that is reached.
        """
        try:
            asked = _level_of(level)
            is_met = asked is None or (isinstance(asked, After) and self._has(asked.token))
        except (InvalidTokenError, TokenLostError, DecodeError):
            # It is refused where the reads are judged one by one.
            return False
        if is_met:
            self.counters.reads[kind_of(asked)] += 1
        return is_met

    def demand(self, level: Freshness | None) -> Demand | None:
        """Return what a call that begins now asks for; None if that is what the server's settings say."""
        self.counters.reads[kind_of(level)] += 1
        if level is None or isinstance(level, Whatever):
            return None
        return Demand(level, time.monotonic())

    async def read(self, ask: Callable[[], T], bounds: Sequence[Bounds], demand: Demand | None) -> T:
        """Return what ``ask`` reads of ranges, once they are as fresh as demanded and all that it lacks is loaded.

        Raises:
            StaleError, TokenLostError: The level cannot be had.
            BackingUnavailableError, BackingStaleError: As `Loader.read`.
        """
        if self._loader is None:
            if demand is not None:
                self.refuse(demand)
                self.renew(bounds, demand)
            return ask()
        if demand is None:
            return await self._loader.read(ask, bounds)

        async def ready() -> None:
            await self.meet(bounds, demand)

        return await self._loader.read_when(ready, ask)

    async def meet(self, bounds: Sequence[Bounds], demand: Demand) -> None:
        """Wait until reads of the ranges are as fresh as demanded, and no commit is half applied.

        Raises:
            StaleError, TokenLostError: That cannot be had.
        """
        loader = self._loader
        if loader is not None and any(loader.reads_backed(*one) for one in bounds):
            while True:
                await self.reach(demand)
                if not loader.gate.is_closed:
                    break
                await loader.gate.opened()
        self.renew(bounds, demand)

    async def reach(self, demand: Demand) -> None:
        """Wait until what comes from the database is as fresh as demanded.

        Raises:
            StaleError, TokenLostError: That cannot be had.
        """
        begun_s = 0.0
        try:
            if self.is_met(demand):
                return
            begun_s = time.monotonic()
            async with asyncio.timeout(max(0.0, demand.deadline_s - begun_s)):
                await self._come_to(demand)
        except TimeoutError:
            raise self.stale(demand, "") from None
        except BackingUnavailableError as error:
            raise self.stale(demand, str(public(error))) from error
        except TokenLostError:
            self.counters.refusals["TokenLostError"] += 1
            raise
        finally:
            if begun_s:
                self.counters.waited(time.monotonic() - begun_s)

    async def _come_to(self, demand: Demand) -> None:
        """Wait until a demand is met, however long it takes."""
        assert self._loader is not None, "a server without a database is as fresh as can be"
        question = {Latest: self._latest, MaxAge: self._position}.get(type(demand.level))

        def is_decided() -> bool:
            # A failover makes an answer useless.
            return self.is_met(demand) or (question is not None and demand.place is None)

        while not self.is_met(demand):
            if question is not None and demand.place is None:
                demand.place = await question.ask()
            if not self.is_met(demand) and (position := self._wanted(demand)) is not None:
                self._loader.store.hurry(position)
            await self._loader.followed.until(is_decided, WAIT_S_MAX)

    def _wanted(self, demand: Demand) -> int | None:
        """Return the position of the present timeline that a demand names, if it names one."""
        present = self._at().timeline
        if demand.place is not None:
            places = [demand.place]
        elif isinstance(demand.level, After):
            places = [Place(mark.timeline, at) for mark, at in demand.level.token.positions.items()]
        else:
            places = []
        # Those of earlier timelines are in the present one, too, or lost.
        return max((at for timeline, at in places if timeline <= present), default=None)

    def is_met(self, demand: Demand) -> bool:
        """Return whether what comes from the database is as fresh as demanded.

        Raises:
            TokenLostError: It never will be.
        """
        match demand.level:
            case After(token):
                return self._has(token)
            case MaxAge(age_s):
                if self.fresh_s >= demand.began_s - age_s:
                    return True
        if self._loader is None:
            return True
        if demand.place is None:
            return False
        reached = self._loader.followed.reached(demand.place)
        if reached is Reached.LOST:
            # The database has failed over since it was asked.
            demand.place = None
        return reached is Reached.YES

    def refuse(self, demand: Demand) -> None:
        """Raise TokenLostError if a server without a database is not, and never will be, as fresh as demanded."""
        try:
            self.is_met(demand)
        except TokenLostError:
            self.counters.refusals["TokenLostError"] += 1
            raise

    def _has(self, token: Token) -> bool:
        if self._loader is None:
            return self._has_own(token)
        followed = self._loader.followed
        history, is_reached = followed.history, True
        if history is None:
            return not token.positions
        for (database, timeline), position in token.positions.items():
            if database != history.database:
                raise TokenLostError(
                    "it is of a server without a database" if timeline == NO_TIMELINE else "it is of another database"
                )
            match followed.reached(Place(timeline, position)):
                case Reached.LOST if timeline in history.ends:
                    raise TokenLostError(
                        f"the database has failed over, and what was written after {history.ends[timeline]} of its "
                        f"timeline {timeline} was lost; the token is at {position}"
                    )
                case Reached.LOST:
                    raise TokenLostError(
                        f"the database has failed over since timeline {timeline}, and its user may not read where "
                        "(it needs the right REPLICATION)"
                    )
                case Reached.NOT_YET:
                    is_reached = False
        return is_reached

    def _has_own(self, token: Token) -> bool:
        for mark, position in token.positions.items():
            if mark != self._mark:
                raise TokenLostError(
                    "it is of a server that has been started anew since, or of another one"
                    if mark.timeline == NO_TIMELINE
                    else "it is of a database, and no database is behind this server"
                )
            if position > self._engine.revision:
                raise TokenLostError("this server has not come so far, and nobody but itself makes its tokens")
        return True

    def stale(self, demand: Demand, reason: str) -> StaleError:
        """Return the error of a read whose level cannot be had in time; without a reason, the feed is the reason."""
        assert self._loader is not None, "it waited"
        self.counters.refusals["StaleError"] += 1
        age_ms = self.age_ms
        if not reason:
            wanted = self._wanted(demand)
            reason = f"the feed of the database is {self._loader.status.state}"
            if wanted is not None:
                reason = f"{reason}, at {self._loader.position}, and {wanted} is asked for"
        return StaleError(None if age_ms is None else age_ms / 1000, demand.level.wait_s, reason)

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
        level, is_ours = demand.level, self._loader is not None and not self._loader.reads_backed(first, last)
        if isinstance(level, MaxAge) and (is_ours or self._loader is None):
            return demand.began_s - level.age_s
        if is_ours or (self._loader is None and isinstance(level, Latest)):
            return demand.began_s
        now = _Moment(time.monotonic(), self._at(), self.fresh_s)
        if not self._moments or self._moments[0][1:] != now[1:]:
            self._moments.appendleft(now)
        found, position = now, self._wanted(demand)
        for moment in self._moments:
            is_fresh = isinstance(level, MaxAge) and moment.fresh_s >= demand.began_s - level.age_s
            if moment.place.timeline != now.place.timeline or not (
                is_fresh or (position is not None and moment.place.position >= position)
            ):
                break
            found = moment
        return found.moment_s

    def _at(self) -> Place:
        if self._loader is None:
            return Place(NO_TIMELINE, self._engine.revision)
        followed = self._loader.followed
        return Place(0 if followed.history is None else followed.history.timeline, followed.position or 0)

    def stop(self) -> None:
        """Ask the database nothing more."""
        if self._loader is not None:
            self._latest.stop()
            self._position.stop()
