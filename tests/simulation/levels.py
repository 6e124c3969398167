"""The levels of freshness that simulated clients ask for, and what each of them promises."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from pequod_proto import pequod_pb2 as pb

from pequod.freshness import Token
from tests.simulation.database import Database
from tests.simulation.history import moments_of
from tests.simulation.moments import Moment


@dataclass(frozen=True)
class Level:
    """A level, or none of them if all are absent."""

    after: Token | None = None
    is_latest: bool = False
    max_age_s: float | None = None
    wait_s: float | None = None

    @property
    def is_any(self) -> bool:
        """Whether it demands nothing."""
        return self.after is None and not self.is_latest and self.max_age_s is None

    def message(self) -> pb.Freshness | None:
        """Return the level as requests have it."""
        wait_ms = None if self.wait_s is None else round(self.wait_s * 1000)
        if self.after is not None:
            return pb.Freshness(after=bytes(self.after), wait_ms=wait_ms)
        if self.is_latest:
            return pb.Freshness(latest=True, wait_ms=wait_ms)
        if self.max_age_s is not None:
            return pb.Freshness(max_age_ms=round(self.max_age_s * 1000), wait_ms=wait_ms)
        return None


ANY = Level()


@dataclass(frozen=True)
class Demand:
    """A level, and what it promises to a read that begins now."""

    level: Level
    begun_s: float
    #: The moments that the answer has to hold, by the token and by what the session saw.
    seen: tuple[Moment, ...]
    #: The last commit when the read began, if it asks for the latest.
    latest: Moment | None
    #: The database's when the read began.
    timeline: int

    @property
    def error_by_s(self) -> float:
        """When an error about the level has to be there, if the database does not fail over."""
        wait_s = 1.0 if self.level.wait_s is None else self.level.wait_s
        return self.begun_s + wait_s + 0.1


def demand(level: Level, database: Database, seen: tuple[Moment, ...] = ()) -> Demand:
    """Return what a read that begins now has to be given.

    Args:
        seen: What the session of the read has seen and written, if the level is the session's token.
    """
    by_token = () if level.after is None else tuple(moments_of(level.after))
    latest = Moment(database.timeline, database.position) if level.is_latest else None
    return Demand(level, asyncio.get_running_loop().time(), (*by_token, *seen), latest, database.timeline)


def draw_level(random: Random) -> Level:
    """Draw a level other than that of a session."""
    wait_s = random.choice([None, None, 0.0, 0.2, 5.0])
    match random.choice(["any", "latest", "age"]):
        case "any":
            return ANY
        case "latest":
            return Level(is_latest=True, wait_s=wait_s)
        case _:
            return Level(max_age_s=random.choice([0.0, 0.1, 1.0, 10.0]), wait_s=wait_s)
