"""Turns: the propagations that change pointers of a base record come one after another, and their writes have stamps.

A coordinator that dies may leave a write at less than a majority of the replicas. The next coordinator may not see it
and build on its absence; later it is seen. With the timestamps of updates it may win then, and two rows are live. So
pointers have stamps by the order of turns: what was left behind loses against all that was written after it.

    stamp       epoch * 2**32 + how many stamps the holder of the epoch took before

An epoch is that of a lease, see `leases`: the store gives each to one process, and each process counts its stamps. So
a turn needs no request of its own.

Source:
    Ours; the paper's pointers have the timestamps of updates, and its coordinators do not die.
"""

from __future__ import annotations

from typing import Final, Protocol

from pequod.errors import PequodError
from pequod_views.versioned.known import KnownRows

_STAMPS: Final = 1 << 32
#: Earlier versions had 2**20 stamps for each turn of a record: the first epoch is above 2**24 of them.
EPOCH_FIRST: Final = 1 << 12


class LeaseLostError(PequodError):
    """The process may not have the record any more; what it did is done again, by it or by another."""

    def __init__(self, share: int) -> None:
        super().__init__(f"the lease of the share {share} ran out while its holder worked")
        self.share = share


class Stamps(Protocol):
    """The stamps of a turn."""

    def stamp(self) -> int:
        """Return a stamp above all those of this turn and of those before."""
        ...

    @property
    def known(self) -> KnownRows:
        """What the turns of this epoch know of live rows."""
        ...


class Turn(Stamps, Protocol):
    """The right to propagate updates of a base record."""

    def check(self) -> None:
        """Pass if nobody else has had the record since the turn began.

        Raises:
            LeaseLostError: Another process may have it.
        """
        ...


class TurnStamps:
    """The stamps of an epoch, each larger than all before it."""

    def __init__(self, epoch: int) -> None:
        self._next = epoch * _STAMPS
        self._end = self._next + _STAMPS
        self.known: Final = KnownRows()

    @property
    def are_spent(self) -> bool:
        """The epoch has no more stamps than one turn may take."""
        return self._end - self._next < 1 << 20

    def stamp(self) -> int:
        """Return a new stamp."""
        stamp = self._next
        self._next += 1
        assert self._next < self._end, "a turn has few writes"
        return stamp
