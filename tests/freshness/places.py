"""Two servers beside one database, each with a cable of its own where the database is behind one.

server 0 --- proxy 0 ---+
                        +--- PostgreSQL          or both on one file of SQLite
server 1 --- proxy 1 ---+
"""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres.schema import Mode
from pequod_server.backing.postgres.store import PostgresStore

from tests.backing.chaos.proxy import Proxy
from tests.backing.chaos.server import ServerProcess, serve
from tests.backing.chaos.sites import MAPPING, PostgresSite, Site, SqliteSite
from tests.backing.conftest import Postgres

#: Timelines and counts: keys that a server computes from rows that it loads from several tables.
JOINS: Final = (
    "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>; n|<poster> = count p|<poster>|<time>"
)
Fault = Callable[[], Awaitable[None]]


class Place:
    """A database, and two servers beside it that start again when they end.

    Args:
        sites: The database as each server reaches it.
    """

    def __init__(self, sites: Sequence[Site], flags: Sequence[Sequence[str]], folder: Path) -> None:
        self.site = sites[0]
        self._sites = sites
        self.servers = [
            ServerProcess(
                serve, [*some, "--backing-mode", "write-through", "--joins", JOINS], folder / f"server-{number}.log"
            )
            for number, some in enumerate(flags)
        ]

    def faults(self, draw: random.Random) -> dict[str, Fault]:
        """Return what can happen, by name; each is over when it returns, but for the start of a server."""
        faults: dict[str, Fault] = {}
        for number, (site, server) in enumerate(zip(self._sites, self.servers, strict=True)):
            for name, fault in site.faults(draw, is_written_through=True).items():
                faults[f"{name} {number}"] = fault
            faults[f"killed {number}"] = server.kill
            faults[f"stopped {number}"] = lambda server=server: server.kill(signal.SIGTERM)  # type: ignore[misc]
        # These concern the servers of one database alike, or none of them.
        return {name: fault for name, fault in faults.items() if name.split()[0] not in ("unslotted", "busied")}


@asynccontextmanager
async def beside_sqlite(folder: Path) -> AsyncIterator[Place]:
    """Yield two servers beside one file."""
    mapping = folder / "mapping.toml"
    mapping.write_text(MAPPING)
    site = SqliteSite(folder, mapping)
    await site.reset()
    place = Place([site, site], [site.flags, site.flags], folder)
    async with served(place):
        yield place


@asynccontextmanager
async def beside_postgres(folder: Path, postgres: Postgres, feed: Mode) -> AsyncIterator[Place]:
    """Yield two servers beside one PostgreSQL, each with a feed and a cable of its own."""
    mapping = folder / "mapping.toml"
    mapping.write_text(MAPPING)
    async with proxies(2, postgres.directory) as cables:
        sites = [PostgresSite(postgres, cable, mapping, feed) for cable in cables]
        await sites[0].reset()
        await install(postgres.dsn("postgres"), feed)
        flags = [[*site.flags, "--backing-feed-name", name] for site, name in zip(sites, FEED_NAMES, strict=True)]
        place = Place(sites, flags, folder)
        async with served(place):
            yield place


#: Of the servers beside a PostgreSQL.
FEED_NAMES: Final = ("pequod", "pequod_1")


async def install(dsn: str, feed: Mode) -> None:
    """Install what the feeds of both servers need."""
    for name in FEED_NAMES:
        store = PostgresStore(dsn, parse_mappings(MAPPING), mode=feed, feed_name=name)
        await store.install()
        await store.close()


@asynccontextmanager
async def proxies(count: int, behind: Path) -> AsyncIterator[list[Proxy]]:
    """Yield cables to a cluster."""
    # A socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pequod-proxy-", ignore_cleanup_errors=True) as short:
        cables = []
        for number in range(count):
            (Path(short) / str(number)).mkdir()
            cables.append(Proxy(Path(short) / str(number), behind))
        try:
            for cable in cables:
                await cable.start()
            yield cables
        finally:
            await asyncio.gather(*(cable.stop() for cable in cables), return_exceptions=True)


@asynccontextmanager
async def served(place: Place) -> AsyncIterator[None]:
    """Run the servers of a place."""
    for server in place.servers:
        await server.start()
    try:
        yield
    finally:
        for server in place.servers:
            await server.stop()
