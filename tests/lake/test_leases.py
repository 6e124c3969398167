"""Leases: tasks that open no catalog read a state for as long as they say so, whatever is merged and expired."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from contextlib import closing

import pytest
from pequod_lake import IngestLimits, Lake
from pequod_lake.errors import LeaseLostError
from pequod_lake.history import ScuGoneError, committed_scus
from pequod_lake.leases import end_lease
from pequod_lake.states import LakeState

SCHEMA = '[[table]]\nname = "plain"\nkey = ["id"]\ncolumns = { id = "int64", body = "text" }'


def put(lake: Lake, *bodies: str) -> None:
    with lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        for body in bodies:
            upload = ingestor.upload(body)
            upload.put("plain", {"id": [1], "body": [body]})
            ingestor.take(upload)


def handed(lake: Lake, location: str, lease_s: float) -> LakeState:
    """Return the present state, as a task gets it."""
    with lake.snapshot() as snapshot:
        state: LakeState = pickle.loads(pickle.dumps(LakeState.of(snapshot, location, lease_s)))
    return state


def body(state: LakeState) -> str:
    with state.opened() as snapshot:
        return str(snapshot.scan("plain").rows["body"][0])


def merge_and_expire(lake: Lake) -> None:
    with closing(lake.worker()) as worker:
        worker.compact()
    lake.expire(0)


def test_what_a_lease_names_stays_until_it_ends(location: Callable[[str], str]) -> None:
    place = location(SCHEMA)
    with Lake(place) as lake:
        put(lake, "a", "b")
        first, second = handed(lake, place, 60), handed(lake, place, 60)
        put(lake, "c")
        merge_and_expire(lake)
        assert body(first) == "b"
        end_lease(lake.place.files, first.lease)
        merge_and_expire(lake)
        assert body(second) == "b", "each reader has its own"
        end_lease(lake.place.files, second.lease)
        lake.expire(0)
        with pytest.raises(LeaseLostError, match="the option `lease`"):
            body(second)
        assert body(handed(lake, place, 60)) == "c"


def test_a_lease_that_nobody_renews_runs_out(make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    put(lake, "a")
    used, unused = (handed(lake, str(lake.folder), 60) for _ in range(2))
    for state in (used, unused):
        moment = (lake.folder / state.lease.path).stat().st_mtime - 100
        os.utime(lake.folder / state.lease.path, (moment, moment))
    put(lake, "b")
    assert body(used) == "a"
    merge_and_expire(lake)
    assert body(used) == "a", "a task renewed it when it began"
    with pytest.raises(LeaseLostError, match="after SCU 1 may have been deleted"):
        body(unused)


def test_a_file_that_goes_while_a_task_reads_is_told_as_a_lost_lease(make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    put(lake, "a")
    state = handed(lake, str(lake.folder), 60)
    for path in (lake.folder / "data").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(LeaseLostError, match="may have been deleted"):
        body(state)


def test_scus_are_told_as_they_came_until_they_expire(make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    put(lake, "a", "b", "c")
    with closing(lake.worker()) as worker:
        worker.compact()
    found = committed_scus(lake.catalog, 1, 3)
    assert [one.scu for one in found] == [2, 3]
    assert [lake.reader.read(file, ["body"])["body"].to_pylist() for one in found for file in one.files] == [
        ["b"],
        ["c"],
    ]
    assert [one.row_count("plain") for one in found] == [1, 1]
    lake.expire(0)
    with pytest.raises(ScuGoneError, match="SCU 2 as they came"):
        committed_scus(lake.catalog, 1, 3)
    assert committed_scus(lake.catalog, 3, 3) == []
