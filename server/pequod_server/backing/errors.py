"""What goes wrong with a database behind the cache."""

from __future__ import annotations

from collections.abc import Sequence

from pequod.errors import PequodError


class MappingError(PequodError):
    """The mapping of key patterns to relations is not right as it is written."""

    def __init__(self, mapping: str, reason: str) -> None:
        super().__init__(f"mapping {mapping!r}: {reason}")
        #: The pattern that the mapping starts with, or what stands in its place.
        self.mapping = mapping
        self.reason = reason


class SchemaError(PequodError):
    """The database does not have what the mappings need."""

    def __init__(self, store: str, problems: Sequence[str]) -> None:
        super().__init__(f"{store} does not fit the mapping:\n" + "\n".join(f"  - {problem}" for problem in problems))
        self.store = store
        #: One sentence each: what is wrong, and what would mend it.
        self.problems = tuple(problems)


class PackError(PequodError):
    """A row has no key under its mapping, or a key and value make no row."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        #: The column, or the key.
        self.place = place
        self.reason = reason


class BackingUnavailableError(PequodError):
    """The database does not answer; what was asked for can be asked for again later."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store} is not available: {reason}")
        self.store = store
        self.reason = reason


class BackingStaleError(PequodError):
    """What the cache has of the database may be older than it may be."""

    def __init__(self, age_s: float, stale_max_s: float, reason: str) -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"the feed of the database is {age_s:.1f} s old{why}, and backing_stale_max_s is {stale_max_s:g}; try "
            "again when it is back"
        )
        self.age_s = age_s
        self.stale_max_s = stale_max_s
        self.reason = reason


class WriteRefusedError(PequodError):
    """The database refused a write, for instance because of a constraint; nothing was written."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store} refused the write: {reason}")
        self.store = store
        self.reason = reason
