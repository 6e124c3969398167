"""What the commands of Spark share: the group, options, the session and the one-line errors."""

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

app: Final = typer.Typer(
    help="Large work by Spark's tasks: needs the extra spark, and Java 17.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

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
#: Spark's default of 200 is for clusters: on one machine, starting as many tasks takes longer than their work.
_LOCAL_SETTINGS: Final = {"spark.sql.shuffle.partitions": "16"}
#: Up to this number of rows, most of the time goes to Java's compiler, for code that hardly runs.
_FEW_ROWS: Final = 1_000_000
_FEW_ROWS_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@contextmanager
def session(
    master: str, conf: Sequence[str] | None, doing: str, *, row_count: int | None = None
) -> Iterator[SparkSession]:
    """Run a session for one command, and show on a terminal that work goes on.

    A session that runs already is used with its settings, and is left running.

    Args:
        master: The master of Spark.
        conf: Settings of Spark that take precedence over ours.
        doing: The description of the command's work.
        row_count: The approximate number of rows; None if it is unknown. A local session for few rows is set to plan
            quickly.
    """
    settings = dict(map(parse_setting, conf or ()))
    from pequod_spark.session import is_running, require_pyspark, spark_session

    require_pyspark()
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from rich.console import Console

    is_ours = not is_running()
    chosen = {**_SETTINGS, **_local(master, row_count), **settings} if is_ours else settings
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
        # Errors for which Spark has no class; its message comes after that of the call.
        fail(ExitCode.REFUSED, _first_line(str(error).partition("\n: ")[2] or str(error)))


def spark_connection(target: str) -> Connection:
    """Return how tasks reach a server, from the options before the command."""
    from pequod_spark.connection import Connection

    return Connection(target, **connection_settings())


def _local(master: str, row_count: int | None) -> dict[str, str]:
    if not master.startswith("local"):
        return {}
    return _LOCAL_SETTINGS if row_count is None or row_count > _FEW_ROWS else _FEW_ROWS_SETTINGS


def _first_line(text: str) -> str:
    """Return Spark's message without the plan and the stack around it."""
    for line in text.strip().splitlines():
        if line.startswith(("pequod.", "pequod_spark.", "pyspark_pequod.")) and ": " in line:
            return line.partition(": ")[2]
    return text.strip().splitlines()[0]
