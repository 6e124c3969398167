"""The fence: a writer that is taken for dead commits nothing, so a sweep never deletes what the catalog names."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from pequod_lake import IngestLimits, Lake, MergePolicy, postgres
from pequod_lake.catalog import NewRun, NewScu
from pequod_lake.errors import LakeError, StepLostError, WriterLostError
from pequod_lake.locks import Locks
from pequod_lake.objects import ObjectFiles
from pequod_lake.postgres import PostgresDatabase
from pequod_lake.runs import LakeFile, Stage
from pequod_lake.writing import FileWriter

from tests.lake.earlier import before_the_fence

NOW = IngestLimits(scu_age_s=0)
SCHEMA = """
[[id]]
name = "owner"

[[table]]
name = "plain"
key = ["id"]
columns = { id = "int64", owner = "id:owner" }
views.by_owner = ["owner", "id"]
"""


@pytest.fixture(autouse=True)
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody say that writers are alive while a test says that they are dead."""
    monkeypatch.setattr(postgres, "ALIVE_S", 60_000.0)


@pytest.fixture
def lake(location: Callable[[str], str]) -> Iterator[Lake]:
    with Lake(location(SCHEMA)) as lake:
        yield lake


def take_for_dead(lake: Lake, share: float = 1.0, dice: random.Random | None = None) -> None:
    """Take the locks of living writers away, as a broken disk of the network does, or a machine that stopped."""
    dice = dice or random.Random()
    for writer in sorted(lake.catalog.locks.writers()):
        if dice.random() >= share:
            continue
        if isinstance(lake.place.database, PostgresDatabase):
            lake.place.database.connection.execute("DELETE FROM lake_alive WHERE writer = ?", (writer,))
        else:
            (lake.folder / "locks" / f"w-{writer}").unlink()


def rows(number: int) -> dict[str, list[object]]:
    return {"id": [number], "owner": [f"o{number}"]}


def is_there(lake: Lake, file: LakeFile) -> bool:
    return file.path in lake.place.files.paths()


def test_an_upload_whose_files_a_sweep_deleted_is_refused_and_taken_when_it_is_sent_again(
    lake: Lake,
) -> None:
    swept = list[str]()

    def at_point(name: str) -> None:
        if name == "ingest.written" and not swept:
            take_for_dead(lake)
            with Lake(lake.place.name) as other:
                swept.extend(other.expire(0.0)[1])

    with Lake(lake.place.name, at_point=at_point) as stopped, stopped.ingestor(NOW) as ingestor:
        upload = ingestor.upload("a")
        upload.put("plain", rows(1))
        with pytest.raises(WriterLostError):
            ingestor.take(upload)
        assert len(swept) == 1
        assert lake.snapshot().scu == 0
        assert ingestor.take(upload).scu == 1
        with lake.snapshot() as snapshot:
            assert snapshot.get("plain", 1) == {"id": 1, "owner": "o1"}
        assert lake.catalog.orphans() == []


@pytest.mark.parametrize("location", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("step", ["remap", "sort", "merge", "authority"])
def test_a_step_of_a_worker_that_was_taken_for_dead_is_done_again(step: str, lake: Lake) -> None:
    lost = list[str]()

    def at_point(name: str) -> None:
        if name == f"{step}.written" and not lost:
            take_for_dead(lake)
            lost.extend(lake.catalog.orphans())
            for path in lost:
                lake.place.files.remove(path)

    with Lake(lake.place.name, at_point=at_point) as stopped, stopped.ingestor(NOW) as ingestor:
        for number in range(6):
            upload = ingestor.upload(str(number))
            upload.put("plain", rows(number))
            ingestor.take(upload)
        worker = stopped.worker(MergePolicy(fan_in=2))
        worker.drain()
        worker.compact()
        worker.close()
        assert lost
        assert lake.verify() == []
        with stopped.snapshot("authority") as snapshot:
            assert snapshot.scan("plain").rows.to_pylist() == [{"id": one, "owner": f"o{one}"} for one in range(6)]


class _Looked:
    """Locks; before they are looked at, others have time."""

    def __init__(self, locks: Locks, between: Callable[[], None]) -> None:
        self._locks = locks
        self._between = between

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locks, name)

    def writers(self) -> set[str]:
        self._between()
        return self._locks.writers()


class _Simulation:
    """Writers that write, commit and lose their locks while sweeps go on, in an order that follows from a seed."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.dice = random.Random(seed)
        self.table = lake.schema.table("plain")
        self.writers = [FileWriter(lake.place.files, lake.catalog.begin_writer) for _ in range(3)]
        self.written = list[tuple[FileWriter, LakeFile]]()
        self.listed = list[str]()
        self.committed = 0
        self.refused = 0
        self._is_inside = False
        self.locks = lake.place.locks
        lake.catalog.locks = cast("Locks", _Looked(self.locks, self._between))

    def run(self) -> None:
        for _ in range(12):
            self.dice.choice([self.write, self.commit, self.commit, self.replace, self.lose, self.list, self.sweep])()
        self.sweep()
        there = set(self.lake.place.files.paths())
        for run in self.lake.catalog.snapshot().runs:
            assert {file.path for file in run.files} <= there, run
        for writer in self.writers:
            writer.close()
        self.lake.catalog.locks = self.locks

    def write(self) -> None:
        writer = self.dice.choice(self.writers)
        batch = pa.table({"id": [1], "owner": ["x"], "_deleted": [False]})
        file = writer.write("raw", self.table, self.table.primary, [batch], raw=True)
        assert file is not None
        self.written.append((writer, file))

    def commit(self) -> None:
        if not self.written:
            return
        writer, file = self.written.pop(self.dice.randrange(len(self.written)))
        self.committed += 1
        try:
            self.lake.catalog.commit(NewScu((f"upload {self.committed}",), (file,)))
        except WriterLostError as error:
            self.refused += 1
            writer.renew(error.writer)

    def replace(self) -> None:
        raw = [run for run in self.lake.catalog.snapshot().runs if run.stage is Stage.RAW]
        if not self.written or not raw:
            return
        writer, file = self.written.pop()
        try:
            self.lake.catalog.replace([self.dice.choice(raw)], NewRun(Stage.REMAPPED, 0, (file,)))
        except WriterLostError as error:
            self.refused += 1
            writer.renew(error.writer)
        except StepLostError:
            writer.remove([file])

    def lose(self) -> None:
        self.lake.catalog.locks = self.locks
        take_for_dead(self.lake, 0.5, self.dice)
        self.lake.catalog.locks = cast("Locks", _Looked(self.locks, self._between))

    def list(self) -> None:
        """List orphans, and delete them later: others have time in between."""
        self.listed += self.lake.catalog.orphans()

    def sweep(self) -> None:
        for path in [*self.listed, *self.lake.catalog.orphans()]:
            self.lake.place.files.remove(path)
        self.listed.clear()

    def _between(self) -> None:
        # Not within a transaction: there nobody else writes.
        if not self._is_inside and not self.lake.catalog.database.connection.in_transaction:
            self._is_inside = True
            self.dice.choice([self.commit, self.lose, self.write])()
            self._is_inside = False


def test_every_file_that_the_catalog_names_is_there_whatever_is_lost_and_swept(lake: Lake) -> None:
    refused = committed = 0
    for seed in range(3 if isinstance(lake.place.files, ObjectFiles) else 8):
        simulation = _Simulation(lake, seed)
        simulation.run()
        refused, committed = refused + simulation.refused, committed + simulation.committed
    assert 0 < refused < committed, "both are met"


def test_a_writer_of_the_version_before_the_fence_keeps_its_files(make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    path = _written(lake)
    before_the_fence(lake)
    with Lake(lake.folder) as again:
        assert again.catalog.orphans() == []
        again.catalog.commit(NewScu(("a",), (path,)))
        assert is_there(again, path)
    with Lake(lake.folder) as third:
        assert third.catalog.snapshot().scu == 1


def _written(lake: Lake) -> LakeFile:
    table = lake.schema.table("plain")
    batch = pa.table({"id": [1], "owner": ["x"], "_deleted": [False]})
    file = lake.writer.write("raw", table, table.primary, [batch], raw=True)
    assert file is not None
    return file


def test_a_writer_that_another_thread_renewed_goes_on(lake: Lake) -> None:
    writer = lake.writer
    lost = writer.id
    take_for_dead(lake)
    assert lake.catalog.orphans() == []
    threads = [threading.Thread(target=writer.renew, args=(lost,)) for _ in range(2)]
    threads[0].start()
    threads[0].join()
    new = writer.id
    threads[1].start()
    threads[1].join()
    assert new == writer.id != lost
    file = _written(lake)
    lake.catalog.commit(NewScu(("a",), (file,)))
    with pytest.raises(LakeError, match=lost):
        lake.catalog.commit(NewScu(("b",), (LakeFile(file.path.replace(new, lost), "plain", "", 1, 1, 1, 1, 1),)))
