"""Python's cyclic collector, kept away from what parsers make: a tree without a cycle, which is gone in a moment.

A record of 0.9 MB may hold 300,000 arrays. While they are made the collector looks for cycles among them again and
again, which takes three times as long as to parse them, and longer for each further such record in memory.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: A shorter value has too few objects for the collector to take long.
LONG_BYTES: Final = 16 << 10


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let the collector run no more until the block ends, unless it was off before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
