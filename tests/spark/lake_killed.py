"""A stream from one lake into another, whose drivers and tasks are killed: each row arrives once.

    python -m tests.spark.lake_killed --kills 100 --seed 0

Rows go into the first lake meanwhile. A driver is killed with its Java and all its processes; of a task, only its
process is, and Spark runs the task again or ends the query; then the next driver goes on from the checkpoint.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from pequod_lake import IngestLimits, Lake
from pequod_lake.history import committed_scus

SCHEMA = """
[[id]]
name = "user"

[[table]]
name = "posts"
key = ["id"]
columns = { id = "int64", at = "int64", author = "id:user", body = "text" }
timestamp = "at"
"""
#: How long a driver may take to commit a batch, on a machine that is busy.
READY_S = 600.0
PAUSE_S = 0.3


class Writer(threading.Thread):
    """Puts rows into a lake until it is told to end: in each SCU some are new, some changed and some deleted."""

    def __init__(self, lake: Lake, seed: int) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self._lake = lake
        self._dice = random.Random(seed)

    def run(self) -> None:
        with self._lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
            number = 0
            while not self.ended.wait(PAUSE_S):
                upload = ingestor.upload(f"u{number}")
                # Spark keeps no order between parts, so the timestamp tells which row of a key is the last.
                ids = self._dice.sample(range(500), self._dice.randint(2, 40))
                put, gone = ids[len(ids) // 4 :], ids[: len(ids) // 4]
                names = [f"u{self._dice.randrange(9)}" for _ in put]
                moments = [number] * len(ids)
                upload.put(
                    "posts", {"id": put, "at": moments[: len(put)], "author": names, "body": [f"b{number}"] * len(put)}
                )
                upload.delete("posts", {"id": gone, "at": moments[: len(gone)]})
                ingestor.take(upload)
                number += 1


def drive(folder: Path, *, to_end: bool) -> None:
    """Run the stream, until this process is killed, or until everything has been read."""
    from pequod_spark.session import spark_session

    from tests.spark.conftest import SETTINGS

    # Tasks are tried again.
    spark = spark_session("local[2,4]", settings={**SETTINGS, "spark.log.level": "OFF"})
    read = spark.readStream.format("pequod_lake").option("path", str(folder / "source")).option("table", "posts")
    rows = read.option("operation_column", "op").option("start", "scu:0").option("scus_per_batch", "3").load()
    sink = rows.repartition(2, "id").writeStream.format("pequod_lake").option("path", str(folder / "copy"))
    sink = sink.option("table", "posts").option("operation_column", "op").option("lease", "60")
    sink = sink.option("checkpointLocation", str(folder / "point"))
    query = (sink.trigger(availableNow=True) if to_end else sink).start()
    query.awaitTermination()
    spark.stop()


class Drivers:
    """One driver after another."""

    def __init__(self, folder: Path, copy: Lake) -> None:
        self._folder = folder
        self._copy = copy
        self._process: subprocess.Popen[bytes] | None = None
        self.counts: Counter[str] = Counter()

    def ready(self) -> None:
        """Have a driver that has committed something."""
        while self._process is None or self._process.poll() is not None:
            self.end()
            before = self._copy.status().scu
            self._process = self._started()
            self.counts["started"] += 1
            until_s = time.monotonic() + READY_S
            while self._process.poll() is None and self._copy.status().scu == before:
                assert time.monotonic() < until_s, "the driver commits nothing"
                time.sleep(0.05)

    def kill(self, dice: random.Random) -> bool:
        """Kill the driver, or the process of a task; return whether there was one."""
        assert self._process is not None
        if dice.random() < 0.25:
            self.end()
            self.counts["drivers killed"] += 1
            return True
        workers = _workers(self._process.pid)
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(dice.choice(workers), signal.SIGKILL)
            self.counts["tasks killed"] += 1
        return True

    def end(self) -> None:
        """Kill the driver with all its processes."""
        if self._process is not None:
            for pid in _members(self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def finish(self) -> None:
        """Have a driver read the rest."""
        self.end()
        for _ in range(3):
            self._process = self._started("--to-end")
            if self._process.wait() == 0:
                return
        raise AssertionError("the stream does not come to its end")

    def _started(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.spark.lake_killed", "--drive", str(self._folder), *more]
        return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _members(session: int) -> dict[int, str]:
    """Return the processes of a session, each with its command; tasks have process groups of their own."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            # The sixth field of proc(5) is the session.
            if int((path / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                found[int(path.name)] = (path / "cmdline").read_text()
    return found


def _workers(session: int) -> list[int]:
    """Return the processes of Python in a session, without the driver: tasks, commits, and what plans the stream."""
    # Java's command line names classes of PySpark as well.
    members = _members(session).items()
    return [pid for pid, command in members if pid != session and "java" not in command.partition("\0")[0]]


def rows_of(lake: Lake) -> list[dict[str, Any]]:
    with lake.snapshot() as snapshot:
        found: list[dict[str, Any]] = snapshot.scan("posts").rows.to_pylist()
    return found


def taken(lake: Lake) -> int:
    return sum(one.row_count("posts") for one in committed_scus(lake.catalog, 0, lake.status().scu))


def torment(kills: int, seed: int) -> Counter[str]:
    """Kill until it is enough, and compare both lakes."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="killed-") as name:
        folder = Path(name)
        with Lake.create(folder / "source", SCHEMA) as source, Lake.create(folder / "copy", SCHEMA) as copy:
            writer, drivers = Writer(source, seed), Drivers(folder, copy)
            writer.start()
            try:
                while drivers.counts["drivers killed"] + drivers.counts["tasks killed"] < kills:
                    drivers.ready()
                    time.sleep(dice.random() * 2)
                    drivers.kill(dice)
                writer.ended.set()
                writer.join()
                drivers.finish()
            finally:
                writer.ended.set()
                drivers.end()
            assert rows_of(copy) == rows_of(source)
            assert taken(copy) == taken(source), (taken(copy), taken(source))
            assert copy.verify() == []
            drivers.counts |= Counter(rows=taken(copy), scus=source.status().scu, epochs=copy.status().scu)
            for path, moment_s in copy.place.files.listed("staging"):
                os.utime(copy.folder / path, (moment_s - 100, moment_s - 100))
            drivers.counts["files swept"] = len(copy.expire(0)[1])
            assert copy.place.files.listed("staging") == []
            assert rows_of(copy) == rows_of(source)
            return drivers.counts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drive", type=Path)
    parser.add_argument("--to-end", action="store_true")
    chosen = parser.parse_args()
    if chosen.drive is not None:
        drive(chosen.drive, to_end=chosen.to_end)
        return
    counts = torment(chosen.kills, chosen.seed)
    print(", ".join(f"{name}: {count}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
