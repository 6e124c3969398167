"""Processes that are killed without a word and started again: managers, and the server that they follow."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pequod_bench.systems.server import free_port

from pequod.cli.exits import ExitCode
from tests.forked import FORKS, ForkedServer


class ManagerProcess:
    """`pequod views run` in a process of its own."""

    def __init__(self, file: Path, flags: Sequence[str], log: Path) -> None:
        self._arguments = ("run", str(file), *flags)
        self.log = log
        self._start()

    def _start(self) -> None:
        self._process = FORKS.Process(target=_manage, args=(self._arguments, str(self.log)), daemon=True)
        self._process.start()

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    @property
    def was_refused(self) -> bool:
        """Whether it has ended since its server was not the one of the views."""
        return self._process.exitcode == ExitCode.REFUSED

    def restart(self) -> None:
        """Kill it, and start another."""
        self.kill()
        self._start()

    async def pause(self, pause_s: float) -> None:
        """Stop it for a while, as a machine without time for it does: others take it for dead."""
        process = self._process
        assert process.pid is not None
        # It may be killed meanwhile.
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
        await asyncio.sleep(pause_s)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.join(20)


def _manage(arguments: tuple[str, ...], log: str) -> None:
    """Run the command in the forked process."""
    from pequod.cli.views import app

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(descriptor, stream.fileno())
    app(arguments, prog_name="pequod views")


class KilledServer:
    """A server on one port, however often it is killed; its data die with it, unless flags name a database."""

    def __init__(self, *flags: str) -> None:
        self.target = f"127.0.0.1:{free_port()}"
        self._flags = ("--listen", self.target, *flags)
        self._server = ForkedServer(*self._flags)

    async def restart(self) -> None:
        await asyncio.to_thread(self._restart)

    def _restart(self) -> None:
        self._server.kill()
        self._server = ForkedServer(*self._flags)

    def kill(self) -> None:
        self._server.kill()
