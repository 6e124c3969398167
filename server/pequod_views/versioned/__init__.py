"""Views over stores of records that have many masters and are consistent only in the end.

Not part of the server, whose views need none of this. docs/views.md tells when one wants it.
"""

from pequod_views.versioned.algorithms import NoLiveRowError, RowUnfinishedError
from pequod_views.versioned.coordinator import StoreSession, ViewCoordinator
from pequod_views.versioned.locks import RowLocks
from pequod_views.versioned.records import QuorumError, RecordStore, StoredCell, StoredColumn
from pequod_views.versioned.rows import EarlierFormatError, NameRefusedError, Update, VersionedView
from pequod_views.versioned.sqlite_store import SqliteReplicas
from pequod_views.versioned.sweeping import Swept, ViewSweeper

__all__ = [
    "EarlierFormatError",
    "NameRefusedError",
    "NoLiveRowError",
    "QuorumError",
    "RecordStore",
    "RowLocks",
    "RowUnfinishedError",
    "SqliteReplicas",
    "StoreSession",
    "StoredCell",
    "StoredColumn",
    "Swept",
    "Update",
    "VersionedView",
    "ViewCoordinator",
    "ViewSweeper",
]
