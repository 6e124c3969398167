"""Merges that are too large for memory: each view has the rows that it has when all of them fit."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pequod_lake import IngestLimits, Lake, MergePolicy, StageLimits, reordering, writing
from pequod_lake.combining import places_in_order

PLAIN = """
[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "text", body = "text" }
views.by_author = ["author", "id"]
views.heads = { key = ["author", "id"], columns = ["id"] }
"""
TIMED = """
[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", author = "text", body = "text", at = "int64" }
timestamp = "at"
partial = true
views.by_author = ["author", "id"]
views.heads = { key = ["author", "id"], columns = ["id"] }
"""
VIEWS = ("", "by_author", "heads")
_SLICE_ROWS = 60


def fill(lake: Lake, *, changed: float, nulls: float) -> None:
    """Put in five SCUs: each has rows of its own, changes some of those before it, and deletes some."""
    dice = random.Random(4)
    with lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        for number in range(5):
            ids = list(range(number, 500, 5)) + [one for one in range(500) if dice.random() < changed]
            rows: dict[str, Any] = {"id": ids, "body": [f"{number} of {one}" for one in ids]}
            rows["author"] = [None if dice.random() < nulls else f"a{dice.randrange(9)}" for _ in ids]
            gone: dict[str, Any] = {"id": [one for one in range(500) if dice.random() < changed / 2]}
            if lake.schema.table("posts").timestamp:
                rows["at"] = [dice.randrange(9) for _ in ids]
                gone["at"] = [dice.randrange(9) for _ in gone["id"]]
            upload = ingestor.upload(str(number))
            upload.put("posts", rows)
            upload.delete("posts", gone)
            ingestor.take(upload)


def rows(lake: Lake) -> list[list[dict[str, Any]]]:
    with lake.snapshot("authority") as snapshot:
        wanted = {view: lake.schema.table("posts").view(view).columns for view in VIEWS}
        return [snapshot.scan("posts", view=view, columns=wanted[view]).rows.to_pylist() for view in VIEWS]


@pytest.mark.parametrize(
    ("schema", "changed", "nulls", "is_sorted_anew"),
    [
        (PLAIN, 0.0, 0.0, False),
        (PLAIN, 0.01, 0.0, False),
        (TIMED, 0.01, 0.0, False),
        (PLAIN, 0.5, 0.0, True),
        (PLAIN, 0.01, 0.1, True),
        (TIMED, 0.01, 0.1, True),
    ],
)
def test_views_of_a_large_merge_have_the_rows_that_they_have_in_memory(
    schema: str, changed: float, nulls: float, is_sorted_anew: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(writing._PACKINGS, "sort", replace(writing._PASSING, group_rows=8))
    monkeypatch.setitem(writing._PACKINGS, "merge", replace(writing._PASSING, group_rows=8))
    taken = list[int]()

    def counted(some: Any, key: Any) -> Any:
        taken.append(some.num_rows)
        return places_in_order(some, key)

    found = []
    for name, limits in (("whole", StageLimits()), ("sliced", StageLimits(slice_rows=_SLICE_ROWS, range_rows=70))):
        with Lake.create(tmp_path / name, schema) as lake:
            fill(lake, changed=changed, nulls=nulls)
            monkeypatch.setattr(reordering, "places_in_order", counted)
            worker = lake.worker(MergePolicy(fan_in=4, authority_after_s=1e9), limits)
            worker.drain()
            worker.compact()
            worker.close()
            assert lake.verify() == []
            found.append(rows(lake))
    assert found[0] == found[1]
    assert len(found[0][0]) > 300
    assert (taken == []) == is_sorted_anew
    # Each run may bring one group of rows more: the authority a file of 70.
    assert all(one <= _SLICE_ROWS + 70 + 4 * 8 for one in taken), taken
