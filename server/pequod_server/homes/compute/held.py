"""The ranges that a compute holds of its homes, and from which positions on it was told all their changes.

    hold      s|ann|              a load of it begins: the next connection names it, too
    begin     s|ann| from 40      the load has come: every change of it after 40 was told, or will be
    forget    s|ann|              it is not loaded any more
    missed    s|ann|              changes of it may be missing

A server that is behind a relay asks whether it can go on from a position: of which ranges are all changes since known?

    begun     s|ann| 40, p|bob| 57        since 50?   s|ann|: yes      p|bob|, p|eve|: no
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from pequod_server.backing.rows import Clip
from pequod_server.backing.store import KeyRange
from pequod_server.homes.subscriptions import Subscriptions

#: Its changes are told, or will be once a load of it has come.
_HELD: Final = 1
#: A load of it has come, and all changes since were told.
_TOLD: Final = 2
#: The latest beginnings that are kept: some 10 MB. What began before the first of them is not known.
_BEGUN_MAX: Final = 65_536


class Held:
    """The ranges that the feed of one store tells of.

    Invariants:
        1. A range that is told is held.
        2. Of a told range, the feed tells all changes after ``_known_from`` and after its beginnings in ``_begun``.
    """

    __slots__ = ("_begun", "_is_relayed", "_known_from", "_latest", "_ranges", "lapses", "releases")

    def __init__(self) -> None:
        self._ranges = Subscriptions()
        #: Positions, and the ranges of which changes are told from there on; kept for servers behind this one.
        self._begun: deque[tuple[int, KeyRange]] = deque()
        self._is_relayed = False
        self._known_from = 0
        #: The greatest position from which on a range was told.
        self._latest = 0
        #: How often ranges were missed, and forgotten: what was asked before may be of an earlier state.
        self.lapses = 0
        self.releases = 0

    def hold(self, ranges: Sequence[KeyRange]) -> None:
        """Note ranges whose loads begin, or have come with another one."""
        for one in ranges:
            self._ranges.add(one.first, one.last, _HELD)

    def begin(self, ranges: Sequence[KeyRange], position: int) -> None:
        """Note that all changes of ranges after a position are told from now on."""
        self._latest = max(self._latest, position)
        for one in ranges:
            if self._is_relayed and not self._ranges.covers(one.first, one.last, _TOLD):
                self._begun.append((position, one))
            self._ranges.add(one.first, one.last, _HELD | _TOLD)
        while len(self._begun) > _BEGUN_MAX:
            self._known_from = max(self._known_from, self._begun.popleft()[0])

    def forget(self, ranges: Sequence[KeyRange]) -> None:
        """Note that the home tells nothing more of ranges."""
        self.releases += 1
        for one in ranges:
            self._ranges.remove(one.first, one.last, _HELD | _TOLD)

    def missed(self, ranges: Sequence[KeyRange]) -> None:
        """Note that changes of ranges may be missing, until they are loaded again."""
        self.lapses += 1
        for one in ranges:
            self._ranges.remove(one.first, one.last, _TOLD)

    def clear(self) -> None:
        """Note that the homes tell of nothing any more."""
        self.lapses += 1
        self._ranges = Subscriptions()
        self._begun.clear()

    def ranges(self) -> list[KeyRange]:
        """Return all ranges that are held."""
        return list(self._ranges.ranges_of(_HELD))

    def keep_beginnings(self) -> None:
        """Keep from now on where ranges begin, for servers behind this one."""
        self._is_relayed, self._known_from = True, max(self._known_from, self._latest)

    def unknown_in_steps(
        self, ranges: Sequence[KeyRange], position: int
    ) -> Generator[None, None, list[KeyRange] | None]:
        """Find the ranges of which changes after a position may not have been told.

        Yields:
            None, after each of some hundred ranges; if `lapses` has grown at the end, the answer is void.

        Returns:
            These ranges; None: all.
        """
        if not self._is_relayed or position < self._known_from:
            return None
        unknown = list[KeyRange]()
        known = list[KeyRange]()
        for number, one in enumerate(ranges):
            (known if self._ranges.covers(one.first, one.last, _TOLD) else unknown).append(one)
            if number % 256 == 255:
                yield
        late = Clip([one for begun, one in self._begun if begun > position])
        return [*unknown, *(one for one in known if late.touches(one))]

    def _check(self) -> None:
        self._ranges._check()
        told: Iterator[KeyRange] = self._ranges.ranges_of(_TOLD)
        assert all(self._ranges.covers(one.first, one.last, _HELD) for one in told), "1"
