"""Scans that the native core answers: the rows between any bounds, up to as many as a chunk has, and as it notes."""

from itertools import product
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb

from pequod.engine.base import rows
from pequod.native import core
from tests.native.test_hot_calls import Hot

pytestmark = pytest.mark.skipif(core is None, reason="there is no twin in Python")
#: Of a scan that the core answers.
ROWS_MAX = 1024


@pytest.fixture
def hot() -> Any:
    made = Hot()
    yield made
    made.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_give_the_rows_between_any_bounds(hot: Hot, reverse: bool) -> None:
    leaf_max = rows.set_leaf_max(2)
    try:
        hot.engine.put_all([b"y|%d" % number for number in range(1, 8)], [b"%d" % number for number in range(1, 8)])
        for start, stop, limit in product(range(9), range(1, 9), (1, 2, 8)):
            if start >= stop:
                continue
            first, last = b"y|%d" % start, b"y|%d" % stop
            wanted = list(range(max(start, 1), min(stop, 8)))[:: -1 if reverse else 1]
            found = hot.ask("Scan", pb.ScanRequest(first=first, last=last, limit=limit, reverse=reverse))
            assert found is not None
            reply = pb.ScanReply.FromString(found)
            assert reply.keys == [b"y|%d" % number for number in wanted[:limit]], (first, last, limit)
            assert reply.values == [b"%d" % number for number in wanted[:limit]]
            assert bool(reply.resume_key) == (len(wanted) > limit)
    finally:
        rows.set_leaf_max(leaf_max)


def test_a_scan_of_more_rows_than_a_chunk_has_is_opened() -> None:
    hot = Hot()
    for number in range(150):
        hot.engine.put(b"z|%03d" % number, b"v")
    assert hot.ask("Scan", pb.ScanRequest(first=b"z|", last=b"z}")) is None
    assert hot.ask("Scan", pb.ScanRequest(first=b"z|", last=b"z}", one_chunk=True)) is not None
    hot.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_of_as_many_rows_as_the_core_notes_ends_there(reverse: bool) -> None:
    hot = Hot(rows_max=5000)
    keys = [b"z|%04d" % number for number in range(ROWS_MAX + 2)]
    hot.engine.put_all(keys, [b"v"] * len(keys))
    expected = [*reversed(keys)] if reverse else keys
    for asked in (pb.ScanRequest(limit=ROWS_MAX), pb.ScanRequest(one_chunk=True)):
        asked.MergeFrom(pb.ScanRequest(first=b"z|", last=b"z}", reverse=reverse))
        reply = pb.ScanReply.FromString(hot.ask("Scan", asked) or b"")
        assert [*reply.keys] == expected[:ROWS_MAX]
        assert reply.resume_key == expected[ROWS_MAX - 1] + (b"" if reverse else b"\0")
    assert hot.ask("Scan", pb.ScanRequest(first=b"z|", last=b"z}", limit=ROWS_MAX + 1, reverse=reverse)) is None
    hot.close()


def test_a_scan_whose_keys_are_longer_than_a_chunk_is_opened_and_one_that_has_room_for_them_is_not() -> None:
    hot = Hot()
    hot.engine.put(b"z|" + b"k" * 300, b"v")
    assert hot.ask("Scan", pb.ScanRequest(first=b"z|", last=b"z}", chunk_bytes=200)) is None
    assert hot.ask("Scan", pb.ScanRequest(first=b"z|", last=b"z}", chunk_bytes=400)) is not None
    hot.close()
