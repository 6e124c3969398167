"""A small cluster on this machine: homes and computes as processes, with a map in a file.

    with started_cluster(homes=1, computes=2, joins=PUSH_JOIN) as cluster:
        AsyncClient(cluster.target)         pequod+cluster://127.0.0.1:40001,127.0.0.1:40002

A home has no database behind it, as in the paper: its base data die with it. Tables are spread over the homes.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pequod.cluster.document import written
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod_bench.process import Usage, started_server, usage


@dataclass(frozen=True, slots=True)
class StartedCluster:
    """The processes of a cluster, in the order in which they were started."""

    #: What a client is given.
    target: str
    #: Addresses and process ids.
    homes: tuple[tuple[str, int], ...]
    computes: tuple[tuple[str, int], ...]

    def usages(self) -> tuple[list[Usage], list[Usage]]:
        """Return what the homes and the computes have used so far."""
        return [usage(pid) for _, pid in self.homes], [usage(pid) for _, pid in self.computes]


@contextmanager
def started_cluster(homes: int, computes: int, joins: str, tables: Sequence[bytes]) -> Iterator[StartedCluster]:
    """Run homes and computes on free ports of this machine.

    Args:
        tables: Names of the tables of base data; home i has every i-th of them.

    Raises:
        ServerStartError: One did not start.
    """
    addresses = _free_addresses(homes + computes)
    entries = [
        ServerEntry(f"h{number}", address, frozenset({ServerRole.HOME}), group=_group(number))
        for number, address in enumerate(addresses[:homes])
    ]
    entries += [
        ServerEntry(f"c{number}", address, frozenset({ServerRole.COMPUTE}))
        for number, address in enumerate(addresses[homes:])
    ]
    ranges = [
        HomeRange(table + b"|", table + b"}", _group(number % homes)) for number, table in enumerate(sorted(tables))
    ]
    state = ClusterState.of(ClusterMap("bench", 1, joins, (), tuple(ranges)), entries)
    with TemporaryDirectory(prefix="pequod-cluster-") as folder, ExitStack() as stack:
        file = Path(folder) / "cluster.toml"
        file.write_text(written(state), "utf-8")
        started = []
        for entry in entries:
            flags = ("--listen", entry.address, "--cluster", f"static:{file}", "--cluster-id", entry.id)
            started.append(stack.enter_context(started_server(*flags)))
        yield StartedCluster(
            "pequod+cluster://" + ",".join(address for address, _ in started[homes:]),
            tuple(started[:homes]),
            tuple(started[homes:]),
        )


def _group(number: int) -> str:
    return chr(ord("a") + number)


def _free_addresses(count: int) -> list[str]:
    """Return addresses that are free now."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            free = stack.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            found.append(f"127.0.0.1:{free.getsockname()[1]}")
        return found
