"""Counts of the use of a database, and its state for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pequod.calls import BackingStatistics
from pequod_server.backing import Status


@dataclass(slots=True)
class DatabaseCounters:
    """Counts of the database's use since the start."""

    #: Loads, the ranges in them, and the rows that came.
    flights: int = 0
    ranges: int = 0
    rows: int = 0
    #: Changes that the feed delivered, and those of them that were in loaded ranges.
    changes: int = 0
    changes_applied: int = 0
    reloads: int = 0
    writes: int = 0

    def statistics(
        self, name: str, status: Status, *, mode: str, position: int | None, age_s: float, loaded_ranges: int
    ) -> BackingStatistics:
        """Return them with the state of the feed."""
        return BackingStatistics(
            mode=mode,
            state=status.state,
            error=status.error,
            position=position,
            lag=status.lag,
            age_s=None if status.fresh_s is None else max(0.0, age_s),
            loaded_ranges=loaded_ranges,
            feed_failures=status.failure_count,
            name=name,
            **asdict(self),
        )
