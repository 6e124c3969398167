"""A real server in a process of its own, which tests may kill and start again."""

from collections.abc import Iterator

import pytest

from tests.forked import ForkedServer


class ServerProcess:
    """`pequod serve` on a port that stays the same over restarts."""

    def __init__(self) -> None:
        self.target = "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        self.process = ForkedServer("--listen", self.target)
        self.target = self.process.target

    def kill(self) -> None:
        self.process.kill()


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    server = ServerProcess()
    yield server
    server.kill()
