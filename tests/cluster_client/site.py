"""A small cluster: servers as processes, each beside one SQLite database, and a server that tells its map."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server.backing.mapping import parse_mappings
from pequod_server.backing.sqlite.store import SqliteStore

from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.messages import message_of_state
from pequod.cluster.servers import ServerEntry, ServerState
from tests.forked import ForkedServer

MAPPING = """
[[mapping]]
keys = '{table}|<a>|<b>'
table = "{table}"
value = "value"
"""
TABLES = ("s", "p", "vote")
JOINS = """
t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
karma|<author> = count vote|<author>|<voter>;
"""


class MapServer:
    """Tells a map that tests change, as every server of a cluster does."""

    def __init__(self) -> None:
        self._state: ClusterState | None = None
        self._news = asyncio.Condition()
        #: Calls that have been told a state.
        self.told = 0

    async def start(self) -> None:
        self._server = aio.server()
        method = "/pequod.v1.Pequod/"
        handler = grpc.unary_stream_rpc_method_handler(
            self._follow,
            request_deserializer=pb.FollowClusterRequest.FromString,
            response_serializer=pb.FollowClusterReply.SerializeToString,
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(method.strip("/"), {"FollowCluster": handler}),)
        )
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def set(self, state: ClusterState) -> None:
        async with self._news:
            self._state = state
            self._news.notify_all()

    async def _follow(self, _request: object, _context: object) -> AsyncIterator[pb.FollowClusterReply]:
        last = None
        while True:
            async with self._news:
                while self._state is last or self._state is None:
                    await self._news.wait()
                last = self._state
            self.told += 1
            yield message_of_state(last)

    async def stop(self) -> None:
        await self._server.stop(None)


class Site:
    """Servers beside one database, which are homes and computes, and their map."""

    def __init__(self, folder: Path, count: int, *flags: str, **entry: Any) -> None:
        self.database = folder / "base.db"
        with closing(sqlite3.connect(self.database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            for table in TABLES:
                connection.execute(f"CREATE TABLE {table} (a TEXT, b TEXT, value TEXT, PRIMARY KEY (a, b))")
            connection.commit()
        mapping = self._mapping = folder / "mapping.toml"
        mapping.write_text("".join(MAPPING.format(table=table) for table in TABLES))
        self._flags = (
            *("--backing", f"sqlite:{self.database}", "--backing-mapping", str(mapping)),
            *("--backing-mode", "write-through", "--joins", JOINS, *flags),
        )
        self.names = [f"s{number}" for number in range(1, count + 1)]
        self.processes: dict[str, ForkedServer] = {}
        self.map_server = MapServer()
        self._entry = entry

    async def __aenter__(self) -> Self:
        store = SqliteStore(self.database, parse_mappings(self._mapping.read_text()))
        await store.install()
        await store.close()
        await self.map_server.start()
        for name in self.names:
            self.processes[name] = await asyncio.to_thread(ForkedServer, "--listen", "127.0.0.1:0", *self._flags)
        entries = [ServerEntry(name, self.processes[name].target, group="a", **self._entry) for name in self.names]
        self.state = ClusterState.of(ClusterMap("test", 1), entries)
        await self.map_server.set(self.state)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.kill()
        await self.map_server.stop()

    @property
    def target(self) -> str:
        return f"pequod+cluster://{self.map_server.target}"

    async def tell(self, **changes: Any) -> None:
        """Change the map."""
        self.state = replace(self.state, map=replace(self.state.map, version=self.state.map.version + 1, **changes))
        await self.map_server.set(self.state)

    async def set_state(self, name: str, state: ServerState) -> None:
        servers = tuple(replace(one, state=state) if one.id == name else one for one in self.state.servers)
        self.state = replace(self.state, servers=servers)
        await self.map_server.set(self.state)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        self.processes[name].kill()

    def restart(self, name: str) -> None:
        """Start a server again at its address."""
        self.processes[name] = ForkedServer("--listen", self.processes[name].target, *self._flags)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for are insides that tell nobody
            await asyncio.sleep(0.01)
