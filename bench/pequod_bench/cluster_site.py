"""A whole cluster on one machine: homes, perhaps with a database behind them, computes before the homes, and their map.

    clients -> c1 c2 c3 -> h1 h2 -> SQLite, PostgreSQL or nothing        map: a file, or three nodes of etcd

    with started_site(ClusterShape(homes=1, computes=2)) as site:
        AsyncClient(site.target)            pequod+cluster://127.0.0.1:40001,127.0.0.1:40002

Homes beside a database are one group. A home without one is a group of its own, as in the paper: its base data die with
it, and tables are spread over the homes. Every server is a process of its own, which a run may kill.
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final, Protocol
from urllib.request import urlopen

import psutil
from pequod_server.cluster.membership import coordinator_of

from pequod.cluster.document import written
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod_bench.etcd_nodes import started_etcd
from pequod_bench.process import END_S_MAX, Usage, usage, wait_until_listening
from pequod_bench.systems.server import free_port
from pequod_bench.workloads.keys import PUSH_JOIN

#: The tables of base data in Twip, whose keys the homes own.
_OWNED: Final = (b"p", b"s")
_ETCD_NODES: Final = 3
#: Many processes start at once.
_START_S_MAX: Final = 90.0
_METRICS_S_MAX: Final = 30.0
_SAMPLE: Final = re.compile(rb"^(\w+)(?:\{[^}]*\})? ([0-9.e+-]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """How large a cluster is, and where its map is."""

    homes: int = 2
    computes: int = 3
    joins: str = PUSH_JOIN
    #: The map in etcd, not in a file.
    is_on_etcd: bool = False


class SiteDatabase(Protocol):
    """What is behind the homes."""

    @property
    def name(self) -> str:
        """What it is, for people."""
        ...

    def started(self, stack: ExitStack, folder: Path, homes: Sequence[str]) -> dict[str, list[str]]:
        """Start it; return the flags of each home.

        Raises:
            ServerStartError: It is not installed, or does not start.
        """
        ...


class SiteServer:
    """A server of the cluster: a process."""

    def __init__(self, entry: ServerEntry, arguments: Sequence[str], said: IO[bytes]) -> None:
        self.entry = entry
        self._metrics = _address()
        command = [sys.executable, "-m", "pequod.cli", "serve", "--listen", entry.address, "--metrics", self._metrics]
        self._said = said
        self._process = subprocess.Popen([*command, *arguments], stdout=said, stderr=said, stdin=subprocess.DEVNULL)
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

    def metrics(self) -> dict[str, float]:
        """Return the figures of its metrics page, those of all labels of a name added up.

        Cost:
            Some milliseconds of its CPU.
        """
        found: defaultdict[str, float] = defaultdict(float)
        with urlopen(f"http://{self._metrics}/metrics", timeout=_METRICS_S_MAX) as page:
            for name, figure in _SAMPLE.findall(page.read()):
                found[name.decode()] += float(figure)
        return found

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
        return next(one for one in self.of(role) if not one.was_killed)

    def of(self, role: ServerRole) -> list[SiteServer]:
        """Return the servers with a role, in the order of their ids."""
        return [one for one in self.servers if role in one.entry.roles]


@contextmanager
def started_site(shape: ClusterShape, database: SiteDatabase | None = None) -> Iterator[ClusterSite]:
    """Start a cluster.

    Raises:
        ServerStartError: Something does not start, or is not installed.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pequod-cluster-", ignore_cleanup_errors=True)))
        homes, computes = _homes(shape.homes, has_database=database is not None), _computes(shape.computes)
        flags = {} if database is None else database.started(stack, folder, [one.id for one in homes])
        ranges = [
            HomeRange(table + b"|", table + b"}", homes[number % len(homes)].group)
            for number, table in enumerate(_OWNED)
        ]
        known = ClusterMap("bench", 1, shape.joins, home_ranges=tuple(ranges))
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
                said = stack.enter_context((folder / f"{entry.id}.log").open("w+b"))
                server = SiteServer(entry, arguments, said)
                stack.callback(server.stop)
                servers.append(server)
            for server in servers:
                server.wait()
        yield ClusterSite(
            f"pequod+cluster://{','.join(entry.address for entry in (*computes, *homes))}",
            servers,
            "no database" if database is None else database.name,
            f"etcd, {_ETCD_NODES} nodes" if shape.is_on_etcd else "a file",
        )


def _homes(count: int, *, has_database: bool) -> list[ServerEntry]:
    return [
        ServerEntry(
            f"h{number + 1}", _address(), frozenset({ServerRole.HOME}), "a" if has_database else chr(ord("a") + number)
        )
        for number in range(count)
    ]


def _computes(count: int) -> list[ServerEntry]:
    return [ServerEntry(f"c{number + 1}", _address(), frozenset({ServerRole.COMPUTE})) for number in range(count)]


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
