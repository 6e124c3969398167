"""How old an answer may be: the levels of a query, and which runs each one reads.

    authority       the run that begins at SCU 0, with its deltas: the cheapest
    30s             nothing that was committed more than 30 seconds ago is left out
    scu:12          at least the state after SCU 12
    newest          everything that is committed

A query reads the shortest row of runs, from SCU 0 on, that its level allows: whatever it reads is the state after one
SCU, with all of its tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from pequod_lake.clock import Stamp
from pequod_lake.errors import LakeSchemaError, LakeStaleError
from pequod_lake.runs import Run, authority_count

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Authority:
    """Only the authority is read, with its deltas."""


@dataclass(frozen=True, slots=True)
class WithinAge:
    """Nothing that was committed longer ago is left out."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The state after an SCU, or a later one."""

    scu: int


@dataclass(frozen=True, slots=True)
class Newest:
    """Everything that is committed."""


Level = Authority | WithinAge | AtLeast | Newest


def parse_level(text: str) -> Level:
    """Return the level that a text names.

    >>> parse_level("authority"), parse_level("1.5s"), parse_level("scu:12")
    (Authority(), WithinAge(seconds=1.5), AtLeast(scu=12))

    Raises:
        LakeSchemaError: It names none.
    """
    if text == "authority":
        return Authority()
    if text == "newest":
        return Newest()
    if text.startswith("scu:") and text[4:].isdecimal():
        return AtLeast(int(text[4:]))
    for unit, scale in _UNITS_S.items():
        number = text.removesuffix(unit)
        if number != text and number.replace(".", "", 1).isdecimal():
            return WithinAge(float(number) * scale)
    raise LakeSchemaError(f"freshness {text!r}", "it is authority, newest, an age such as 30s, or scu:NUMBER")


def chosen_runs(runs: Sequence[Run], level: Level, now: Stamp) -> tuple[Run, ...]:
    """Return the runs that a query of this level reads.

    Raises:
        LakeStaleError: The SCU that the level names is not there.
    """
    match level:
        case Authority():
            count = authority_count(runs)
        case Newest():
            count = len(runs)
        case AtLeast(scu):
            if scu > runs[-1].last_scu:
                raise LakeStaleError(scu, runs[-1].last_scu)
            count = next(number for number, run in enumerate(runs, 1) if run.last_scu >= scu)
        case WithinAge(seconds):
            # Run `count` is the first to be left out. Stamps grow with SCUs, so its first SCU is the oldest of those.
            count = len(runs)
            while count > 1 and runs[count - 1].first_stamp.age_s(now) <= seconds:
                count -= 1
        case _:
            assert_never(level)
    return tuple(runs[:count])


def staleness_s(runs: Sequence[Run], count: int, now: Stamp) -> float:
    """Return how old the state of the first ``count`` runs is: the age of the oldest SCU that is left out, or 0."""
    return runs[count].first_stamp.age_s(now) if count < len(runs) else 0.0
