"""Sorted pieces as requests: what a task sends to the server for its partition.

    sorted rows   t|ann| -   t|ann| 100|bob   t|ann| 120|liz   t|bob| -   t|liz| 100|bob   ...
    requests      [t|ann|, t|ann})  [t|bob|, t|bob})  [t|liz|, t|liz|0000000150|bob)      the first request is full
                                                       [t|liz|0000000150|bob, t|liz})  ...

Together the pieces cover all contexts of the partition's rows, clipped to the partition's range. A request holds each
tail and value once, even if many timelines have it. Groups of a join that keeps some rows of each are not cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pequod_proto import pequod_pb2 as pb

from pequod.calls import BackfillStatus
from pequod.engine.joins.plan import Plan, compile_matchers
from pequod.language.slots import number_slots
from pequod.language.spec import JoinSpec
from pequod.language.views import plain_join

#: Rows in a request, approximately: the server takes in a piece of this size within some 20 ms.
ROWS_MAX: Final = 1 << 16
#: Bytes in a request, approximately: servers with little memory take messages of 4 MiB.
BYTES_MAX: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The range of output keys that one partition holds."""

    first: bytes
    last: bytes
    #: The prefix of the context that the range begins inside; None if it begins between contexts.
    within: bytes | None


class Requests:
    """Makes the requests of one partition."""

    def __init__(self, backfill: BackfillStatus, spec: JoinSpec, part: PartitionRange) -> None:
        self._backfill = backfill
        plain, _ = plain_join(spec)
        self._plan = Plan(plain, backfill.level, number_slots(plain), compile_matchers(plain))
        self._part = part
        #: The context whose piece is open, and where it begins.
        self._prefix = part.within
        self._first = part.first

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pb.LoadBackfillRequest]:
        """Yield the requests for batches whose rows are in key order; the requests hold all rows."""
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            rows = pa.Table.from_batches(held)
            if rows.num_rows < 2 or (rows.num_rows < ROWS_MAX and rows.nbytes < BYTES_MAX):
                continue
            cut = self._cut(rows)
            if cut:
                yield self._request(rows.slice(0, cut), self._part_of(rows["key"][cut].as_py()))
                held = rows.slice(cut).to_batches()
        if held:
            yield self._request(pa.Table.from_batches(held), None)
        elif self._prefix is not None:
            yield self._finish(self._new())

    def _cut(self, rows: pa.Table) -> int:
        """Return how many of the first rows to send; 0: more have to come first."""
        return _cut(rows) if self._plan.cap is None else _cut_between_groups(rows, self._part_of)

    def _part_of(self, key: bytes) -> bytes:
        """Return where a piece may end before a row: at the row, or at its group if the join keeps some of each."""
        cap = self._plan.cap
        return key if cap is None else cap.widen(key, key + b"\0").first

    def _request(self, rows: pa.Table, next_key: bytes | None) -> pb.LoadBackfillRequest:
        """Return the request for some rows; ``next_key`` is the key after them, None if they are the last ones."""
        request = self._new()
        rows = rows.combine_chunks()
        prefixes, has_tail = rows["prefix"], pc.is_valid(rows["tail"]).to_numpy(zero_copy_only=False)
        starts = [0, *(np.flatnonzero(_changes(prefixes)) + 1).tolist()]
        before = np.concatenate(([0], np.cumsum(has_tail)))
        for start, stop in zip(starts, [*starts[1:], rows.num_rows], strict=True):
            prefix = prefixes[start].as_py()
            if prefix != self._prefix:
                self._finish(request)
                self._prefix, self._first = prefix, max(prefix, self._part.first)
            is_last = stop == rows.num_rows
            count = int(before[stop] - before[start])
            end = next_key if is_last and next_key is not None and next_key < self._end(prefix) else self._end(prefix)
            self._add(request, end, count)
            if is_last and next_key == end:
                self._first = end
            else:
                self._prefix = None
        _fill(request, rows.filter(pa.array(has_tail)))
        return request if next_key is not None else self._finish(request)

    def _finish(self, request: pb.LoadBackfillRequest) -> pb.LoadBackfillRequest:
        """Close the open piece, if there is one."""
        if self._prefix is not None:
            self._add(request, self._end(self._prefix), 0)
            self._prefix = None
        return request

    def _add(self, request: pb.LoadBackfillRequest, last: bytes, count: int) -> None:
        first = max(self._first, self._backfill.first)
        if first < last:
            request.firsts.append(first)
            request.lasts.append(last)
            request.row_counts.append(count)
        else:
            assert not count, "a row lies in its partition and in the backfill's range"

    def _end(self, prefix: bytes) -> bytes:
        return min(self._plan.end_of(prefix), self._part.last, self._backfill.last)

    def _new(self) -> pb.LoadBackfillRequest:
        return pb.LoadBackfillRequest(id=self._backfill.id, join=self._backfill.join)


def _cut(rows: pa.Table) -> int:
    """Return how many of the first rows to send: whole contexts if these are half of the rows, else whole keys."""
    for name in ("prefix", "key"):
        ends = np.flatnonzero(_changes(rows[name].combine_chunks())) + 1
        if len(ends) and (name == "key" or ends[-1] * 2 >= rows.num_rows):
            return int(ends[-1])
    return 0


def _cut_between_groups(rows: pa.Table, part_of: Callable[[bytes], bytes]) -> int:
    """Return how many of the first rows to send: as many whole groups as there are, but the last one."""
    keys = rows["key"].to_pylist()
    last = part_of(keys[-1])
    at = len(keys) - 1
    while at and keys[at - 1] >= last:
        at -= 1
    return at


def _changes(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for each row but the last whether the next row has another value."""
    return pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _fill(request: pb.LoadBackfillRequest, rows: pa.Table) -> None:
    _encode(rows["tail"], request.tails, request.tail_at)
    if rows["value"].null_count == 0:
        _encode(rows["value"], request.values, request.value_at)
    if rows["source_key"].null_count == 0:
        _encode(rows["source_key"], request.source_keys, request.source_key_at)
    if rows["times"].null_count == 0:
        request.times.extend(rows["times"].to_pylist())


def _encode(column: pa.ChunkedArray, entries: object, at: object) -> None:
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    entries.extend(encoded.dictionary.to_pylist())  # type: ignore[attr-defined]
    at.extend(encoded.indices.to_pylist())  # type: ignore[attr-defined]
