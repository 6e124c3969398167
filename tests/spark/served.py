"""Servers in threads of this process: what Spark's tasks reach over the network all the same, and there at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pequod_server import PequodServer, ServerConfig

from pequod.client import Client
from pequod.client.background import BackgroundLoop
from pequod.engine import Engine

TIMELINE: Final = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


@contextmanager
def served(engine: Engine | None = None, *, access_file: Path | None = None) -> Iterator[str]:
    """Serve an engine, or an empty one, and yield the server's target."""
    background = BackgroundLoop("served")
    # On a busy machine, a query that is started again may take minutes to go on.
    config = ServerConfig(listen="127.0.0.1:0", access_file=access_file, watch_linger_s=1200)
    server, port = background.run(_started(engine or Engine(), config))
    try:
        yield f"127.0.0.1:{port}"
    finally:
        background.close(server.stop)


@contextmanager
def served_timeline() -> Iterator[str]:
    """Serve ann's timeline of one post, and yield the server's target."""
    with served() as target:
        with Client(target) as client:
            client.add_join(TIMELINE)
            client.multi_put({"s|ann|bob": "1", "p|bob|0001": "one"})
        yield target


async def _started(engine: Engine, config: ServerConfig) -> tuple[PequodServer, int]:
    server = PequodServer(config, engine)
    return server, await server.start()
