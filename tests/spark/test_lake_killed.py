"""The torment of a stream from lake to lake, in short: `make chaos-lake-spark` kills a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest
from pequod_lake import IngestLimits, Lake

from tests.lake.empty import empty_lake
from tests.spark.lake_killed import SCHEMA, Taken, Writer, _compare, torment


def test_drivers_and_tasks_are_killed_and_each_row_arrives_once() -> None:
    counts = torment(kills=10, seed=3)
    assert counts["drivers killed"] == 1
    assert counts["rows"] > 0


def _copied(source: Lake, copy: Lake, times: int) -> None:
    with source.snapshot() as snapshot, copy.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        for time in range(times):
            upload = ingestor.upload(f"copy {time}")
            upload.put("posts", snapshot.scan("posts").rows)
            ingestor.take(upload)


def test_a_writer_waits_for_the_stream_and_rows_that_came_twice_or_never_show(tmp_path: Path) -> None:
    with empty_lake(tmp_path / "source", SCHEMA) as source, empty_lake(tmp_path / "copy", SCHEMA) as copy:
        given, taken = Taken(source), Taken(copy)
        behind = [0]
        writer = Writer(source, lambda: behind[0], 0)
        writer.start()
        while given.rows() == 0:
            assert writer.is_alive()
        behind[0] = 1_000
        writer.rest()
        writer.may_write.set()
        before = given.rows()
        writer.rest()
        assert given.rows() == before
        writer.ended.set()
        writer.join()
        with pytest.raises(AssertionError):
            _compare(source, copy, given, taken)
        _copied(source, copy, 2)
        with pytest.raises(AssertionError):
            _compare(source, copy, given, taken)
