"""Nodes of etcd on this machine, for runs that want a coordinator."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from pequod_bench.process import START_S_MAX, ServerStartError
from pequod_bench.systems.server import free_port, running


@contextmanager
def started_etcd(folder: Path, count: int) -> Iterator[list[str]]:
    """Run nodes of etcd that agree with each other; yield their addresses.

    Raises:
        ServerStartError: etcd is not installed, or does not start.
    """
    program = shutil.which("etcd")
    if program is None:
        raise ServerStartError("no etcd on this machine; install it with: apt-get install etcd-server")
    names = [f"n{number}" for number in range(1, count + 1)]
    ports = {name: (free_port(), free_port()) for name in names}
    nodes = ",".join(f"{name}=http://127.0.0.1:{peer}" for name, (_, peer) in ports.items())
    with ExitStack() as stack:
        for name, (port, peer) in ports.items():
            options = {
                "name": name,
                "data-dir": str(folder / name),
                "listen-client-urls": f"http://127.0.0.1:{port}",
                "advertise-client-urls": f"http://127.0.0.1:{port}",
                "listen-peer-urls": f"http://127.0.0.1:{peer}",
                "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
                "initial-cluster": nodes,
            }
            # It listens for its peers at once, and for clients when the nodes agree.
            stack.enter_context(running([program, *(f"--{key}={value}" for key, value in options.items())], peer))
        for port, _ in ports.values():
            _wait_until_healthy(port)
        yield [f"127.0.0.1:{port}" for port, _ in ports.values()]


def _wait_until_healthy(port: int) -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        connection = HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/health")
            if b'"true"' in connection.getresponse().read():
                return
        except (OSError, HTTPException):
            time.sleep(0.05)
        finally:
            connection.close()
    raise ServerStartError(f"etcd at port {port} is not healthy after {START_S_MAX:.0f} s")
