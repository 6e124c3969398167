"""Points and ranges of sorted runs: found by halving, in row groups that stay in memory within a bound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pequod_lake import CacheLimits, IngestLimits, Lake, MergePolicy, StageLimits
from pequod_lake.blocks import Block
from pequod_lake.conditions import Bound
from pequod_lake.errors import LakeCorruptError

NOW = IngestLimits(scu_age_s=0)
SCHEMA = """
[[table]]
name = "posts"
key = ["author", "id"]
columns = { author = "text", id = "int64", at = "timestamp", body = "text" }
views.by_at = ["at", "author", "id"]
"""
AUTHORS = ["ann", "bob", "cy"]
COUNT = 20_000


def filled(make: Callable[[str], Lake]) -> Path:
    """Make a lake whose authority has several files of several row groups, and deltas."""
    lake = make(SCHEMA)
    worker = lake.worker(MergePolicy(authority_after_s=0.0), StageLimits(range_rows=25_000))
    numbers = np.arange(COUNT)
    everything = {
        "author": [author for author in AUTHORS for _ in range(COUNT)],
        "id": np.tile(numbers, len(AUTHORS)),
        "at": pa.array(np.tile(numbers, len(AUTHORS)) // 7, pa.timestamp("us")),
        "body": ["old"] * (COUNT * len(AUTHORS)),
    }
    for number, rows in enumerate([everything, *(_changed(one) for one in (5_000, 19_999, 7))]):
        with lake.ingestor(NOW) as ingestor:
            upload = ingestor.upload(str(number))
            upload.put("posts", pa.table(rows))
            ingestor.take(upload)
        worker.drain()
    worker.close()
    stages = [run.stage.value for run in lake.catalog.snapshot().runs]
    assert stages[0] == "authority", stages
    assert "delta" in stages, stages
    return lake.folder


def _changed(number: int) -> dict[str, list[object]]:
    return {"author": ["bob"], "id": [number], "at": [COUNT], "body": ["new"]}


def test_rows_are_found_at_the_edges_of_files_and_row_groups(make: Callable[[str], Lake]) -> None:
    with Lake(filled(make)) as lake, lake.snapshot("authority") as snapshot:
        for author in AUTHORS:
            for number in (0, 1, 4_999, 16_383, 16_384, COUNT - 1):
                found = snapshot.get("posts", author, number)
                assert found is not None
                assert (found["author"], found["id"], found["body"]) == (
                    author,
                    number,
                    "new" if _is_new(author, number) else "old",
                )
        for key in [("ann", -1), ("ann", COUNT), ("", 0), ("bo", 3), ("z", 0)]:
            assert snapshot.get("posts", *key) is None
        assert snapshot.get("posts", "bob", 7)["body"] == "new"  # type: ignore[index]
        ranged = snapshot.scan("posts", [("author", "=", "bob"), ("id", ">=", 19_990)], columns=["id", "body"]).rows
        assert ranged.to_pylist() == [
            {"id": number, "body": "new" if _is_new("bob", number) else "old"} for number in range(19_990, COUNT)
        ]
        moved = snapshot.scan("posts", [("at", ">", 2_855)], view="by_at", columns=["author", "id", "at"]).rows
        wanted = [(author, number) for number in range(19_992, COUNT) for author in AUTHORS]
        wanted = sorted(one for one in wanted if not _is_new(*one)) + [("bob", number) for number in (7, 5_000, 19_999)]
        assert sorted(zip(moved["author"].to_pylist(), moved["id"].to_pylist(), strict=True)) == sorted(wanted)
        lake.reader.blocks._check()


def _is_new(author: str, number: int) -> bool:
    return author == "bob" and number in {7, 5_000, 19_999}


class _Counted:
    """Counts how often files are opened to read rows."""

    def __init__(self, source: Callable[..., Any]) -> None:
        self._source = source
        self.count = 0

    def __call__(self, *arguments: Any) -> Any:
        self.count += 1
        return self._source(*arguments)


def test_row_groups_in_memory_are_read_once_and_stay_within_the_bound(make: Callable[[str], Lake]) -> None:
    folder = filled(make)
    for bytes_max in (0, 300_000, 1 << 30):
        with Lake(folder, cache=CacheLimits(bytes_max=bytes_max)) as lake, lake.snapshot("authority") as snapshot:
            reads = _Counted(lake.reader._source)
            lake.reader._source = reads  # type: ignore[method-assign, assignment]
            before = 0
            for _ in range(2):
                before = reads.count
                for number in range(0, COUNT, 1_000):
                    assert snapshot.get("posts", "cy", number) is not None
            lake.reader.blocks._check()
            assert lake.reader.blocks.size_bytes <= bytes_max
            assert (reads.count == before) == (bytes_max == 1 << 30)


def test_footers_in_memory_stay_within_their_bound(make: Callable[[str], Lake]) -> None:
    folder = filled(make)
    counts = []
    for bytes_max in (1, 150_000, 1 << 30):
        limits = CacheLimits(footers_bytes_max=bytes_max)
        with Lake(folder, cache=limits) as lake, lake.snapshot("authority") as snapshot:
            for number in range(0, COUNT, 2_000):
                for author in AUTHORS:
                    assert snapshot.get("posts", author, number) is not None
                lake.reader._check()
            counts.append(len(lake.reader._opened))
    assert counts[0] == 1 < counts[1] < counts[2], counts


def test_a_file_that_is_gone_is_said_though_its_rows_are_in_memory(make: Callable[[str], Lake]) -> None:
    with Lake(filled(make)) as lake, lake.snapshot("authority") as snapshot:
        assert snapshot.get("posts", "ann", 1) is not None
        for path in (lake.folder / "data").rglob("*.parquet"):
            path.unlink()
        with pytest.raises(LakeCorruptError):
            snapshot.get("posts", "ann", 1)


@pytest.mark.parametrize("is_null_last", [False, True])
def test_halving_finds_what_a_mask_finds(*, is_null_last: bool) -> None:
    rows = sorted((a, b) for a in range(5) for b in "pqrs")
    columns = {
        "a": pa.array([a for a, _ in rows] + [None] * is_null_last),
        "b": pa.array([b for _, b in rows] + ["z"] * is_null_last),
    }
    block = Block(len(columns["a"]))
    block.columns.update(columns)
    whole = pa.table(columns)
    for name, values in (("a", [-1, 0, 2, 4, 5]), ("b", ["", "p", "r", "s", "zz"])):
        kind = columns[name].type
        for op in ("=", "<", "<=", ">", ">="):
            for value in values:
                for first in ([], [Bound("a", "=", pa.scalar(3))], [Bound("a", "in", pa.array([1, 3, 9]))]):
                    conditions = [*first, Bound(name, op, pa.scalar(value, kind))]
                    _compare(block, whole, conditions)
        _compare(block, whole, [Bound(name, "in", pa.array([values[3], values[1], values[1]], kind))])
        _compare(block, whole, [Bound(name, "in", pa.array([], kind))])


def _compare(block: Block, whole: pa.Table, conditions: list[Bound]) -> None:
    found = block.found(("a", "b"), conditions)
    expected = whole
    for one in conditions:
        expected = expected.filter(one.mask_of(expected))
    assert [block.picked("a", found).to_pylist(), block.picked("b", found).to_pylist()] == [
        expected["a"].to_pylist(),
        expected["b"].to_pylist(),
    ], conditions
    assert found.count == expected.num_rows
