"""Redis servers for tests, each a replica of a record store."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

_START_S_MAX: Final = 120.0


def skip_without_redis() -> None:
    """Skip the tests of a module that need Redis where it is not there."""
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server on PATH", allow_module_level=True)
    pytest.importorskip("redis", reason="the extra redis is not installed")


class RedisServers:
    """Servers behind Unix sockets in a folder; a context manager ends them. What they acknowledged outlives them."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self._folders = [folder / f"redis{number}" for number in range(count)]
        self._servers: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def urls(self) -> list[str]:
        """The addresses of all servers."""
        return [f"unix://{folder}/socket" for folder in self._folders]

    def __enter__(self) -> Self:
        for number, folder in enumerate(self._folders):
            folder.mkdir()
            self.start(number)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number in list(self._servers):
            self.kill(number)

    def start(self, number: int) -> None:
        """Start a server, and wait until it answers.

        Raises:
            RuntimeError: It ended, or takes too long.
        """
        folder = self._folders[number]
        options = ["--port", "0", "--unixsocket", str(folder / "socket"), "--dir", str(folder), "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "no", "--logfile", "log"]
        server = self._servers[number] = subprocess.Popen(["redis-server", *options])
        end = time.monotonic() + _START_S_MAX
        while not _answers(folder / "socket"):
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the Redis server {number} does not start: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self, number: int) -> None:
        """Have a server do nothing until `go_on`; its connections stay."""
        self._servers[number].send_signal(signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        """Let a server go on."""
        self._servers[number].send_signal(signal.SIGCONT)

    def kill(self, number: int) -> None:
        """End a server at once."""
        server = self._servers.pop(number)
        server.kill()
        server.wait()


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(7) == b"+PONG\r\n"
    except OSError:
        return False
