"""Histories of clients of several servers before one database, which read the latest while servers are stopped.

    clients --+--> home 1 --+--> SQLite        each call goes to any of the servers;
              +--> home 2 --+                  one server at a time gets SIGSTOP, and goes on later
              +--> compute ----> homes 1, 2

A server that was stopped goes on with what it knew before. A read of the latest has to notice; a read that fails has
read nothing.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from pequod_server.backing import Mapping, SqliteStore

from pequod import AsyncClient
from pequod.errors import UnavailableError
from pequod.freshness import Freshness, Latest
from tests.forked import ForkedServer
from tests.linearizable.history import CLIENTS, OPERATIONS, History, Server

#: A machine that is busy takes its time.
LATEST: Final = Latest(wait_s=60.0)
_CALL_S_MAX: Final = 90.0
_STOPPED_S: Final = 0.5
#: Half of the calls are reads.
_KINDS: Final = 10


@contextmanager
def _serving(file: Path, serve: Callable[..., None] | None) -> Iterator[list[ForkedServer]]:
    """Run two homes before a database and a compute behind them."""
    started = list[ForkedServer]()

    def start(backing: str) -> ForkedServer:
        tables = ("--backing-tables", "h", "--backing-mode", "write-through")
        started.append(
            ForkedServer("--listen", "127.0.0.1:0", "--slow-ms", "0", "--backing", backing, *tables, serve=serve)
        )
        return started[-1]

    try:
        homes = [start(f"sqlite:{file}"), start(f"sqlite:{file}")]
        start(f"pequod://{','.join(home.target for home in homes)}")
        yield started
    finally:
        for server in started:
            server.kill()


async def recorded(
    file: Path,
    count: int,
    random: Random,
    freshness: Freshness = LATEST,
    serve: Callable[..., None] | None = None,
) -> list[History]:
    """Return histories of clients of three servers, each of which is stopped for a while.

    Args:
        file: The database; it is made.
        freshness: Of all reads.
        serve: As `ForkedServer` takes it.
    """
    store = SqliteStore(file, (Mapping.generic([b"h"]),))
    await store.install()
    await store.close()
    name = f"{random.randrange(1 << 40):x}"
    histories = [History(f"{name}.{number}", random, freshness, _KINDS) for number in range(count)]
    all_count, begun_count = count * CLIENTS * OPERATIONS, 0
    due = [(all_count * part // 7, asyncio.Event()) for part in range(1, 7)]

    def begun() -> None:
        nonlocal begun_count
        begun_count += 1
        for when, event in due:
            if begun_count >= when:
                event.set()

    with _serving(file, serve) as servers:
        connect = partial(AsyncClient, timeout_s=_CALL_S_MAX, retries=1000)
        known = [Server(connect(one.target), connect(one.target)) for one in servers]
        for one in known:
            # What a server has not loaded it would ask the database for.
            await one.reads.scan(prefix="h|")
        tasks = [asyncio.create_task(one.run(number, known, begun)) for one in histories for number in range(CLIENTS)]
        # Each is stopped twice, in any order.
        order = random.sample(servers, 3) + random.sample(servers, 3)
        for (_, event), server in zip(due, order, strict=True):
            await event.wait()
            server.send_signal(signal.SIGSTOP)
            await asyncio.sleep(random.uniform(0.0, _STOPPED_S))
            server.send_signal(signal.SIGCONT)
        await asyncio.gather(*tasks)
        for client in (client for one in known for client in one):
            with suppress(UnavailableError):
                await client.close()
    return histories
