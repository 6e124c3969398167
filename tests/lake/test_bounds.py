"""A lake has bounds: moments, states that readers keep, connections, rows in memory, and room on the disk."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pequod_lake import IngestLimits, Lake, MergePolicy
from pequod_lake.authority import StageLimits
from pequod_lake.errors import LakeSchemaError, UploadRefusedError
from pequod_lake.query import LakeSnapshot
from pequod_lake.runs import Stage
from pequod_lake.schema import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from pequod_lake.slices import TableWork, key_slices
from typer.testing import CliRunner

from pequod.cli.app import app

EVENTS = """
[[table]]
name = "events"
key = ["id"]
columns = { id = "int64", at = "timestamp", ended = "timestamp" }
timestamp = "at"

[[table]]
name = "moments"
key = ["at"]
partial = true
columns = { at = "timestamp", seen = "timestamp" }
"""
KEYED = """
[[table]]
name = "rows"
key = ["country", "kind", "id"]
columns = { country = "text", kind = "int32", id = "int64", body = "text" }
"""


def put(lake: Lake, name: str, table: str, rows: Any) -> None:
    with lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
        upload = ingestor.upload(name)
        upload.put(table, rows)
        ingestor.take(upload)


@pytest.mark.parametrize("moment", [TIMESTAMP_MIN_US - 1, TIMESTAMP_MAX_US + 1, -(1 << 63), (1 << 63) - 1])
def test_a_moment_outside_years_1_to_9999_is_refused_with_row_column_and_value(
    moment: int, make: Callable[[str], Lake]
) -> None:
    lake = make(EVENTS)
    numbers = pa.array([0, moment], pa.int64()).cast(pa.timestamp("us"))
    fine = pa.array([0, None], pa.timestamp("us"))
    wrongs = [
        ("events", "ended", {"id": [1, 2], "at": [0, 0], "ended": [0, moment]}),
        ("events", "ended", pa.table({"id": [1, 2], "at": pa.array([0, 0], pa.timestamp("us")), "ended": numbers})),
        ("events", "at", pa.record_batch({"id": pa.array([1, 2]), "at": numbers, "ended": fine})),
        ("moments", "at", {"at": [0, moment]}),
        ("moments", "seen", {"at": [0, 1], "seen": [None, moment]}),
    ]
    with lake.ingestor() as ingestor:
        for table, column, rows in wrongs:
            upload = ingestor.upload("wrong")
            with pytest.raises(UploadRefusedError, match=rf"row 2, column {column}: the timestamp {moment},"):
                upload.put(table, rows)
            assert upload.row_count == 0
        with pytest.raises(UploadRefusedError, match="row 1, column at"):
            ingestor.upload("wrong").delete("moments", {"at": [moment]})
        # Of nanoseconds, which Arrow makes microseconds; beyond them it refuses itself.
        with pytest.raises(UploadRefusedError):
            ingestor.upload("wrong").put("moments", {"at": pa.array([(1 << 62)], pa.timestamp("s"))})
    with lake.snapshot() as snapshot, pytest.raises(LakeSchemaError, match=r"is no timestamp"):
        snapshot.scan("events", [("ended", "<", moment)])


def test_the_first_and_the_last_moment_are_taken_and_found(make: Callable[[str], Lake]) -> None:
    lake = make(EVENTS)
    put(lake, "1", "events", {"id": [1, 2], "at": [0, 0], "ended": [TIMESTAMP_MIN_US, TIMESTAMP_MAX_US]})
    worker = lake.worker()
    worker.compact()
    worker.close()
    with lake.snapshot("authority") as snapshot:
        found = snapshot.scan("events").rows["ended"].to_pylist()
        assert [one.isoformat() for one in found] == ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"]
        assert snapshot.scan("events", [("ended", "=", TIMESTAMP_MAX_US)]).rows["id"].to_pylist() == [2]


def test_an_open_reader_keeps_its_own_state_and_none_of_those_since(make: Callable[[str], Lake]) -> None:
    lake = make(EVENTS)
    worker = lake.worker(MergePolicy(fan_in=2))

    def files() -> set[str]:
        return {path.relative_to(lake.folder).as_posix() for path in (lake.folder / "data").rglob("*.parquet")}

    def numbers(snapshot: LakeSnapshot) -> set[int]:
        return set(snapshot.scan("events").rows["ended"].cast(pa.int64()).to_pylist())

    def write(number: int) -> None:
        put(lake, str(number), "events", {"id": list(range(50)), "at": [number] * 50, "ended": [number] * 50})
        worker.compact()
        lake.expire(0.0)

    write(0)
    with lake.snapshot() as first:
        mine = {file.path for run in first.runs for file in run.files}
        counts = set()
        for number in range(1, 9):
            write(number)
            present = {file.path for run in lake.catalog.snapshot().runs for file in run.files}
            assert files() == mine | present
            counts.add(lake.catalog.database.connection.execute("SELECT count(*) FROM lake_snapshot").fetchone()[0])
        assert counts == {2}, "its state, and the present one"
        with lake.snapshot() as second:
            write(9)
            assert files() > mine
            assert numbers(second) == {8}
        assert numbers(first) == {0}
    lake.expire(0.0)
    assert files() == {file.path for run in lake.catalog.snapshot().runs for file in run.files}
    worker.close()


def test_a_thread_that_has_ended_leaves_no_connection(make: Callable[[str], Lake]) -> None:
    lake = make(EVENTS)

    def opened() -> int:
        names = list[str]()
        for one in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                names.append(str(one.readlink()))
        return sum(name.startswith(str(lake.folder)) for name in names)

    before = opened()
    # As the renewals of leases: a thread for each step that takes longer than a third of a lease.
    for _ in range(20):
        thread = threading.Thread(target=lake.coordinator.leases)
        thread.start()
        thread.join()
    # SQLite keeps one file open for the next connection while another connection holds a lock.
    assert opened() <= before + 1
    thread = threading.Thread(target=lake.catalog.snapshot)
    thread.start()
    thread.join()
    lake.close()
    assert opened() == 0


@pytest.mark.parametrize("countries", [1, 2, 7, 5000])
def test_a_merge_has_a_bounded_number_of_rows_in_memory_however_few_values_the_key_begins_with(
    countries: int, make: Callable[[str], Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, count = make(KEYED), 200_000
    numbers = np.arange(count)
    for name, body in (("1", "old"), ("2", "new")):
        rows = pa.table(
            {
                "country": pa.array([f"c{one:05}" for one in numbers % countries]),
                "kind": pa.array(numbers % 3, pa.int32()),
                "id": pa.array(numbers),
                "body": pa.array([body] * count),
            }
        )
        put(lake, name, "rows", rows)
    worker = lake.worker(MergePolicy(fan_in=9, authority_after_s=1e9))
    worker.drain()
    runs = [run for run in lake.catalog.snapshot().runs if run.stage is not Stage.AUTHORITY]
    slice_rows = 60_000
    work = TableWork("merge", lake.schema.table("rows"), tuple(runs), "test")
    read = list[int]()
    finished = TableWork.finished

    def counted(self: TableWork, pieces: Any) -> Any:
        read.append(sum(piece.num_rows for piece in pieces))
        return finished(self, pieces)

    monkeypatch.setattr(TableWork, "finished", counted)
    slices = key_slices(lake.reader, work, slice_rows)
    made = pa.concat_tables([one.rows(lake.reader, work) for one in slices])
    # Each file may bring one group of rows more.
    assert max(read) <= slice_rows + 4 * 16_384
    assert len(slices) >= 2 * count // slice_rows
    assert made["body"].to_pylist() == ["new"] * count
    keys = list(zip(*(made[name].to_pylist() for name in ("country", "kind", "id")), strict=True))
    assert keys == sorted(keys)
    assert len(set(keys)) == count
    limited = lake.worker(limits=StageLimits(slice_rows=slice_rows))
    limited.compact()
    assert lake.verify() == []
    worker.close()
    limited.close()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.0.0.4:7745", "lake.example:7745"])
def test_lake_serve_is_refused_where_other_machines_can_reach_it(address: str, folder: Path) -> None:
    outcome = CliRunner().invoke(app, ["lake", "serve", str(folder), "--listen", address])
    assert outcome.exit_code == 2
    assert "can be reached from other machines" in outcome.stderr
    assert "--insecure" in outcome.stderr


_FULL = """
import random
import sys
from pathlib import Path
from pequod_lake import IngestLimits, Lake, LakeError, MergePolicy
from tests.lake.test_bounds import EVENTS
folder = Path(sys.argv[1]) / "lake"
lake = Lake.create(folder, EVENTS)
worker = lake.worker(MergePolicy(fan_in=2))
number, dice = 0, random.Random(1)
try:
    with lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
        while True:
            upload, number = ingestor.upload(str(number)), number + 1
            # Numbers that no encoding makes smaller.
            some = [dice.getrandbits(40) for _ in range(20000)]
            upload.put("events", {"id": list(range(20000)), "at": some, "ended": some[::-1]})
            ingestor.take(upload)
            worker.drain()
except LakeError as error:
    print("full:", error)
worker.close()
# Others take what is left.
with (folder.parent / "ballast").open("wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(bytes(4096))
    except OSError:
        pass
if sys.argv[2] == "closed":
    lake.close()
    lake = Lake(folder)
expired, orphans = lake.expire(0.0)
assert len(expired) > 5, expired
assert (folder / "reserve").exists()
upload = lake.ingestor(IngestLimits(scu_age_s=0.0))
again = upload.upload("again")
again.put("events", {"id": [-1], "at": [0], "ended": [0]})
upload.take(again)
upload.close()
with lake.snapshot() as snapshot:
    assert snapshot.get("events", -1) is not None
    assert snapshot.get("events", 7) is not None
assert lake.verify() == []
print("expired")
"""


@pytest.mark.parametrize("lake_is", ["open", "closed"])
def test_expire_makes_room_on_a_full_disk(lake_is: str, tmp_path: Path) -> None:
    """The disk is a file system of its own, in memory, of which only this process and its children know."""
    place = tmp_path / "disk"
    place.mkdir()
    script = f'mount -t tmpfs -o size=24m tmpfs {place} && exec "$0" -c "$1" {place} {lake_is}'
    outcome = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, sys.executable, _FULL],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert outcome.stdout.endswith("expired\n"), outcome.stdout + outcome.stderr
    assert "full:" in outcome.stdout
