"""Server processes of the systems under test: finding, starting, watching, ending."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import psutil

from pequod_bench.process import END_S_MAX, START_S_MAX, ServerStartError, Usage
from pequod_bench.systems.system import Found, Missing, Presence, Server

_VERSION_S_MAX: Final = 10.0
#: Below those that systems give to outgoing connections.
_PORTS: Final = range(20_000, 32_768)
#: How many of them this process has looked at; and how far apart processes with neighbouring numbers begin.
_LOOKED_AT: Final = count()
_APART: Final = 257


def find_program(name: str, install: str, *, folders: Sequence[Path] = ()) -> Presence:
    """Look for a program on PATH and in ``folders``; ``install`` says what to do if it is not there."""
    paths = [str(folder / name) for folder in folders]
    path = next((found for found in map(shutil.which, (name, *paths)) if found), None)
    if path is None:
        return Missing(f"no {name} on PATH; {install}")
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_VERSION_S_MAX, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Missing(f"{path} does not run ({error}); {install}")
    return Found(Path(path), said.stdout.strip().splitlines()[0])


def free_port() -> int:
    """Return a port of the loopback at which nobody listens, and which no outgoing connection takes meanwhile.

    A process gets one after the other, from where its number says, so that it does not get one twice before a server
    listens at it, and hardly one that another process has got for a server that does not listen yet.
    """
    while True:
        port = _PORTS[(os.getpid() * _APART + next(_LOOKED_AT)) % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def running(
    command: Sequence[str],
    port: int,
    *,
    ready: str = "",
    user: str | None = None,
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[Server]:
    """Run a server that listens at ``port`` until the block ends; ``user`` owns the process, if given.

    ``ready`` is what it says when it takes connections, if listening is not enough.

    Raises:
        ServerStartError: It ended, or did not listen in time; with what it said.
    """
    with TemporaryFile() as said:

        def text() -> str:
            said.seek(0)
            return said.read().decode("utf-8", "replace")

        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            user=user,
            group=None if user is None else _group_of(user),
            extra_groups=None if user is None else [],
        ) as process:
            try:
                deadline = time.monotonic() + START_S_MAX
                while not (_listens(port) and ready in text()):
                    if process.poll() is not None:
                        raise ServerStartError(
                            f"{command[0]} ended at once, with exit code {process.returncode}:\n{text()}"
                        )
                    if time.monotonic() > deadline:
                        raise ServerStartError(f"{command[0]} did not listen within {START_S_MAX:.0f} s:\n{text()}")
                    time.sleep(0.02)
                yield Server(port, process.pid)
            finally:
                process.send_signal(stop)
                try:
                    process.wait(END_S_MAX)
                except subprocess.TimeoutExpired:
                    process.kill()


def _group_of(user: str) -> int:
    import pwd  # noqa: PLC0415 -- not on every platform

    return pwd.getpwnam(user).pw_gid


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def tree_usage(pid: int) -> Usage:
    """Return the CPU time and the memory of a server with its child processes, those that ended included.

    Memory is the proportional set size where the system tells it: pages that processes share count once.

    Raises:
        psutil.Error: It is gone, or not ours to look at.
    """
    server = psutil.Process(pid)
    times = server.cpu_times()
    cpu_s = times.user + times.system + times.children_user + times.children_system
    memory_bytes = _memory_bytes(server)
    for child in server.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            spent = child.cpu_times()
            cpu_s += spent.user + spent.system
            memory_bytes += _memory_bytes(child)
    return Usage(cpu_s, memory_bytes)


def _memory_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return process.memory_info().rss
