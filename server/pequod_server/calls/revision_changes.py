"""The changes of the ranges of a watch that led to one revision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pequod.engine import Change, Changes


class RevisionChanges(NamedTuple):
    """The changes that led to a revision."""

    #: All of them came after this one.
    since: int
    revision: int
    #: The changes of all ranges, range by range.
    changes: Changes
    size_bytes: int
    #: The bytes of all copies on the way to a client, at most.
    sent_bytes: int
    #: Names the state that they led to.
    token: bytes
    #: The ranges that end here.
    ended: Sequence[int] = ()

    def runs(self) -> Iterator[tuple[int, list[Change]]]:
        """Yield the number of each range that has changed, and its changes."""
        return runs_of(self.changes)


def runs_of(changes: Changes) -> Iterator[tuple[int, list[Change]]]:
    """Yield the number of each range that has changes, and these."""
    start = 0
    for number, count in changes.runs():
        yield number, changes.part(start, start + count)
        start += count
