"""A server in this event loop with settings of the test's choice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpc import aio
from pequod_server import PequodServer, ServerConfig

from pequod.engine import Engine


def connect(port: int) -> aio.Channel:
    """Open a channel with a connection of its own."""
    return aio.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])


@asynccontextmanager
async def serving(config: ServerConfig, engine: Engine | None = None) -> AsyncIterator[int]:
    """Run a server; yield its port."""
    server = PequodServer(config, engine)
    port = await server.start()
    try:
        yield port
    finally:
        await server.stop()
        server.engine._check()
