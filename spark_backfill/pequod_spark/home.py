"""The folder that a local Spark starts from: the installed PySpark, with settings for one machine."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pequod.machine import machine_bytes

#: The memory that Spark takes by default, and the share of the machine's memory that Java takes by default.
_MEMORY_MIN_BYTES: Final = 1 << 30
_MEMORY_SHARE: Final = 1 / 4


def use_own_home() -> None:
    """Set SPARK_HOME, unless it is set, to a temporary folder of links to the installed PySpark.

    - The folder ``python`` is left out. Spark lets Python workers look first into an archive there, and each worker
      compiles its imports again, for almost a second; without the folder, workers import compiled modules.
    - The folder ``conf`` gives a local Spark a quarter of the memory instead of 1 GiB. Settings of the session take
      precedence over it, as do SPARK_CONF_DIR and an installed ``conf``.
    """
    import pyspark  # noqa: PLC0415 -- optional

    installed = Path(pyspark.__file__).parent
    if "SPARK_HOME" in os.environ or not (installed / "jars").is_dir():
        return
    home = TemporaryDirectory(prefix="pequod-spark-")
    atexit.register(home.cleanup)
    try:
        for entry in installed.iterdir():
            if entry.name != "python":
                Path(home.name, entry.name).symlink_to(entry)
    except OSError:  # Not every file system has links.
        return
    conf = Path(home.name, "conf")
    if not conf.exists():
        conf.mkdir()
        memory_bytes = max(_MEMORY_MIN_BYTES, int(machine_bytes() * _MEMORY_SHARE))
        (conf / "spark-defaults.conf").write_text(f"spark.driver.memory {memory_bytes >> 20}m\n", "ascii")
    os.environ["SPARK_HOME"] = home.name
