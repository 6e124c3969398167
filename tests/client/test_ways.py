"""Ways to a server that gRPC's own transport has: by default each works for clients, on one transport or the other."""

import asyncio
import logging
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pequod_proto import pequod_pb2 as pb

from pequod import AsyncClient, Client
from pequod.client.transports import VARIABLE
from pequod.errors import DeadlineExceededError, UnavailableError
from pequod.native.http2 import why_absent
from pequod.wire import connection
from tests.client.conftest import ServerProcess
from tests.client.relay import Relay
from tests.client.test_retries import ordered_lane
from tests.forked import ForkedServer
from tests.server.certificates import Authority
from tests.wire.echoing import comes

#: What clients take by default on this machine.
USUAL = "native" if why_absent() is None else "grpcio"
native = pytest.mark.skipif(USUAL != "native", reason="there is no native transport")
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "GRPC_ADDRESS_HTTP_PROXY", "no_grpc_proxy", "no_proxy")

FORKING = """
import gc, os, sys
from pequod import Client

target = sys.argv[1]
with Client(target) as client:
    client.put("a", "1")
    child = os.fork()
    if child == 0:
        with Client(target) as own:
            own.put("b", "2")
            found = own.get("a")
        del client
        gc.collect()
        os._exit(0 if found == b"1" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert client.get("b") == b"2"
    print(client)
"""


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a transport nor a proxy in the environment."""
    for variable in (VARIABLE, *PROXIES):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def port(server: ServerProcess) -> Iterator[str]:
    """The port of a server at 127.0.0.1."""
    yield server.target.rpartition(":")[2]


async def works(target: str, transport: str = USUAL, **settings: str) -> None:
    """See that a client of a target works, and by which transport."""
    async with AsyncClient(target, **settings) as client:  # type: ignore[arg-type]
        assert repr(client) == f"<AsyncClient of {target} by {transport}>"
        await client.put("a", target)
        assert await client.get("a") == target.encode()
        await client.statistics()


class Forwarding:
    """Servers that lead to another one: a proxy of HTTP, and a Unix socket."""

    def __init__(self, port: str) -> None:
        self._port = int(port)
        self._tasks: set[asyncio.Task[None]] = set()
        #: What the proxy was asked.
        self.asked: list[bytes] = []

    async def proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lead to the server, whatever is asked for."""
        self.asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await self.lead(reader, writer)

    async def lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lead to the server."""
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._tasks |= {asyncio.ensure_future(one) for one in (self._pass(reader, back), self._pass(there, writer))}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(1 << 16):
                writer.write(piece)
        finally:
            writer.close()

    @asynccontextmanager
    async def serving(self, server: asyncio.Server) -> AsyncIterator[asyncio.Server]:
        """End connections and the server behind the test."""
        try:
            yield server
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_names_and_addresses_of_version_4(server: ServerProcess, port: str) -> None:
    for target in (server.target, f"localhost:{port}", f"dns:localhost:{port}", f"dns:///localhost:{port}"):
        await works(target)
    await works(f"ipv4:{server.target}")


async def test_several_addresses_are_left_to_grpc(server: ServerProcess) -> None:
    await works(f"ipv4:{server.target},{server.target}", "grpcio")


async def test_addresses_of_version_6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with ForkedServer("--listen", "[::1]:0") as server:
        await works(server.target)
        await works(f"ipv6:{server.target}")


async def test_unix_sockets_in_each_spelling(port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    forwarding = Forwarding(port)
    async with forwarding.serving(await asyncio.start_unix_server(forwarding.lead, "socket")):
        for target in (f"unix:{tmp_path}/socket", f"unix://{tmp_path}/socket", "unix:socket"):
            await works(target)


@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy"])
async def test_calls_to_another_machine_go_through_the_proxy_of_the_environment(
    server: ServerProcess, port: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    forwarding = Forwarding(port)
    async with forwarding.serving(await asyncio.start_server(forwarding.proxy, "127.0.0.1", 0)) as listening:
        host, number = listening.sockets[0].getsockname()
        monkeypatch.setenv(variable, f"http://{host}:{number}")
        await works("cache.example:7744", "grpcio")
        assert [line.partition(b" HTTP")[0] for line in forwarding.asked] == [b"CONNECT cache.example:7744"]
        await works(server.target)
        assert len(forwarding.asked) == 1, "this machine is reached without one"


@native
async def test_the_log_says_which_transport_a_client_takes_and_why(
    server: ServerProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with caplog.at_level(logging.DEBUG, "pequod.client"):
        with Client(server.target) as client:
            assert repr(client) == f"<Client of {server.target} by native>"
        with Client("cache.example:1") as client:
            assert repr(client) == "<Client of cache.example:1 by grpcio>"
        with Client("pequod+cluster://127.0.0.1:1,cache.example:1") as client:
            assert repr(client).endswith(" by grpcio, native>")
    assert caplog.messages[:2] == [
        f"calls to {server.target} go by native",
        "calls to cache.example:1 go by grpcio: the native transport does not do what http_proxy asks for",
    ]


async def test_a_server_that_died_is_found_again_when_it_is_back(server: ServerProcess) -> None:
    async with AsyncClient(server.target, retries=0) as client:
        await client.put("a", "1")
        server.kill()
        with pytest.raises(UnavailableError):
            await client.put("a", "2")
        server.start()
        async with asyncio.timeout(20):
            while True:
                try:
                    await client.put("a", "3")
                    break
                except UnavailableError:
                    await asyncio.sleep(0.05)
        assert await client.get("a") == b"3"


@native
async def test_a_cut_of_the_network_is_found_once_a_call_is_late(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_SIGN_S", 0.1)
    async with Relay(server.target) as relay, AsyncClient(relay.target) as client:
        await client.put("a", "1")
        for late in (batch_that_is_late, call_that_is_late):
            (lost,) = client._link._channel._connections  # type: ignore[attr-defined]
            relay.passing.clear()
            with pytest.raises(DeadlineExceededError):
                await late(client)
            async with asyncio.timeout(20):
                await lost.over.wait()
            assert lost.why == "the server gave no sign of life"
            relay.passing.set()
            assert await client.get("a") == b"1"
        assert relay.connections == 3


async def batch_that_is_late(client: AsyncClient) -> None:
    lane = ordered_lane(client)
    usual_s, lane._timeout_s = lane._timeout_s, 0.05
    try:
        await client.get("a")
    finally:
        lane._timeout_s = usual_s


async def call_that_is_late(client: AsyncClient) -> None:
    await client._link.unary("Stats", pb.StatsRequest(), timeout_s=0.05)


@native
async def test_a_server_that_is_only_slow_keeps_its_connection(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        await client.put("a", "1")
        (lasting,) = client._link._channel._connections  # type: ignore[attr-defined]
        read_count = lasting._read_count
        lasting.doubt()
        await comes(lambda: lasting._read_count > read_count)
        lasting._end_doubt(read_count)
        assert await client.get("a") == b"1"
        assert not lasting.over.is_set()


def test_a_process_that_is_forked_after_calls_makes_a_client_of_its_own(server: ServerProcess) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING, server.target]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.fullmatch(rf"<Client of \S+ by {USUAL}>\n", ended.stdout)


async def test_the_authorities_of_grpc_are_trusted_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, "authority")
    pair = authority.sign("cache", "localhost")
    flags = ("--tls-certificate", str(pair.certificate), "--tls-key", str(pair.key))
    with ForkedServer("--listen", "localhost:0", *flags) as server:
        async with AsyncClient(server.target, tls=True, retries=0) as client:
            with pytest.raises(UnavailableError):
                await client.get("a")
        monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(authority.path))
        async with AsyncClient(server.target, tls=True, transport=USUAL) as client:
            assert await client.get("a") is None
