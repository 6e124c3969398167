"""A real server in a process of its own, which tests may kill and start again."""

import subprocess
import sys
from collections.abc import Iterator

import pytest


class ServerProcess:
    """`pequod serve` on a port that stays the same over restarts."""

    def __init__(self) -> None:
        self.target = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "pequod.cli", "serve", "--listen", self.target]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line.startswith("pequod serving on "), line
        self.target = line.split()[-1]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    server = ServerProcess()
    yield server
    server.kill()
