"""The steps of a lake on a cluster: workers with an environment of their own, executors that are killed, no local path.

    this environment     a lake in an object store with its catalog in PostgreSQL, and the same lake in a folder
    another one          two workers' environment, with what is installed of the wheel and nothing of this folder

    python -m tests.spark.lake_cluster build/spark-cluster/worker/bin/python --rounds 3 --kills 20

In each round both lakes take the same uploads. The one in the store has its steps done by Spark, while executors are
killed; the other one by a process. Their files then hold the same rows.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from moto.server import ThreadedMotoServer
from pequod_lake import IngestLimits, Lake, MergePolicy, StageLimits
from pequod_lake.errors import LakeError
from pequod_lake.runs import Run, Stage
from pequod_spark.lake_bulk import SparkBulk
from pyarrow import fs

from tests.backing.conftest import Postgres, started
from tests.lake.conftest import S3_ENVIRONMENT
from tests.lake.replay import SCHEMA, ingest, random_calls
from tests.spark.cluster import cluster, driver_environment

_EXECUTOR = "CoarseGrainedExecutorBackend"
#: Rows of a part, so that small uploads have several.
_PART_ROWS = 64
_CALLS = 60
_SETTINGS = {
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    # An executor that is killed counts as a failure of its tasks.
    "spark.task.maxFailures": "1000",
    "spark.stage.maxConsecutiveAttempts": "1000",
}


class Killer(threading.Thread):
    """Kills executors and the processes of their tasks, one after another, until it is told to end."""

    def __init__(self, seed: int, kills: int) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.count = 0
        self._kills = kills
        self._dice = random.Random(seed)

    def run(self) -> None:
        while self.count < self._kills and not self.ended.wait(self._dice.uniform(0.5, 4.0)):
            executors = [one for one in psutil.process_iter(["cmdline"]) if _EXECUTOR in str(one.info["cmdline"])]
            below = [child for one in executors for child in _children(one)]
            with suppress(IndexError, ProcessLookupError):
                # The executor with all its tasks, or one of them.
                os.kill(self._dice.choice(executors if self._dice.random() < 0.5 else below).pid, signal.SIGKILL)
                self.count += 1


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("python", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    said = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pequod-lake-cluster-")))
        stack.enter_context(_store())
        postgres = stack.enter_context(started(Postgres))
        # An executor that is started anew for ever.
        os.environ["SPARK_MASTER_OPTS"] = "-Dspark.deploy.maxExecutorRetries=-1"
        master = stack.enter_context(cluster(said.python.absolute(), folder, workers=2))
        os.environ.update(driver_environment(said.python.absolute()))
        there = stack.enter_context(Lake.create("s3://lakes/one", SCHEMA, catalog=postgres.dsn("postgres")))
        here = stack.enter_context(Lake.create(folder / "lake", SCHEMA))
        bulk = SparkBulk("s3://lakes/one", master, _SETTINGS, part_rows=_PART_ROWS)
        stack.callback(bulk.close)
        killer = Killer(said.seed, said.kills)
        killer.start()
        failed = rounds(here, there, bulk, said.rounds, random.Random(said.seed), killer)
        killer.ended.set()
        killer.join()
    print(f"{said.rounds} rounds are right; {killer.count} kills, {failed} steps begun again")


def rounds(here: Lake, there: Lake, bulk: SparkBulk, least: int, dice: random.Random, killer: Killer) -> int:
    """Go on until there were enough rounds and kills; return how many steps Spark could not do."""
    failed, number = 0, 0
    limits = StageLimits(bulk_rows=0)
    # Each round's runs are merged into the authority as a whole.
    policy = MergePolicy(authority_after_s=1e9, fan_in=2)
    while number < least or killer.is_alive():
        number += 1
        for part in range(3):
            calls = [call for _ in range(_CALLS) for call in random_calls(dice, here.schema)]
            for lake in (here, there):
                with lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor:
                    ingest(ingestor, f"{number}.{part}", calls)
        own, theirs = here.worker(policy), there.worker(policy, limits, bulk=bulk)
        own.drain()
        failed += _drained(theirs)
        compare(here, there)
        own.close()
        theirs.close()
        assert there.verify() == []
        assert there.catalog.orphans() == []
        print(f"round {number} is right: {killer.count} kills, {failed} steps begun again", flush=True)
    return failed


def _drained(worker: Any) -> int:
    """Do all steps; return how many had to be begun again."""
    failed = 0
    while True:
        try:
            worker.drain()
        except LakeError as error:
            print(f"again: {error}", flush=True)
            failed += 1
        else:
            return failed


def compare(here: Lake, there: Lake) -> None:
    """Compare the rows of all files of two lakes."""
    ours, theirs = ([run for run in lake.catalog.snapshot().runs if run.row_count] for lake in (here, there))
    assert [(run.stage, run.first_scu, run.last_scu) for run in ours] == [
        (run.stage, run.first_scu, run.last_scu) for run in theirs
    ]
    assert any(run.stage in {Stage.MERGED, Stage.AUTHORITY} for run in theirs)
    for one, other in zip(ours, theirs, strict=True):
        for table in here.schema.all_tables:
            for view in (table.primary, *table.views):
                names = table.stored(view).names
                rows = [
                    list(_rows(lake, run, table.name, view.name, names)) for lake, run in ((here, one), (there, other))
                ]
                assert rows[0] == rows[1], (one, table.name, view.name)


def _rows(lake: Lake, run: Run, table: str, view: str, names: list[str]) -> Iterator[Any]:
    for file in run.of(table, view):
        yield from lake.reader.read(file, names).to_pylist()


@contextmanager
def _store() -> Iterator[None]:
    """Run an object store with the bucket `lakes`, which this process and all that it starts reach."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ.update(S3_ENVIRONMENT, AWS_ENDPOINT_URL=f"http://{host}:{port}")
    store = fs.S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True)
    store.create_dir("lakes")
    try:
        yield
    finally:
        server.stop()


if __name__ == "__main__":
    main()
