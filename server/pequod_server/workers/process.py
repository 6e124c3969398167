"""One worker as its supervisor sees it: a process that is started again when it has died.

down -- prepare, start --> starting -- says so --> ready -- dies --> down, for a pause that grows
| ends                  | stop, or a new one in its place
v                       v
down                    stopped
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pequod_server.worker import shown_file
from pequod_server.workers.entry import GO, READY

log = logging.getLogger("pequod.server")

#: The pause before a worker that has died is started again: at first, and at the most; it doubles with each death.
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 10.0
#: A worker that was ready for this long has its first pause again.
_STEADY_S: Final = 30.0


class WorkerProcess:
    """A worker that runs, or is about to run again.

    Args:
        file: What the worker is told.
        hint: What its death costs, for the log; empty: nothing.

    Invariants:
        1. ``is_ready`` only while there is a process.
    """

    def __init__(self, name: str, file: Path, hint: str = "") -> None:
        self.id = name
        self.is_ready = False
        #: How often it was started.
        self.starts = 0
        #: Of the process that ended last.
        self.code = 0
        self._file = file
        self._hint = hint
        self._process: asyncio.subprocess.Process | None = None
        self._guarding: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._changed = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process; None while there is none."""
        return None if self._process is None else self._process.pid

    async def prepare(self) -> None:
        """Start the process, which imports what it needs, and then waits for `start`."""
        # Not to be told of signals to the supervisor's group, nor to speak for it to systemd.
        environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        command = (sys.executable, "-m", "pequod_server.workers.entry", str(self._file))
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self.starts += 1
        if self._is_stopping:
            self.signal(signal.SIGTERM)

    async def start(self) -> bool:
        """Have the process serve; return whether it does. If not, it has ended, and ``code`` says how."""
        process = self._process
        assert process is not None, "it is prepared"
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(GO)
        said = await process.stdout.readline()
        if said != READY:
            await self._wait(process)
            return False
        self.is_ready = True
        self._tell()
        return True

    def guard(self) -> None:
        """Start the process again whenever it ends, from now on."""
        self._guarding = asyncio.create_task(self._guard(), name=f"pequod worker {self.id}")

    async def replace(self) -> bool:
        """Have the process end once it serves, and another one take its place; return whether that one serves."""
        await self._until(lambda: self.is_ready)
        starts = self.starts
        self.signal(signal.SIGTERM)
        await self._until(lambda: self.starts > starts and (self.is_ready or self._process is None))
        return self.is_ready and not self._is_stopping

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if there is one."""
        # That of asyncio would take the exit code of a process that has just ended for itself.
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def stop(self) -> None:
        """Tell the process to end, and start none any more; told again, it is to end at once."""
        self._is_stopping = True
        self._tell()
        self.signal(signal.SIGTERM)

    async def ended(self) -> None:
        """Wait until the process has ended that was told to."""
        if self._guarding is not None:
            await self._guarding
        elif self._process is not None:
            await self._wait(self._process)

    async def _guard(self) -> None:
        pause_s = _PAUSE_S
        while True:
            began_s = time.monotonic()
            if self._process is not None:
                await self._wait(self._process)
            if self._is_stopping:
                return
            if time.monotonic() - began_s > _STEADY_S:
                pause_s = _PAUSE_S
            if self.code:
                extra = {"worker": self.id, "code": self.code, "again_in_s": pause_s}
                log.error("a worker has died", extra={**extra, "hint": self._hint} if self._hint else extra)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._until(lambda: False), pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            await self._begin_again()

    async def _begin_again(self) -> None:
        """Start the process, unless none is wanted any more."""
        if self._is_stopping:
            return
        try:
            await self.prepare()
        except OSError as error:
            log.error("a worker cannot be started", extra={"worker": self.id, "reason": str(error)})  # noqa: TRY400
            self.code = self.code or 1
            return
        if await self.start():
            log.info("a worker serves again", extra={"worker": self.id})

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        """Wait for the end of the process."""
        code = await process.wait()
        # Told to end before it knew how.
        self.code = 0 if self._is_stopping and code == -signal.SIGTERM else code
        self._process, self.is_ready = None, False
        # Nobody waits for what it would show.
        shown_file(self._file.parent, self.id).unlink(missing_ok=True)
        self._tell()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, or no process is started any more."""
        while not is_so() and not self._is_stopping:
            await self._changed.wait()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
