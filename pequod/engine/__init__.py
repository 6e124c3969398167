"""The pure core of Pequod: no I/O, no clock, no network. `Engine` is the way in."""

from pequod.engine.backfill import Backfill, Loaded, Piece
from pequod.engine.engine import Engine
from pequod.engine.errors import (
    BackedKeyError,
    BackfillEndedError,
    ComputedKeyError,
    InvalidKeyError,
    InvalidPieceError,
    JoinError,
    LimitExceededError,
    MissingError,
    NotBackfillableError,
    NotWatchableError,
    PequodError,
    Span,
    UnknownJoinError,
)
from pequod.engine.eviction import PINNED
from pequod.engine.explain import (
    CoverageExplanation,
    DroppedExplanation,
    JoinExplanation,
    PartExplanation,
    PartState,
    RangeExplanation,
    SourceExplanation,
    Upkeep,
)
from pequod.engine.joins import Join
from pequod.engine.memory import UNLIMITED, Ledger, MemoryStatistics
from pequod.engine.ranges import Range, prefix_end
from pequod.engine.rows import Rows
from pequod.engine.spec import (
    JoinSpec,
    Maintenance,
    Operator,
    Pattern,
    Pull,
    Push,
    Slot,
    Snapshot,
    Source,
)
from pequod.engine.statistics import JoinStatistics, Statistics, TableStatistics
from pequod.engine.story import Dropped, Reason
from pequod.engine.watches import Change, Watch, change_bytes

__all__ = [
    "PINNED",
    "UNLIMITED",
    "BackedKeyError",
    "Backfill",
    "BackfillEndedError",
    "Change",
    "ComputedKeyError",
    "CoverageExplanation",
    "Dropped",
    "DroppedExplanation",
    "Engine",
    "InvalidKeyError",
    "InvalidPieceError",
    "Join",
    "JoinError",
    "JoinExplanation",
    "JoinSpec",
    "JoinStatistics",
    "Ledger",
    "LimitExceededError",
    "Loaded",
    "Maintenance",
    "MemoryStatistics",
    "MissingError",
    "NotBackfillableError",
    "NotWatchableError",
    "Operator",
    "PartExplanation",
    "PartState",
    "Pattern",
    "PequodError",
    "Piece",
    "Pull",
    "Push",
    "Range",
    "RangeExplanation",
    "Reason",
    "Rows",
    "Slot",
    "Snapshot",
    "Source",
    "SourceExplanation",
    "Span",
    "Statistics",
    "TableStatistics",
    "UnknownJoinError",
    "Upkeep",
    "Watch",
    "change_bytes",
    "prefix_end",
]
