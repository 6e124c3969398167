"""How many rows fit into a message."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, zip_longest

from pequod_server.batches.batch import ROW_BYTES


def fitting(keys: list[bytes], values: list[bytes], bytes_max: int) -> tuple[int, int]:
    """Return how many of the first rows fit, at least one if there is one, and how many bytes these take.

    Without values, if only keys are wanted, the keys alone count.
    """
    if not keys:
        return 0, 0
    rows = zip_longest(keys, values, fillvalue=b"")
    sizes = list(accumulate(len(key) + len(value) + ROW_BYTES for key, value in rows))
    count = max(1, bisect_right(sizes, bytes_max))
    return count, sizes[count - 1]
