"""A plugin of pytest that notes how long each test takes, and which lines or blocks it reaches.

It is loaded by `-p tests.mutations.recording`, writes to the file of PEQUOD_RECORD, and notes lines of the folder of
PEQUOD_LINES_OF in this process, or blocks of the native core in all processes, by the file of PEQUOD_REACHED.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import coverage
import pytest

_RUN: Final = re.compile(rb"\x01")


class _Recorder:
    """What one run of the tests notes."""

    def __init__(self) -> None:
        self._seconds = dict[str, float]()
        #: Of each test, where blocks that it has run return to, from the begin of the core.
        self._blocks = dict[str, list[int]]()
        folder, reached = os.environ.get("PEQUOD_LINES_OF"), os.environ.get("PEQUOD_REACHED")
        self._lines = None
        if folder is not None:
            self._lines = coverage.Coverage(data_file=None, include=[f"{folder}/*"], config_file=False)
            self._lines.start()
        self._map: mmap.mmap | None = None
        if reached is not None:
            with Path(reached).open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what one test takes and reaches."""
        if self._lines is not None:
            self._lines.switch_context(item.nodeid)
        if self._map is not None:
            self._map[:] = bytes(len(self._map))
        begun_s = time.process_time()
        outcome = yield
        self._seconds[item.nodeid] = time.process_time() - begun_s
        if self._map is not None:
            self._blocks[item.nodeid] = [found.start() for found in _RUN.finditer(self._map[:])]
        return outcome

    def pytest_sessionfinish(self) -> None:
        """Write down what was noted."""
        lines = dict[str, dict[int, list[str]]]()
        if self._lines is not None:
            self._lines.stop()
            noted = self._lines.get_data()
            lines = {file: noted.contexts_by_lineno(file) for file in noted.measured_files()}
        record: dict[str, Any] = {"seconds": self._seconds, "blocks": self._blocks, "lines": lines}
        Path(os.environ["PEQUOD_RECORD"]).write_text(json.dumps(record), "utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to note."""
    config.pluginmanager.register(_Recorder())
