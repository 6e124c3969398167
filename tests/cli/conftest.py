"""A server process for the module, and the `pequod` command in this process or in one of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from pequod.cli.app import app
from tests.forked import Outcome, started_server

Pequod = Callable[..., Outcome]


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with started_server() as (address, _):
        yield address


@pytest.fixture
def pequod(target: str) -> Pequod:
    """Run a command in this process, against the module's server."""

    def run(*arguments: str, stdin: bytes = b"", target: str = target) -> Outcome:
        result = CliRunner().invoke(app, arguments, input=stdin, env={"PEQUOD_TARGET": target}, prog_name="pequod")
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def process(target: str) -> Pequod:
    """Run a command as a shell does, in a process of its own, with arguments that may be any bytes."""

    def run(*arguments: str | bytes, stdin: bytes = b"", target: str = target) -> Outcome:
        done = subprocess.run(
            [sys.executable, "-m", "pequod.cli", *arguments],
            input=stdin,
            capture_output=True,
            env={"PEQUOD_TARGET": target, "PYTHONUTF8": "1"},
            timeout=60,
            check=False,
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run
