"""Processes of a run."""

from __future__ import annotations

import subprocess
import sys

import psutil
from pequod_bench.systems.server import stand_back

_CHILD = """
import subprocess, sys, threading
start = threading.Event()
def work():
    start.wait()
    print(subprocess.run([sys.executable, "-c", "import os; print(os.nice(0))"], capture_output=True, text=True).stdout)
threading.Thread(target=work).start()
print("ready", flush=True)
sys.stdin.readline()
start.set()
"""


def test_who_stands_back_does_so_with_all_that_it_starts() -> None:
    """Also with what other threads start, as those of Java do."""
    command = [sys.executable, "-c", _CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        stand_back(process.pid)
        assert psutil.Process(process.pid).nice() == 15
        told, _ = process.communicate("\n")
    assert told.strip() == "15"
