"""How long keys live: seconds of a caller, milliseconds on the wire.

    ttl_s=30          30000      the key expires 30 s after the write
    none              0          it never expires
    keep_ttl=True     KEEP       it expires when it would have without the write

>>> to_ttl_ms(0.5), to_ttl_ms(None), to_ttl_ms(None, keep=True) == KEEP
(500, 0, True)
"""

from __future__ import annotations

import math
from typing import Final

from pequod.language.errors import InvalidTtlError

#: A hundred years: what lives longer needs no deadline.
TTL_MS_MAX: Final = 100 * 365 * 86_400_000
#: Where a write has this as its time to live, the deadline that the key has stays.
KEEP: Final = (1 << 64) - 1
#: The remaining time of a key without a deadline.
NO_DEADLINE: Final = (1 << 64) - 1


def to_ttl_ms(ttl_s: float | None, *, keep: bool = False) -> int:
    """Return a time to live as the wire has it; what is shorter than a millisecond is one.

    Args:
        ttl_s: In seconds; None: the key never expires.
        keep: The deadline that the key has stays.

    Raises:
        InvalidTtlError: It is not above 0, it is longer than a hundred years, or both arguments are given.
        TypeError: It is no number.
    """
    if ttl_s is None:
        return KEEP if keep else 0
    if keep:
        raise InvalidTtlError(f"{ttl_s} s", "a write sets a deadline or keeps the one that is there, not both")
    try:
        is_one = 0 < ttl_s <= TTL_MS_MAX / 1000
    except TypeError:
        raise TypeError(f"a time to live is a number of seconds, not {ttl_s!r}") from None
    if not is_one:
        raise InvalidTtlError(f"{ttl_s} s", "it is above 0, and at most a hundred years")
    return max(1, round(ttl_s * 1000))


def deadline_after(now_ms: int, ttl_ms: int) -> int:
    """Return the instant at which a key expires that is written now.

    Raises:
        InvalidTtlError: It is longer than a hundred years.
    """
    if ttl_ms > TTL_MS_MAX:
        raise InvalidTtlError(f"{ttl_ms} ms", "it is at most a hundred years")
    return now_ms + ttl_ms


def to_remaining_ms(remaining: float) -> int:
    """Return as the wire has it what `remaining_s` returns."""
    return NO_DEADLINE if remaining == math.inf else round(remaining * 1000)


def remaining_s(remaining_ms: int) -> float:
    """Return in seconds what is left of a key's time; infinity if it has no deadline."""
    return math.inf if remaining_ms == NO_DEADLINE else remaining_ms / 1000
