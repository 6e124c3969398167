"""A server in a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pequod_bench.compare.server import free_port


class ServerProcess:
    """`pequod serve`, or a program like it, on one port, however often it is killed."""

    def __init__(self, program: Sequence[str], flags: Sequence[str], log: Path) -> None:
        self.target = f"127.0.0.1:{free_port()}"
        self._command = [sys.executable, "-m", *program, "--listen", self.target, *flags]
        self.log = log
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.start_count = 0

    async def start(self) -> None:
        """Start it, and again whenever it ends."""
        self._keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
                )
            self.start_count += 1
            await self._process.wait()
            # As a supervisor does: it may have found no database.
            await asyncio.sleep(0.1)

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it without a word; it starts again."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            await self._process.wait()

    async def stop(self) -> None:
        """Kill it for good."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self.kill()
