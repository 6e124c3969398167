"""A process of pytest that waits, and forks a child for each run of some tests.

The start of pytest takes a second of CPU, most tests that find something a hundredth. The process waits with all that
tests import but Pequod, where the native core is another one each time; or with all tests collected, where functions in
Python are (`patching`). `Forking` asks, and what waits is this module once more, as a plugin.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.mutations.patching import patch
from tests.native.scratch import FOR_EVER, command_of, failed_of

#: What most tests import, none of which imports Pequod.
_IMPORTED: Final = (
    *("hypothesis", "hypothesis.stateful", "hypothesis.strategies", "typer.main", "typer.testing", "pydantic"),
    *("pydantic_settings", "grpc", "grpc.aio", "google.protobuf.message", "google.protobuf.json_format", "uvloop"),
    *("rich.console", "rich.table", "numpy", "xml.etree.ElementTree", "unittest.mock"),
)
_POLLED_S: Final = 0.02
#: Where the process waits, and the pipes of questions and of answers.
_VARIABLE: Final = "PEQUOD_FORKING"
_UNPATCHED: Final = 77


class Forking:
    """Runs tests on a folder of sources.

    Args:
        folder: Of the sources.
        collected: Files of all tests that are asked for, if functions are patched; else Pequod is as it is there then.
    """

    def __init__(self, folder: Path, collected: Sequence[str] = ()) -> None:
        command, environment = command_of(folder, ("-p", __name__, *(collected or ("tests",))))
        (asked, self._asks), (self._answered, answers) = os.pipe(), os.pipe()
        place = "collected" if collected else "begun"
        environment |= {_VARIABLE: f"{place} {asked} {answers}", "GRPC_ENABLE_FORK_SUPPORT": "0"}
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(asked, answers),
        )
        os.close(asked)
        os.close(answers)
        self._answers = os.fdopen(self._answered)

    def failure(
        self, tests: Sequence[str], seconds_max: float, cpu_s_max: int, patched: tuple[str, str, str] | None = None
    ) -> str | None:
        """Run tests until one fails; return which, or how they end. None: they pass.

        Args:
            tests: Their ids.
            seconds_max: By the clock.
            cpu_s_max: Of each process.
            patched: A file, its text, and that which its functions go by meanwhile.

        Raises:
            UnpatchedError: More than functions differ in the text.
        """
        question = [list(tests), seconds_max, cpu_s_max, patched]
        os.write(self._asks, f"{json.dumps(question)}\n".encode())
        answer = self._answers.readline()
        assert answer, "pytest has ended"
        code, said = json.loads(answer)
        if code == _UNPATCHED:
            raise UnpatchedError
        return FOR_EVER if code is None else failed_of(code, said)

    def close(self) -> None:
        """End the process."""
        os.close(self._asks)
        self._process.wait()
        self._answers.close()


class UnpatchedError(Exception):
    """The text differs in what has run when the module was imported."""


if _VARIABLE in os.environ:
    #: What a child prints.
    _SAID: Final = Path(f".said-{os.getpid()}").absolute()
    _place, *_pipes = os.environ.pop(_VARIABLE).split()

    # A wrapper, to come before the one that takes the standard streams away.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(args: list[str]) -> Generator[None, None, None]:
        """Fork before Pequod is imported; go on in the children, with the tests that they run."""
        if _place == "begun":
            for name in _IMPORTED:
                with contextlib.suppress(ImportError):
                    importlib.import_module(name)
            args[args.index("tests") :] = _forked()[0]
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(session: pytest.Session) -> None:
        """Fork where all tests are collected; go on in the children, with those that they run."""
        if _place == "collected":
            items = {item.nodeid: item for item in session.items}
            gc.collect()
            gc.freeze()
            tests, patched = _forked()
            if patched is not None:
                gc.unfreeze()
                if not patch(*patched):
                    os._exit(_UNPATCHED)
            session.items[:] = [items[test] for test in tests]

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(report: pytest.TestReport) -> None:
        """End the child with the first test that fails."""
        if _place == "collected" and report.failed:
            # By its name: pytest has other files in the places of the standard streams now.
            with _SAID.open("a") as said:
                said.write(f"{'FAILED' if report.when == 'call' else 'ERROR'} {report.nodeid}\n{report.longreprtext}\n")
            os._exit(1)


def _forked() -> tuple[list[str], tuple[str, str, str] | None]:
    """Fork for each question; return in the children, with its tests and what is patched for them."""
    asked, answers = os.fdopen(int(_pipes[0])), os.fdopen(int(_pipes[1]), "w")
    for line in iter(asked.readline, ""):
        tests, seconds_max, cpu_s_max, patched = json.loads(line)
        child = os.fork()
        if not child:
            asked.close()
            answers.close()
            _begin(cpu_s_max)
            return tests, patched
        code = _ended(child, seconds_max)
        answers.write(f"{json.dumps([code, _SAID.read_text('utf-8', 'replace')])}\n")
        answers.flush()
    os._exit(0)


def _begin(cpu_s_max: int) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s_max, cpu_s_max + 5))
    out = os.open(_SAID, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for target in (1, 2):
        os.dup2(out, target)


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
