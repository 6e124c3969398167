"""A Spark session with the settings that Pequod needs, or an error that says what is missing.

Spark runs on Java. The extra `spark` brings Spark itself; Java 17 or newer comes from the system.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pequod_installed.names import how_to_install

from pequod.errors import PequodError
from pequod_spark.home import use_own_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The oldest Java that Spark 4 starts on.
JAVA_VERSION_MIN: Final = 17

_HINT = (
    f"install Java {JAVA_VERSION_MIN} or newer (Debian: `apt install openjdk-17-jre-headless`) "
    "and put it on PATH or name its folder in JAVA_HOME"
)
#: ``openjdk version "17.0.15" 2025-04-15``, and ``java version "1.8.0_412"`` of old.
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

#: The settings of a session, unless the caller has others.
_SETTINGS: Final = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # To note the place of each expression takes longer than to make the expression.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
#: A local session uses the loopback interface only, and shows no web page.
_LOCAL_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}


class SparkUnavailableError(PequodError):
    """Spark cannot start here: PySpark or a Java that it runs on is missing."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"Spark cannot start: {reason}; {hint}")
        #: The reason, without the advice.
        self.reason = reason


class ClassicSessionError(PequodError):
    """What was asked for needs the Java process of Spark, which Spark Connect keeps away."""

    def __init__(self, doing: str) -> None:
        super().__init__(
            f"{doing} needs a classic session of Spark, whose plans and tasks Spark Connect keeps away: start it where "
            'the driver runs. Reads, writes, streams and lookups with format("pequod") work through Spark Connect'
        )
        self.doing = doing


def refuse_connect(spark: SparkSession, doing: str) -> None:
    """Check that a session is no client of Spark Connect.

    Raises:
        ClassicSessionError: It is one.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise ClassicSessionError(doing)


def require_pyspark() -> None:
    """Check that PySpark is installed.

    Raises:
        SparkUnavailableError: It is not.
    """
    try:
        import pyspark  # noqa: F401, PLC0415 -- optional
    except ImportError as error:
        raise SparkUnavailableError("PySpark is not installed", f"`{how_to_install('spark')}`") from error


def require_spark() -> None:
    """Check that a session can be started.

    Raises:
        SparkUnavailableError: PySpark is not installed, or no Java is found, or the one found is too old.

    Cost:
        Runs ``java -version`` once in a process: about 0.1 s.
    """
    require_pyspark()
    java = find_java()
    version = java_version(java)
    if version < JAVA_VERSION_MIN:
        raise SparkUnavailableError(f"{java} is Java {version}", _HINT)


def find_java() -> Path:
    """Return the ``java`` that Spark would run: of JAVA_HOME, else the first on PATH.

    Raises:
        SparkUnavailableError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not java.is_file():
            raise SparkUnavailableError(f"JAVA_HOME is {home!r}, which has no bin/java", _HINT)
        return java
    found = shutil.which("java")
    if found is None:
        raise SparkUnavailableError("there is no Java", _HINT)
    return Path(found)


@cache
def java_version(java: Path) -> int:
    """Return the major version of a Java, such as 17; it is asked once.

    Raises:
        SparkUnavailableError: It does not run, or does not print a version.
    """
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr  # noqa: S603 -- the user's Java
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkUnavailableError(f"{java} does not run: {error}", _HINT) from error
    version = _VERSION.search(told)
    if version is None:
        raise SparkUnavailableError(f"{java} does not say its version, but {told[:80]!r}", _HINT)
    return int(version[1])


def is_running() -> bool:
    """Return whether this process has a session, started in any thread."""
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 -- optional
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- optional

    try:
        SparkSession.active()
    except PySparkRuntimeError:
        return False
    return True


def spark_session(
    master: str = "local[*]", *, name: str = "pequod", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running session, or start one.

    Workers of a local master run this process's Python; on a cluster, PYSPARK_PYTHON names it.

    Args:
        master: The place to run: ``local[2]``, ``spark://host:7077``, ``yarn``, ``k8s://...``.
        name: The name of the application on the cluster.
        settings: Spark settings in addition to, and instead of, Pequod's own.

    Raises:
        SparkUnavailableError: PySpark or a fit Java is missing.
        ClassicSessionError: The master is a server of Spark Connect.

    Cost:
        About 4 s to start.
    """
    if master.startswith("sc://"):
        raise ClassicSessionError(f"a session of {name}")
    require_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- optional

    is_local = master.startswith("local")
    if is_local and not is_running() and os.environ.setdefault("PYSPARK_PYTHON", sys.executable) == sys.executable:
        use_own_home()
    chosen = {**_SETTINGS, **(_LOCAL_SETTINGS if is_local else {}), **(settings or {})}
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
