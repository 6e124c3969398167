"""What commands that run Spark share: their options, a session, and errors in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import connection_settings
from pequod.cli.exits import ExitCode, fail
from pequod.cli.spark_checks import parse_setting

if TYPE_CHECKING:
    from pequod_spark.connection import Connection
    from pyspark.sql import SparkSession

Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: local[2], spark://HOST:7077, yarn, k8s://...")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", help="A setting of Spark, such as spark.driver.memory=4g; repeatable."
    ),
]
DEFAULT_MASTER: Final = "local[*]"
_SETTINGS: Final = {"spark.log.level": "ERROR"}
#: Spark's own 200 are for clusters: on one machine that many tasks for each shuffle take longer than what they do.
_LOCAL_SETTINGS: Final = {"spark.sql.shuffle.partitions": "16"}


@contextmanager
def session(master: str, conf: Sequence[str] | None, doing: str) -> Iterator[SparkSession]:
    """Run a session for the length of one command, and say on a terminal that something goes on.

    A session that runs already, whoever started it, is used as it is set, and goes on afterwards.
    """
    settings = dict(map(parse_setting, conf or ()))
    from pequod_spark.session import is_running, require_spark, spark_session

    require_spark()
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from rich.console import Console

    is_ours = not is_running()
    chosen = {**_SETTINGS, **_local(master), **settings} if is_ours else settings
    console = Console(stderr=True)
    try:
        with console.status(f"{doing} ...") if console.is_terminal else nullcontext():
            spark = spark_session(master, settings=chosen)
            try:
                yield spark
            finally:
                if is_ours:
                    spark.stop()
    except PySparkException as error:
        fail(ExitCode.REFUSED, _first_line(str(error)))
    except Py4JJavaError as error:
        # What Spark has no error of its own for; its message is behind that of the call.
        fail(ExitCode.REFUSED, _first_line(str(error).partition("\n: ")[2] or str(error)))


def spark_connection(target: str) -> Connection:
    """Return how tasks reach a server, by the options before the command."""
    from pequod_spark.connection import Connection

    return Connection(target, **connection_settings())


def _local(master: str) -> dict[str, str]:
    return _LOCAL_SETTINGS if master.startswith("local") else {}


def _first_line(text: str) -> str:
    """Return what Spark says without the plan and the stack that it says it with."""
    for line in text.strip().splitlines():
        if line.startswith(("pequod.", "pequod_spark.", "pyspark_pequod.")) and ": " in line:
            return line.partition(": ")[2]
    return text.strip().splitlines()[0]
