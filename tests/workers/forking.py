"""Workers in processes that a supervisor has at once: forked from its like, with everything imported.

A worker that a supervisor starts spends half a second of CPU on imports, and the tests start a hundred. What is about
the start itself has workers that are started as by a shell's server: see `test_lives.py`.

    the server of a test --forks--> nursery --forks, for each worker--> a process that forks the worker, and ends

So the worker's parent is the server, as if it had started the worker itself: it takes over children whose parents end.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import socket
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, Final

from tests import forked

#: Of Linux: to name the process, and to take over children.
_SET_NAME: Final = 15
_SET_CHILD_SUBREAPER: Final = 36
#: The most that is told of a worker: its command and its variables.
_TOLD_BYTES_MAX: Final = 1 << 20


def run_serve(says: Connection, flags: tuple[str, ...], variables: dict[str, str], folder: str) -> None:
    """Run `pequod serve` in a forked process, as `tests.forked.run_serve` does, and fork its workers."""
    _control(_SET_CHILD_SUBREAPER, 1)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        here.close()
        says.close()
        _be_nursery(there)
    there.close()

    class Forked(_Forked):
        nursery = here

    # What asyncio makes processes with.
    subprocess.Popen = Forked  # type: ignore[assignment, misc]
    forked.run_serve(says, flags, variables, folder)


class _Forked:
    """A process that the nursery has forked, as `subprocess.Popen` shows it to asyncio."""

    nursery: socket.socket

    def __init__(self, command: tuple[str, ...], *, stdin: int, stdout: int, env: dict[str, str], **_: object) -> None:
        assert stdin == stdout == subprocess.PIPE
        (heard, to_worker), (from_worker, said) = os.pipe(), os.pipe()
        socket.send_fds(self.nursery, [json.dumps([command, env]).encode()], [heard, said])
        os.close(heard)
        os.close(said)
        self.pid = int(self.nursery.recv(32))
        self.stdin: IO[bytes] = os.fdopen(to_worker, "wb", 0)
        self.stdout: IO[bytes] = os.fdopen(from_worker, "rb", 0)
        self.stderr = None
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _be_nursery(asked: socket.socket) -> None:
    """Fork what is asked for, until nobody can ask any more."""
    gc.freeze()
    while True:
        told, fds, _, _ = socket.recv_fds(asked, _TOLD_BYTES_MAX, 2)
        if not told:
            os._exit(0)
        read_end, write_end = os.pipe()
        if (between := os.fork()) == 0:
            os.close(read_end)
            worker = os.fork()
            if worker:
                os.write(write_end, b"%d" % worker)
                os._exit(0)
            os.close(write_end)
            asked.close()
            _be_worker(*json.loads(told), *fds)
        for fd in (write_end, *fds):
            os.close(fd)
        os.waitpid(between, 0)
        asked.send(os.read(read_end, 32))
        os.close(read_end)


def _be_worker(command: list[str], variables: dict[str, str], stdin: int, stdout: int) -> None:
    from pequod_server.workers.entry import main

    os.setsid()
    for fd, standard in ((stdin, 0), (stdout, 1)):
        os.dup2(fd, standard)
        os.close(fd)
    # What Python made of them before.
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 -- until the end
    os.environ.clear()
    os.environ.update(variables)
    file = Path(command[-1])
    _control(_SET_NAME, file.stem.encode())
    code = 1
    try:
        code = main(file)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _control(what: int, value: Any) -> None:
    assert ctypes.CDLL(None).prctl(what, value, 0, 0, 0) == 0
