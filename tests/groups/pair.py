"""A server over two home groups, each a scripted store: posts are split between them, subscriptions are A's.

A   p| .. p|m   s|         both stores have rows outside of their ranges, which nobody may see
B   p|m .. p}   v|
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import FakeStore, KeyRange, parse_mappings
from pequod_server.database.databases import HomeGroup

from pequod.client import AsyncClient
from pequod.freshness import Token
from tests.server.plain import Outcome, outcomes_of, pieces_of

MAPPINGS = parse_mappings("""
[[mapping]]
keys = "s|<user>|<poster>"
table = "subscriptions"

[[mapping]]
keys = "p|<poster>|<time:4>"
table = "posts"
value = "body"

[[mapping]]
keys = "v|<poster>|<voter>"
table = "votes"
""")
JOINS = """
t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
karma|<poster> = count v|<poster>|<voter>;
"""
A_RANGES = (KeyRange(b"p|", b"p|m"), KeyRange(b"s|", b"s}"))
B_RANGES = (KeyRange(b"p|m", b"p}"), KeyRange(b"v|", b"v}"))
FOLLOWING = {b"s|ann|bob": b"", b"s|ann|zoe": b""}


def store(name: str) -> FakeStore:
    """Return an empty store of a name."""
    made = FakeStore(MAPPINGS)
    made.name = name
    return made


class Pair:
    """A server over the two groups, a client of ours, and a plain one."""

    def __init__(self, server: PequodServer, stores: dict[str, FakeStore], client: AsyncClient, stub: Any) -> None:
        self.server = server
        self.stores = stores
        self.a, self.b = stores["A"], stores["B"]
        self.client = client
        self.stub = stub

    def token(self, **positions: int) -> bytes:
        """Return the token of positions of groups by their names."""
        return bytes(Token({self.stores[name].history.mark: at for name, at in positions.items()}))

    async def get(self, key: bytes, freshness: pb.Freshness | None = None) -> pb.GetReply:
        """Get a key by the plain client."""
        reply: pb.GetReply = await self.stub.Get(pb.GetRequest(key=key, freshness=freshness))
        return reply

    async def outcomes(self, request: pb.ExecuteRequest) -> list[Outcome]:
        """Run a batch by the plain client."""
        call = self.stub.Execute()
        pieces = await pieces_of(call, request)
        await call.done_writing()
        return outcomes_of(request.kinds, pieces)

    async def caught_up(self) -> None:
        """Wait until the server has everything of both."""
        await self.server.databases.caught_up()

    async def timeline(self, user: str = "ann") -> list[bytes]:
        """Return the values of a timeline."""
        return [value for _, value in await self.client.scan(f"t|{user}|", f"t|{user}}}")]


def groups(stores: dict[str, FakeStore]) -> list[HomeGroup]:
    """Return the two groups."""
    return [HomeGroup("A", stores["A"], A_RANGES), HomeGroup("B", stores["B"], B_RANGES)]


@asynccontextmanager
async def pair(**settings: object) -> AsyncIterator[Pair]:
    """Serve both groups."""
    stores = {name: store(name) for name in "AB"}
    stores["A"].commit({**FOLLOWING, b"p|bob|0100": b"Hi", b"p|zoe|0100": b"not A's"})
    stores["B"].commit({b"p|zoe|0110": b"Ho", b"p|bob|0110": b"not B's", b"v|bob|ann": b""})
    config = ServerConfig(listen="127.0.0.1:0", joins=JOINS, **settings)  # type: ignore[arg-type]
    server = PequodServer(config, groups=groups(stores))
    target = f"127.0.0.1:{await server.start()}"
    try:
        async with AsyncClient(target, timeout_s=100.0) as client, aio.insecure_channel(target) as channel:
            yield Pair(server, stores, client, PequodStub(channel))  # type: ignore[no-untyped-call]
    finally:
        await server.stop()
        server.databases._check()
        server.engine._check()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that has no event."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
