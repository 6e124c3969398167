"""What a local Spark starts with, as its own launcher tells it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from pequod_spark import home
from pequod_spark.session import find_java

GIB = 1 << 30


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def heap_max(*options: str) -> str:
    """Return the memory that Spark would give Java, as it writes it."""
    launcher = ["-cp", f"{os.environ['SPARK_HOME']}/jars/*", "org.apache.spark.launcher.Main"]
    command = [str(find_java()), *launcher, "org.apache.spark.deploy.SparkSubmit", *options, "pyspark-shell"]
    settings = os.environ | {"SPARK_SCALA_VERSION": "2.13"}  # As Spark's scripts say it.
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=settings, check=True)
    heap = re.search(r"-Xmx(\w+)", done.stdout)
    assert heap
    return heap[1]


@pytest.mark.parametrize(("machine", "heap"), [(40 * GIB, "10240m"), (2 * GIB, "1024m")])
def test_a_local_spark_gets_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch, machine: int, heap: str) -> None:
    monkeypatch.setattr(home, "machine_bytes", lambda: machine)
    home.use_own_home()
    assert heap_max() == heap


def test_what_is_set_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home.use_own_home()
    assert heap_max("--conf", "spark.driver.memory=3g") == "3g"
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.memory 2g\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert heap_max() == "2g"


def test_a_home_that_is_set_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    home.use_own_home()
    assert os.environ["SPARK_HOME"] == str(tmp_path)
    assert not list(tmp_path.iterdir())
