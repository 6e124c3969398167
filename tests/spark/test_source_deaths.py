"""A server that is killed and started again, empty, in the middle of a job: the job does not succeed with rows missing.

Tasks stop at a gate in the middle of the job until the server is there again; Spark runs two of them at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pequod_spark.connection import Connection, ServerChangedError
from pyspark import TaskContext
from pyspark.errors import PySparkException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark_pequod import writer
from pyspark_pequod.packing import Packing

from pequod.answers.rows import Rows
from pequod.client import Client
from tests.client.conftest import ServerProcess

#: Of each of four parts; a chunk holds them all, so that no task meets both servers.
PART_ROWS = 500
SCHEMA = "key binary, value binary"
ROW_SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
#: A job has come to its middle by then, or never comes there.
MIDDLE_S = 120
RESTARTED = "was started anew during the {}, and may lack what it held before; see what it holds now, and {}"
Pack = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    server = ServerProcess()
    yield server
    server.kill()


def gate(folder: Path, *parts: int) -> Pack:
    """Return a function for `mapInArrow` that has tasks of some parts come here, and wait to be let through."""

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            if context.partitionId() in parts:
                (folder / f"{context.partitionId()}").touch()
                while not (folder / "open").exists():
                    time.sleep(0.01)
            yield batch

    return wait


def start_anew(server: ServerProcess, folder: Path, is_middle: Callable[[], bool]) -> None:
    """Kill the server as soon as it is the middle, start it again, empty, and open the gate."""
    end_s = time.monotonic() + MIDDLE_S
    try:
        while not is_middle():
            assert time.monotonic() < end_s, "it ended before the middle"
            time.sleep(0.01)
        server.kill()
        server.start()
    finally:
        (folder / "open").touch()


def rows(spark: SparkSession) -> DataFrame:
    key = f.format_string("w|%05d", f.col("id")).cast("binary")
    return spark.range(4 * PART_ROWS, numPartitions=4).select(key.alias("key"), key.alias("value"))


def fill(server: ServerProcess) -> None:
    with Client(server.target) as client:
        client.multi_put({f"w|{number:05d}": "x" * 10 for number in range(4 * PART_ROWS)})


def written(server: ServerProcess) -> int:
    with Client(server.target) as client:
        return client.count(prefix="w|")


def test_a_write_does_not_succeed_with_rows_missing(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """Two parts are written before and lost, two afterwards."""
    gated = rows(spark).mapInArrow(gate(tmp_path, 2, 3), SCHEMA)
    with ThreadPoolExecutor() as pool:
        dying = pool.submit(start_anew, server, tmp_path, lambda: written(server) == 2 * PART_ROWS)
        with pytest.raises(PySparkException, match=RESTARTED.format("write", "write again")):
            gated.write.format("pequod").option("target", server.target).mode("append").save()
        dying.result()
    assert written(server) == 2 * PART_ROWS
    gated.write.format("pequod").option("target", server.target).mode("append").save()
    assert written(server) == 4 * PART_ROWS


def test_a_task_does_not_go_on_with_another_server(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A put that was certainly not applied is tried again, and the server that comes back takes it.

    The native transport does not see the end of a connection while a task holds up its loop, as here: it sends the put
    there, and cannot know whether it was applied. Then the task fails by that.
    """

    def starting_anew(*_: object) -> Iterator[Rows]:
        yield Rows([b"w|1"], [b"1"])
        server.kill()
        server.start()
        yield Rows([b"w|2"], [b"2"])

    monkeypatch.setattr(writer, "WINDOW", 1)
    monkeypatch.setattr(writer, "messages", starting_anew)
    task = writer.TaskWriter(Connection(server.target), Packing(ROW_SCHEMA, None))
    batch = pa.RecordBatch.from_pylist([{"key": b"w|1", "value": b"1"}, {"key": b"w|2", "value": b"2"}])
    unknown = "whether writes under way were applied is not known"
    with pytest.raises(
        (ServerChangedError, writer.RefusedError), match=f"{RESTARTED.format('write', 'write again')}|{unknown}"
    ):
        task.write(iter([batch]))
    assert written(server) <= 1


def test_a_read_does_not_end_early(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """Two parts are read before, and of the other two the new server has nothing."""
    fill(server)
    frame = spark.read.format("pequod").options(target=server.target, partitions="4").load("w|")
    gated = frame.mapInArrow(gate(tmp_path, 0, 1), SCHEMA)
    with ThreadPoolExecutor() as pool:
        dying = pool.submit(
            start_anew, server, tmp_path, lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists()
        )
        with pytest.raises(PythonException, match=RESTARTED.format("life of this DataFrame", r"call load\(\) again")):
            gated.collect()
        dying.result()
    fill(server)
    with pytest.raises(PythonException, match="was started anew"):
        frame.count()
    assert spark.read.format("pequod").option("target", server.target).load("w|").count() == 4 * PART_ROWS


def test_a_batch_of_a_stream_does_not_succeed_with_rows_missing(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    """A later batch is of one server again; the batch that failed is written again by the query's next start."""
    source, gates, checkpoint = (tmp_path / name for name in ("source", "gates", "checkpoint"))
    gates.mkdir()
    rows(spark).write.parquet(str(source))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 4).parquet(str(source))
    spark.conf.set("spark.sql.files.openCostInBytes", str(128 << 20))
    writing = stream.mapInArrow(gate(gates, 2, 3), SCHEMA).writeStream.format("pequod")
    writing = writing.options(target=server.target, checkpointLocation=str(checkpoint)).trigger(availableNow=True)
    try:
        with ThreadPoolExecutor() as pool:
            dying = pool.submit(start_anew, server, gates, lambda: written(server) == 2 * PART_ROWS)
            with pytest.raises(StreamingQueryException, match=RESTARTED.format("write", "write again")):
                writing.start().awaitTermination()
            dying.result()
        writing.start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.files.openCostInBytes")
    assert written(server) == 4 * PART_ROWS
