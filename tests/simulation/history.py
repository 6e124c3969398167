r"""The moments of the simulated database: which of them hold what others have.

timeline 0   1 --2--3--4--5
timeline 1             \--4'--5'      0/3 is in 1/5', 0/4 is lost; 1/5' has all of 1/4'
"""

from __future__ import annotations

from pequod.freshness import Mark, Token
from tests.simulation.database import Database
from tests.simulation.moments import Moment
from tests.simulation.store import HISTORY_NAME


def moments_of(token: Token) -> list[Moment]:
    """Return the moments that a token names."""
    found = []
    for mark, position in token.positions.items():
        assert mark.database == HISTORY_NAME, f"the token names another database: {mark}"
        found.append(Moment(mark.timeline - 1, position))
    return found


def token_of(moment: Moment) -> Token:
    """Return the token of a moment."""
    return Token({Mark(HISTORY_NAME, moment.timeline + 1): moment.position})


def shared(database: Database, one: int, other: int) -> int | None:
    """Return up to which position two timelines are the same; None if they are one."""
    early, late = sorted((one, other))
    return min(database.forks[early + 1 : late + 1], default=None)


def holds(database: Database, state: Moment, part: Moment) -> bool:
    """Return whether a state has everything up to another moment."""
    fork = shared(database, state.timeline, part.timeline)
    return part.position <= state.position and (fork is None or part.position <= fork)


def is_lost(database: Database, moment: Moment) -> bool:
    """Return whether the database has lost a moment by a failover."""
    return not holds(database, Moment(database.timeline, max(database.position, moment.position)), moment)
