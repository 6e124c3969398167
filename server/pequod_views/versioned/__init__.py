"""Views over stores of records that have many masters and are consistent only in the end.

Not part of the server, whose views need none of this. docs/views.md tells when one wants it.
"""

from pequod_views.versioned.algorithms import NoLiveRowError, RingError, RowMisplacedError, RowUnfinishedError
from pequod_views.versioned.conditions import ColumnCondition, ConditionRefusedError
from pequod_views.versioned.coordinator import StoreSession, UpdatesRefusedError, ViewCoordinator, ViewLateError
from pequod_views.versioned.groups import AggregateRefusedError, GroupAggregate, GroupView
from pequod_views.versioned.leases import ShareLeases
from pequod_views.versioned.records import (
    ForgettingStore,
    JoiningStore,
    LimitedStore,
    QuorumError,
    RecordStore,
    StatementRefusedError,
    StoredCell,
    StoredColumn,
)
from pequod_views.versioned.replicas import ReplicaRefusedError
from pequod_views.versioned.rows import EarlierFormatError, NameRefusedError, Update, VersionedView, ViewRefusedError
from pequod_views.versioned.sqlite_store import SqliteReplicas
from pequod_views.versioned.sweeping import Swept, ViewSweeper
from pequod_views.versioned.turns import LeaseLostError

__all__ = [
    "AggregateRefusedError",
    "ColumnCondition",
    "ConditionRefusedError",
    "EarlierFormatError",
    "ForgettingStore",
    "GroupAggregate",
    "GroupView",
    "JoiningStore",
    "LeaseLostError",
    "LimitedStore",
    "NameRefusedError",
    "NoLiveRowError",
    "QuorumError",
    "RecordStore",
    "ReplicaRefusedError",
    "RingError",
    "RowMisplacedError",
    "RowUnfinishedError",
    "ShareLeases",
    "SqliteReplicas",
    "StatementRefusedError",
    "StoreSession",
    "StoredCell",
    "StoredColumn",
    "Swept",
    "Update",
    "UpdatesRefusedError",
    "VersionedView",
    "ViewCoordinator",
    "ViewLateError",
    "ViewRefusedError",
    "ViewSweeper",
]
