"""Rates: a number a second, and some at once.

>>> allowance = Allowance(2.0, most=3, now_s=0.0)
>>> [allowance.take(1, 0.0) for _ in range(4)]
[0.0, 0.0, 0.0, 0.5]
>>> allowance.take(1, 0.5)
0.0
"""

from __future__ import annotations


class Allowance:
    """The rest of a rate; it grows with the time.

    More than ``most`` at once is allowed when nothing is owed, and is owed then: so what is large is not refused for
    ever, and the rate holds all the same.

    Invariants:
        1. ``left`` is at most ``most``; below zero it is owed.
    """

    __slots__ = ("_at_s", "_left", "most", "per_s")

    def __init__(self, per_s: float, *, most: float, now_s: float) -> None:
        self.per_s = per_s
        self.most = most
        self._left = most
        self._at_s = now_s

    def take(self, count: float, now_s: float) -> float:
        """Take ``count``; return 0.0, or take nothing and return in how many seconds there is enough."""
        wait_s = self.wait_s(count, now_s)
        if not wait_s:
            self._left -= count
        return wait_s

    def wait_s(self, count: float, now_s: float) -> float:
        """Return in how many seconds ``count`` may be taken; 0.0: now."""
        return max((min(count, self.most) - self.left(now_s)) / self.per_s, 0.0)

    def left(self, now_s: float) -> float:
        """Return what there is to be taken; below zero, what is owed."""
        if now_s > self._at_s:
            self._left = min(self._left + (now_s - self._at_s) * self.per_s, self.most)
            self._at_s = now_s
        return self._left

    def owe(self, count: float) -> None:
        """Take what has happened already."""
        self._left -= count
