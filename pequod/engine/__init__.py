"""The pure core of Pequod: no I/O, no clock, no network. `Engine` is the way in."""

from pequod.engine.engine import Engine
from pequod.engine.errors import (
    BackedKeyError,
    ComputedKeyError,
    InvalidKeyError,
    JoinError,
    LimitExceededError,
    MissingError,
    NotWatchableError,
    PequodError,
    Span,
    UnknownJoinError,
)
from pequod.engine.explain import (
    CoverageExplanation,
    JoinExplanation,
    PartExplanation,
    PartState,
    RangeExplanation,
    SourceExplanation,
    Upkeep,
)
from pequod.engine.joins import Join
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
from pequod.engine.watches import Change, Watch

__all__ = [
    "BackedKeyError",
    "Change",
    "ComputedKeyError",
    "CoverageExplanation",
    "Engine",
    "InvalidKeyError",
    "Join",
    "JoinError",
    "JoinExplanation",
    "JoinSpec",
    "JoinStatistics",
    "LimitExceededError",
    "Maintenance",
    "MissingError",
    "NotWatchableError",
    "Operator",
    "PartExplanation",
    "PartState",
    "Pattern",
    "PequodError",
    "Pull",
    "Push",
    "Range",
    "RangeExplanation",
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
    "prefix_end",
]
