"""Locks of readers in a folder: files that are renamed from one reader to the next, and swept when a process ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pequod_lake import IngestLimits, Lake
from pequod_lake.locks import FileLocks

SCHEMA = '[[table]]\nname = "plain"\nkey = ["id"]\ncolumns = { id = "int64", body = "text" }'


def put(lake: Lake, body: str) -> None:
    with lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
        upload = ingestor.upload(body)
        upload.put("plain", {"id": [1], "body": [body]})
        ingestor.take(upload)


def test_one_file_serves_reader_after_reader(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    for number in (3, 4, 3):
        lock, other = locks.read(number), locks.read(9)
        assert sorted(locks.numbers()) == [number, 9]
        assert len(list(tmp_path.iterdir())) == 2
        for one in (lock, other, lock):
            one.release()
        assert locks.numbers() == []
    late = locks.read(5)
    locks.close()
    assert locks.numbers() == [5]
    late.release()
    assert list(tmp_path.iterdir()) == []


def test_writers_have_ids_of_their_own(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    ids = set()
    for _ in range(3):
        lock = locks.write()
        assert locks.writers() == {lock.id}
        ids.add(lock.id)
        lock.release()
    assert len(ids) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_seen_for_as_long_as_it_is_held_though_others_sweep(tmp_path: Path) -> None:
    locks, ended, missed = FileLocks(tmp_path), threading.Event(), list[int]()

    def sweep() -> None:
        other = FileLocks(tmp_path)
        while not ended.is_set():
            other.numbers()

    def read(own: FileLocks, number: int) -> None:
        for _ in range(100):
            lock = own.read(number)
            if number not in own.numbers():
                missed.append(number)
            lock.release()

    sweeper = threading.Thread(target=sweep)
    # Half of them keep no file for the next reader, so that new ones are made while the sweep is on its way.
    readers = [threading.Thread(target=read, args=(locks if n % 2 else _bare(tmp_path), n)) for n in range(4)]
    for one in (sweeper, *readers):
        one.start()
    for one in readers:
        one.join()
    ended.set()
    sweeper.join()
    assert missed == []
    locks.close()
    assert locks.numbers() == []
    assert list(tmp_path.iterdir()) == []


def _bare(folder: Path) -> FileLocks:
    locks = FileLocks(folder)
    locks.close()
    return locks


_KILLED = """
import sys
from pathlib import Path
from pequod_lake.locks import FileLocks
locks = FileLocks(Path(sys.argv[1]))
locks.read(7).release()
held = locks.read(8)
locks.read(9).release()
print("there", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_held_and_kept_is_swept(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    locks = FileLocks(tmp_path)
    assert locks.numbers() == [8]
    assert len(list(tmp_path.iterdir())) == 2
    process.kill()
    process.communicate()
    assert locks.numbers() == []
    assert list(tmp_path.iterdir()) == []


_FORKED = """
import os, sys
from pathlib import Path
from pequod_lake.locks import FileLocks
locks = FileLocks(Path(sys.argv[1]))
locks.read(7).release()
child = os.fork()
lock = locks.read(8)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(locks.numbers())
lock.release()
"""


def test_a_fork_leaves_the_files_of_its_parent_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FORKED, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert found.stdout == "[8]\n"


def test_a_query_sees_what_others_have_done_since_the_last_one(make: Callable[[str], Lake]) -> None:
    lake = make(SCHEMA)
    with Lake(lake.folder) as other:
        for number in range(3):
            put(other, f"body {number}")
            with lake.snapshot() as snapshot:
                assert snapshot.get("plain", 1) == {"id": 1, "body": f"body {number}"}
            with lake.snapshot("authority") as older:
                worker = other.worker()
                worker.compact()
                worker.close()
                other.expire(0)
                assert (older.get("plain", 1) is None) == (number == 0)
            other.expire(0)
            with lake.snapshot("authority") as snapshot:
                assert snapshot.get("plain", 1) == {"id": 1, "body": f"body {number}"}
        other.add_column("plain", "likes", "int64")
        with lake.snapshot() as snapshot:
            assert snapshot.get("plain", 1) == {"id": 1, "body": "body 2", "likes": None}
