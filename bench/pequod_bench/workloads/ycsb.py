"""YCSB's core workloads: what the stores cost without any timelines.

    A   50 % read, 50 % update            zipfian
    B   95 % read, 5 % update             zipfian
    C   100 % read                        zipfian
    D   95 % read, 5 % insert             the latest
    E   95 % scan of 1 to 100, 5 % insert zipfian, scans of a uniform length
    F   50 % read, 50 % read, then write  zipfian

Each workload has updates, or writes that wait for a read, but not both: a write that waits is sent later, and which of
two writes comes last would depend on how deep messages go.

A record is one value of 1,000 bytes (ten fields of 100 in the original) under a key that a hash scatters.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pequod_bench.workloads.graph import Ids

READ: Final = 0
UPDATE: Final = 1
INSERT: Final = 2
SCAN: Final = 3
READ_THEN_WRITE: Final = 4

RECORD_BYTES: Final = 1_000
SCAN_ROWS_MAX: Final = 100
_ZIPFIAN: Final = 0.99
#: Odd, so that multiples modulo 2**64 are distinct; near the golden ratio, so that they scatter.
_SCATTER: Final = 11_400_714_819_323_198_485
_FILLER: Final = b"call me ishmael; some years ago, never mind how long precisely. " * 16


@dataclass(frozen=True, slots=True)
class Mix:
    """What a workload does, and how often."""

    letter: str
    text: str
    #: Chances of READ, UPDATE, INSERT, SCAN, READ_THEN_WRITE.
    chances: tuple[float, float, float, float, float]
    #: The latest records are read most.
    is_latest: bool = False


MIXES: Final = (
    Mix("A", "50 % read, 50 % update", (0.5, 0.5, 0, 0, 0)),
    Mix("B", "95 % read, 5 % update", (0.95, 0.05, 0, 0, 0)),
    Mix("C", "read", (1, 0, 0, 0, 0)),
    Mix("D", "95 % read the latest, 5 % insert", (0.95, 0, 0.05, 0, 0), is_latest=True),
    Mix("E", "95 % scan, 5 % insert", (0, 0, 0.05, 0.95, 0)),
    Mix("F", "50 % read, 50 % read, then write", (0.5, 0, 0, 0, 0.5)),
)


@dataclass(frozen=True, slots=True)
class Operations:
    """All operations of a run, in order.

    Invariants:
        1. All columns are of one length.
        2. A record is there before it is read: numbers below ``record_count`` from the start, others once inserted.
    """

    record_count: int
    kinds: NDArray[np.int8]
    #: Which record; its key is `key`.
    records: Ids
    #: Rows of a scan, else 0.
    lengths: Ids


def make_operations(mix: Mix, record_count: int, operation_count: int, seed: int) -> Operations:
    """Draw a run; which records are popular is the same for all workloads of a seed."""
    popularity_rng, rng = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    kinds = rng.choice(5, operation_count, p=mix.chances).astype(np.int8)
    is_insert = kinds == INSERT
    cumulative = np.cumsum(np.arange(1, record_count + 1) ** -_ZIPFIAN)
    ranks = np.searchsorted(cumulative, rng.random(operation_count) * cumulative[-1], side="right")
    if mix.is_latest:
        records = record_count + np.cumsum(is_insert) - 1 - ranks
    else:
        records = popularity_rng.permutation(record_count)[ranks]
    records[is_insert] = record_count + np.arange(is_insert.sum())
    lengths = np.where(kinds == SCAN, rng.integers(1, SCAN_ROWS_MAX + 1, operation_count), 0)
    return Operations(record_count, kinds, records, lengths)


def key(record: int) -> bytes:
    """Return a record's key.

    >>> key(0), key(1)
    (b'user|00000000000000000000', b'user|11400714819323198485')
    """
    return b"user|%020d" % (record * _SCATTER % 2**64)


def value(number: int) -> bytes:
    """Return what operation ``number`` writes; the record i there from the start has the value of -1 - i."""
    return (b"%d " % number + _FILLER)[:RECORD_BYTES]


def initial(operations: Operations) -> Iterator[tuple[bytes, bytes]]:
    """Yield what is there before the start."""
    for record in range(operations.record_count):
        yield key(record), value(-1 - record)


def expected(operations: Operations) -> tuple[dict[bytes, bytes], int]:
    """Return what is there at the end, and how many rows all reads return."""
    there = dict(initial(operations))
    in_order = sorted(there)
    row_count = 0
    columns = (operations.kinds.tolist(), operations.records.tolist(), operations.lengths.tolist())
    for number, (kind, record, length) in enumerate(zip(*columns, strict=True)):
        name = key(record)
        if kind == INSERT:
            insort(in_order, name)
        if kind in (UPDATE, INSERT, READ_THEN_WRITE):
            there[name] = value(number)
        if kind in (READ, READ_THEN_WRITE):
            row_count += 1
        elif kind == SCAN:
            row_count += min(length, len(in_order) - bisect_left(in_order, name))
    return there, row_count
