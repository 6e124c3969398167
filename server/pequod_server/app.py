"""The server put together: engine, service, listening socket, signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from importlib import import_module
from importlib.util import find_spec

from grpc import aio
from pequod_proto.pequod_pb2_grpc import add_PequodServicer_to_server

from pequod.engine import Engine
from pequod_server.config import ServerConfig
from pequod_server.service import PequodService

log = logging.getLogger("pequod.server")


class PequodServer:
    """A server in the running event loop.

    Example:
        server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
        port = await server.start()
        await server.stop()
    """

    def __init__(self, config: ServerConfig, engine: Engine | None = None) -> None:
        self._config = config
        self.engine = engine or Engine(key_bytes_max=config.key_bytes_max, value_bytes_max=config.value_bytes_max)
        self._server = aio.server(
            options=[
                ("grpc.max_receive_message_length", config.message_bytes_max),
                ("grpc.max_send_message_length", -1),
                # Two servers on one port would share its connections at random.
                ("grpc.so_reuseport", 0),
            ]
        )
        self.service = PequodService(self.engine, config)
        add_PequodServicer_to_server(self.service, self._server)  # type: ignore[no-untyped-call]

    async def start(self) -> int:
        """Listen, and return the port.

        Raises:
            OSError: The address cannot be listened on.
        """
        try:
            port = self._server.add_insecure_port(self._config.listen)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._config.listen}; is another server there?") from error
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Take no more calls, let those that are under way finish within the drain time, and close."""
        stopping = asyncio.ensure_future(self._server.stop(self._config.drain_s))
        await asyncio.sleep(0)
        self.service.end_streams()
        await stopping


def run(config: ServerConfig) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code."""
    with asyncio.Runner(loop_factory=_loop_factory(config)) as runner:
        try:
            return runner.run(_serve(config))
        except OSError as error:
            print(f"pequod: {error}", file=sys.stderr)
            return 1


async def _serve(config: ServerConfig) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    server = PequodServer(config)
    port = await server.start()
    tame_collector()
    host, _, _ = config.listen.rpartition(":")
    print(f"pequod serving on {host}:{port}", file=sys.stderr, flush=True)
    await stopping.wait()
    print("pequod stopping", file=sys.stderr, flush=True)
    await server.stop()
    return 0


def tame_collector() -> None:
    """Keep the cyclic garbage collector off the hot path.

    The engine holds millions of lists and dictionaries and makes no cycles of garbage to speak of (a dropped
    context is one), so full collections only cost: 0.3 s for each million containers. What exists at the start is
    frozen, and young collections become rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1_000)


def _loop_factory(config: ServerConfig) -> type[asyncio.AbstractEventLoop] | None:
    if not config.uvloop or find_spec("uvloop") is None:
        return None
    loop: type[asyncio.AbstractEventLoop] = import_module("uvloop").Loop
    return loop
