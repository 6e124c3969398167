"""A standby that follows a cluster, and becomes the primary when that one is gone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.backing.conftest import Postgres


class Standby(Postgres):
    """A copy of a running cluster, in a directory of its own."""

    def __init__(self, primary: Postgres, directory: Path) -> None:
        self._programs = primary._programs
        self.directory = directory
        self._cluster = directory / "cluster"
        self._process = None
        if os.getuid() == 0:
            shutil.chown(directory, "nobody")
        # It is told where its primary is, and streams from there once it runs; slots are not copied.
        self._run(
            "pg_basebackup",
            "-D",
            str(self._cluster),
            "-h",
            str(primary.directory),
            "-U",
            "postgres",
            "-R",
            "-c",
            "fast",
        )

    def promote(self) -> None:
        """Have it take writes."""
        self._run("pg_ctl", "promote", "-D", str(self._cluster), "-w")
