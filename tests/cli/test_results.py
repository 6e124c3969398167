"""Where results cannot be written, commands say so and end with a code of their own; no character stops them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from pequod_bench.systems.server import free_port

from pequod import Client

PEQUOD = f"{sys.executable} -m pequod.cli"
LOST = "pequod: cannot write the results: {}\n"


def shell(command: str, target: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash; PEQUOD is the command."""
    environment = {**os.environ, "PEQUOD": PEQUOD, "PEQUOD_TARGET": target, **variables}
    line = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def rows(target: str) -> None:
    with Client(target) as client:
        client.put("ü|é", "ü—x")
        client.multi_put({f"many|{number:06}": "a value of some length" * 4 for number in range(5000)})


COMMANDS = ["get 'many|000001'", "scan --prefix 'many|'", "scan --json --prefix 'ü|'", "--version", "--help", "stats"]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("command", [*COMMANDS, "dump --prefix 'many|'"])
@pytest.mark.parametrize(("to", "reason"), [("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")])
def test_results_that_cannot_be_written_end_a_command_with_5(target: str, command: str, to: str, reason: str) -> None:
    done = shell(f"$PEQUOD {command} >{to}", target)
    assert (done.returncode, done.stderr) == (5, LOST.format(reason))


def test_a_command_without_results_does_its_work_with_all_streams_closed(target: str) -> None:
    assert shell("$PEQUOD put 'closed|1' 1 <&- >&- 2>&-", target).returncode == 0
    assert shell("$PEQUOD get 'closed|2' <&- >&- 2>&-", target).returncode == 1
    assert shell("$PEQUOD get 'closed|1'", target).stdout == "1\n"


@pytest.mark.usefixtures("rows")
def test_a_reader_that_ends_first_ends_a_command_as_other_programs(target: str) -> None:
    done = shell("$PEQUOD scan --prefix 'many|' | head -n 1", target)
    assert (done.returncode, done.stderr) == (141, "")
    assert done.stdout.startswith("many|000000\t")


@pytest.mark.usefixtures("rows")
def test_characters_that_the_encoding_lacks_are_the_escapes_of_their_bytes(target: str) -> None:
    variables = {"PYTHONIOENCODING": "ascii"}
    done = shell("$PEQUOD scan --prefix 'ü|'", target, **variables)
    assert (done.returncode, done.stdout) == (0, "\\xc3\\xbc|\\xc3\\xa9\t\\xc3\\xbc\\xe2\\x80\\x94x\n")
    done = shell("$PEQUOD scan --json --prefix 'ü|'", target, **variables)
    assert json.loads(done.stdout) == {"key": "ü|é", "value": "ü—x"}
    assert done.stdout.isascii()


def test_a_server_runs_with_its_streams_closed() -> None:
    target = f"127.0.0.1:{free_port()}"
    line = f"exec $PEQUOD serve --listen {target} <&- >&- 2>&-"
    process = subprocess.Popen(["bash", "-c", line], env={**os.environ, "PEQUOD": PEQUOD})
    try:
        while shell("$PEQUOD put 'a' 1", target).returncode == 4:
            assert process.poll() is None, "it runs"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
