"""A lake in a folder, with a catalog in PostgreSQL, and in an object store: the same laws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pequod_lake import Lake, MergePolicy
from pequod_lake.catalog import NewRun
from pequod_lake.errors import SnapshotGoneError, StepLostError
from pequod_lake.runs import COMPACT, Stage, next_steps

from tests.lake.replay import SCHEMA
from tests.lake.test_laws import SCHEMA as PLAIN
from tests.lake.test_laws import put
from tests.lake.test_replay import run_schedule


def test_every_freshness_equals_a_replay(location: Callable[[str], str]) -> None:
    where = location(SCHEMA)
    # Each file of a store is a call of HTTP.
    run_schedule(where, 7, steps=8 if where.startswith("s3") else 14)


def test_a_snapshot_keeps_its_files_and_the_past_is_kept_until_it_expires(location: Callable[[str], str]) -> None:
    where = location(PLAIN)
    with Lake(where) as lake, Lake(where) as other:
        worker = lake.worker(MergePolicy(fan_in=2))
        for number in range(3):
            assert put(lake, str(number), {"id": [1], "body": [f"b{number}"]}) == number + 1
        with lake.snapshot_at(scu=2) as past:
            worker.compact()
            other.expire(0.0)
            assert past.get("plain", 1) == {"id": 1, "body": "b1"}
            assert other.status().reader_count == 1
        expired, orphans = other.expire(0.0)
        assert (set(expired), orphans) == ({file.path for run in past.runs for file in run.files}, [])
        with pytest.raises(SnapshotGoneError):
            lake.snapshot_at(scu=2)
        assert set(other.place.files.paths()) == {file.path for file in other.catalog.files("plain")}
        assert other.expire(0.0) == ([], [])
        worker.close()


def test_two_workers_share_steps_and_one_that_ended_leaves_its_own(location: Callable[[str], str]) -> None:
    where = location(PLAIN)
    with Lake(where) as lake, Lake(where) as other:
        put(lake, "a", {"id": [1], "body": ["x"]})
        first, second = lake.worker(), other.worker()
        runs = lake.catalog.snapshot().runs
        steps = next_steps(runs, COMPACT, has_ids=False, age_s=lambda _stamp: 0.0)
        lock = lake.catalog.begin_writer()
        assert lake.coordinator.claim(steps, lock.id, 30.0) == steps[0]
        assert other.coordinator.leases() == {runs[1].id: lock.id}
        assert second.step() is None
        lock.release()
        assert second.step() is not None
        assert other.coordinator.leases() == {}
        with pytest.raises(StepLostError):
            lake.catalog.replace(steps[0].runs, NewRun(Stage.AUTHORITY, 0, ()))
        first.close()
        second.close()
