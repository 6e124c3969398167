"""Which keys a server's processor time goes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupHeat:
    """A group of keys."""

    group: bytes
    #: What it takes of a core at the least, and this much more at the most.
    cores: float
    cores_error: float
    #: Commands a second.
    reads: float
    writes: float


@dataclass(frozen=True, slots=True)
class RangeHeat:
    """A part of a home range."""

    first: bytes
    #: None: to the last key.
    last: bytes | None
    #: Base rows that are in memory at the home, by a sample.
    keys: int
    bytes: int
    #: What it takes of a core.
    cores: float
    #: Commands a second.
    reads: float
    writes: float


@dataclass(frozen=True, slots=True)
class HeatStatistics:
    """The heat of a server; what is 30 seconds ago counts half."""

    #: The cores that the process keeps busy.
    cores: float = 0.0
    #: The groups that it works for most, the first of them the most.
    groups: tuple[GroupHeat, ...] = ()
    #: The parts of the home ranges that belong there, in key order; none: they were not asked for.
    ranges: tuple[RangeHeat, ...] = ()
