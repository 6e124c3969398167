"""One Spark session a process; without PySpark or a fit Java its tests are skipped, and the reason says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pequod_spark.session import SparkUnavailableError, require_spark, spark_session
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.installed import lacking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _why_not() -> str | None:
    try:
        require_spark()
    except SparkUnavailableError as error:
        return str(error)
    return None


WHY_NOT = _why_not()

#: Quick to start and to plan, for plans are many here and rows few.
SETTINGS = {
    # The compiler behind the first takes longer than it saves; of its code, 48 MiB would not hold all. Each time that
    # Spark's many classes outgrow what is set apart for them, everything would be collected.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    "-XX:MetaspaceSize=256m -Xms1g -Xmn400m",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    # Without a class compiled for every plan and expression, which takes longer than to run it; see `compiled`.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Python workers that have imported what they need; found because the suite runs in the folder that holds `tests`.
    "spark.python.daemon.module": "tests.spark.daemon",
    # A job for each action, rather than one for each shuffle before it, with a plan made anew behind it.
    "spark.sql.adaptive.enabled": "false",
}


class SkippedModule(pytest.Module):
    """A module that is not even imported."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        assert WHY_NOT is not None
        lacking(WHY_NOT)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return None if WHY_NOT is None else SkippedModule.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of Spark more time: the first ones wait for Java to warm up, on busy machines for minutes."""
    for item in items:
        if item.nodeid.startswith("tests/spark/"):
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from py4j.java_gateway import java_import  # type: ignore[import-untyped]

    session = spark_session("local[2]", name="pequod-tests", settings=SETTINGS)
    session.sparkContext.setLogLevel("ERROR")
    # What is not imported by its whole name is looked for in one package after the other, and in all jars.
    for name in ("api.python.PythonUtils", "sql.functions"):
        java_import(session.sparkContext._jvm, f"org.apache.spark.{name}")
    yield session
    session.stop()


#: The workloads that tests share, as the command generates them.
TWIP = "--users 300 --ticks 3000 --seed 7 --initial-posts 500 --tweet-bytes 20"
NEWP = "--articles 50 --sessions 2000 --votes 25 --seed 3 --text-bytes 30"


@pytest.fixture(scope="session")
def twip_path(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _generated("twip", TWIP, tmp_path_factory.mktemp("twip") / "data")


@pytest.fixture(scope="session")
def newp_path(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _generated("newp", NEWP, tmp_path_factory.mktemp("newp") / "data")


def _generated(name: str, options: str, path: Path) -> Path:
    result = CliRunner().invoke(app, ["spark", "generate", name, str(path), *options.split()])
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    assert f"is in {path}" in result.stderr
    return path


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Compile classes for plans, and adapt these to what comes, as Spark does unless told otherwise."""
    chosen = [name for name in SETTINGS if name.startswith(("spark.sql.codegen.", "spark.sql.adaptive."))]
    for name in chosen:
        spark.conf.unset(name)
    yield
    for name in chosen:
        spark.conf.set(name, SETTINGS[name])
