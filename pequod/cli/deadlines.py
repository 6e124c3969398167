"""The deadlines of rows that are copied out of a server.

scan -> rows, 1000 at a time -> a batch of TTLs -> (key, value, when it expires, in milliseconds since 1970)
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from pequod.cli.rowfiles import TimedRow
from pequod.client import Client
from pequod.errors import NoDeadlineError, PequodError

_ROWS_A_BATCH: Final = 1000


def has_deadlines(client: Client) -> bool:
    """Return whether keys of a server may have deadlines: one has, or the server does not say it to this caller."""
    found = client.statistics()
    return bool(found.expiring_keys) or not (found.memory.total_bytes or found.memory.process_bytes)


def timed(client: Client, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[TimedRow]:
    """Yield rows with the instants at which they expire, 0: never; those that have expired meanwhile are left out.

    Raises:
        PequodError: A deadline cannot be asked for.
    """
    remaining = iter(rows)
    while some := list(islice(remaining, _ROWS_A_BATCH)):
        batch = client.batch()
        for key, _ in some:
            batch.ttl(key)
        # Before the server looks: a row that is loaded again lives no longer than this one.
        now_s = time.time()
        for (key, value), left_s in zip(some, batch.send(), strict=True):
            if isinstance(left_s, PequodError) and not isinstance(left_s, NoDeadlineError):
                raise left_s
            if isinstance(left_s, float) and left_s != math.inf:
                yield key, value, round((now_s + left_s) * 1000)
            elif left_s is not None:
                yield key, value, 0
