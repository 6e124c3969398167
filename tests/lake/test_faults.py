"""Processes are killed at named steps, disks are full, clocks jump: a lake equals a replay of what it acknowledged."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pequod_lake import IngestLimits, Lake, MergePolicy

from tests.lake import faults
from tests.lake.replay import check_snapshot, fill


@pytest.mark.parametrize("seed", [0, 4])
def test_after_a_fault_the_lake_equals_a_replay_of_what_it_acknowledged(
    seed: int, template: Path, folder: Path
) -> None:
    faults.run(folder.parent, template, seed)


@pytest.mark.parametrize("point", faults.POINTS)
def test_a_kill_at_each_named_step_leaves_all_tables_of_an_scu_or_none(point: str, folder: Path) -> None:
    """The child is forked: it has nothing open of the lake."""
    pid = os.fork()
    if pid == 0:
        try:
            _die_at(folder, point)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    with Lake(folder) as lake:
        taken = dict(lake.catalog.database.connection.execute("SELECT upload, scu FROM lake_upload").fetchall())
        uploads = [faults.calls_of(0, name) for name, _ in sorted(taken.items(), key=lambda one: one[1])]
        with lake.snapshot() as snapshot:
            assert snapshot.scu == len(uploads)
            check_snapshot(snapshot, uploads)
        worker = lake.worker()
        worker.compact()
        worker.close()
        lake.expire(0.0)
        assert (lake.verify(), lake.catalog.orphans()) == ([], [])
        with lake.snapshot("authority") as snapshot:
            check_snapshot(snapshot, uploads)


def _die_at(folder: Path, point: str) -> None:
    def at_point(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    # Uploads are written by this thread: a forked process has no other.
    lake = Lake(folder, at_point=at_point)
    ingestor = lake.ingestor(IngestLimits(scu_age_s=0.0))
    policy = MergePolicy(fan_in=2, authority_after_s=0.0 if point.startswith("authority") else 1e9)
    if point.startswith("delta"):
        policy = MergePolicy(fan_in=9, authority_after_s=0.0, delta_ratio=9.0)
    worker = lake.worker(policy)
    for at in range(4):
        ingestor.take(fill(ingestor.upload(f"0-{at}"), faults.calls_of(0, f"0-{at}")))
        if at == 1 and point.startswith("delta"):
            worker.compact()
    worker.drain()


ACCOUNTS = """
[[id]]
name = "account"

[[table]]
name = "debit"
key = ["account"]
columns = { account = "id:account", amount = "int64" }
views.by_amount = ["amount", "account"]

[[table]]
name = "credit"
key = ["account"]
columns = { account = "id:account", amount = "int64" }
"""


def test_two_rows_whose_sum_is_zero_are_never_seen_otherwise(make: Callable[[str], Lake]) -> None:
    """LazyBase's own test of consistency: two rows of two tables, changed together, read all the time."""
    lake = make(ACCOUNTS)
    stop = threading.Event()
    worker = lake.worker(MergePolicy(fan_in=3, authority_after_s=0.05))
    wrong, failures, answers = list[object](), list[BaseException](), dict[str, int]()

    def read(level: str) -> None:
        try:
            while not stop.is_set():
                with lake.snapshot(level) as snapshot:
                    debit, credit = (snapshot.get(table, "ann") for table in ("debit", "credit"))
                    total = sum(row["amount"] for row in (debit, credit) if row)
                    if total or (debit is None) != (credit is None):
                        wrong.append((level, snapshot.scu, debit, credit))
                    answers[level] = answers.get(level, 0) + 1
        except BaseException as error:
            failures.append(error)
            raise

    def sweep() -> None:
        while not stop.wait(0.05):
            lake.expire(0.0)

    threads = [threading.Thread(target=read, args=(level,)) for level in ("authority", "newest", "100ms", "scu:1")[:3]]
    threads += [threading.Thread(target=worker.run, args=(stop,)), threading.Thread(target=sweep)]
    for thread in threads:
        thread.start()
    with lake.ingestor(IngestLimits(scu_age_s=0.0)) as ingestor:
        for number in range(1, 41):
            upload = ingestor.upload(f"move-{number}")
            upload.put("debit", {"account": ["ann"], "amount": [number]})
            upload.put("credit", {"account": ["ann"], "amount": [-number]})
            ingestor.take(upload)
    stop.set()
    for thread in threads:
        thread.join()
    worker.close()
    assert (wrong, failures) == ([], [])
    assert set(answers) == {"authority", "newest", "100ms"}
    with lake.snapshot() as snapshot:
        assert snapshot.get("debit", "ann") == {"account": "ann", "amount": 40}
