"""How fresh the engine's rows of one database are, and how demands for freshness are met there.

    after     the feed has passed the token's position: nothing to do, or a wait for the feed
    latest    the database proves that it commits, at a place: a wait for the feed to come there
    max age   the feed is known to be fresh enough; else the database is asked for its place, and so on

    reader 1   latest ----[ question 1 ]---- place 41 --- the feed has passed 41: read
    reader 2      latest -------------[ question 2 ]---- place 43 ---- ...
    reader 3        latest -----------[ question 2 ]                      a question asked before it began is of no use

A demand is met before the read begins, and stays met: positions never go back, but by a failover, which is noticed.
Ages are counted from the moment at which a call began.
"""

from __future__ import annotations

import time
from collections import deque
from math import inf
from typing import Final

from pequod.errors import TokenLostError
from pequod.freshness import After, Latest, Mark, MaxAge, Token
from pequod_server.backing import History, Place
from pequod_server.database.followed import Reached
from pequod_server.database.loader import Loader
from pequod_server.freshness.demands import WAIT_S_MAX, Demand
from pequod_server.freshness.moments import KnownMoment, Moments
from pequod_server.freshness.questions import LevelCounters, Questions

#: Answers of the database that are kept while the feed does not move.
_ASKED_MAX: Final = 64


class DatabaseLevels:
    """Decides about demands for one database.

    Args:
        counters: Those of all databases.
    """

    __slots__ = (
        "_asked", "_counters", "_fresh_s", "_history", "_latest", "_moments", "_position", "_told_s", "loader",
    )  # fmt: skip

    def __init__(self, loader: Loader, counters: LevelCounters) -> None:
        self.loader = loader
        self._counters = counters
        self._moments = Moments()
        #: Everything that was committed before this is there, by the answers of the database to our questions.
        self._fresh_s = -inf
        #: The same by what its feed told, in this history.
        self._told_s = -inf
        self._history: History | None = None
        #: Answers that the feed has not passed, the latest of them.
        self._asked: deque[tuple[float, Place]] = deque(maxlen=_ASKED_MAX)
        self._latest = Questions(loader.store.latest, self._answered)
        self._position = Questions(loader.store.position, self._answered)

    @property
    def name(self) -> str:
        """The database or the home group, in messages."""
        return self.loader.title

    @property
    def fresh_s(self) -> float:
        """Everything that was committed before this moment is there; minus infinity if that is not known."""
        followed = self.loader.followed
        if followed.history is not self._history:
            self._go_on_in(followed.history)
        while self._asked and followed.reached(self._asked[0][1]) is not Reached.NOT_YET:
            begun_s, place = self._asked.popleft()
            if followed.reached(place) is Reached.YES:
                self._fresh_s = max(self._fresh_s, begun_s)
        told_s = self.loader.status.fresh_s
        if told_s is not None:
            # Another home, which is asked now, may know less; what the engine has, it has.
            self._told_s = max(self._told_s, told_s)
        return max(self._fresh_s, self._told_s)

    def _go_on_in(self, history: History | None) -> None:
        """Forget what is known of the age, if it is that of another history: a replaced primary may have told it."""
        known, self._history = self._history, history
        if known is not None and (history is None or history.mark != known.mark):
            self._fresh_s = self._told_s = -inf
            self._asked.clear()

    @property
    def age_ms(self) -> int | None:
        """Everything that was committed longer ago than this is there; None if that is not known."""
        fresh_s = self.fresh_s
        return None if fresh_s == -inf else max(0, int((time.monotonic() - fresh_s) * 1000))

    def _answered(self, begun_s: float, place: Place) -> None:
        self._counters.questions += 1
        self._asked.append((begun_s, place))

    def explain(self) -> str:
        """Return how fresh the rows are, and what a read with a level would wait for, in words."""
        followed = self.loader.followed
        age_ms, timeline = self.age_ms, 0 if followed.history is None else followed.history.timeline
        age = "of unknown age" if age_ms is None else f"{age_ms / 1000:.1f} s old"
        return (
            f"{age}, at position {followed.position} of timeline {timeline}; a level waits for the feed of "
            f"{self.name}, which is {self.loader.status.state}"
        )

    def is_met(self, demand: Demand) -> bool:
        """Return whether what comes from the database is as fresh as demanded.

        Raises:
            TokenLostError: It never will be.
        """
        match demand.level:
            case After(token):
                return self.has(token)
            case MaxAge(age_s):
                if self.fresh_s >= demand.began_s - age_s:
                    return True
        place = demand.places.get(self.loader)
        if place is None:
            return False
        reached = self.loader.followed.reached(place)
        if reached is Reached.LOST:
            # The database has failed over since it was asked.
            del demand.places[self.loader]
        return reached is Reached.YES

    def has(self, token: Token) -> bool:
        """Return whether everything is there that a token names of this database.

        Raises:
            TokenLostError: It never will be.
        """
        followed = self.loader.followed
        history, is_reached = followed.history, True
        if history is None:
            return not token.positions
        for (database, timeline), position in token.positions.items():
            if database != history.database:
                continue
            match followed.reached(Place(timeline, position)):
                case Reached.LOST if timeline in history.ends:
                    raise TokenLostError(
                        f"{self.name} has failed over, and what was written after {history.ends[timeline]} of its "
                        f"timeline {timeline} was lost; the token is at {position}"
                    )
                case Reached.LOST:
                    raise TokenLostError(
                        f"{self.name} has failed over since timeline {timeline}, and its user may not read where "
                        "(it needs the right REPLICATION)"
                    )
                case Reached.NOT_YET:
                    is_reached = False
        return is_reached

    def lost(self, token: Token) -> dict[Mark, int]:
        """Return what a token names of this database that a failover has lost."""
        followed = self.loader.followed
        return {
            mark: position
            for mark, position in token.positions.items()
            if followed.history is not None
            and mark.database == followed.history.database
            and followed.reached(Place(mark.timeline, position)) is Reached.LOST
        }

    async def come_to(self, demand: Demand) -> None:
        """Wait until a demand is met, however long it takes.

        Raises:
            TokenLostError: It never will be.
            BackingUnavailableError, SchemaError: As the database says.
        """
        question = {Latest: self._latest, MaxAge: self._position}.get(type(demand.level))

        def is_decided() -> bool:
            # A failover makes an answer useless.
            return self.is_met(demand) or (question is not None and self.loader not in demand.places)

        while not self.is_met(demand):
            if question is not None and self.loader not in demand.places:
                demand.places[self.loader] = await question.ask()
            if not self.is_met(demand) and (position := self._wanted(demand)) is not None:
                self.loader.store.hurry(position)
            await self.loader.followed.until(is_decided, WAIT_S_MAX)

    def _wanted(self, demand: Demand) -> int | None:
        """Return the position of the present timeline that a demand names, if it names one."""
        history, place = self.loader.followed.history, demand.places.get(self.loader)
        if history is None:
            return None
        if place is not None:
            places = [place]
        elif isinstance(demand.level, After):
            named = demand.level.token.positions.items()
            places = [Place(mark.timeline, at) for mark, at in named if mark.database == history.database]
        else:
            places = []
        # Those of earlier timelines are in the present one, too, or lost.
        return max((at for timeline, at in places if timeline <= history.timeline), default=None)

    def why_not(self, demand: Demand) -> str:
        """Return why a demand is not met: what the feed lacks."""
        reason, wanted = f"the feed of {self.name} is {self.loader.status.state}", self._wanted(demand)
        return reason if wanted is None else f"{reason}, at {self.loader.position}, and {wanted} is asked for"

    def since_s(self, demand: Demand) -> float:
        """Return a moment at which the rows were as fresh as demanded, the earliest that is known."""
        level, followed, position = demand.level, self.loader.followed, self._wanted(demand)
        if isinstance(level, After) and position is None:
            return -inf
        timeline = 0 if followed.history is None else followed.history.timeline
        now = KnownMoment(time.monotonic(), Place(timeline, followed.position or 0), self.fresh_s)

        def is_enough(moment: KnownMoment) -> bool:
            if isinstance(level, MaxAge) and moment.fresh_s >= demand.began_s - level.age_s:
                return True
            return position is not None and moment.place.position >= position

        return self._moments.since_s(now, is_enough)

    def stop(self) -> None:
        """Ask the database nothing more."""
        self._latest.stop()
        self._position.stop()
