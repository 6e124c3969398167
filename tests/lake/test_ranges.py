"""The authority in key ranges: a merge writes the files that updates touch, and readers read those that they need."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from pequod_lake import IngestLimits, Lake, LakeSnapshot, MergePolicy, StageLimits
from pequod_lake.clock import Stamp
from pequod_lake.errors import LakeError
from pequod_lake.runs import LakeFile, Run, Stage, StepKind, check_runs, next_steps

from tests.lake.earlier import before_ranges

NOW = IngestLimits(scu_age_s=0)
SCHEMA = """
[[table]]
name = "posts"
key = ["author", "id"]
columns = { author = "text", id = "int64", at = "timestamp", body = "text" }
views.by_at = ["at", "author", "id"]
"""
RANGE_ROWS = 50
LIMITS = StageLimits(range_rows=RANGE_ROWS, whole_ratio=9.0)
#: Whatever is sorted is brought into the authority.
MINUTE = MergePolicy(authority_after_s=0.0)
AUTHORS = ["", "ann", "bob", "dé", "\N{GRINNING FACE}"]
Rows = dict[tuple[str, int], dict[str, Any]]


def row(author: str, number: int, at: int | None, body: str = "x") -> dict[str, Any]:
    return {"author": author, "id": number, "at": at, "body": body}


def put(lake: Lake, name: str, rows: list[dict[str, Any]], deleted: list[tuple[str, int]] | None = None) -> None:
    with lake.ingestor(NOW) as ingestor:
        upload = ingestor.upload(name)
        if rows:
            upload.put("posts", {column: [one[column] for one in rows] for column in rows[0]})
        if deleted:
            upload.delete("posts", {"author": [one for one, _ in deleted], "id": [one for _, one in deleted]})
        ingestor.take(upload)


def merge(lake: Lake, limits: StageLimits = LIMITS) -> None:
    worker = lake.worker(limits=limits)
    try:
        worker.compact()
    finally:
        worker.close()


def files(lake: Lake, view: str = "") -> tuple[LakeFile, ...]:
    return lake.catalog.snapshot().runs[0].of("posts", view)


def filled(lake: Lake) -> list[dict[str, Any]]:
    """Give it 1,000 rows of five authors, whose moments are the other way round."""
    rows = [row(author, number, 1000 - number) for author in AUTHORS for number in range(200)]
    put(lake, "first", rows)
    merge(lake)
    return rows


def told(snapshot: LakeSnapshot, where: Any = (), view: str = "") -> list[dict[str, Any]]:
    rows = snapshot.scan("posts", where, view=view).rows
    found: list[dict[str, Any]] = rows.set_column(2, "at", rows["at"].cast("int64")).to_pylist()
    return found


def test_a_merge_writes_what_an_update_touches_and_readers_read_what_they_need(location: Callable[[str], str]) -> None:
    with Lake(location(SCHEMA)) as lake:
        rows = filled(lake)
        before, before_by_at = files(lake), files(lake, "by_at")
        assert [file.row_count for file in before] == [RANGE_ROWS] * 20
        with lake.snapshot("authority") as pinned:
            put(lake, "one", [row("bob", 77, 500, "new")])
            merge(lake)
            written = {file.path for file in files(lake)} - {file.path for file in before}
            assert len(written) == 1
            # Where the row was, and both halves of the range where it is now, which was full.
            assert len({file.path for file in files(lake, "by_at")} - {file.path for file in before_by_at}) == 3
            swept = set(lake.expire(0.0)[0])
            assert not swept & {file.path for file in (*before, *before_by_at)}, "a reader has them"
            assert told(pinned) == rows
        gone = set(lake.expire(0.0)[0])
        assert len(gone) == 3
        assert set(lake.place.files.paths()) == {file.path for file in lake.catalog.files("posts")}
        rows[2 * 200 + 77] = row("bob", 77, 500, "new")
        assert lake.verify() == []
        with Lake(lake.place.name) as other, other.snapshot("authority") as snapshot:
            assert told(snapshot) == rows
            expected: list[tuple[Any, int]] = [
                ([("author", "=", "bob"), ("id", "=", 77)], 1),
                ([("author", "=", "bob"), ("id", "<", 60)], 2),
                ([("author", "in", ["bob"]), ("id", ">=", 190)], 1),
                ([("author", ">", "dé")], 4),
                ([("author", "in", [])], 0),
            ]
            for where, count in expected:
                answer = snapshot.scan("posts", where, view="")
                assert answer.counts.file_count == count, where
            assert snapshot.scan("posts", [("at", "<=", 805)], view="by_at").counts.file_count <= 2


def test_ranges_are_split_when_they_grow_and_joined_when_they_shrink(make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    filled(lake)
    before = files(lake)
    put(lake, "more", [row("bob", number, None) for number in range(1000, 1030)])
    merge(lake)
    counts = [file.row_count for file in files(lake)]
    assert sorted(counts) == [40, 40, *[RANGE_ROWS] * 19]
    put(lake, "fewer", [], [("bob", number) for number in range(1000, 1030)] + [("bob", one) for one in range(195)])
    merge(lake)
    assert sum(file.row_count for file in files(lake)) == 805
    assert min(file.row_count for file in files(lake)) == 5, "its neighbours are full"
    put(lake, "room", [], [("dé", number) for number in range(40)])
    merge(lake)
    assert min(file.row_count for file in files(lake)) == 15
    untouched = {file.path for file in before} & {file.path for file in files(lake)}
    assert len(untouched) == 15
    put(lake, "none", [], [(author, number) for author in AUTHORS for number in range(200)])
    merge(lake)
    assert files(lake) == files(lake, "by_at") == ()
    put(lake, "again", [row("ann", 1, 1)])
    merge(lake)
    assert lake.verify() == []
    assert lake.catalog.orphans() == []


def test_two_workers_that_do_the_same_merge_leave_the_files_that_neither_touches(make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    rows = filled(lake)
    put(lake, "one", [row("bob", 77, 500, "new")])
    rows[2 * 200 + 77] = row("bob", 77, 500, "new")
    lost = list[bool]()

    def at_point(name: str) -> None:
        if name == "authority.written" and not lost:
            lost.append(True)
            merge(lake)

    with Lake(lake.folder, at_point=at_point) as slow:
        worker = slow.worker(limits=LIMITS, lease_s=0.0)
        worker.compact()
        worker.close()
        assert lost
        with slow.snapshot("authority") as snapshot:
            assert told(snapshot) == rows
    assert lake.verify() == []
    lake.expire(0.0)
    assert set(lake.place.files.paths()) == {file.path for file in lake.catalog.files("posts")}


def test_few_rows_become_a_delta_and_many_are_brought_into_the_files(location: Callable[[str], str]) -> None:
    with Lake(location(SCHEMA)) as lake:
        rows = filled(lake)
        before = files(lake)
        worker = lake.worker(MINUTE, LIMITS)
        for number in range(2):
            put(lake, f"minute {number}", [row(author, number, 1, "new") for author in AUTHORS])
            worker.drain()
            # The second one is merged with the first.
            assert [run.stage for run in lake.catalog.snapshot().runs] == [Stage.AUTHORITY, Stage.DELTA]
            assert files(lake) == before
        put(lake, "gone", [], [("ann", 7)])
        with Lake(lake.place.name) as other:
            other_worker = other.worker(MINUTE, LIMITS)
            other_worker.drain()
            other_worker.close()
        expected = [row(one["author"], one["id"], 1, "new") if one["id"] < 2 else one for one in rows]
        expected.remove(row("ann", 7, 993))
        with lake.snapshot("authority") as snapshot:
            assert (snapshot.scu, snapshot.age_s, len(snapshot.runs)) == (4, 0.0, 2)
            assert told(snapshot) == expected
            assert told(snapshot, [("at", "<=", 1)], "by_at") == [one for one in expected if one["at"] == 1]
            assert lake.status().authority_scu == 4
            assert lake.verify() == []
            put(lake, "many", [row("bob", number, 2, "new") for number in range(1000, 1150)])
            worker.drain()
            assert [run.stage for run in lake.catalog.snapshot().runs] == [Stage.AUTHORITY]
            lake.expire(0.0)
            assert told(snapshot) == expected
        assert len({file.path for file in before} & {file.path for file in files(lake)}) == 14
        with lake.snapshot("authority") as snapshot:
            assert told(snapshot, [("author", "<", "bob")]) == [one for one in expected if one["author"] < "bob"]
        worker.close()
        assert lake.verify() == []


def test_deltas_are_as_many_as_the_logarithm_of_their_rows_says() -> None:
    """The rows that merges write, over a day of minutes, are a small multiple of those that came."""
    runs = [stage_run(0, Stage.AUTHORITY, 100_000_000)]
    written = most = 0
    for minute in range(1, 1441):
        runs.append(stage_run(minute, Stage.SORTED, 6_000))
        (step,) = next_steps(runs, MINUTE, has_ids=False, age_s=lambda _stamp: 1.0)
        assert step.kind is StepKind.DELTA
        count = sum(one.row_count for one in step.runs)
        written += count
        runs[-len(step.runs) :] = [stage_run(step.runs[0].first_scu, Stage.DELTA, count, minute)]
        check_runs(runs)
        most = max(most, len(runs) - 1)
    assert most <= 8
    assert written <= 12 * 1440 * 6_000
    runs.append(stage_run(1441, Stage.SORTED, 4_000_000))
    (step,) = next_steps(runs, MINUTE, has_ids=False, age_s=lambda _stamp: 1.0)
    assert (step.kind, step.runs) == (StepKind.AUTHORITY, tuple(runs))


def stage_run(first: int, stage: Stage, rows: int, last: int | None = None) -> Run:
    file = LakeFile("", "posts", "", rows, 0, 0, 0, 0)
    return Run(first, first, first if last is None else last, stage, 0, Stamp("", 0.0, 0), (file,))


class _BrokenError(Exception):
    """A worker dies here."""


@pytest.mark.parametrize("seed", range(2))
def test_a_walk_of_updates_and_deaths_equals_a_dictionary(seed: int, make: Callable[[str], Lake]) -> None:
    dice = random.Random(seed)
    first = make(SCHEMA)
    left = [0]

    def at_point(name: str) -> None:
        if name.startswith(("authority.", "delta.")):
            left[0] -= 1
            if left[0] == 0:
                raise _BrokenError

    model: Rows = {(one["author"], one["id"]): one for one in filled(first)}
    with Lake(first.folder, at_point=at_point) as lake:
        for number in range(10):
            # Next to each other, or spread.
            start, width = dice.randrange(300), dice.choice([10, 400])
            keys = [(dice.choice(AUTHORS), dice.randrange(start, start + width)) for _ in range(dice.choice([1, 30]))]
            keys = list(dict.fromkeys(keys))
            gone = keys if dice.random() < 0.4 else []
            new = [] if gone else [row(*key, dice.choice([None, dice.randrange(2000)]), f"b{number}") for key in keys]
            put(lake, str(number), new, gone)
            limits = StageLimits(range_rows=RANGE_ROWS, whole_ratio=9.0, slice_rows=dice.choice([20, 60, 4_000_000]))
            left[0] = dice.choice([0, 1, 2, 3, 5])
            try:
                merge(lake, limits)
            except _BrokenError:
                with lake.snapshot("authority") as snapshot:
                    assert told(snapshot) == [model[key] for key in sorted(model)], "the old authority"
                merge(lake, limits)
            model |= {(one["author"], one["id"]): one for one in new}
            for key in gone:
                model.pop(key, None)
            lake.expire(0.0)
            check(lake, model, dice)
            assert set(lake.place.files.paths()) == {file.path for file in lake.catalog.files("posts")}


def check(lake: Lake, model: Rows, dice: random.Random) -> None:
    assert lake.verify() == []
    assert max(file.row_count for view in ("", "by_at") for file in files(lake, view)) <= RANGE_ROWS
    expected = [model[key] for key in sorted(model)]
    with lake.snapshot("authority") as snapshot:
        assert told(snapshot) == expected
        by_at = sorted(expected, key=lambda one: (one["at"] is None, one["at"], one["author"], one["id"]))
        assert told(snapshot, view="by_at") == by_at
        author, low, high = dice.choice(AUTHORS), dice.randrange(500), dice.randrange(500)
        where = [("author", "=", author), ("id", ">=", low), ("id", "<", high)]
        assert told(snapshot, where) == [one for one in expected if one["author"] == author and low <= one["id"] < high]
        where = [("at", ">=", low), ("at", "<=", low + 50)]
        found = [one for one in by_at if one["at"] is not None and low <= one["at"] <= low + 50]
        assert told(snapshot, where, "by_at") == found


@pytest.mark.parametrize("location", ["sqlite", "postgres"], indirect=True)
def test_a_lake_of_the_version_before_is_brought_up_when_it_is_opened(location: Callable[[str], str]) -> None:
    where = location(SCHEMA)
    with Lake(where) as lake:
        put(lake, "first", [row("ann", number, number) for number in range(200)])
        merge(lake, StageLimits())
        put(lake, "second", [row("ann", 7, 1, "new")])
        number = lake.catalog.snapshot().number
        before_ranges(lake)
        with Lake(where) as again, again.snapshot("newest") as snapshot:
            assert snapshot.number == number
            assert again.catalog.schema == lake.schema
            assert snapshot.scan("posts").rows.num_rows == 200
            assert [file.first_key for file in files(again)] == [""]
            # The version before does not go on in it unseen.
            with pytest.raises(LakeError), lake.place.database.reading() as db:
                db.execute("SELECT * FROM lake_file")
            merge(again)
            assert [file.row_count for file in files(again)] == [50] * 4
            assert [one["body"] for one in told(snapshot, [("id", "=", 7)])] == ["new"]
        with Lake(where) as again:
            again.expire(0.0)
            assert again.verify() == []
            with again.snapshot("authority") as snapshot:
                assert snapshot.get("posts", "ann", 7) is not None
