"""A client of a Spark Connect server that uses the data source; a process of its own, for it has no classic session.

python -m tests.spark.connected TARGET FOLDER     starts a server, uses it, and prints what it saw as JSON
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pequod_spark.backfill import Request, backfill
from pequod_spark.connection import Connection
from pequod_spark.session import spark_session
from pequod_spark.verify import verify
from pyspark.sql import SparkSession
from pyspark_pequod import lookup, register
from pyspark_pequod.loading import load

from pequod.client import Client
from pequod.errors import PequodError

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run a Spark Connect server, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = SETTINGS | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", "local[2]"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": pyspark.__path__[0]}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
        try:
            until_s = time.monotonic() + 600
            while not _answers(port):
                if server.poll() is not None or time.monotonic() > until_s:
                    raise RuntimeError((folder / "server.log").read_text()[-2000:])
                time.sleep(0.2)
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def refused(call: Callable[[], Any]) -> str:
    """Return what a call is refused with."""
    try:
        call()
    except PequodError as error:
        return str(error)
    return "it was not refused"


def used(spark: SparkSession, target: str, folder: Path) -> dict[str, Any]:
    """Return what was written, read, looked up and streamed."""
    spark.conf.set("spark.pequod.target", target)
    register(spark)
    posts = spark.createDataFrame([("bob", 1, "one"), ("liz", 2, "two")], "poster string, time int, value string")
    posts.write.format("pequod").option("pattern", "p|<poster>|<time:4>").mode("append").save()
    read = spark.read.format("pequod").options(pattern="p|<poster>|<time:4>", partitions="2").load()
    told: dict[str, Any] = {
        "read": sorted((row.poster, row.time, bytes(row.value).decode()) for row in read.collect()),
        "looked_up": sorted(
            (row.time, row.text)
            for row in lookup(
                posts.withColumn("time", posts.time + 1), Connection(target), "p|<poster>|<time:4>", column="text",
                kind="string",
            ).collect()
        )
        + [
            row.text
            for row in lookup(
                posts.drop("value"), Connection(target), "p|<poster>|<time:4>", column="text", kind="string"
            )
            .orderBy("time")
            .collect()
        ],
    }  # fmt: skip
    stream = spark.readStream.format("pequod").options(prefix="p|", partitions="2", maxRowsPerTrigger="1").load()
    copy = stream.selectExpr("concat(cast('copy|' as binary), key) key", "value")
    for change in ("", "won"):
        if change:
            with Client(target) as client:
                client.put("p|bob|0001", change)
        query = (
            copy.writeStream.format("pequod")
            .trigger(availableNow=True)
            .option("checkpointLocation", str(folder / "at"))
            .start()
        )
        query.awaitTermination()
        told.setdefault("batches", []).append([progress.numInputRows for progress in query.recentProgress])
    with Client(target) as client:
        told["copied"] = [(key.decode(), value.decode()) for key, value in client.scan(prefix="copy|")]
    rows = spark.createDataFrame([(b"k", b"1")], "key binary, value binary")
    place = Connection(target)
    told["refused"] = [
        refused(lambda: load(rows, place)),
        refused(lambda: verify(spark, place)),
        refused(lambda: backfill(spark, place.client, Request("t"))),
        refused(lambda: spark_session("sc://127.0.0.1")),
    ]
    return told


def main() -> None:
    """Use a server of Spark Connect."""
    target, folder = sys.argv[1], Path(sys.argv[2])
    with serving(folder) as address:
        spark = SparkSession.builder.remote(address).getOrCreate()
        try:
            print(json.dumps(used(spark, target, folder)))
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
