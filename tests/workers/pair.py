"""Two workers in one process, and what stands at the door of one for the other."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.passing.native_links import relay_path
from pequod_server.worker import Worker

from pequod.cluster.document import written
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.rendezvous import owners
from pequod.cluster.servers import ServerEntry, ServerRole

IDS: Final = ("w0", "w1")
JOINS: Final = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
TOKEN: Final = "trusted by workers"
#: What stands before each part of a link; see pequod/native/http2/relay.hpp.
HEAD: Final = struct.Struct("=IIBB2x")
STATE, ROLE, CALL, ANSWERED, RETURNED = range(1, 6)


def users_of(worker: str, count: int) -> list[bytes]:
    """Return users whose posts and timelines are computed at a worker."""
    found: list[bytes] = []
    number = 0
    while len(found) < count:
        name = b"user%d" % number
        number += 1
        if {owners(table + name + b"|", [(one, 1.0) for one in IDS])[0] for table in (b"t|", b"p|")} == {worker}:
            found.append(name)
    return found


class Pair:
    """A home and a compute; clients are at the compute, unless they say so."""

    def __init__(self, home: PequodServer, compute: PequodServer, ports: dict[str, int], folder: Path) -> None:
        self.home = home
        self.compute = compute
        self.ports = ports
        self.folder = folder

    @asynccontextmanager
    async def stub(self, worker: str = "w1") -> AsyncIterator[Any]:
        """Return a stub on a connection of its own."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with aio.insecure_channel(f"127.0.0.1:{self.ports[worker]}", options=options) as channel:
            yield PequodStub(channel)  # type: ignore[no-untyped-call]

    @property
    def native(self) -> Any:
        """The hot calls of the compute."""
        return self.compute._server.hot.native  # type: ignore[attr-defined]

    @property
    def link(self) -> Any:
        """The compute's link to the home."""
        assert self.compute._passing is not None and self.compute._passing.relay is not None
        return self.compute._passing.relay._links["w0"].native

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(20):
            while not is_so():  # noqa: ASYNC110 - what is waited for tells nobody
                await asyncio.sleep(0.005)

    async def close_door(self) -> None:
        """Have the home take no calls that are passed on natively; those of Python go on."""
        assert self.home._passing is not None and self.home._passing._door is not None
        await self.home._passing._door.close()
        await self.until(lambda: not self.link.is_up)


class FakeDoor:
    """What stands at the door of the home in its place: it notes what comes, and answers as it is told."""

    def __init__(self, pair: Pair, answer: Callable[[bytes, int, int], bytes] | None = None) -> None:
        self._pair = pair
        self.answer = answer or (lambda _message, _id, _method: b"")
        self.parts: list[tuple[int, bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.AbstractServer | None = None

    async def __aenter__(self) -> Self:
        await self._pair.close_door()
        path = relay_path(f"unix:{self._pair.folder / 'w0'}.sock")
        self._server = await asyncio.start_unix_server(self._serve, path)
        await self._pair.until(lambda: bool(self._pair.link.is_up))
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                size, number, kind, method = HEAD.unpack(await reader.readexactly(HEAD.size))
                message = await reader.readexactly(size)
                self.parts.append((kind, message))
                if kind == CALL and (made := self.answer(message, number, method)):
                    writer.write(made)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    @property
    def calls(self) -> list[bytes]:
        return [message for kind, message in self.parts if kind == CALL]

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self.writers:
            writer.transport.abort()


@asynccontextmanager
async def make_pair(folder: Path, access: str = "", *, joins: str = JOINS, **settings: Any) -> AsyncIterator[Pair]:
    """Run two workers, each as if it were a process of its own."""
    doors = {name: f"unix:{folder / name}.sock" for name in IDS}
    both = frozenset({ServerRole.HOME, ServerRole.COMPUTE})
    entries = [
        ServerEntry("w0", doors["w0"], both, "workers"),
        ServerEntry("w1", doors["w1"], frozenset({ServerRole.COMPUTE})),
    ]
    ranges = tuple(HomeRange(table + b"|", table + b"}", "workers") for table in (b"p", b"s") if joins)
    file = folder / "map.toml"
    file.write_text(written(ClusterState.of(ClusterMap("workers", 1, joins, home_ranges=ranges), entries)))
    if access:
        (folder / "access.toml").write_text(access)
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        settings["access_file"] = folder / "access.toml"
    servers, ports = [], {}
    for name in IDS:
        trusted: dict[str, Any] = {"backing_token": str(folder / "token")} if access and name == "w1" else {}
        config = ServerConfig(
            listen="127.0.0.1:0", cluster=f"static:{file}", cluster_id=name, drain_s=5, **settings, **trusted
        )
        server = PequodServer(config, worker=Worker(name, doors[name], token=TOKEN if access else ""))
        ports[name] = await server.start()
        servers.append(server)
    home, compute = servers
    pair = Pair(home, compute, ports, folder)
    try:
        yield pair
    finally:
        await compute.stop()
        await home.stop()


#: A user whose timeline the home computes, and another one.
THEIRS, OTHER = users_of("w0", 2)
MINE: Final = users_of("w1", 1)[0]


def posts(user: bytes) -> list[bytes]:
    return [b"t|%b|%010d|bob" % (user, at) for at in range(5)]


def timeline(user: bytes, **fields: Any) -> pb.ScanRequest:
    return pb.ScanRequest(first=b"t|" + user + b"|", last=b"t|" + user + b"}", **fields)


async def fill(stub: Any, **call: Any) -> None:
    """Have rows, and timelines that the native core of their worker answers."""
    for user in (THEIRS, OTHER, MINE):
        await stub.Put(pb.PutRequest(key=b"s|%b|bob" % user, value=b"1"), **call)
    for at in range(5):
        await stub.Put(pb.PutRequest(key=b"p|bob|%010d" % at, value=b"post %d" % at), **call)
    for user in (THEIRS, OTHER, MINE):
        assert len([key async for chunk in stub.Scan(timeline(user), **call) for key in chunk.keys]) == 5


def give_back(_message: bytes, number: int, method: int) -> bytes:
    return HEAD.pack(0, number, RETURNED, method)


async def value(stub: Any, user: bytes = THEIRS, **call: Any) -> bytes:
    reply = await stub.Get(pb.GetRequest(key=posts(user)[1]), **call)
    return bytes(reply.value)
