"""Errors of a database behind the cache."""

from __future__ import annotations

from pequod.errors import (
    BackingStaleError,
    BackingUnavailableError,
    PackError,
    PequodError,
    SchemaError,
    WriteRefusedError,
)

__all__ = [
    "BackingStaleError",
    "BackingUnavailableError",
    "MappingError",
    "PackError",
    "SchemaError",
    "SlotNotDroppedError",
    "WriteRefusedError",
]


class MappingError(PequodError):
    """The mapping of key patterns to relations is malformed."""

    def __init__(self, mapping: str, reason: str) -> None:
        super().__init__(f"mapping {mapping!r}: {reason}")
        #: The pattern of the mapping, or the name of its place in the file.
        self.mapping = mapping
        self.reason = reason


class SlotNotDroppedError(PequodError):
    """A replication slot that must not be dropped; nothing was changed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the replication slot {name} is not dropped: {reason}")
        self.name = name
        self.reason = reason
