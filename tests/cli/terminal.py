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
            assert select.select([self.outside], [], [], until - time.monotonic())[0], self.seen
            self.seen += os.read(self.outside, 65536)
        self.seen = self.seen.partition(text.encode())[2]

    def type(self, keys: str) -> None:
        os.write(self.outside, keys.encode())

    def end(self) -> int:
        """Return the exit code, reading what the command still writes."""
        while self.process.poll() is None:
            if select.select([self.outside], [], [], 0.05)[0]:
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
