"""Processes of servers: finding the program, starting, watching and ending it, what it costs, and event loops.

CPU seconds and memory come from the operating system's account of the process.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, TypeVar

import psutil

from pequod.errors import PequodError
from pequod_bench.settings import Loop
from pequod_bench.systems.system import Found, Missing, Presence, Server

T = TypeVar("T")

#: How `pequod serve` tells its address when it listens.
_SERVING: Final = re.compile(r"serving on (\S+)\n")
#: Longest wait for a started server to listen, and for one that is told to end.
START_S_MAX: Final = 60.0
END_S_MAX: Final = 10.0
#: Ports below those that systems give to outgoing connections, how many of them this process has looked at, and how far
#: apart processes with neighbouring numbers begin.
_PORTS: Final = range(20_000, 32_768)
_LOOKED_AT: Final = count()
_APART: Final = 257


class ServerStartError(PequodError):
    """The server of the run did not start; the text holds what it said."""


class ServerProcess:
    """A server that is a process of its own; ``user`` owns it, if given, and ``stop`` is the signal that ends it."""

    def __init__(
        self, command: Sequence[str], *, user: str | None = None, stop: signal.Signals = signal.SIGTERM
    ) -> None:
        self._said = TemporaryFile()  # noqa: SIM115 -- closed with the process
        own = {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": list[int]()}
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said, **own)  # type: ignore[call-overload]
        self._name = command[0] if command[0] != sys.executable else "the server"
        self._stop = stop
        self.pid: int = self._process.pid

    def wait(self, ready: Callable[[str], T | None], start_s_max: float = START_S_MAX) -> T:
        """Wait until ``ready`` makes something of what it has said, and return that.

        Raises:
            ServerStartError: It ended, or was not ready in time; with what it said.
        """
        deadline = time.monotonic() + start_s_max
        while True:
            code = self._process.poll()
            text = os.pread(self._said.fileno(), os.fstat(self._said.fileno()).st_size, 0).decode("utf-8", "replace")
            if (found := ready(text)) is not None:
                return found
            if code is not None:
                raise ServerStartError(f"{self._name} ended at once, with exit code {code}:\n{text}")
            if time.monotonic() > deadline:
                said = f":\n{text}" if text else ", and has said nothing: is the machine busy?"
                raise ServerStartError(f"{self._name} did not listen within {start_s_max:.0f} s{said}")
            time.sleep(0.02)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._process.send_signal(self._stop)
        try:
            self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
        self._said.close()


@contextmanager
def started_server(*arguments: str) -> Iterator[tuple[str, int]]:
    """Run `pequod serve` on a free port of this machine; yield its target and its process id."""
    process = ServerProcess([sys.executable, "-m", "pequod.cli", "serve", "--listen", "127.0.0.1:0", *arguments])
    try:
        yield process.wait(serving), process.pid
    finally:
        process.end()


def serving(text: str) -> str | None:
    """Return the address that `pequod serve` has said, if it has."""
    found = _SERVING.search(text)
    return found and found[1]


@contextmanager
def running(
    command: Sequence[str],
    port: int,
    *,
    ready: str = "",
    user: str | None = None,
    stop: signal.Signals = signal.SIGTERM,
) -> Iterator[Server]:
    """Run a server that listens at ``port`` until the block ends.

    ``ready`` is what it says when it takes connections, if listening is not enough.
    """
    process = ServerProcess(command, user=user, stop=stop)
    try:
        process.wait(lambda text: True if ready in text and _listens(port) else None)
        yield Server(port, process.pid)
    finally:
        process.end()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def find_program(name: str, install: str, *, folders: Sequence[Path] = ()) -> Presence:
    """Look for a program on PATH and in ``folders``; ``install`` says what to do if it is not there."""
    paths = [str(folder / name) for folder in folders]
    path = next((found for found in map(shutil.which, (name, *paths)) if found), None)
    if path is None:
        return Missing(f"no {name} on PATH; {install}")
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=END_S_MAX, check=True)
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


def listening_pid(target: str) -> int | None:
    """Return the process that listens at ``target`` on this machine, None if none can be seen."""
    host, _, port = target.rpartition(":")
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), int(port))}
        local = {address.address for nic in psutil.net_if_addrs().values() for address in nic}
        here = addresses | {"0.0.0.0", "::"} if addresses & local else set[str]()  # noqa: S104 -- compared, not bound
        listening = (
            # gRPC listens on IPv6 sockets, where an IPv4 address is a mapped one.
            one.pid
            for one in psutil.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN
            and one.laddr
            and one.laddr.port == int(port)
            and one.laddr.ip.removeprefix("::ffff:") in here
        )
        return next(listening, None)
    except (OSError, ValueError, psutil.Error):
        return None


class Stopwatch:
    """Wall and CPU time of this process since it was started."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        return time.perf_counter() - self._wall

    def cpu_seconds(self) -> float:
        return time.process_time() - self._cpu


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used so far."""

    cpu_s: float
    rss_bytes: int


def usage(pid: int) -> Usage:
    """Return the CPU time and the resident memory of a process.

    Raises:
        psutil.Error: It is gone, or not ours to look at.
    """
    process = psutil.Process(pid)
    return Usage(_cpu_s(process), process.memory_info().rss)


def seen_usage(pid: int | None) -> Usage | None:
    """Return the same, or None if there is no process that can be looked at."""
    try:
        return None if pid is None else usage(pid)
    except psutil.Error:
        return None


def _cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process: to the nanosecond on Linux, elsewhere in ticks of some 10 ms."""
    if sys.platform == "linux":
        with suppress(OSError):
            # The kernel's number for the clock of another process, which Python has no call for.
            return time.clock_gettime((~process.pid << 3) | 2)
    times = process.cpu_times()
    return times.user + times.system


def tree_usage(pid: int) -> Usage:
    """Return the CPU time and the memory of a server with its child processes, those that ended included.

    Memory is the proportional set size where the system tells it: pages that processes share count once.
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


def loop_factory(loop: Loop = "uvloop") -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the loop, None for asyncio's own; that it is too where uvloop is not installed."""
    if loop == "asyncio" or find_spec("uvloop") is None:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return make
