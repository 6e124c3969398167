"""The pure core of Pequod: no I/O, no clock, no network. `Engine` is the way in."""

from pequod.answers.changes import Change, Expired
from pequod.answers.explanations import (
    CoverageExplanation,
    DroppedExplanation,
    IndexExplanation,
    JoinExplanation,
    MisfitExplanation,
    Note,
    PartExplanation,
    PartState,
    RangeExplanation,
    SourceExplanation,
    Upkeep,
)
from pequod.answers.rows import Rows
from pequod.answers.statistics import JoinStatistics, MemoryStatistics, Statistics, TableStatistics
from pequod.engine.engine import Engine
from pequod.engine.joins.compiled import JoinInfo
from pequod.engine.joins.timeline import general_way
from pequod.engine.joins.watches import Watch, change_bytes
from pequod.engine.memory.eviction import PINNED
from pequod.engine.memory.ledger import UNLIMITED, Ledger
from pequod.engine.memory.story import Dropped, Reason
from pequod.engine.writes.backfill import Backfill, LoadCounts, Piece
from pequod.engine.writes.replacement import Replacement
from pequod.language.errors import (
    BackedKeyError,
    BackfillEndedError,
    ComputedKeyError,
    InvalidKeyError,
    InvalidPieceError,
    JoinError,
    LimitExceededError,
    NotBackfillableError,
    NotReplaceableError,
    NotWatchableError,
    PequodError,
    ReplacementEndedError,
    Span,
    UnknownJoinError,
)
from pequod.language.missing import (
    Due,
    FirstRows,
    Lacking,
    Loadable,
    MissingError,
    NextGroups,
    RangeRows,
    Search,
    SearchRange,
    Unindexed,
)
from pequod.language.ranges import Range, prefix_end
from pequod.language.spec import (
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
from pequod.native import FLAVOUR

__all__ = [
    "FLAVOUR",
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
    "Due",
    "Engine",
    "Expired",
    "FirstRows",
    "IndexExplanation",
    "InvalidKeyError",
    "InvalidPieceError",
    "JoinError",
    "JoinExplanation",
    "JoinInfo",
    "JoinSpec",
    "JoinStatistics",
    "Lacking",
    "Ledger",
    "LimitExceededError",
    "LoadCounts",
    "Loadable",
    "Maintenance",
    "MemoryStatistics",
    "MisfitExplanation",
    "MissingError",
    "NextGroups",
    "NotBackfillableError",
    "NotReplaceableError",
    "NotWatchableError",
    "Note",
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
    "RangeRows",
    "Reason",
    "Replacement",
    "ReplacementEndedError",
    "Rows",
    "Search",
    "SearchRange",
    "Slot",
    "Snapshot",
    "Source",
    "SourceExplanation",
    "Span",
    "Statistics",
    "TableStatistics",
    "Unindexed",
    "UnknownJoinError",
    "Upkeep",
    "Watch",
    "change_bytes",
    "general_way",
    "prefix_end",
]
