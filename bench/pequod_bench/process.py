"""The processes of a run: starting the server, finding it, what it costs, and the event loops of both sides.

CPU seconds and memory come from the operating system's account of the process.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from tempfile import TemporaryFile
from typing import IO, Final, Literal

import psutil

from pequod.errors import PequodError

Loop = Literal["uvloop", "asyncio"]

#: How the server tells its address when it listens.
_SERVING: Final = re.compile(r"serving on (\S+)\n")
#: Longest wait for a started server to listen, and for one that is told to end.
START_S_MAX: Final = 20.0
END_S_MAX: Final = 10.0
#: For the clock of another process, which Python has no call for.
_LIBC: Final = ctypes.CDLL(None)
#: How much a process stands back behind those that are measured.
NICE: Final = 15


class ServerStartError(PequodError):
    """The server of the run did not start; the text holds what it said."""


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


def _cpu_s(process: psutil.Process) -> float:
    """Return the CPU time of a process: to the nanosecond on Linux, elsewhere in ticks of some 10 ms."""
    if sys.platform == "linux":
        clock = ctypes.c_int()
        with suppress(OSError):
            if not _LIBC.clock_getcpuclockid(process.pid, ctypes.byref(clock)):
                return time.clock_gettime(clock.value)
    times = process.cpu_times()
    return times.user + times.system


def stand_back(pid: int) -> None:
    """Have a process, and what it starts from now on, use only the processor time that others leave.

    Raises:
        psutil.Error: It is gone, or not ours.
    """
    process = psutil.Process(pid)
    if psutil.LINUX:
        # On Linux each thread has its own priority, and the threads and processes that it starts inherit it.
        for thread in process.threads():
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, thread.id, NICE)
    else:
        process.nice(NICE)


def listening_pid(target: str) -> int | None:
    """Return the process that listens at ``target`` on this machine, None if none can be seen."""
    host, _, port = target.rpartition(":")
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), int(port))}
        local = {address.address for nic in psutil.net_if_addrs().values() for address in nic}
        if not addresses & local:
            return None
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr:
                # gRPC listens on IPv6 sockets, where an IPv4 address is a mapped one.
                is_there = connection.laddr.ip.removeprefix("::ffff:") in addresses | {"0.0.0.0", "::"}  # noqa: S104 -- compared, not bound
                if is_there and connection.laddr.port == int(port):
                    return connection.pid
    except (OSError, ValueError, psutil.Error):
        return None
    return None


@contextmanager
def started_server(*arguments: str) -> Iterator[tuple[str, int]]:
    """Run `pequod serve` on a free port of this machine; yield its target and its process id.

    Raises:
        ServerStartError: It ended, or did not listen in time.
    """
    with TemporaryFile() as said:
        command = [sys.executable, "-m", "pequod.cli", "serve", "--listen", "127.0.0.1:0", *arguments]
        with subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL) as server:
            try:
                yield wait_until_listening(server, said), server.pid
            finally:
                server.terminate()
                try:
                    server.wait(END_S_MAX)
                except subprocess.TimeoutExpired:
                    server.kill()


def said_so_far(file: IO[bytes]) -> bytes:
    """Return what another process has written into ``file``, without moving the position at which it goes on."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def wait_until_listening(server: subprocess.Popen[bytes], said: IO[bytes], start_s_max: float = START_S_MAX) -> str:
    """Wait for the line in which the server tells its address, and return that.

    Raises:
        ServerStartError: It ended, or did not listen in time.
    """
    deadline = time.monotonic() + start_s_max
    text = ""
    while time.monotonic() < deadline:
        exit_code = server.poll()
        text = said_so_far(said).decode("utf-8", "replace")
        if serving := _SERVING.search(text):
            return serving.group(1)
        if exit_code is not None:
            raise ServerStartError(f"the server ended at once, with exit code {exit_code}:\n{text}")
        time.sleep(0.02)
    raise ServerStartError(f"the server did not listen within {start_s_max:.0f} s:\n{text}")


def loop_factory(loop: Loop = "uvloop") -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the loop, None for asyncio's own; that it is too where uvloop is not installed."""
    if loop == "asyncio" or find_spec("uvloop") is None:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return make


def server_arguments(loop: Loop) -> tuple[str, ...]:
    """Return what makes `pequod serve` run on this loop."""
    return ("--no-uvloop",) if loop == "asyncio" else ()
