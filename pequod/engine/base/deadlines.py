"""Deadlines: the instants at which base keys expire, found by key, and by instant.

    tell(1000)    the present instant      lock|a 900    due: the next to be taken
                                           s|ann  1500   not due

Instants are milliseconds of a wall clock that the caller has; time is an argument. A key that is due is taken out, and
removed as if a client had removed it: nothing else knows of deadlines.

>>> deadlines = PythonDeadlines()
>>> _ = deadlines.set(b"s|ann", 1500), deadlines.set(b"lock|a", 900)
>>> deadlines.tell(1000), deadlines.take_due(), deadlines.take_due(), deadlines.get(b"s|ann")
(True, b'lock|a', None, 1500)
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from pequod.native import core

#: No instant is above this one, which is in the year 6429.
INSTANT_MAX: Final = (1 << 47) - 1
#: What a deadline takes here, beside the bytes of its key: a place in a dictionary and in a heap, and their objects.
_BYTES_EACH: Final = 240


class PythonDeadlines:
    """The deadlines of keys; natively, one takes some 19 bytes beside the row's own key.

    Invariants:
        1. The heap has each key with its instant. It may have others, which are passed by, but never many more.
    """

    __slots__ = ("_heap", "_instants", "is_due", "now_ms")

    def __init__(self) -> None:
        self._instants: dict[bytes, int] = {}
        self._heap: list[tuple[int, bytes]] = []
        #: The present instant, as it was told last.
        self.now_ms = 0
        #: Whether a key is due at the present instant, or was until it was taken away.
        self.is_due = False

    def __len__(self) -> int:
        return len(self._instants)

    def set(self, key: bytes, at_ms: int) -> bool:
        """Set the instant of a key; return whether it had none.

        Raises:
            ValueError: No instant is negative, or above `INSTANT_MAX`.
        """
        _check_instant(at_ms)
        is_new = key not in self._instants
        self._instants[key] = at_ms
        heappush(self._heap, (at_ms, key))
        if at_ms <= self.now_ms:
            self.is_due = True
        if len(self._heap) > 2 * len(self._instants) + 64:
            self._heap = [(instant, one) for one, instant in self._instants.items()]
            heapify(self._heap)
        return is_new

    def remove(self, key: bytes) -> bool:
        """Take the instant of a key away; return whether it had one."""
        return self._instants.pop(key, None) is not None

    def get(self, key: bytes) -> int | None:
        """Return the instant of a key, None if it has none."""
        return self._instants.get(key)

    def tell(self, now_ms: int) -> bool:
        """Take the present instant, which may be before the last one; return whether a key is due."""
        _check_instant(now_ms)
        self.now_ms = now_ms
        first_ms = self.first_ms
        self.is_due = first_ms is not None and first_ms <= now_ms
        return self.is_due

    def take_due(self) -> bytes | None:
        """Take the key with the earliest instant out, if it is due, and return it; None: none is due.

        Cost:
            O(log n).
        """
        first_ms = self.first_ms
        self.is_due = first_ms is not None and first_ms <= self.now_ms
        if not self.is_due:
            return None
        _, key = heappop(self._heap)
        del self._instants[key]
        return key

    def due(self, keys: list[bytes]) -> list[bytes]:
        """Return those of some keys that are due."""
        now_ms, instants = self.now_ms, self._instants
        return [key for key in keys if instants.get(key, now_ms + 1) <= now_ms]

    def among(self, keys: list[bytes]) -> list[tuple[bytes, int]]:
        """Return those of some keys that have an instant, each with it."""
        return [(key, self._instants[key]) for key in keys if key in self._instants]

    @property
    def first_ms(self) -> int | None:
        """The earliest instant, None if there is none."""
        heap = self._heap
        while heap and self._instants.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    @property
    def byte_count(self) -> int:
        """What the deadlines take, beside the bytes of their keys."""
        return _BYTES_EACH * len(self._instants)

    def _check(self) -> None:
        assert {(instant, key) for key, instant in self._instants.items()} <= set(self._heap)
        assert len(self._heap) <= 2 * len(self._instants) + 64 or len(self._instants) < len(self._heap)


def _check_instant(at_ms: int) -> None:
    if not 0 <= at_ms <= INSTANT_MAX:
        raise ValueError("an instant is 0 to 2**47 - 1 milliseconds")


Deadlines = PythonDeadlines

if not TYPE_CHECKING and core is not None:
    Deadlines = core.Deadlines
