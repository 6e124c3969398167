"""Of two servers with one address, one serves and the other one ends, also while no worker of the first one lives."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from pequod_bench.systems.server import free_port

from pequod import Client
from tests.forked import ForkedServer, run_command
from tests.workers.conftest import Workers

REFUSED = "cannot listen on {}; is another server there?"


def _ended_port() -> int:
    """Return a port where a server has ended whose connections are left (TIME_WAIT)."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with socket.create_connection(listening.getsockname()) as connected:
            listening.accept()[0].close()
            connected.recv(1)
        return int(listening.getsockname()[1])


def _connected(target: str) -> socket.socket:
    host, _, port = target.rpartition(":")
    return socket.create_connection((host, int(port)))


def _until_nobody_listens(target: str) -> None:
    while True:
        try:
            _connected(target).close()
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            # Its worker died meanwhile.
            pass
        time.sleep(0.01)


def _refused(*flags: str) -> None:
    """Pass if a server ends since its address is another one's."""
    try:
        with ForkedServer(*flags):
            pass
    except AssertionError as ended:
        assert "the server ended with 3" in str(ended)
        assert REFUSED.format(flags[flags.index("--listen") + 1]) in str(ended)
    else:
        raise AssertionError("both servers serve")


@pytest.mark.parametrize(
    ("host", "port_of"), [("127.0.0.1", free_port), ("127.0.0.1", _ended_port), ("[::1]", free_port)]
)
def test_of_two_servers_that_begin_at_once_one_serves(host: str, port_of: Callable[[], int], tmp_path: Path) -> None:
    target = f"{host}:{port_of()}"

    def serve(name: str) -> Workers | str:
        try:
            return Workers(2, "--data", str(tmp_path / name), "--listen", target)
        except AssertionError as ended:
            return str(ended)

    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(serve, "ab"))
        serving = [stack.enter_context(one) for one in outcomes if isinstance(one, Workers)]
        assert len(serving) == 1
        (ended,) = (one for one in outcomes if isinstance(one, str))
        assert "the server ended with 3" in ended
        assert REFUSED.format(target) in ended
        with Client(serving[0].target) as client:
            client.put("s|ann|bob", "1")


def test_no_server_takes_the_address_while_all_workers_are_dead(tmp_path: Path) -> None:
    with Workers(2, "--data", str(tmp_path / "data")) as server, Client(server.target) as client:
        client.put("s|ann|bob", "1")
        # It starts them again after a tenth of a second.
        server.send_signal(signal.SIGSTOP)
        for name in server.pids:
            server.kill_worker(name)
        _until_nobody_listens(server.target)
        port = server.target.rpartition(":")[2]
        for flags in (("--workers", "2"), ("--transport", "native"), ("--transport", "grpcio")):
            _refused(*flags, "--listen", server.target)
        for host in ("0.0.0.0", "localhost"):
            _refused("--workers", "2", "--listen", f"{host}:{port}", "--insecure")
        server.send_signal(signal.SIGCONT)
        for _ in server.pids:
            server.hear("a worker serves again")
        _refused("--workers", "2", "--listen", server.target)
        assert client.get("s|ann|bob") == b"1"


def test_the_address_is_free_once_the_supervisor_has_ended(tmp_path: Path) -> None:
    target = "127.0.0.1:0"
    for count in (2, 2, 1, 2):
        with Workers(count, "--data", str(tmp_path / "data"), "--listen", target) as server:
            target = server.target
            with _connected(target) as idle, Client(target) as client:
                client.add("y|1", 1)
                server.send_signal(signal.SIGTERM)
                # The server closes the connection, so that its side is left.
                while idle.recv(1024):
                    pass
                assert server.wait(60) == 0


def test_a_worker_port_that_another_server_has_is_refused() -> None:
    with Workers(2) as server:
        port = server.target.rpartition(":")[2]
        flags = ("--workers", "2", "--listen", "127.0.0.1:0", "--worker-port", str(int(port) - 1))
        outcome = run_command("serve", *flags)
        assert outcome.code == 3
        assert REFUSED.format(f"127.0.0.1:{port}") in outcome.err
