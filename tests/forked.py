"""Servers and commands in processes of their own that start at once: forked from a process with everything imported.

A server that a shell starts spends half a second of CPU on imports, a command a quarter, and the tests start hundreds.
What is about the command itself, its start or its memory starts a server as a shell does, by
`pequod_bench.systems.server.started_server`.
"""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

_SERVING: Final = re.compile(r"pequod \([^)]+\) serving on (\S+)\n")
_END_S_MAX: Final = 20.0
_COMMAND_S_MAX: Final = 60.0

#: Forks processes that have imported what servers and clients of tests need, and the modules of the functions that most
#: forks begin with: what they lack, each would import, which can take half a second.
FORKS: Final = get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        __name__,
        "pequod.cli.app",
        "pequod.cli.serve",
        "pequod.cli.views",
        "pequod_server.running",
        "pequod_server.ops.metrics",
        "pequod_server.settings",
        "pequod_server.workers.entry",
        "pequod_server.workers.supervisor",
        "pequod_views.install",
        "pequod_views.targets.postgres",
        "tests.backing.chaos.server",
        "tests.soak.heavy",
        "tests.soak.mischief",
        "tests.views.chaos.processes",
        "tests.warm",
        "uvloop",
    ]
)


class _Said(io.RawIOBase):
    """What a server says, taken from its pipe as it comes: with a full pipe, it would wait and answer no more.

    Args:
        heard: The end of the pipe; it is closed at the end of what is said.
    """

    def __init__(self, heard: int) -> None:
        self._parts = SimpleQueue[bytes]()
        self._part = b""
        self._is_over = False
        threading.Thread(target=_hear, args=(heard, self._parts), daemon=True).start()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._part and not self._is_over:
            self._part = self._parts.get()
            self._is_over = not self._part
        count = min(len(buffer), len(self._part))
        buffer[:count], self._part = self._part[:count], self._part[count:]
        return count


def _hear(heard: int, parts: SimpleQueue[bytes]) -> None:
    with open(heard, "rb", buffering=0) as stream:
        while part := stream.read(1 << 16):
            parts.put(part)
    parts.put(b"")


class ForkedServer:
    """`pequod serve` with the flags of a test, and with its variables and folder; it listens once this is made.

    As a context, it is killed at the end, unless it has ended.

    Args:
        serve: Runs it, with a fault of the test's; a function of a module.
    """

    def __init__(self, *flags: str, serve: Callable[..., None] | None = None) -> None:
        heard, says = FORKS.Pipe(duplex=False)
        given = (says, flags, dict(os.environ), os.getcwd())  # noqa: PTH109 -- goes to another process
        process = FORKS.Process(target=serve or run_serve, args=given, daemon=True)
        process.start()
        says.close()
        self._process = process
        #: What it says on both of its standard streams after the line with its address.
        self.said = io.TextIOWrapper(io.BufferedReader(_Said(os.dup(heard.fileno()))))
        heard.close()
        before = ""
        while not (serving := _SERVING.search(before)):
            line = self.said.readline()
            if not line:
                process.join(_END_S_MAX)
                self.said.close()
            assert line, f"the server ended with {process.exitcode}:\n{before}"
            before += line
        self.target = serving.group(1)
        assert process.pid is not None
        self.pid: Final = process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end, and return the exit code."""
        self._process.join(timeout_s)
        assert self._process.exitcode is not None, "the server goes on"
        return self._process.exitcode

    def kill(self) -> None:
        """End it without a word, unless it has ended."""
        self._process.kill()
        self.wait(_END_S_MAX)
        self.said.close()

    def terminate(self) -> None:
        """Have it end by itself."""
        self._process.terminate()
        self._process.join(_END_S_MAX)
        self.kill()


def run_serve(says: Connection, flags: tuple[str, ...], variables: dict[str, str], folder: str) -> None:
    """Run the command in the forked process."""
    from pequod.cli.serve import app

    for stream in (sys.stdout, sys.stderr):
        os.dup2(says.fileno(), stream.fileno())
    says.close()
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    # The server collects before it listens, and need not look through what was imported.
    gc.freeze()
    app(flags, prog_name="pequod serve")


@contextmanager
def started_server(*flags: str) -> Iterator[tuple[str, int]]:
    """Run a server, on a free port unless the flags tell another; yield its target and its process id."""
    server = ForkedServer("--listen", "127.0.0.1:0", *flags)
    try:
        yield server.target, server.pid
    finally:
        server.terminate()


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str


def run_command(*arguments: str) -> Outcome:
    """Run `pequod` with such arguments, and with the variables of a test, to its end; its standard input is empty."""
    with TemporaryDirectory() as folder:
        process = FORKS.Process(target=_command, args=(Path(folder), arguments, dict(os.environ)), daemon=True)
        process.start()
        process.join(_COMMAND_S_MAX)
        assert process.exitcode is not None, f"pequod {arguments} goes on"
        return Outcome(process.exitcode, Path(folder, "out").read_text(), Path(folder, "err").read_text())


def _command(folder: Path, arguments: tuple[str, ...], variables: dict[str, str]) -> None:
    """Run the command in the forked process, with its standard streams in files of the folder."""
    from pequod.cli.app import app

    for stream, name in ((sys.stdout, "out"), (sys.stderr, "err")):
        with Path(folder, name).open("wb") as file:
            os.dup2(file.fileno(), stream.fileno())
    os.environ.clear()
    os.environ.update(variables)
    app(arguments, prog_name="pequod")


def run_into(said: str, arguments: tuple[str, ...], variables: dict[str, str]) -> None:
    """Run the command in the forked process, with both of its standard streams at the end of a file.

    Here, since a module that this process has not imported would be imported in each fork.
    """
    from pequod.cli.app import app

    with Path(said).open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    os.environ.clear()
    os.environ.update(variables)
    gc.freeze()
    app(arguments, prog_name="pequod")
