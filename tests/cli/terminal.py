"""A command on a terminal of its own, as a person has it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Terminal:
    """A command on a terminal of its own."""

    process: subprocess.Popen[bytes]
    outside: int
    inside: int
    seen: bytes = b""

    def wait_for(self, text: str) -> None:
        """Read until the command writes ``text``; what it wrote before does not count the next time."""
        until = time.monotonic() + 15
        while text.encode() not in self.seen:
            assert self._is_readable(until - time.monotonic()), self.seen
            self.seen += os.read(self.outside, 65536)
        self.seen = self.seen.partition(text.encode())[2]

    def type(self, keys: str) -> None:
        os.write(self.outside, keys.encode())

    def _is_readable(self, wait_s: float) -> bool:
        # Not `select.select`, which knows no more than 1,024 open files.
        poll = select.poll()
        poll.register(self.outside, select.POLLIN)
        return bool(poll.poll(max(0, wait_s) * 1000))

    def end(self) -> int:
        """Return the exit code, reading what the command still writes."""
        while self.process.poll() is None:
            if self._is_readable(0.05):
                self.seen += os.read(self.outside, 65536)
        return self.process.returncode


@contextmanager
def on_a_terminal(*arguments: str, target: str, **variables: str) -> Iterator[Terminal]:
    outside, inside = pty.openpty()
    environment = {
        "PEQUOD_TARGET": target,
        "TERM": "xterm",
        "COLUMNS": "100",
        "LINES": "30",
        "PATH": os.environ["PATH"],
        **variables,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "pequod.cli", *arguments],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=environment,
        start_new_session=True,
    )
    try:
        yield Terminal(process, outside, inside)
    finally:
        process.kill()
        process.wait()
        os.close(outside)
        os.close(inside)
