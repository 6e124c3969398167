"""How much fits into a message.

>>> list(pieces([40, 40, 40, 300, 10], 100))
[(2, 80), (1, 40), (1, 300), (1, 10)]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, zip_longest
from typing import Final

#: The bytes of a row on the wire beside its key and its value, at most: two tags and two lengths.
ROW_BYTES: Final = 8


def pieces(sizes: Iterable[int], bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield, for entries of some sizes, how many go into each message, one at least, and how many bytes these take."""
    ends = list(accumulate(sizes))
    start = before = 0
    while start < len(ends):
        stop = max(start + 1, bisect_right(ends, before + bytes_max, start))
        yield stop - start, ends[stop - 1] - before
        start, before = stop, ends[stop - 1]


def fitting(sizes: Iterable[int], bytes_max: int) -> tuple[int, int]:
    """Return how many of the first entries fit, one at least if there is one, and how many bytes these take."""
    return next(pieces(sizes, bytes_max), (0, 0))


def row_sizes(keys: Sequence[bytes], values: Sequence[bytes]) -> Iterator[int]:
    """Yield the sizes of rows on the wire. Without values, if only keys are wanted, the keys alone count."""
    return (len(key) + len(value) + ROW_BYTES for key, value in zip_longest(keys, values, fillvalue=b""))
