"""What goes wrong with a database behind the cache."""

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
    """The mapping of key patterns to relations is not right as it is written."""

    def __init__(self, mapping: str, reason: str) -> None:
        super().__init__(f"mapping {mapping!r}: {reason}")
        #: The pattern that the mapping starts with, or what stands in its place.
        self.mapping = mapping
        self.reason = reason


class SlotNotDroppedError(PequodError):
    """A replication slot that is not to be dropped; nothing was changed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the slot {name} is not dropped: {reason}")
        self.name = name
        self.reason = reason
