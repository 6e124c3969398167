"""How a join is kept, and what a read of a range would find."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Note:
    """Why a read may find nothing, as the present keys tell: a misspelt table, keys that match no pattern."""

    text: str
    #: The range that it tells of: callers that may not read it are not told.
    first: bytes
    last: bytes

    def __str__(self) -> str:
        return self.text


class Upkeep(StrEnum):
    """When a change of a source reaches the output."""

    EAGER = "eager"
    LOGGED = "logged, applied at the next read"
    ON_READ = "read anew by every read"
    AT_EXPIRY = "read anew when the snapshot expires"


@dataclass(frozen=True, slots=True)
class IndexExplanation:
    """The index through which a source reads records; other sources that see the same have the same one."""

    #: The order of its rows: the pattern of their keys.
    order: str
    #: Whether it is there; the first read that needs it makes it.
    is_made: bool
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class MisfitExplanation:
    """A reason for which values give a source no row."""

    reason: str
    #: How often a new value, or one that was read, was looked at and did not match.
    count: int
    #: The latest key with such a value.
    key: bytes


@dataclass(frozen=True, slots=True)
class SourceExplanation:
    """One step of a plan, for a read that fixes the output's first slot."""

    source: str
    #: The part of the source key that is known when the step is reached: it reads the keys with this prefix.
    reads: str
    #: The slot by which bounds of the read narrow this range, if they do.
    narrowed_by: str | None
    #: The slots that the source's keys bind.
    binds: tuple[str, ...]
    upkeep: Upkeep
    #: Names of the joins that compute keys of this source.
    computed_by: tuple[str, ...]
    #: None if it needs none, or cannot have one because joins compute its keys.
    index: IndexExplanation | None = None
    misfits: tuple[MisfitExplanation, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinExplanation:
    """A join's plan."""

    name: str
    text: str
    #: The effective maintenance, with the reason if it differs from the declared one.
    maintenance: str
    #: Whether each output key has at most one contribution.
    is_unique: bool
    sources: tuple[SourceExplanation, ...]
    warnings: tuple[str, ...]
    #: Why sources have no rows now.
    notes: tuple[Note, ...] = ()


class PartState(StrEnum):
    """The state of a part of a join's output, as a read finds it."""

    VALID = "valid"
    LOGGED = "logged"
    EXPIRED = "expired"
    ABSENT = "absent"
    PULLED = "computed on every read"


@dataclass(frozen=True, slots=True)
class PartExplanation:
    """A part of a range that is in one state."""

    first: bytes
    last: bytes
    state: PartState
    rows: int = 0
    updaters: int = 0
    log_entries: int = 0


@dataclass(frozen=True, slots=True)
class CoverageExplanation:
    """One join in a range, and the work of the next read of the range for it."""

    join: str
    parts: tuple[PartExplanation, ...]
    next_read: str


@dataclass(frozen=True, slots=True)
class DroppedExplanation:
    """A range that was computed or loaded, and was dropped."""

    #: The name of the join that computed it, or of the table that a database owns.
    name: str
    first: bytes
    last: bytes
    #: The reason.
    reason: str
    #: How long ago, to a tenth of a second.
    ago_s: float


@dataclass(frozen=True, slots=True)
class RangeExplanation:
    """What a read of ``[first, last)`` would find."""

    first: bytes
    last: bytes | None
    #: Client-written keys in the range.
    stored_keys: int
    joins: tuple[CoverageExplanation, ...]
    #: The dropped parts of the range, the latest first; only the latest dropped ranges of the engine are known.
    dropped: tuple[DroppedExplanation, ...] = ()
    #: How fresh it is, and what a read with a level would wait for, in words; empty where there is no server.
    freshness: str = ""
    #: Why there may be no rows.
    notes: tuple[Note, ...] = ()
