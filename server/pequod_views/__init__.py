"""Views that live in databases: tables of PostgreSQL, MariaDB or SQLite, kept equal to ranges of a server.

docs/views.md tells how to use them, docs/architecture/views.md how they work.
"""

from pequod_views.definition import DurableView, ViewFile, parse_views
from pequod_views.errors import (
    OtherServerError,
    PartLostError,
    TargetAwayError,
    TargetMissingError,
    TargetRefusedError,
    ViewFileError,
)
from pequod_views.manager import Manager
from pequod_views.targets import Target, open_target

__all__ = [
    "DurableView",
    "Manager",
    "OtherServerError",
    "PartLostError",
    "Target",
    "TargetAwayError",
    "TargetMissingError",
    "TargetRefusedError",
    "ViewFile",
    "ViewFileError",
    "open_target",
    "parse_views",
]
