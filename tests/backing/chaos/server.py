"""A server in a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from pequod_bench.systems.server import free_port

from tests.forked import FORKS

#: Serves as flags say until it is ended: a function of a module, as the forked process has to find it.
Program: TypeAlias = Callable[[Sequence[str]], int | None]


def serve(flags: Sequence[str]) -> None:
    """Run `pequod serve`."""
    from pequod.cli.serve import app

    app(flags, prog_name="pequod serve")


class ServerProcess:
    """`pequod serve`, or a program like it, on one port, however often it is killed."""

    def __init__(self, program: Program, flags: Sequence[str], log: Path) -> None:
        self.target = f"127.0.0.1:{free_port()}"
        self._arguments = (program, ("--listen", self.target, *flags), str(log))
        self.log = log
        self._has_ended = asyncio.Event()
        self._has_ended.set()
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it, and again whenever it ends."""
        self._keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            self._fork()
            await self._has_ended.wait()
            # As a supervisor does: it may have found no database.
            await asyncio.sleep(0.1)

    def _fork(self) -> None:
        """Start one process."""
        self._process = process = FORKS.Process(target=_run, args=self._arguments, daemon=True)
        process.start()
        self._has_ended.clear()
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.remove_reader(process.sentinel)
            process.join()
            self._has_ended.set()

        loop.add_reader(process.sentinel, end)

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it without a word; it starts again."""
        if not self._has_ended.is_set():
            assert self._process.pid is not None
            os.kill(self._process.pid, number)
            await self._has_ended.wait()

    async def stop(self) -> None:
        """Kill it for good."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self.kill()


def _run(program: Program, flags: Sequence[str], log: str) -> None:
    """Run a program in the forked process."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(descriptor, stream.fileno())
    # The server collects before it listens, and need not look through what was imported.
    gc.freeze()
    sys.exit(program(flags))
