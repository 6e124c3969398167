"""A standalone cluster of one worker, whose Python is an environment of its own: `make test-spark-cluster`.

    this environment     driver: pequod spark load, backfill, verify, spark.read.format("pequod")
    another one          the worker's, with what is installed of the wheel and nothing of this folder

python -m tests.spark.cluster build/spark-cluster/bin/python
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pequod_bench.systems.server import free_port

from pequod.client import Client
from tests.client.conftest import ServerProcess

TIMELINE = "t|<user>|<time:6>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:6>"
POSTS = 20_000
#: What a notebook would say; tasks tell which Python they run in.
READ = """
import sys
import pyarrow as pa
from pequod_spark.session import spark_session

spark = spark_session({master!r})
rows = spark.read.format("pequod").options(target={target!r}, prefix="t|", partitions="4").load()
print("rows", rows.count())

def told(batches):
    import pyspark_pequod
    for batch in batches:
        yield pa.record_batch([[sys.prefix + " " + pyspark_pequod.__file__] * len(batch)], names=["place"])

(place,) = {{row.place for row in spark.range(4).mapInArrow(told, "place string").collect()}}
print("place", place)
"""


def main() -> None:
    python = Path(sys.argv[1]).absolute()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pequod-cluster-")))
        server = ServerProcess()
        stack.callback(server.kill)
        master = stack.enter_context(cluster(python, folder))
        pq.write_table(
            pa.table(
                {
                    "poster": [f"u{number % 100:03}" for number in range(POSTS)],
                    "time": range(POSTS),
                    "value": [float(number) for number in range(POSTS)],
                }
            ),
            folder / "posts.parquet",
        )
        reached = ["--target", server.target, "--master", master]
        source = f"parquet:{folder / 'posts.parquet'}"
        pequod(python, "spark", "load", "--source", source, "--pattern", "p|<poster>|<time:6>", *reached)
        with Client(server.target) as client:
            assert client.count("p|", "p}") == POSTS
            client.multi_put([(f"s|v{user:02}|u{user + 1:03}", "1") for user in range(50)])
            client.add_join(TIMELINE)
            pequod(python, "backfill", "--join", "t", *reached)
            assert client.backfills.list()[0].rows_loaded == POSTS // 2
            assert client.statistics().joins["t"].contexts == 50
            assert client.get("t|v00|000001|u001") == b"1"
            pequod(python, "verify", "--join", "t", *reached)
        told = run(python, [sys.executable, "-c", READ.format(master=master, target=server.target)])
        assert f"rows {POSTS // 2}\n" in told, told
        assert f"place {python.parents[1]} {python.parents[1]}" in told, told
    print("all of it ran on the cluster")


@contextmanager
def cluster(python: Path, folder: Path, workers: int = 1) -> Iterator[str]:
    """Run a master and workers, and yield the master's address."""
    home = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__path__[0])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    start = [f"{home}/bin/spark-class", "org.apache.spark.deploy"]
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    commands = [
        [start[0], f"{start[1]}.master.Master", *common, "--port", str(port)],
        *[[start[0], f"{start[1]}.worker.Worker", *common, "--cores", "2", "--memory", "1g", "--work-dir",
           str(folder / f"worker-{number}"), address] for number in range(workers)],
    ]  # fmt: skip
    with ExitStack() as stack:
        for number, command in enumerate(commands):
            log = stack.enter_context((folder / f"{number}.log").open("w"))
            process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield address


def pequod(python: Path, *arguments: str) -> None:
    """Run a command of this environment whose tasks run in the worker's."""
    print(run(python, [sys.executable, "-m", "pequod.cli", *arguments]), end="")


def driver_environment(python: Path) -> dict[str, str]:
    """Return what a driver of this environment needs, whose tasks run in the workers'."""
    # The home of this environment's PySpark; the worker has its own.
    home = {"PYSPARK_PYTHON": str(python), "SPARK_HOME": pyspark.__path__[0]}
    return {**home, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": ""}


def run(python: Path, command: list[str]) -> str:
    """Run a driver from elsewhere than this folder, and return what it said."""
    environment = {**os.environ, **driver_environment(python)}
    done = subprocess.run(
        command, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return "".join(line for line in done.stdout.splitlines(keepends=True) if " WARN " not in line)


if __name__ == "__main__":
    main()
