"""Which ranges were dropped, when and why: the latest ones, for the engine's caller and for `explain`.

    number 41   join t    [t|ann|, t|ann})    evicted: memory was short    at 12.5
    number 42   table p   [p|bob|, p|bob})    evicted: memory was short    at 12.5

>>> story = Story()
>>> story.note("t", b"t|ann|", b"t|ann}", Reason.INVALIDATED)
>>> story.note("p", b"p|bob|", b"p|bob}", Reason.EVICTED)
>>> [dropped.name for dropped in story.since(1)], [dropped.name for dropped in story.over(b"t|", None)]
(['p'], ['t'])
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

#: How many are kept: some 60 KB.
STORY_MAX: Final = 256


class Reason(StrEnum):
    """The reason for which a range was dropped; its dependants were dropped for the same reason."""

    EVICTED = "evicted: memory was short"
    INVALIDATED = "invalidated by a call"
    LOGGED = "its log was too long"
    DECIDED = "keys changed that say which of its rows are there"
    JOINS = "joins came or went"
    EXPIRED = "it expired"
    FORGOTTEN = "rows of the database were forgotten"
    WIDENED = "a wider range was computed"


class Dropped(NamedTuple):
    """A range that was materialised or loaded, and was dropped."""

    #: Counted from the engine's start; each is one more than the last.
    number: int
    #: The name of the join that computed it, or of the backed table.
    name: str
    first: bytes
    last: bytes
    reason: Reason
    #: By the engine's time; see `Engine.tell_time`.
    at_s: float


class Story:
    """The latest dropped ranges.

    Invariants:
        1. Numbers ascend by one, up to ``number``.
    """

    __slots__ = ("_latest", "now_s", "number")

    def __init__(self) -> None:
        #: The time that the engine was told last.
        self.now_s = 0.0
        #: The number of the latest, 0 if nothing was dropped.
        self.number = 0
        self._latest: deque[Dropped] = deque(maxlen=STORY_MAX)

    def note(self, name: str, first: bytes, last: bytes, reason: Reason) -> None:
        """Note a range that is dropped now."""
        self.number += 1
        self._latest.append(Dropped(self.number, name, first, last, reason, self.now_s))

    def since(self, number: int) -> list[Dropped]:
        """Return the ranges dropped after the one with this number, the earliest first, if they are still kept."""
        count = min(self.number - number, len(self._latest))
        return list(islice(self._latest, len(self._latest) - count, None)) if count > 0 else []

    def over(self, first: bytes, last: bytes | None) -> list[Dropped]:
        """Return the dropped ranges that overlap a range, the earliest first, if they are still kept."""
        return [dropped for dropped in self._latest if first < dropped.last and (last is None or dropped.first < last)]

    def _check(self) -> None:
        numbers = [dropped.number for dropped in self._latest]
        assert numbers == list(range(self.number - len(numbers) + 1, self.number + 1)), "invariant 1"
