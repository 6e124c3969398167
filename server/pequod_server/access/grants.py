r"""Rights on key ranges.

    prefixes  t|  t|ann|  u|      ranges  [t|, t})  [u|, u})

>>> ranges = KeyRanges([b"t|", b"t|ann|", b"u|"])
>>> ranges.covers(b"t|ann|", b"t}"), ranges.covers(b"t|ann|", b"t}\0"), ranges.covers(b"t|", None)
(True, False, False)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from pequod.engine import Pattern
from pequod.errors import PermissionDeniedError
from pequod.language.ranges import prefix_end


class Right(StrEnum):
    """An action that a role may have on keys."""

    READ = "read"
    WRITE = "write"
    #: Install and drop joins that compute them.
    JOIN = "join"
    #: Look at joins, plans and statistics, and have computed keys computed anew.
    ADMIN = "admin"
    #: Load base keys and follow their changes, as servers do that compute from them.
    FEED = "feed"


class KeyRanges:
    """The keys that have one of several prefixes.

    Invariants:
        1. Ranges are in key order, and between two of them is a gap; only the last may be unbounded.
    """

    __slots__ = ("_ends", "_starts", "is_empty", "is_everything", "prefixes")

    def __init__(self, prefixes: Iterable[bytes]) -> None:
        #: The prefixes that lie in no other one, in order.
        self.prefixes: list[bytes] = []
        self._starts: list[bytes] = []
        self._ends: list[bytes | None] = []
        for prefix in sorted(prefixes):
            if not (self.prefixes and prefix.startswith(self.prefixes[-1])):
                self.prefixes.append(prefix)
            end = prefix_end(prefix)
            before = self._ends[-1] if self._ends else b""
            if self._ends and (before is None or prefix <= before):
                self._ends[-1] = None if before is None or end is None else max(before, end)
            else:
                self._starts.append(prefix)
                self._ends.append(end)
        self.is_empty: Final = not self._starts
        #: No key is outside; the empty one, which no store holds, is in as well.
        self.is_everything: Final = self._starts == [b""] and self._ends == [None]

    @property
    def bounds(self) -> tuple[list[bytes], list[bytes | None]]:
        """Where the ranges start, and where they end; None: nowhere."""
        return self._starts, self._ends

    def holds(self, key: bytes) -> bool:
        """Return whether ``key`` is inside.

        Cost:
            O(log ranges), 0.15 µs.
        """
        at = bisect_right(self._starts, key) - 1
        if at < 0:
            return False
        end = self._ends[at]
        return end is None or key < end

    def covers(self, first: bytes, last: bytes | None) -> bool:
        """Return whether each key of ``[first, last)`` is inside; an empty range always is.

        Cost:
            O(log ranges), 0.2 µs.
        """
        if last is not None and last <= first:
            return True
        at = bisect_right(self._starts, first) - 1
        if at < 0:
            return False
        end = self._ends[at]
        # A range that starts in the gap before the next start ends above ``end`` as well.
        return end is None or (last is not None and last <= end)

    def _check(self) -> None:
        for end, start in zip(self._ends, self._starts[1:], strict=False):
            assert end is not None, "invariant 1"
            assert end < start, "invariant 1"


class Quotas(NamedTuple):
    """How much the callers of a role may use together; None: as much as they like."""

    calls_per_s: float | None = None
    watches: int | None = None
    keys: int | None = None
    bytes: int | None = None

    @property
    def are_of_data(self) -> bool:
        """Whether the data is bounded."""
        return self.keys is not None or self.bytes is not None


class Role:
    """A name, its rights on ranges of keys, and its quotas, if it has some."""

    __slots__ = ("_ranges", "is_unlimited", "name", "quotas", "read", "write")

    def __init__(self, name: str, prefixes: Mapping[Right, Iterable[bytes]], quotas: Quotas | None = None) -> None:
        self.name = name
        self.quotas = quotas
        self._ranges = {right: KeyRanges(prefixes.get(right, ())) for right in Right}
        self.read = self._ranges[Right.READ]
        self.write = self._ranges[Right.WRITE]
        #: May read and write every key: commands need not be looked at one by one.
        self.is_unlimited = self.read.is_everything and self.write.is_everything

    def may(self, right: Right, first: bytes, last: bytes | None) -> bool:
        """Return whether the role has ``right`` on all of ``[first, last)``."""
        return self._ranges[right].covers(first, last)

    def has(self, right: Right) -> bool:
        """Return whether the role has ``right`` anywhere."""
        return not self._ranges[right].is_empty

    def need(self, right: Right, first: bytes, last: bytes | None, *others: Right) -> None:
        """Pass if the role has ``right``, or one of ``others``, on all of ``[first, last)``.

        Raises:
            PermissionDeniedError: It has not.
        """
        if not any(self.may(each, first, last) for each in (right, *others)):
            raise PermissionDeniedError(self.name, right, first, last)

    def need_key(self, right: Right, key: bytes) -> None:
        """Pass if the role has ``right`` on one key.

        Raises:
            PermissionDeniedError: It has not.
        """
        if not self._ranges[right].holds(key):
            raise PermissionDeniedError(self.name, right, key, key + b"\0")


def keys_of(pattern: Pattern) -> tuple[bytes, bytes | None]:
    """Return the smallest range that holds all keys of a pattern."""
    first = pattern.literal_prefix
    return first, prefix_end(first) if any(pattern.slots()) else first + b"\0"
