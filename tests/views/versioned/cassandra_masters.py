"""`python -m tests.views.versioned.cassandra_masters`: processes that write records of Cassandra.

As in `masters`, over three nodes, which are stopped and killed, and whose links are held. Each run has tables of its
own. `make views-cassandra` fetches the jars and sets where they are.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cassandra import ConsistencyLevel, DriverException
from cassandra.cluster import Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import RoundRobinPolicy
from cassandra.query import SimpleStatement
from pequod_views.versioned import QuorumError, RecordStore, StoredCell, StoredColumn
from pequod_views.versioned.cassandra_store import CassandraReplicas
from pequod_views.versioned.records import Cells, merge

from tests.forked import FORKS
from tests.views.versioned.cassandra_servers import ADDRESS, COUNT, HOSTS, KEYSPACE, CassandraServers
from tests.views.versioned.masters import begin, run, wrong_runs
from tests.views.versioned.schedules import of_seed

#: Of the faults; the others are stops and links that are held. A node that was killed takes long to start.
_KILLS: Final = 0.1
_HELD: Final = 0.45
#: After so many runs the tables are emptied, whose keys each sweep reads.
_RUNS_TO_EMPTY: Final = 40
#: A run waits most of its time: for what is stopped, and for leases.
_RUNS_AT_ONCE: Final = 6
_WAIT_S_MAX: Final = 300.0

#: The records of a table, by key.
Records = dict[str, dict[StoredColumn, StoredCell]]


class OwnRegisters(CassandraReplicas):
    """A store whose leases are those of one run: the processes of the runs beside it would take its shares."""

    own = ""

    async def swap(self, register: str, old: str | None, new: str | None) -> str | None:
        """Set a register of the run."""
        return await super().swap(f"{self.own} {register}", old, new)


class Cassandra:
    """Tables for one run."""

    def __init__(self, folder: Path, servers: CassandraServers, seed: int) -> None:
        self.folder = folder
        # Of this process: a writer of one that was killed may still be there, and find the nodes.
        own = f"{os.getpid()}_{seed}"
        self.view = replace(of_seed(seed), name=f"assigned_to_{own}", base=f"ticket_{own}")
        self.lease_s = 2.0
        self._servers: CassandraServers | None = servers

    def __getstate__(self) -> dict[str, object]:
        # Processes that write have no hold on the nodes.
        return {**self.__dict__, "_servers": None}

    async def open(self) -> CassandraReplicas:
        """Connect, as soon as a node answers."""
        end = time.monotonic() + _WAIT_S_MAX
        while True:
            try:
                store = await OwnRegisters.open(ADDRESS, timeout_s=5.0)
                store.own = self.view.name
                return store
            except QuorumError:
                if time.monotonic() > end:
                    raise

    async def close(self, store: RecordStore) -> None:
        """Disconnect."""
        assert isinstance(store, CassandraReplicas)
        await store.close()

    async def cut_off(self, store: RecordStore, rng: random.Random) -> None:
        """Leave a process its nodes: links between nodes are held."""

    def torment(self, rng: random.Random) -> None:
        """Stop a node, hold its links to the others, or kill and start it."""
        assert self._servers is not None
        if not self._servers.failing.acquire(blocking=False):
            # A fault of a run beside this one is one of this run, too.
            return
        try:
            self._fail(rng, self._servers)
        finally:
            self._servers.failing.release()

    def _fail(self, rng: random.Random, servers: CassandraServers) -> None:
        number, fault, pause_s = rng.randrange(COUNT), rng.random(), rng.uniform(0, 1.5 * self.lease_s)
        if fault < _KILLS:
            servers.kill(number)
            time.sleep(pause_s)
            servers.start(number)
        elif fault < _HELD:
            servers.links.hold(HOSTS[number])
            time.sleep(pause_s)
            servers.links.free()
        else:
            servers.stop(number)
            time.sleep(pause_s)
            servers.go_on(number)

    async def states(self, store: RecordStore) -> list[dict[str, dict[str, Cells]]]:
        """Bring the replicas to one state, and read each two of three."""
        assert isinstance(store, CassandraReplicas)
        tables = self.view.base, self.view.name
        replicas = await asyncio.to_thread(contents, tables)
        for table in tables:
            for key, cells in _merged([replica[table] for replica in replicas]).items():
                if any(replica[table].get(key) != cells for replica in replicas):
                    await _insist(store, table, key, cells)
        replicas = await asyncio.to_thread(contents, tables)
        pairs = itertools.combinations(replicas, 2)
        return [{table: {**_merged([one[table] for one in pair])} for table in tables} for pair in pairs]


def contents(tables: Sequence[str]) -> list[dict[str, Records]]:
    """Return what each replica has of tables; each node has a data centre of its own, and reads its own replica."""
    profile = ExecutionProfile(RoundRobinPolicy(), request_timeout=20.0)
    end = time.monotonic() + _WAIT_S_MAX
    while True:
        cluster = Cluster(HOSTS, execution_profiles={"all": profile}, connect_timeout=20)
        try:
            session: Any = cluster.connect(KEYSPACE)
            return [_content(session, host, tables) for host in HOSTS]
        except (NoHostAvailable, DriverException, StopIteration):
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
        finally:
            cluster.shutdown()


def _content(session: Any, host: str, tables: Sequence[str]) -> dict[str, Records]:
    query = SimpleStatement(
        "SELECT tbl, key, name, base_key, value, WRITETIME(value) FROM cells",
        consistency_level=ConsistencyLevel.LOCAL_ONE,
        fetch_size=1_000_000,
    )
    (node,) = (node for node in session.cluster.metadata.all_hosts() if node.address == host)
    found: dict[str, Records] = {table: {} for table in tables}
    for table, key, name, base_key, value, stamp in session.execute(query, execution_profile="all", host=node):
        if table in found:
            cell = StoredCell(value[1:] if value else None, stamp)
            found[table].setdefault(key, {})[StoredColumn(name, base_key)] = cell
    return found


def _merged(replicas: Sequence[Records]) -> Records:
    merged: Records = {}
    for replica in replicas:
        for key, cells in replica.items():
            merge(merged.setdefault(key, {}), cells)
    return merged


async def _insist(store: CassandraReplicas, table: str, key: str, cells: Cells) -> None:
    """Write at all replicas, as soon as all take part."""
    end = time.monotonic() + _WAIT_S_MAX
    while True:
        try:
            return await store.put(table, key, cells, COUNT)
        except QuorumError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.2)


def main(seed: int, runs: int) -> int:
    """Carry out runs over three nodes, some at once, and share their faults; return how many were wrong."""
    FORKS.set_forkserver_preload(["cassandra.cluster", "tests.views.versioned.masters"])
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, CassandraServers(Path(folder)) as servers:

        def carry_out(at: int) -> Sequence[str]:
            place = Path(folder) / str(at)
            place.mkdir()
            return run(seed + at, Cassandra(place, servers, seed + at))

        for first in range(0, runs, _RUNS_TO_EMPTY):
            asyncio.run(_make_or_empty())
            wrong += wrong_runs(min(_RUNS_TO_EMPTY, runs - first), carry_out, _RUNS_AT_ONCE, first)
    return wrong


async def _make_or_empty() -> None:
    store = await CassandraReplicas.open(ADDRESS)
    await store.close()
    cluster = Cluster(HOSTS)
    try:
        cluster.connect(KEYSPACE).execute("TRUNCATE cells", timeout=120)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    begin("cassandra_masters", __doc__, 200, main)
