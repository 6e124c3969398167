"""Nodes of etcd of our own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from pequod_bench.systems.server import free_port

from tests.installed import lacking


class Node:
    """A node of etcd on the loopback.

    Args:
        security: Its options for TLS with clients, if it has it.
    """

    def __init__(
        self, name: str, port: int, peer_port: int, nodes: str, folder: Path, security: dict[str, str] | None = None
    ) -> None:
        self.address = f"127.0.0.1:{port}"
        self._log = folder / f"{name}.log"
        peer = f"http://127.0.0.1:{peer_port}"
        client = f"{'https' if security else 'http'}://{self.address}"
        #: Health and figures, in plain text also where clients need TLS.
        self._told = f"127.0.0.1:{free_port()}" if security else self.address
        options = {
            "name": name,
            "data-dir": str(folder / name),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": nodes,
            "heartbeat-interval": "100",
            "election-timeout": "1000",
            **(security or {}),
            **({"listen-metrics-urls": f"http://{self._told}"} if security else {}),
        }
        self._command = ["etcd", *(f"--{name}={value}" for name, value in options.items()), "--unsafe-no-fsync"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.send_signal(signal.SIGCONT)
            process.wait(20)

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def get(self, path: str) -> str:
        with suppress(OSError, URLError), urlopen(f"http://{self._told}{path}", timeout=2) as reply:
            return str(reply.read().decode())
        return ""

    @property
    def is_healthy(self) -> bool:
        return '"true"' in self.get("/health")

    @property
    def is_leader(self) -> bool:
        return "etcd_server_is_leader 1" in self.get("/metrics")


class Etcd:
    """Some nodes of etcd that agree with each other."""

    def __init__(self, folder: Path, count: int, security: dict[str, str] | None = None) -> None:
        ports = [free_port() for _ in range(2 * count)]
        names = [f"n{number}" for number in range(count)]
        peers = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, ports[count:], strict=True))
        self.nodes = [
            Node(name, port, peer, peers, folder, security)
            for name, port, peer in zip(names, ports[:count], ports[count:], strict=True)
        ]

    @property
    def endpoints(self) -> list[str]:
        return [node.address for node in self.nodes]

    def setting(self, cluster: str) -> str:
        """Return the setting `cluster` of a server."""
        return f"etcd:{','.join(self.endpoints)}/{cluster}"

    def start(self) -> None:
        for node in self.nodes:
            if node.process is None:
                node.start()
        for _ in range(600):
            if all(node.is_healthy for node in self.nodes):
                return
            time.sleep(0.05)
        raise AssertionError("etcd does not start")

    @property
    def leader(self) -> Node:
        return next(node for node in self.nodes if node.process is not None and node.is_leader)

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()


@pytest.fixture(scope="session")
def etcd_binary() -> str:
    found = shutil.which("etcd")
    if found is None:
        lacking("etcd is not installed: apt-get install etcd-server")
    return found


@pytest.fixture(scope="module")
def nodes(etcd_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """Three nodes; a test that stops some of them starts them again: see `etcd`.

    They end with the file: to start them takes 0.15 s of CPU, and to keep them 0.025 s each second, in each process of
    the suite and for each folder that imports this.
    """
    etcd = Etcd(tmp_path_factory.mktemp("etcd"), 3)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()


@pytest.fixture
def etcd(nodes: Etcd) -> Iterator[Etcd]:
    """Three nodes that run."""
    for node in nodes.nodes:
        if node.process is not None:
            node.go_on()
    nodes.start()
    yield nodes
    for node in nodes.nodes:
        if node.process is not None:
            node.go_on()


class Losing:
    """A node of etcd of this test's own, whose data are taken from it."""

    def __init__(self, folder: Path) -> None:
        self.etcd = Etcd(folder, 1)
        self._data, self._copy = folder / "n0", folder / "backup"
        self.etcd.start()

    def back_up(self) -> None:
        self.etcd.stop()
        shutil.copytree(self._data, self._copy)
        self.etcd.start()

    def restore(self) -> None:
        self.lose(self._copy)

    def lose(self, copy: Path | None = None) -> None:
        self.etcd.stop()
        shutil.rmtree(self._data)
        if copy is not None:
            shutil.copytree(copy, self._data)
        self.etcd.start()


@pytest.fixture
def losing(etcd_binary: str, tmp_path: Path) -> Iterator[Losing]:
    assert etcd_binary
    losing = Losing(tmp_path)
    yield losing
    losing.etcd.stop()
