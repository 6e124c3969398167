"""Homes beside one SQLite database, computes before them, and their map, as processes that faults happen to."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from sqlite3 import connect
from types import TracebackType
from typing import Final, Self

import asyncpg
import psycopg2
from pequod_bench.systems.server import free_port
from pequod_server.backing.mapping import parse_mappings
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.cluster.membership import coordinator_of

from pequod import AsyncClient
from pequod.client.cluster.connection import ClusterConnection
from pequod.client.cluster.node import Node
from pequod.client.cluster.routes import Routes
from pequod.cluster.document import written
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import BackingUnavailableError, UnavailableError
from pequod.freshness import Latest
from tests.backing.chaos.proxy import TcpProxy
from tests.cluster_faults.network import CutNetwork, InnerServer
from tests.forked import ForkedServer
from tests.peer.homes import MAPPING, TABLES, TIMELINE, sqlite

#: The machine may be busy.
LATEST: Final = Latest(wait_s=30.0)


class FaultSite:
    """Two homes, some computes, and their map in a file or in etcd.

    Args:
        etcd: The setting of a cluster in etcd without its name; empty for a file.
        computes: How many: c1, c2 and so on.
        dsn: A PostgreSQL in place of the SQLite database.
        has_group_b: Have a home group of its own, with a database of its own, for the posts from `p|m` on.
        behind_proxies: A compute that reaches the homes through proxies; its copy of the map says so.
        network: Where c1 is cut off from everybody else; all addresses are of it.
    """

    def __init__(
        self,
        folder: Path,
        etcd: str = "",
        *,
        computes: int = 3,
        dsn: str = "",
        has_group_b: bool = False,
        behind_proxies: str = "",
        network: CutNetwork | None = None,
    ) -> None:
        self._behind_proxies = behind_proxies
        self._network = network
        self.proxies: dict[str, TcpProxy] = {}
        self._dsn = dsn
        self._folder = folder
        self.name = f"faults-{secrets.token_hex(4)}"
        self._etcd = etcd
        self._file = folder / "cluster.toml"
        computing = [f"c{number + 1}" for number in range(computes)]
        groups = {"h1": "a", "h2": "b" if has_group_b else "a"}
        self.entries = {
            **{name: _entry(name, ServerRole.HOME, network, group) for name, group in groups.items()},
            **{name: _entry(name, ServerRole.COMPUTE, network) for name in computing},
        }
        ranges = [HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "a")]
        if has_group_b:
            ranges[:1] = [HomeRange(b"p|", b"p|m", "a"), HomeRange(b"p|m", b"p}", "b")]
        self.map = ClusterMap(self.name, 2, TIMELINE, home_ranges=tuple(ranges))
        self.processes: dict[str, ForkedServer | InnerServer] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            await self._end()
            raise
        return self

    async def _begin(self) -> None:
        (self._folder / "mapping.toml").write_text(MAPPING)
        self._file.write_text(written(self.state))
        if self._etcd:
            coordinator = coordinator_of(f"{self._etcd}/{self.name}")
            await coordinator.put_map(replace(self.map, version=1))
            await coordinator.close()
        homes = [entry for entry in self.entries.values() if entry.group]
        if self._dsn:
            await _install(self._dsn, [entry.id for entry in homes])
        for entry in homes:
            if not self._dsn and not self.database(entry.group).exists():
                await sqlite(self.database(entry.group))
        if self._behind_proxies:
            await self._put_proxies_between()
        for name in self.entries:
            await asyncio.to_thread(self.start, name)

    async def _put_proxies_between(self) -> None:
        """Start a proxy for each home, and write the map of the compute that goes through them."""
        seen = dict(self.entries)
        for name, entry in self.entries.items():
            if entry.group:
                proxy = self.proxies[name] = TcpProxy(entry.address)
                await proxy.start()
                seen[name] = replace(entry, address=proxy.address)
        # An older one: clients that hear of it keep theirs, with the homes themselves.
        state = ClusterState.of(replace(self.map, version=1), seen.values())
        (self._folder / f"{self._behind_proxies}.toml").write_text(written(state))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        for process in self.processes.values():
            process.kill()
        for proxy in self.proxies.values():
            await proxy.stop()

    @property
    def state(self) -> ClusterState:
        return ClusterState.of(self.map, self.entries.values())

    @property
    def target(self) -> str:
        # A compute behind proxies tells no map that clients take, nor can one that is cut off be asked for it.
        hidden = "c1" if self._network else self._behind_proxies
        addresses = [entry.address for name, entry in self.entries.items() if name != hidden]
        return f"pequod+cluster://{','.join(addresses)}"

    def client(self, *, timeout_s: float = 60.0) -> AsyncClient:
        client = AsyncClient(self.target, timeout_s=timeout_s)
        if self._behind_proxies:
            # Its copy of the map is an older one for the sake of the addresses alone: reads shall go there.
            link = client._link
            assert isinstance(link, ClusterConnection)
            link._versions._said[self._behind_proxies] = self.map.version
        return client

    def database(self, group: str) -> Path:
        return self._folder / f"{group}.db"

    def start(self, name: str) -> None:
        """Start a server, at the same address each time."""
        entry = self.entries[name]
        file = self._folder / f"{name}.toml" if name == self._behind_proxies else self._file
        place = f"{self._etcd}/{self.name}" if self._etcd else f"static:{file}"
        flags = ["--listen", entry.address, "--cluster", place, "--cluster-id", name, "--drain-s", "0.5"]
        role = str(*entry.roles)
        if role == "home":
            flags += ["--backing", self._dsn or f"sqlite:{self.database(entry.group)}", "--backing-feed-name", name]
            flags += ["--backing-mode", "write-through", "--backing-mapping", str(self._folder / "mapping.toml")]
        if self._etcd:
            flags += ["--cluster-roles", role]
            flags += ["--cluster-group", entry.group] if entry.group else []
        if self._network:
            flags += ["--insecure"]
        if self._network and name == "c1":
            self.processes[name] = self._network.started(*flags)
        else:
            self.processes[name] = self._started(*flags)

    def _started(self, *flags: str) -> ForkedServer:
        return ForkedServer(*flags)

    def kill(self, *names: str) -> None:
        for name in names:
            self.processes[name].kill()

    def pause(self, *names: str) -> None:
        for name in names:
            self.processes[name].send_signal(signal.SIGSTOP)

    def go_on(self, *names: str) -> None:
        for name in names:
            self.processes[name].send_signal(signal.SIGCONT)

    def rows(self, group: str = "a") -> dict[bytes, bytes]:
        """Return the base data, as the database has them."""
        opened = psycopg2.connect(self._dsn) if self._dsn else connect(self.database(group))
        with closing(opened), closing(opened.cursor()) as cursor:
            cursor.execute("SELECT poster, time, body FROM posts")
            posts = cursor.fetchall()
            cursor.execute('SELECT "user", poster, since FROM subs')
            subs = cursor.fetchall()
        found = {f"p|{poster}|{time}".encode(): str(body).encode() for poster, time, body in posts}
        return found | {f"s|{user}|{poster}".encode(): str(since).encode() for user, poster, since in subs}

    def all_rows(self) -> dict[bytes, bytes]:
        """Return the base data of all home groups."""
        groups = {entry.group for entry in self.entries.values() if entry.group}
        return {key: value for group in sorted(groups) for key, value in self.rows(group).items()}


async def _install(dsn: str, feed_names: Sequence[str]) -> None:
    """Make the tables in a PostgreSQL, and a feed for each home."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(TABLES.replace("user TEXT", '"user" TEXT').replace("(user,", '("user",'))
    await connection.close()
    for name in feed_names:
        store = PostgresStore(dsn, parse_mappings(MAPPING), feed_name=name)
        await store.install()
        await store.close()


def _entry(name: str, role: ServerRole, network: CutNetwork | None, group: str = "") -> ServerEntry:
    host = "127.0.0.1" if network is None else network.inside if name == "c1" else network.outside
    return ServerEntry(name, f"{host}:{free_port()}", frozenset({role}), group)


def routes(client: AsyncClient) -> Routes:
    """Return where calls of a client go now."""
    link = client._link
    assert isinstance(link, ClusterConnection)
    assert link.routes is not None
    return link.routes


def owner(client: AsyncClient, key: bytes) -> Node:
    """Return the node that a read of a key goes to now."""
    node = routes(client).reader(key)
    assert node is not None
    return node


async def put(client: AsyncClient, key: str, value: str = "x") -> None:
    """Put a key until it is certain that it is there."""
    async with asyncio.timeout(90):
        while True:
            try:
                await client.put(key, value)
            except (UnavailableError, BackingUnavailableError):
                await asyncio.sleep(0.01)
                continue
            return
