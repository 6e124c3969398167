"""A PostgreSQL and a standby that takes its place when it is killed, and two servers that find the new one.

server 0 --- proxy 0 ---+--- primary  --log-->  standby
server 1 --- proxy 1 ---+       x                  |
                        +--------------------------+    after `fail_over`
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import asyncpg

from tests.backing.chaos.proxy import Proxy
from tests.backing.chaos.sites import MAPPING, PostgresSite
from tests.backing.chaos.standby import Standby
from tests.backing.conftest import Postgres, started
from tests.freshness.places import FEED_NAMES, Place, install, proxies, served


class Pair:
    """The database of two servers."""

    def __init__(self, primary: Postgres, standby: Standby, cables: list[Proxy], place: Place) -> None:
        self.primary = primary
        self.standby = standby
        self.place = place
        self._cables = cables
        self.is_failed_over = False

    async def be_synchronous(self) -> None:
        """Have the primary acknowledge no commit that the standby has not got."""
        connection = await asyncpg.connect(self.primary.dsn("postgres"))
        await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await connection.execute("SELECT pg_reload_conf()")
        async with asyncio.timeout(60):
            while not await connection.fetchval(  # noqa: ASYNC110 - nothing tells us
                "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            ):
                await asyncio.sleep(0.02)
        await connection.close()

    async def catch_up(self) -> None:
        """Wait until the standby has all that the primary has committed."""
        connection = await asyncpg.connect(self.primary.dsn("postgres"))
        position = await connection.fetchval("SELECT pg_current_wal_flush_lsn()::text")
        async with asyncio.timeout(60):
            while not await connection.fetchval(  # noqa: ASYNC110 - nothing tells us
                "SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= $1::text::pg_lsn", position
            ):
                await asyncio.sleep(0.02)
        await connection.close()

    async def part(self) -> None:
        """Stop the standby: what is committed from now on is lost with the primary."""
        await asyncio.to_thread(self.standby.stop)

    async def fail_over(self) -> None:
        """Kill the primary, promote the standby, and have the servers find it."""
        await asyncio.to_thread(_kill, self.primary)
        if not self.standby.is_running:
            await asyncio.to_thread(self.standby.start)
        await asyncio.to_thread(self.standby.promote)
        for cable in self._cables:
            cable.behind = self.standby.directory
            cable.cut()
        self.is_failed_over = True

    async def bodies(self) -> dict[str, str]:
        """Return the posts that the present primary has, by key."""
        present = self.standby if self.is_failed_over else self.primary
        connection = await asyncpg.connect(present.dsn("postgres"))
        rows = await connection.fetch("SELECT poster, at, body FROM posts")
        await connection.close()
        return {f"p|{poster}|{at:010}": body for poster, at, body in rows}


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    """Yield a primary with a standby, and two servers that follow it."""
    mapping = folder / "mapping.toml"
    mapping.write_text(MAPPING)
    with ExitStack() as stack:
        primary = stack.enter_context(started(Postgres))
        # A socket's path must be short.
        short = tempfile.TemporaryDirectory(prefix="pequod-pg-", ignore_cleanup_errors=True)
        standby = await asyncio.to_thread(Standby, primary, Path(stack.enter_context(short)))
        await asyncio.to_thread(standby.start)
        stack.callback(lambda: standby.stop(kill=True) if standby.is_running else None)
        async with proxies(2, primary.directory) as cables:
            sites = [PostgresSite(primary, cable, mapping, "slot") for cable in cables]
            await sites[0].reset()
            await install(primary.dsn("postgres"), "slot")
            flags = [[*site.flags, "--backing-feed-name", name] for site, name in zip(sites, FEED_NAMES, strict=True)]
            place = Place(sites, flags, folder)
            async with served(place):
                yield Pair(primary, standby, cables, place)


def _kill(postgres: Postgres) -> None:
    """Kill all processes of a cluster that we started, as a machine without power does."""
    process = postgres._process
    assert process is not None
    found = subprocess.run(["pgrep", "-P", str(process.pid)], check=False, capture_output=True, text=True)
    for pid in [process.pid, *map(int, found.stdout.split())]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(30)
