"""What is missing is said before Spark says it in its own way."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
import typer
from pequod_installed.names import how_to_install
from pequod_spark import session as session_module
from pequod_spark.session import SparkUnavailableError, java_version, require_spark, spark_session
from pyspark.sql import SparkSession

from pequod.cli.exits import ExitCode
from pequod.cli.spark import session


def fake_java(folder: Path, says: str) -> Path:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return java


def test_no_java_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match=r"there is no Java; install Java 17 or newer .* JAVA_HOME"):
        spark_session("local[1]")


@pytest.mark.parametrize(
    ("says", "version"),
    [('openjdk version "11.0.2" 2019-01-15', 11), ('java version "1.8.0_412"', 8), ('openjdk version "16" 2021', 16)],
)
def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, version: int) -> None:
    java = fake_java(tmp_path, says)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match=f"{java} is Java {version}; install Java 17"):
        require_spark()


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match=r"JAVA_HOME is .* which has no bin/java"):
        require_spark()


def test_newer_javas_are_fine(tmp_path: Path) -> None:
    for says, version in (('openjdk version "21-ea" 2023-09-19', 21), ('openjdk version "25" 2025-09-16', 25)):
        folder = tmp_path / str(version)
        folder.mkdir()
        assert java_version(fake_java(folder, says)) == version


def test_something_else_called_java_is_said(tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailableError, match="does not say its version, but 'coffee"):
        java_version(fake_java(tmp_path, "coffee"))
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(SparkUnavailableError, match="broken does not run"):
        java_version(broken)


def test_a_missing_pyspark_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkUnavailableError, match=re.escape(f"not installed; `{how_to_install('spark')}`")):
        session_module.require_spark()


def test_a_running_session_is_given_again(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert spark_session("local[2]") is spark
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_a_command_leaves_a_running_session_as_it_is(spark: SparkSession) -> None:
    """Also in a thread of its own, where Spark calls no session active."""
    before = spark.conf.get("spark.sql.shuffle.partitions")

    def command() -> int:
        with session("local[2]", None, "counting") as running:
            assert running is spark
            return running.range(3).count()

    with ThreadPoolExecutor() as pool:
        assert pool.submit(command).result() == 3
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    assert spark.range(2).count() == 2


def test_what_only_java_knows_is_said_in_one_line(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, session("local[2]", None, "failing") as running:
        jvm = running.sparkContext._jvm
        assert jvm is not None
        jvm.java.util.ArrayDeque().getFirst()
    assert ended.value.exit_code == ExitCode.REFUSED
    assert capsys.readouterr().err == "pequod: java.util.NoSuchElementException\n"


def test_workers_import_what_is_installed_and_compiled(spark: SparkSession) -> None:
    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch([[pyspark.__file__] * len(batch)], names=["path"])

    assert spark.range(1).mapInArrow(told, "path string").first() == (pyspark.__file__,)
