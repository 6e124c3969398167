"""Requests hold exactly the rows and cover exactly the contexts of a partition, however batches fall."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_spark import loads
from pequod_spark.loads import PartitionRange, Requests

from pequod.calls import BackfillStatus
from pequod.engine import Range

(TIMELINE,) = parse("t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:3>")
SCHEMA = pa.schema(
    [(name, pa.binary()) for name in ("key", "prefix", "tail", "value")]
    + [("times", pa.int64()), ("source_key", pa.binary())]
)


def status_of(first: bytes, last: bytes) -> BackfillStatus:
    return BackfillStatus(7, "t", first, last, 1, 0, (), 0, 0, 0, 0, 0, "", 0, 0.0, 0.0, "")


def batches_of(random: Random, rows: list[tuple[bytes, bytes | None]]) -> list[pa.RecordBatch]:
    columns = [[], [], [], [], [], []]  # type: ignore[var-annotated]
    for prefix, tail in rows:
        value = None if tail is None else b"v" + tail
        for column, cell in zip(columns, (prefix + (tail or b""), prefix, tail, value, None, None), strict=True):
            column.append(cell)
    table = pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)
    batches, at = [], 0
    while at < len(rows):
        size = random.randint(1, 6)
        batches += table.slice(at, size).to_batches()
        at += size
    return batches


def loaded(requests: list[pb.LoadBackfillRequest]) -> tuple[dict[bytes, bytes], list[Range]]:
    """Return the rows of requests, and the ranges that they cover."""
    rows: dict[bytes, bytes] = {}
    ranges = []
    for request in requests:
        at = 0
        for first, last, count in zip(request.firsts, request.lasts, request.row_counts, strict=True):
            prefix = first[: first.index(b"|", first.index(b"|") + 1) + 1]
            tails = [request.tails[number] for number in request.tail_at[at : at + count]]
            values = [request.values[number] for number in request.value_at[at : at + count]]
            assert tails == sorted(set(tails))
            assert all(first <= prefix + tail < last for tail in tails)
            rows.update(zip([prefix + tail for tail in tails], values, strict=True))
            ranges.append(Range(first, last))
            at += count
        assert at == len(request.tail_at)
        assert len(set(request.tails)) == len(request.tails), "each tail is sent once"
    return rows, ranges


KEPT = "best|<x>|<y:1>|<z> = copy p|<x>|<y:1>|<z> keep last 3 of <x>"


@pytest.mark.parametrize("by", ["<x>", "<x>, <y>"])
@pytest.mark.parametrize("seed", range(20))
def test_no_group_of_a_join_that_keeps_some_rows_is_cut(monkeypatch: pytest.MonkeyPatch, seed: int, by: str) -> None:
    random = Random(seed)
    (spec,) = parse(KEPT.removesuffix("<x>") + by)
    length = 7 if by == "<x>" else 9
    monkeypatch.setattr(loads, "ROWS_MAX", random.choice([1, 2, 5, 1000]))
    tails = {b"%d|%d" % (random.randrange(3), random.randrange(20)) for _ in range(20)}
    rows = [(b"best|%b|" % x, tail) for x in (b"a", b"b") for tail in (None, *sorted(tails))]
    part = PartitionRange(b"best|", b"best}", None)
    requests = list(Requests(status_of(b"best|", b"best}"), spec, part).of(batches_of(random, rows)))
    found, ranges = loaded(requests)
    assert found == {prefix + tail: b"v" + tail for prefix, tail in rows if tail is not None}
    for one in ranges:
        inside = [key for key in found if one.first <= key < one.last]
        outside = [key for key in found if key not in inside]
        assert not {key[:length] for key in inside} & {key[:length] for key in outside}


@pytest.mark.parametrize("seed", range(60))
def test_all_rows_and_contexts_are_loaded(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    monkeypatch.setattr(loads, "ROWS_MAX", random.choice([1, 2, 5, 1000]))
    users = sorted(random.sample([b"a", b"ab", b"b", b"b~", b"c", b"d"], random.randint(1, 5)))
    status = status_of(random.choice([b"t|", b"t|b|050"]), random.choice([b"t}", b"t|c|150"]))
    rows: dict[tuple[bytes, bytes | None], None] = {}
    for user in users:
        prefix = b"t|%b|" % user
        if prefix >= status.last or not (prefix >= status.first or status.first.startswith(prefix)):
            continue
        rows[prefix, None] = None
        for _ in range(random.choice([0, 1, 7])):
            rows[prefix, b"%03d|%b" % (random.randrange(200), random.choice(users))] = None
    ordered = sorted(rows, key=lambda row: (row[0] + (row[1] or b""), row[1] is not None))
    ordered = [row for row in ordered if row[1] is None or status.first <= row[0] + row[1] < status.last]
    keys = [prefix + (tail or b"") for prefix, tail in ordered]
    splits = sorted({random.choice(keys) for _ in range(random.choice([0, 1, 3]) if keys else 0)})
    splits = [split for split in splits if status.first < split < status.last]
    requests = []
    for first, last in zip([status.first, *splits], [*splits, status.last], strict=True):
        stem = first[: first.find(b"|", 2) + 1]
        held = [
            row
            for row, key in zip(ordered, keys, strict=True)
            if (key >= first or first == status.first) and (key < last or last == status.last)
        ]
        part = PartitionRange(first, last, stem if len(stem) > 2 and stem < first else None)
        requests += list(Requests(status, TIMELINE, part).of(batches_of(random, held)))
    found, ranges = loaded(requests)
    assert found == {prefix + tail: b"v" + tail for prefix, tail in ordered if tail is not None}
    covered = sorted(ranges)
    assert all(a.last <= b.first for a, b in pairwise(covered)), "no two pieces overlap"
    for user in users:
        first, last = max(b"t|%b|" % user, status.first), min(b"t|%b}" % user, status.last)
        size = [piece for piece in covered if first <= piece.first and piece.last <= last]
        if first < last:
            assert (size[0].first, size[-1].last) == (first, last)
            assert all(a.last == b.first for a, b in pairwise(size)), "without a gap"
