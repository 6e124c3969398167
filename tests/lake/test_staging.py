"""Staged files: what tasks of a job write becomes one SCU, once, and nothing of it is seen before."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from pequod_lake import Lake
from pequod_lake.clock import machine_clock
from pequod_lake.coordination import UPLOADS_KEPT_S, epoch_id
from pequod_lake.errors import LakeUnreachableError, LeaseLostError, UploadRefusedError
from pequod_lake.ingest import Acknowledged
from pequod_lake.runs import LakeFile
from pequod_lake.staging import StagingJob
from pequod_lake.uploads import put_rows

SCHEMA = """
[[id]]
name = "owner"

[[table]]
name = "plain"
key = ["id"]
columns = { id = "int64", owner = "id:owner" }
views.by_owner = ["owner", "id"]

[[table]]
name = "bare"
key = ["id"]
columns = { id = "int64" }
"""
JOB = StagingJob("3f9a01bc77d0", 60)


def staged(lake: Lake, *parts: dict[str, list[Any]], job: StagingJob = JOB, table: str = "plain") -> list[LakeFile]:
    """Stage a file for each part, as tasks do."""
    chosen, files = lake.schema.table(table), list[LakeFile]()
    for number, part in enumerate(parts):
        with job.alive(lake.place.files):
            file = job.write(lake.place.files, f"{table}-{number}", chosen, [put_rows(chosen, part)])
        assert file is not None
        files.append(file)
    return files


def rows(lake: Lake) -> list[tuple[int, str]]:
    with lake.snapshot() as snapshot:
        return [(row["id"], row["owner"]) for row in snapshot.scan("plain").rows.to_pylist()]


def age(lake: Lake, folder: str, seconds: float) -> None:
    """Have the files of a folder look as if nobody had touched them for some time."""
    for path in (lake.folder / folder).rglob("*"):
        if path.is_file():
            moment = path.stat().st_mtime - seconds
            os.utime(path, (moment, moment))


def test_files_of_several_tasks_become_one_scu_and_pass_all_stages(location: Callable[[str], str]) -> None:
    with Lake(location(SCHEMA)) as lake:
        files = staged(lake, {"id": [1, 2], "owner": ["ann", "bob"]}, {"id": [2, 3], "owner": ["cy", "ann"]})
        files += staged(lake, {"id": [1]}, {"id": [2]}, table="bare")
        assert rows(lake) == []
        assert lake.take_staged(JOB, "u", files) == Acknowledged(1, is_repeated=False)
        # Of one key the row of the last file wins.
        expected = [(1, "ann"), (2, "cy"), (3, "ann")]
        assert rows(lake) == expected
        assert lake.take_staged(JOB, "u", files) == Acknowledged(1, is_repeated=True)
        JOB.drop(lake.place.files)
        assert lake.place.files.listed("staging") == []
        assert lake.catalog.orphans() == []
        with closing(lake.worker()) as worker:
            worker.compact()
        assert rows(lake) == expected
        with lake.snapshot() as snapshot:
            assert snapshot.scan("bare").rows.num_rows == 2
        assert lake.verify() == []
        assert lake.take_staged(JOB, "v", staged(lake, {"id": [9], "owner": ["z"]})).scu == 2


def test_a_commit_whose_answer_is_lost_is_taken_once(make: Callable[[str], Lake]) -> None:
    lost = ["staged.committed", "staged.committed", "staged.linked"]

    def lose(name: str) -> None:
        if lost and name == lost[-1]:
            lost.pop()
            raise LakeUnreachableError("the answer is lost")

    with Lake(make(SCHEMA).folder, at_point=lose) as lake:
        files = staged(lake, {"id": [1], "owner": ["ann"]}, {"id": [2], "owner": ["bob"]})
        assert lake.take_staged(JOB, "u", files) == Acknowledged(1, is_repeated=True)
        assert not lost
        assert rows(lake) == [(1, "ann"), (2, "bob")]
    with Lake(lake.folder) as lake:
        lake.expire(0)
        assert rows(lake) == [(1, "ann"), (2, "bob")]
        assert lake.catalog.orphans() == []


def test_jobs_that_say_nothing_are_swept_and_their_commits_refused(make: Callable[[str], Lake]) -> None:
    lake, other = make(SCHEMA), StagingJob("77d0e1aa3f9a", 600)
    files = staged(lake, {"id": [1], "owner": ["ann"]})
    theirs = staged(lake, {"id": [2], "owner": ["bob"]}, job=other)
    age(lake, "staging", 100)
    assert lake.expire(0)[1] == [files[0].path]
    with pytest.raises(LeaseLostError, match="nobody has used it for 60 s"):
        lake.take_staged(JOB, "u", [*theirs, *files])
    assert rows(lake) == []
    assert lake.place.files.paths() == [], "nothing is left of the files that were there"
    # The job that has more time left goes on.
    assert lake.take_staged(other, "u", theirs) == Acknowledged(1, is_repeated=False)
    with pytest.raises(UploadRefusedError, match="1 to 256 bytes"):
        lake.take_staged(other, "x" * 300, theirs)


def test_the_newest_epoch_of_a_stream_is_known_for_good(make: Callable[[str], Lake]) -> None:
    late = [0.0]

    def clock() -> Any:
        now = machine_clock()
        return replace(now, elapsed_s=now.elapsed_s + late[0], wall_us=now.wall_us + int(late[0] * 1e6))

    with Lake(make(SCHEMA).folder, clock=clock) as lake:
        ids = ["plain", epoch_id("a", 9), epoch_id("a", 10), epoch_id("b", 0)]
        for upload in ids:
            lake.take_staged(JOB, upload, staged(lake, {"id": [1], "owner": [upload]}))
            JOB.drop(lake.place.files)
        late[0] = UPLOADS_KEPT_S + 60
        lake.expire(0)
        assert lake.coordinator.taken(ids) == {epoch_id("a", 10): 3, epoch_id("b", 0): 4}
