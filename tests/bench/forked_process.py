"""A process of a benchmark that runs `pequod`, forked: it has imported what it needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from tempfile import NamedTemporaryFile
from typing import Any, Final, cast

from pequod_bench.systems.server import ServerProcess

from tests.forked import FORKS, run_into

_PEQUOD: Final = [sys.executable, "-m", "pequod.cli"]


def forked_process(command: Sequence[str], **options: Any) -> ServerProcess:
    """Make what `ServerProcess` makes: of another program than `pequod` in a process as ever, of `pequod` in a fork."""
    return ServerProcess(command, **options) if list(command[:3]) != _PEQUOD else _Forked(command[3:], **options)


class _Forked(ServerProcess):
    def __init__(self, arguments: Sequence[str], *, stop: signal.Signals = signal.SIGTERM) -> None:
        said = NamedTemporaryFile()  # noqa: SIM115 -- closed with the process
        process = FORKS.Process(target=run_into, args=(said.name, tuple(arguments), dict(os.environ)), daemon=True)
        process.start()
        assert process.pid is not None
        self._said = said  # type: ignore[assignment]
        self._process = cast("subprocess.Popen[bytes]", _Handle(process))
        self._name = "the server"
        self._stop = stop
        self.pid = process.pid


class _Handle:
    """What is asked of a `Popen`."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.kill = process.kill

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def send_signal(self, number: signal.Signals) -> None:
        # The process that forked it takes its end notice, and its number may be gone.
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("pequod", timeout or 0)
        return code
