"""A stream from one lake into another, whose drivers and tasks are killed: each row arrives once.

    python -m tests.spark.lake_killed --kills 100 --seed 0

    writer      puts rows into the first lake, and waits while the second one lacks more than `BEHIND_ROWS` of them
    driver      a process with Java that runs the stream; a query that a kill ended begins again at its checkpoint
    kills       one in `DRIVER_EVERY` takes the driver with all its processes; the others take one process of Python
    judge       after each `COMPARED_EVERY` kills the writer rests, the stream comes up to it, the lakes are compared

A kill of a process of Python needs no new Java: Spark runs the task again, or ends the query. Each step is printed.
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
from collections.abc import Callable
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
#: How long the stream may take for what is waited for, on a machine that is busy.
READY_S = 1_800.0
PAUSE_S = 0.3
#: Rows that the second lake may lack before the writer waits: some four batches of three SCUs.
BEHIND_ROWS = 240
DRIVER_EVERY = 8
COMPARED_EVERY = 10
#: The share of kills that come at once after another one, while the stream recovers.
AT_ONCE = 0.25


def say(text: str) -> None:
    """Print a line with the time, at once."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


class Taken:
    """How many rows a lake has been given, of all its SCUs: each SCU is counted once."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._scu = 0
        self._rows = 0

    def rows(self) -> int:
        with self._lock:
            scu = self._lake.catalog.snapshot().scu
            self._rows += sum(one.row_count("posts") for one in committed_scus(self._lake.catalog, self._scu, scu))
            self._scu = scu
            return self._rows


class Writer(threading.Thread):
    """Puts rows into a lake until it is told to end: in each SCU some are new, some changed and some deleted."""

    def __init__(self, lake: Lake, behind: Callable[[], int], seed: int) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        #: Clear while it is to rest; `resting` is set once it does.
        self.may_write = threading.Event()
        self.resting = threading.Event()
        self.may_write.set()
        self._lake = lake
        self._behind = behind
        self._dice = random.Random(seed)

    def run(self) -> None:
        with self._lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
            number = 0
            while not self.ended.wait(PAUSE_S):
                if not self.may_write.is_set():
                    self.resting.set()
                elif self._behind() <= BEHIND_ROWS:
                    self._put(ingestor, number)
                    number += 1

    def rest(self) -> None:
        """Put nothing more, until `may_write` is set again."""
        self.resting.clear()
        self.may_write.clear()
        while not self.resting.wait(1):
            assert self.is_alive(), "the writer ended by an error"

    def _put(self, ingestor: Any, number: int) -> None:
        upload = ingestor.upload(f"u{number}")
        # Spark keeps no order between parts, so the timestamp tells which row of a key is the last.
        ids = self._dice.sample(range(500), self._dice.randint(2, 40))
        put, gone = ids[len(ids) // 4 :], ids[: len(ids) // 4]
        names = [f"u{self._dice.randrange(9)}" for _ in put]
        moments = [number] * len(ids)
        columns = {"id": put, "at": moments[: len(put)], "author": names, "body": [f"b{number}"] * len(put)}
        upload.put("posts", columns)
        upload.delete("posts", {"id": gone, "at": moments[: len(gone)]})
        ingestor.take(upload)


def drive(folder: Path, *, to_end: bool) -> None:
    """Run the stream, until this process is killed, or until everything has been read."""
    from pequod_spark.session import spark_session
    from pyspark.errors import StreamingQueryException

    from tests.spark.conftest import SETTINGS

    # Tasks are tried again.
    spark = spark_session("local[2,4]", settings={**SETTINGS, "spark.log.level": "OFF"})
    read = spark.readStream.format("pequod_lake").option("path", str(folder / "source")).option("table", "posts")
    rows = read.option("operation_column", "op").option("start", "scu:0").option("scus_per_batch", "3").load()
    sink = rows.repartition(2, "id").writeStream.format("pequod_lake").option("path", str(folder / "copy"))
    sink = sink.option("table", "posts").option("operation_column", "op").option("lease", "60")
    sink = sink.option("checkpointLocation", str(folder / "point"))
    while True:
        try:
            (sink.trigger(availableNow=True) if to_end else sink).start().awaitTermination()
            break
        except StreamingQueryException:
            with (folder / "begun again").open("a") as file:
                file.write("1")
    spark.stop()


class Drivers:
    """One driver after another."""

    def __init__(self, folder: Path, taken: Taken) -> None:
        self._folder = folder
        self._taken = taken
        self._process: subprocess.Popen[bytes] | None = None
        self.counts: Counter[str] = Counter()

    @property
    def kill_count(self) -> int:
        """How many kills there were."""
        return sum(count for name, count in self.counts.items() if name.endswith("killed"))

    def await_rows(self, what: str, count: int) -> None:
        """Have a driver run until the second lake has been given some number of rows.

        Args:
            what: What is waited for, in messages.
        """
        until_s, told_s = time.monotonic() + READY_S, time.monotonic()
        while (found := self._taken.rows()) < count:
            if self._process is None or self._process.poll() is not None:
                self.end()
                self._process = self._started()
                self.counts["drivers started"] += 1
            assert time.monotonic() < until_s, f"the stream does not come to it: {what}, {found} of {count} rows"
            if time.monotonic() - told_s > 20:
                told_s = time.monotonic()
                say(f"waiting: {what}, {found} of {count} rows")
            time.sleep(0.05)

    def kill(self, dice: random.Random) -> str:
        """Kill the driver, or one of its processes of Python; return which; empty if there is none."""
        if self._process is None:
            return ""
        if (self.kill_count + 1) % DRIVER_EVERY == 0:
            self.end()
            self.counts["drivers killed"] += 1
            return "driver"
        workers = _workers(self._process.pid)
        if not workers:
            return ""
        kind = dice.choice(sorted(set(workers.values())))
        try:
            os.kill(dice.choice([pid for pid, one in workers.items() if one == kind]), signal.SIGKILL)
        except ProcessLookupError:
            return ""
        self.counts[f"{kind} killed"] += 1
        return kind

    def end(self) -> None:
        """Kill the driver with all its processes."""
        if self._process is not None:
            for pid in _members(self._process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def finish(self) -> None:
        """Have a driver read what is left, and end by itself."""
        self.end()
        self._process = self._started("--to-end")
        code = self._process.wait(READY_S)
        assert code == 0, f"the stream does not come to its end: {code}"

    def _started(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.spark.lake_killed", "--drive", str(self._folder), *more]
        with (self._folder / "driver.log").open("ab") as log:
            return subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log)


def _members(session: int) -> dict[int, tuple[int, list[str]]]:
    """Return the processes of a session, each with its parent and command; tasks have process groups of their own."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            # The fourth field of proc(5) is the parent, the sixth the session.
            _, parent, _, leader, *_ = (path / "stat").read_text().rpartition(")")[2].split()
            if int(leader) == session:
                found[int(path.name)] = (int(parent), (path / "cmdline").read_text().split("\0"))
    return found


def _workers(session: int) -> dict[int, str]:
    """Return the processes of Python in a session, without the driver, each with what it is."""
    # Java's command line names classes of PySpark as well.
    members = {pid: one for pid, one in _members(session).items() if pid != session and "java" not in one[1][0]}
    return {pid: _kind(members, pid) for pid in members}


def _kind(members: dict[int, tuple[int, list[str]]], pid: int) -> str:
    parent, command = members[pid]
    # What runs a task, plans or commits is forked from a daemon, or begun by Java for itself.
    module = next((word for word in reversed(command) if word.startswith("pyspark.")), "pyspark.?").rpartition(".")[2]
    return f"{module} forked" if parent in members else module


def rows_of(lake: Lake) -> list[dict[str, Any]]:
    with lake.snapshot() as snapshot:
        found: list[dict[str, Any]] = snapshot.scan("posts").rows.to_pylist()
    return found


def torment(kills: int, seed: int) -> Counter[str]:
    """Kill until it is enough, and compare both lakes again and again."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="killed-") as name:
        folder = Path(name)
        with Lake.create(folder / "source", SCHEMA) as source, Lake.create(folder / "copy", SCHEMA) as copy:
            given, taken = Taken(source), Taken(copy)
            drivers = Drivers(folder, taken)
            writer = Writer(source, lambda: given.rows() - taken.rows(), seed)
            writer.start()
            try:
                _torment(kills, dice, writer, drivers, given, taken, (source, copy))
                writer.ended.set()
                writer.join()
                drivers.finish()
            finally:
                writer.ended.set()
                drivers.end()
            _compare(source, copy, given, taken)
            assert copy.verify() == []
            again = folder / "begun again"
            begun = len(again.read_text()) if again.exists() else 0
            drivers.counts.update({"queries begun again": begun, "rows": taken.rows()})
            drivers.counts.update(scus=source.status().scu, epochs=copy.status().scu)
            for path, moment_s in copy.place.files.listed("staging"):
                os.utime(copy.folder / path, (moment_s - 100, moment_s - 100))
            drivers.counts["files swept"] = len(copy.expire(0)[1])
            assert copy.place.files.listed("staging") == []
            assert rows_of(copy) == rows_of(source)
            return drivers.counts


def _torment(
    kills: int,
    dice: random.Random,
    writer: Writer,
    drivers: Drivers,
    given: Taken,
    taken: Taken,
    lakes: tuple[Lake, Lake],
) -> None:
    before, is_awaited = 0, True
    while drivers.kill_count < kills:
        assert writer.is_alive(), "the writer ended by an error"
        if is_awaited or dice.random() > AT_ONCE:
            drivers.await_rows("a batch after the kill", before + 1)
        time.sleep(dice.random())
        before = taken.rows()
        # Without a driver that runs there is nothing to kill, until the next one has brought something.
        is_awaited = not (kind := drivers.kill(dice))
        if is_awaited:
            continue
        count = drivers.kill_count
        say(f"kill {count} of {kills}: {kind}; rows put {given.rows()}, arrived {before}")
        if count % COMPARED_EVERY == 0:
            writer.rest()
            drivers.await_rows("the rows that were put", given.rows())
            _compare(*lakes, given, taken)
            say(f"compared after {count} kills: {given.rows()} rows, each arrived once")
            writer.may_write.set()


def _compare(source: Lake, copy: Lake, given: Taken, taken: Taken) -> None:
    assert taken.rows() == given.rows(), (taken.rows(), given.rows())
    assert rows_of(copy) == rows_of(source)


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
