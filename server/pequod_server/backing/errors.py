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
    "WriteRefusedError",
]


class MappingError(PequodError):
    """The mapping of key patterns to relations is not right as it is written."""

    def __init__(self, mapping: str, reason: str) -> None:
        super().__init__(f"mapping {mapping!r}: {reason}")
        #: The pattern that the mapping starts with, or what stands in its place.
        self.mapping = mapping
        self.reason = reason
