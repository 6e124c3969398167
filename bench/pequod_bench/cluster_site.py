"""A whole cluster on one machine: a database, homes before it, computes before the homes, and their map.

    clients -> c1 c2 c3 -> h1 h2 -> SQLite or PostgreSQL        map: a file, or three nodes of etcd

Every server is a process of its own, which a run may kill.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

import asyncpg
import psutil
from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres import PostgresStore
from pequod_server.backing.sqlite import SqliteStore
from pequod_server.cluster.membership import coordinator_of

from pequod.cluster.document import written
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod_bench.backed_twip import MAPPING, SETTINGS
from pequod_bench.compare.postgres_cluster import started_cluster
from pequod_bench.compare.server import free_port
from pequod_bench.etcd_nodes import started_etcd
from pequod_bench.graph import Graph
from pequod_bench.keys import PUSH_JOIN
from pequod_bench.process import END_S_MAX, Usage, usage, wait_until_listening

_TABLES: Final = """
CREATE TABLE p (poster bigint, "time" bigint, tweet text, PRIMARY KEY (poster, "time"));
CREATE TABLE s ("user" bigint, poster bigint, active text, PRIMARY KEY ("user", poster));
"""
#: The tables whose keys the homes own, and the only home group.
_OWNED: Final = ("p", "s")
_GROUP: Final = "a"
_ETCD_NODES: Final = 3
#: Many processes start at once.
_START_S_MAX: Final = 90.0


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """How large a cluster is, and what it is made of."""

    homes: int = 2
    computes: int = 3
    #: The map in etcd, not in a file; the database PostgreSQL, not SQLite.
    is_on_etcd: bool = False
    is_on_postgres: bool = False


class SiteServer:
    """A server of the cluster: a process."""

    def __init__(self, entry: ServerEntry, arguments: Sequence[str], said: IO[bytes]) -> None:
        self.entry = entry
        command = [sys.executable, "-m", "pequod.cli", "serve", "--listen", entry.address, *arguments]
        self._said = said
        self._process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
        self.was_killed = False

    def wait(self) -> None:
        """Wait until it listens.

        Raises:
            ServerStartError: It does not.
        """
        wait_until_listening(self._process, self._said, _START_S_MAX)

    def kill(self) -> None:
        """End it without a word."""
        self.was_killed = True
        self._process.kill()
        self._process.wait()

    def usage(self) -> Usage | None:
        """Return what it has used, None if it is gone."""
        try:
            return usage(self._process.pid)
        except psutil.Error:
            return None

    def stop(self) -> None:
        """Have it end."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True, slots=True)
class ClusterSite:
    """A running cluster."""

    #: The target of clients.
    target: str
    servers: list[SiteServer]
    #: What is behind it, for the report.
    database: str
    coordinator: str

    def one(self, role: ServerRole) -> SiteServer:
        """Return the first server with a role that has not been killed."""
        return next(one for one in self.servers if role in one.entry.roles and not one.was_killed)


@contextmanager
def started_site(shape: ClusterShape, graph: Graph) -> Iterator[ClusterSite]:
    """Start a cluster whose database has the subscriptions of a graph.

    Raises:
        ServerStartError: Something does not start, or is not installed.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pequod-demo-", ignore_cleanup_errors=True)))
        entries = _entries(shape)
        homes = [one for one in entries if ServerRole.HOME in one.roles]
        mapping = folder / "twip.toml"
        mapping.write_text(MAPPING)
        if shape.is_on_postgres:
            backing = _postgres(stack, graph, [one.id for one in homes])
        else:
            backing = _sqlite(folder / "twip.db", graph)
        ranges = tuple(HomeRange(b"%b|" % name.encode(), b"%b}" % name.encode(), _GROUP) for name in _OWNED)
        state = ClusterState.of(ClusterMap("demo", 1, PUSH_JOIN, home_ranges=ranges), entries)
        place = _place(stack, folder, state, shape)
        servers = []
        # A compute listens once it has reached a home, which the map names.
        for some in (homes, [one for one in entries if one not in homes]):
            for entry in some:
                arguments = ["--cluster", place, "--cluster-id", entry.id]
                if shape.is_on_etcd:
                    # A map in a file says it already.
                    arguments += ["--cluster-roles", *entry.roles]
                    arguments += ["--cluster-group", entry.group] if entry.group else []
                if entry in homes:
                    arguments += ["--backing", backing, "--backing-mapping", str(mapping)]
                    arguments += ["--backing-mode", "write-through"]
                    arguments += ["--backing-feed-name", entry.id] if shape.is_on_postgres else []
                said = stack.enter_context((folder / f"{entry.id}.log").open("w+b"))
                server = SiteServer(entry, arguments, said)
                stack.callback(server.stop)
                servers.append(server)
            for server in servers:
                server.wait()
        yield ClusterSite(
            f"pequod+cluster://{','.join(entry.address for entry in entries)}",
            servers,
            "PostgreSQL" if shape.is_on_postgres else "SQLite",
            f"etcd, {_ETCD_NODES} nodes" if shape.is_on_etcd else "a file",
        )


def _entries(shape: ClusterShape) -> list[ServerEntry]:
    homes = [f"h{number}" for number in range(1, shape.homes + 1)]
    computes = [f"c{number}" for number in range(1, shape.computes + 1)]
    return [
        *(ServerEntry(name, _address(), frozenset({ServerRole.COMPUTE})) for name in computes),
        *(ServerEntry(name, _address(), frozenset({ServerRole.HOME}), _GROUP) for name in homes),
    ]


def _address() -> str:
    return f"127.0.0.1:{free_port()}"


def _place(stack: ExitStack, folder: Path, state: ClusterState, shape: ClusterShape) -> str:
    """Put the map where servers look for it, and return the setting that says where."""
    if not shape.is_on_etcd:
        file = folder / "cluster.toml"
        file.write_text(written(state))
        return f"static:{file}"
    endpoints = stack.enter_context(started_etcd(folder / "etcd", _ETCD_NODES))
    place = f"etcd:{','.join(endpoints)}/demo"

    async def put() -> None:
        coordinator = coordinator_of(place)
        await coordinator.put_map(state.map)
        await coordinator.close()

    asyncio.run(put())
    return place


def _sqlite(file: Path, graph: Graph) -> str:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_TABLES)
        rows = zip(graph.users.tolist(), graph.posters.tolist(), strict=True)
        connection.executemany("INSERT INTO s VALUES (?, ?, '1')", rows)
        connection.commit()

    async def install() -> None:
        store = SqliteStore(file, parse_mappings(MAPPING))
        await store.install()
        await store.close()

    asyncio.run(install())
    return f"sqlite:{file}"


def _postgres(stack: ExitStack, graph: Graph, feed_names: Sequence[str]) -> str:
    # Root starts it as another user, whom the folder then belongs to: one of its own.
    own = Path(stack.enter_context(TemporaryDirectory(prefix="pequod-demo-", ignore_cleanup_errors=True)))
    server = stack.enter_context(started_cluster(own, SETTINGS))
    dsn = f"postgresql://bench@127.0.0.1:{server.port}/postgres"

    async def install() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(_TABLES)
        edges = zip(graph.users.tolist(), graph.posters.tolist(), strict=True)
        await connection.copy_records_to_table("s", records=[(*edge, "1") for edge in edges])
        await connection.execute("ANALYZE s; ANALYZE p; CHECKPOINT")
        await connection.close()
        for name in feed_names:
            store = PostgresStore(dsn, parse_mappings(MAPPING), feed_name=name)
            await store.install()
            await store.close()

    asyncio.run(install())
    return dsn
