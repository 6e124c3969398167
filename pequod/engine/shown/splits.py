"""Keys that cut a range into parts of about equal numbers of rows, from a sample of the present rows.

    range   [first ------------------------------------------ last)      count 3
    sample   a:4        d:4   e:4      k:4  l:4       t:4                key: the number of rows that it stands for
    splits                    e             l

A sample is taken of every layer: client-written rows and materialised rows, fresh or not. A group of rows is sampled at
least once, so that a table of many small groups is cut as well as one of few large ones.

>>> choose([(b"a", 2), (b"c", 2), (b"b", 2)], b"", 3)
[b'b', b'c']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pequod.engine.base.store import Store
from pequod.engine.joins.installed import InstalledJoin

#: Groups of a table and status ranges of a join that are examined: about 1 µs each, so a few ms for each table.
GROUPS_MAX: Final = 4096
#: Samples for each part, so that parts differ by a small fraction.
_SAMPLES: Final = 16
#: One sample for each leaf of rows.
_WHOLE: Final = 1 << 62


def choose(samples: Iterable[tuple[bytes, int]], first: bytes, count: int) -> list[bytes]:
    """Return up to ``count - 1`` ascending keys above ``first`` that cut samples into parts of about equal weight."""
    ordered = sorted(samples)
    total = sum(weight for _, weight in ordered)
    splits: list[bytes] = []
    before, part = 0, 1
    for key, weight in ordered:
        # Cut where the rows below the key come closest to the next part's beginning, never twice at one key and
        # never below all of them.
        if before and part < count and 2 * (before * count - part * total) + weight * count > 0:
            if key > (splits[-1] if splits else first):
                splits.append(key)
            while part < count and 2 * (before * count - part * total) + weight * count > 0:
                part += 1
        before += weight
    return splits


def find(store: Store, joins: Iterable[InstalledJoin], first: bytes, last: bytes | None, count: int) -> list[bytes]:
    """Return keys that cut ``[first, last)`` into about ``count`` parts.

    Cost:
        O(min(groups, GROUPS_MAX) for each table and join + samples).
    """
    if count < 2 or (last is not None and first >= last):
        return []
    coarse = list(_sample(store, joins, first, last, _WHOLE))
    step = sum(weight for _, weight in coarse) // (count * _SAMPLES)
    return choose(_sample(store, joins, first, last, max(step, 1)), first, count)


def sizes(store: Store, first: bytes, last: bytes | None, parts: int) -> list[tuple[bytes, int, int]]:
    """Return keys of base rows, each with the numbers of rows and of bytes that it stands for.

    Rows of one table count as equally long.
    """
    found: list[tuple[bytes, int, int]] = []
    for table in store.tables_of(first, last):
        start, stop = table.clip(first, last)
        if start >= stop or not table.entry_count:
            continue
        row_bytes = (table.key_bytes + table.value_bytes) / table.entry_count
        step = max(1, table.count(start, stop) // (parts * _SAMPLES))
        sample = table.sample(start, stop, step, GROUPS_MAX)
        found += [(key, count, round(count * row_bytes)) for key, count in sample]
    return found


def _sample(
    store: Store, joins: Iterable[InstalledJoin], first: bytes, last: bytes | None, step: int
) -> Iterator[tuple[bytes, int]]:
    yield from store.sample(first, last, step, GROUPS_MAX)
    for join in joins:
        yield from join.coverage.sample(*join.clip(first, last), step, GROUPS_MAX)
