"""A process of pytest that waits with all that tests import but Pequod, and forks a child for each run of some tests.

The start of pytest takes a second of CPU, most tests that find something a hundredth. `Forking` asks, and what waits is
this module once more, as a plugin: `-p tests.mutations.forking`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.native.scratch import FOR_EVER, command_of, failed_of

#: What most tests import, none of which imports Pequod.
_IMPORTED: Final = (
    *("hypothesis", "hypothesis.stateful", "hypothesis.strategies", "typer.main", "typer.testing", "pydantic"),
    *("pydantic_settings", "grpc", "grpc.aio", "google.protobuf.message", "google.protobuf.json_format", "uvloop"),
    *("rich.console", "rich.table", "numpy", "xml.etree.ElementTree", "unittest.mock"),
)
_POLLED_S: Final = 0.02
_VARIABLE: Final = "PEQUOD_FORKING"


class Forking:
    """Runs tests on a folder of sources, each time with Pequod as it is there then."""

    def __init__(self, folder: Path) -> None:
        command, environment = command_of(folder, ("-p", __name__, "tests"))
        environment |= {_VARIABLE: "1", "GRPC_ENABLE_FORK_SUPPORT": "0"}
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def failure(self, tests: Sequence[str], seconds_max: float, cpu_s_max: int) -> str | None:
        """Run tests until one fails; return which, or how they end. None: they pass.

        Args:
            tests: Their ids.
            seconds_max: By the clock.
            cpu_s_max: Of each process.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps([list(tests), seconds_max, cpu_s_max])}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "pytest has ended"
        code, said = json.loads(answer)
        return FOR_EVER if code is None else failed_of(code, said)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


if _VARIABLE in os.environ:
    # A wrapper, to come before the one that takes the standard streams away.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(args: list[str]) -> Generator[None, None, None]:
        """Fork for each line of the standard input; go on in the children, with the tests that it asks for."""
        for name in _IMPORTED:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        answers = os.fdopen(os.dup(1), "w")
        said = Path(f".said-{os.getpid()}")
        for line in iter(sys.stdin.readline, ""):
            tests, seconds_max, cpu_s_max = json.loads(line)
            child = os.fork()
            if not child:
                _begin(said, cpu_s_max)
                answers.close()
                args[args.index("tests") :] = tests
                return (yield)
            code = _ended(child, seconds_max)
            answers.write(f"{json.dumps([code, said.read_text('utf-8', 'replace')])}\n")
            answers.flush()
        os._exit(0)


def _begin(said: Path, cpu_s_max: int) -> None:
    os.environ.pop(_VARIABLE)
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s_max, cpu_s_max + 5))
    out = os.open(said, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(source, target)


def _ended(child: int, seconds_max: float) -> Any:
    """Wait for a child, end what it has left, and return its exit code; None: it goes on for ever."""
    deadline_s = time.monotonic() + seconds_max
    code: int | None = None
    while time.monotonic() < deadline_s:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(_POLLED_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
