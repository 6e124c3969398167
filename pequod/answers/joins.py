"""Installed joins, and how they change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Join:
    """An installed join."""

    #: Unique on the server.
    name: str
    #: The declaration in canonical form.
    text: str
    #: What the server accepted but may surprise the author.
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplacementStatus:
    """A join on its way to the place of an installed one, and its progress."""

    #: Random; in a cluster the same at all servers.
    id: int
    #: The name of the join.
    join: str
    #: What it is to compute, in canonical form.
    text: str
    #: Ranges that are computed of it, and about how many reads have had computed of the old one.
    ranges_built: int
    ranges_expected: int
    #: Seconds since it began, or that it took if it has ended.
    age_s: float
    #: Whether it is in its place.
    is_in_place: bool
    #: Why it has ended; empty while it is under way.
    ended: str
    #: In a cluster, the servers that have not prepared it, or whose reads do not see it yet, by their ids.
    waits_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinChanges:
    """How the joins of one declaration become the only ones: see `set_joins`."""

    #: The new joins, in the order of the declaration; without names as long as they are not installed.
    added: tuple[Join, ...]
    #: Those that the declaration has no more, in the order in which they go.
    dropped: tuple[Join, ...]
    #: Those that stay with their rows, the earliest first.
    kept: tuple[Join, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped)

    def with_added(self, added: Iterable[Join]) -> JoinChanges:
        """Return the same with the new joins as they are installed."""
        return JoinChanges(tuple(added), self.dropped, self.kept)
