"""A whole cluster on one machine: homes, perhaps with a database behind them, computes before the homes, and their map.

    clients -> c1 c2 c3 -> h1 h2 -> SQLite, PostgreSQL or nothing        map: a file, or three nodes of etcd

    with started_site(ClusterShape(homes=1, computes=2)) as site:
        AsyncClient(site.target)            pequod+cluster://127.0.0.1:40001,127.0.0.1:40002

Homes beside a database are one group. A home without one is a group of its own, as in the paper: its base data die with
it, and tables are spread over the homes. Every server is a process of its own, which a run may kill.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil
from pequod_server.cluster.membership import coordinator_of
from pequod_workloads.twip import PUSH_JOIN

from pequod.cluster.document import written
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod_bench.systems.server import ServerProcess, ServerStartError, Usage, free_port, seen_usage, serving

#: The tables of base data in Twip, whose keys the homes own.
OWNED: Final = ("p", "s")
_ETCD_NODES: Final = 3
_ETCD_READY: Final = "ready to serve client requests"
#: Many processes start at once.
_START_S_MAX: Final = 90.0
#: Starts a database, which ends with the stack, with its files in the folder; returns the flags of each home by its id.
StartDatabase = Callable[[ExitStack, Path, Sequence[str]], dict[str, list[str]]]


class NoEtcdError(ServerStartError):
    """There is no etcd on this machine."""


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """How large a cluster is, and where its map is."""

    homes: int = 2
    computes: int = 3
    joins: str = PUSH_JOIN
    #: The map in etcd, not in a file.
    is_on_etcd: bool = False


class SiteServer:
    """A server of the cluster: a process."""

    def __init__(self, entry: ServerEntry, arguments: Sequence[str]) -> None:
        self.entry = entry
        self.was_killed = False
        self._process = self.start("--listen", entry.address, *arguments)

    def start(self, *flags: str) -> ServerProcess:
        return ServerProcess([sys.executable, "-m", "pequod.cli", "serve", *flags])

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def wait(self) -> None:
        self._process.wait(serving, _START_S_MAX)

    def kill(self) -> None:
        self.was_killed = True
        self._process.kill()

    def end(self) -> None:
        self._process.end()

    def usage(self) -> Usage | None:
        return None if self.was_killed else seen_usage(self._process.pid)


@dataclass(frozen=True, slots=True)
class ClusterSite:
    """A running cluster."""

    #: The target of clients.
    target: str
    servers: Sequence[SiteServer | SiteWorker]
    #: Where the map is, as the setting `cluster` says it; empty without one.
    place: str = ""

    def one(self, role: ServerRole) -> SiteServer:
        """Return the first server with a role that has not been killed."""
        found = next(one for one in self.servers if role in one.entry.roles and not one.was_killed)
        assert isinstance(found, SiteServer), "workers are their supervisor's to kill"
        return found


class SiteWorker:
    """A worker of a server that has several: a process that the server has started."""

    was_killed = False

    def __init__(self, entry: ServerEntry, pid: int) -> None:
        self.entry = entry
        self._pid = pid

    def usage(self) -> Usage | None:
        return seen_usage(self._pid)


@contextmanager
def started_workers(count: int, joins: str, *flags: str) -> Iterator[ClusterSite]:
    """Start one server with some workers; the first of them is the home."""
    words = ("--listen", "127.0.0.1:0", "--workers", str(count), "--joins", joins, *flags)
    process = ServerProcess([sys.executable, "-m", "pequod.cli", "serve", *words])
    try:
        address = process.wait(serving, _START_S_MAX)
        pids = [child.pid for child in psutil.Process(process.pid).children()] if count > 1 else [process.pid]
        roles = [frozenset({ServerRole.HOME, ServerRole.COMPUTE}), *[frozenset({ServerRole.COMPUTE})] * (count - 1)]
        servers = [
            SiteWorker(ServerEntry(f"w{number}", address, some, "a" if number == 0 else ""), pid)
            for number, (pid, some) in enumerate(zip(pids, roles, strict=True))
        ]
        yield ClusterSite(f"pequod+cluster://{address}" if count > 1 else address, servers)
    finally:
        process.end()


@contextmanager
def started_site(shape: ClusterShape, database: StartDatabase | None = None) -> Iterator[ClusterSite]:
    """Start a cluster."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pequod-cluster-", ignore_cleanup_errors=True)))
        groups = "a" * shape.homes if database else [chr(ord("a") + number) for number in range(shape.homes)]
        homes = [
            ServerEntry(f"h{number}", _address(), frozenset({ServerRole.HOME}), group)
            for number, group in enumerate(groups, 1)
        ]
        computes = [
            ServerEntry(f"c{number}", _address(), frozenset({ServerRole.COMPUTE}))
            for number in range(1, shape.computes + 1)
        ]
        flags = database(stack, folder, [one.id for one in homes]) if database else {}
        ranges = tuple(
            HomeRange(f"{table}|".encode(), f"{table}}}".encode(), homes[number % len(homes)].group)
            for number, table in enumerate(OWNED)
        )
        known = ClusterMap("bench", 1, shape.joins, home_ranges=ranges)
        place = _place(stack, folder, ClusterState.of(known, [*homes, *computes]), shape)
        servers = []
        # A compute listens once it has reached a home, which the map names.
        for some in (homes, computes):
            for entry in some:
                arguments = ["--cluster", place, "--cluster-id", entry.id, *flags.get(entry.id, ())]
                if shape.is_on_etcd:
                    # A map in a file says it already.
                    arguments += ["--cluster-roles", *entry.roles]
                    arguments += ["--cluster-group", entry.group] if entry.group else []
                server = SiteServer(entry, arguments)
                stack.callback(server.end)
                servers.append(server)
            for server in servers:
                server.wait()
        addresses = ",".join(entry.address for entry in (*computes, *homes))
        yield ClusterSite(f"pequod+cluster://{addresses}", servers, place)


def _address() -> str:
    return f"127.0.0.1:{free_port()}"


def _place(stack: ExitStack, folder: Path, state: ClusterState, shape: ClusterShape) -> str:
    """Put the map where servers look for it, and return the setting that says where."""
    if not shape.is_on_etcd:
        file = folder / "cluster.toml"
        file.write_text(written(state))
        return f"static:{file}"
    endpoints = stack.enter_context(started_etcd(folder / "etcd", _ETCD_NODES))
    place = f"etcd:{','.join(endpoints)}/{state.map.cluster}"

    async def put() -> None:
        coordinator = coordinator_of(place)
        await coordinator.put_map(state.map)
        await coordinator.close()

    asyncio.run(put())
    return place


@contextmanager
def started_etcd(folder: Path, count: int) -> Iterator[list[str]]:
    """Run nodes of etcd that agree with each other; yield their addresses."""
    program = shutil.which("etcd")
    if program is None:
        raise NoEtcdError("no etcd on this machine; install it with: apt-get install etcd-server")
    ports = {f"n{number}": (free_port(), free_port()) for number in range(1, count + 1)}
    members = ",".join(f"{name}=http://127.0.0.1:{peer}" for name, (_, peer) in ports.items())
    nodes = list[ServerProcess]()
    with ExitStack() as stack:
        for name, (port, peer) in ports.items():
            client_url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
            options = {
                "name": name,
                "data-dir": str(folder / name),
                "listen-client-urls": client_url,
                "advertise-client-urls": client_url,
                "listen-peer-urls": peer_url,
                "initial-advertise-peer-urls": peer_url,
                "initial-cluster": members,
            }
            process = ServerProcess([program, *(f"--{key}={value}" for key, value in options.items())])
            stack.callback(process.end)
            nodes.append(process)
        # They answer when they agree with each other.
        for process in nodes:
            process.wait(lambda said: _ETCD_READY in said or None)
        yield [f"127.0.0.1:{port}" for port, _ in ports.values()]
