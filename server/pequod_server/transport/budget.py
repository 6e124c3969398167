"""The bytes that all connections of a server hold: requests that nobody took, replies that nobody let in, headers.

    connection -> note(what it holds) -> the sum of all
                                      -> allowed_bytes: what one connection may hold now

A connection may hold a share of what is free, and the least in any case. So the more is held, the less may each further
one hold, and a connection that holds little goes on whatever others do. What it does above its share is its own: it
begins no further calls and its writers wait, or its newest requests are refused (`share.py`).
"""

from __future__ import annotations

from typing import Final

#: One connection may hold the free bytes divided by this, and at least as many bytes as follow.
_SHARE: Final = 4
LEAST_BYTES: Final = 256 << 10


class Budget:
    """The budget of one server.

    Args:
        bytes_max: What its connections may hold together, but for the least that each may.

    Invariants:
        1. ``held_bytes`` is the sum of what the connections have noted last.
    """

    __slots__ = ("_bytes_max", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def allowed_bytes(self, own_bytes: int) -> int:
        """Return how much a connection may hold that holds ``own_bytes`` of the sum."""
        free_bytes = self._bytes_max - self.held_bytes + own_bytes
        return max(free_bytes // _SHARE, LEAST_BYTES)
