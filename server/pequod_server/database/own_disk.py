"""What reads lack, told apart by what has it: this server's own disk, the engine itself, or a database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from pequod.engine import Due, Engine, FirstRows, Lacking, Loadable, Range, Uncomputed, Uncounted, Unindexed


class OwnDisk(Protocol):
    """Has the rows of paged tables."""

    async def load(self, lacking: Sequence[Range | FirstRows | Uncounted]) -> None:
        """Have the engine take in what reads lack, and count what is not to be taken in."""
        ...


class Lacks(NamedTuple):
    """The ranges, indexes and searches that reads lack."""

    paged: list[Range | FirstRows | Uncounted]
    own: list[Unindexed | Uncomputed | Due]
    of_databases: list[Loadable]


def told_apart(engine: Engine, lacking: Iterable[Lacking]) -> Lacks:
    """Return what reads lack by what has it."""
    found = Lacks([], [], [])
    for one in lacking:
        if isinstance(one, Unindexed | Uncomputed | Due):
            found.own.append(one)
        elif isinstance(one, FirstRows | Uncounted) or (isinstance(one, Range) and engine.is_paged(one.first)):
            found.paged.append(one)
        else:
            found.of_databases.append(one)
    return found
