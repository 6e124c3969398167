"""A record store in three nodes of Cassandra: cells, quorums, registers; nodes that are stopped, killed or cut off."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from pequod_views.versioned import (
    QuorumError,
    ReplicaRefusedError,
    StatementRefusedError,
    StoredCell,
    StoredColumn,
    Update,
    VersionedView,
    ViewCoordinator,
    ViewSweeper,
)
from pequod_views.versioned.records import KeyPage
from pequod_views.versioned.rows import NameRefusedError, base_column

from tests.forked import run_command
from tests.views.versioned.cassandra_servers import skip_without_cassandra
from tests.views.versioned.conftest import NewLeases
from tests.views.versioned.masters import run
from tests.views.versioned.oracle import view_of
from tests.views.versioned.test_versioned_cli import FILE, REPLICAS
from tests.views.versioned.test_versioned_processes import read_until_propagated, serving

skip_without_cassandra()

from cassandra.cluster import Cluster  # noqa: E402
from pequod_views.versioned.cassandra_store import TIMESTAMP_MAX, CassandraReplicas  # noqa: E402

from tests.views.versioned.cassandra_masters import Cassandra, contents  # noqa: E402
from tests.views.versioned.cassandra_servers import ADDRESS, COUNT, HOSTS, CassandraServers  # noqa: E402

A, B = StoredColumn("a"), StoredColumn("b 1", "2 c")
#: Far longer than a test may take, so a wait for a node that is stopped shows.
LONG_S: Final = 3600.0
_TABLES = (f"t{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraServers]:
    with CassandraServers(tmp_path_factory.mktemp("cassandra")) as servers:
        yield servers


@pytest.fixture
def table() -> str:
    """Return a table that no other test has."""
    return next(_TABLES)


@pytest.fixture
async def store(servers: CassandraServers) -> AsyncIterator[CassandraReplicas]:
    store = await CassandraReplicas.open(ADDRESS, timeout_s=20.0)
    yield store
    await store.close()


async def test_the_newest_of_each_cell_is_read_and_ties_go_to_the_larger_value(
    store: CassandraReplicas, table: str
) -> None:
    big = 1 << 62
    await store.put(table, "k", {A: StoredCell("x", big + 1), B: StoredCell(None, 7)}, 3)
    # The smaller by one, far beyond what a double keeps; then the same timestamp with a value that is larger.
    await store.put(table, "k", {A: StoredCell("z", big), B: StoredCell("", 7)}, 3)
    assert await store.get(table, "k", None, 3) == {A: StoredCell("x", big + 1), B: StoredCell("", 7)}
    # NULL is below all texts, and one that is newer counts, with its timestamp.
    await store.put(table, "k", {A: StoredCell("é", big + 1), B: StoredCell(None, 7)}, 3)
    assert await store.get(table, "k", [A], 1) == {A: StoredCell("é", big + 1)}
    assert await store.get(table, "k", [B], 2) == {B: StoredCell("", 7)}
    await store.put(table, "k", {A: StoredCell("z", big + 1), B: StoredCell(None, 8)}, 3)
    assert await store.get(table, "k", None, 3) == {A: StoredCell("é", big + 1), B: StoredCell(None, 8)}
    await store.put(table, "k", {A: StoredCell("x", TIMESTAMP_MAX), B: StoredCell("y", 0)}, 3)
    assert await store.get(table, "k", None, 3) == {A: StoredCell("x", TIMESTAMP_MAX), B: StoredCell(None, 8)}
    assert await store.get(table, "k", [StoredColumn("b 1", "2")], 3) == {}
    assert await store.get(table, "k", [], 3) == {}


async def test_each_replica_has_what_all_acknowledged(store: CassandraReplicas, table: str) -> None:
    cells = {A: StoredCell("x", 1), B: StoredCell(None, 2)}
    await store.put(table, "k", cells, 3)
    assert await asyncio.to_thread(contents, [table]) == [{table: {"k": cells}}] * COUNT


async def test_pages_of_keys_have_each_key_once(store: CassandraReplicas, table: str) -> None:
    names = ["", "a", "a b", "b", "é", "\0", *map(str, range(20))]
    for name in names:
        await store.put(table, name, {A: StoredCell("x", 5)}, 3)
    found = (await store.keys(table, None, 1000)).keys
    assert sorted(found) == sorted(names)
    for count in (1, 7):
        paged: list[str] = []
        while page := (await store.keys(table, paged[-1] if paged else None, count)).keys:
            assert len(page) <= count
            paged += page
        assert paged == found


async def test_a_register_is_set_once(store: CassandraReplicas, table: str) -> None:
    others = [await CassandraReplicas.open(ADDRESS, timeout_s=20.0) for _ in range(3)]
    found = await asyncio.gather(*(other.swap(table, None, f"{at}") for at, other in enumerate(others)))
    assert len(set(found)) == 1
    assert await store.swap(table, found[0], "") == ""
    assert await store.swap(table, None, "x") == ""
    assert await store.swap(table, "", None) is None
    assert await store.swap(table, "x", "y") is None
    assert await store.swap(table, None, "z") == "z"
    for other in others:
        await other.close()


async def scanned(store: CassandraReplicas, table: str) -> KeyPage:
    """Return the keys of a table, as soon as the nodes see that one is away."""
    while True:
        with suppress(QuorumError):
            return await store.keys(table, None, 10)


@pytest.mark.parametrize("stopped", range(COUNT))
async def test_nobody_waits_for_a_node_that_is_stopped(servers: CassandraServers, table: str, stopped: int) -> None:
    store = await CassandraReplicas.open(ADDRESS, timeout_s=LONG_S)
    hasty = await CassandraReplicas.open(ADDRESS, timeout_s=2.0)
    servers.stop(stopped)
    try:
        for at in range(6):
            await store.put(table, f"{at}", {A: StoredCell("x", at)}, 1 + at % 2)
            assert (await store.get(table, f"{at}", None, 2))[A].timestamp == at
        assert await store.swap(table, None, "x") == "x"
        with pytest.raises(QuorumError, match="and 3 have to"):
            await hasty.put(table, "all", {A: StoredCell("x", 3)}, 3)
        page = await scanned(hasty, table)
        assert (len(page.keys), page.replicas_away) == (7, 1)
    finally:
        servers.go_on(stopped)
    await store.close()
    await hasty.close()
    servers.wait_until_up()


async def test_a_node_that_is_cut_off_holds_nobody_up(servers: CassandraServers, table: str) -> None:
    """Clients reach it, and it reaches no other."""
    store = await CassandraReplicas.open(ADDRESS, timeout_s=5.0)
    servers.links.hold(HOSTS[0])
    try:
        for at in range(6):
            await store.put(table, "one", {A: StoredCell("x", at)}, 1)
            await store.put(table, "two", {A: StoredCell("x", at)}, 2)
            assert (await store.get(table, "two", None, 2))[A] == StoredCell("x", at)
        with pytest.raises(QuorumError, match="and 3 have to"):
            await store.put(table, "k", {A: StoredCell("x", 3)}, 3)
    finally:
        servers.links.free()
    await store.close()
    servers.wait_until_up()


async def test_what_cassandra_cannot_keep_is_refused_and_nothing_is_written(
    store: CassandraReplicas, table: str
) -> None:
    long = "x" * (1 << 16)
    for time in (-1, TIMESTAMP_MAX + 1):
        with pytest.raises(NameRefusedError, match="Cassandra has those from 0"):
            await store.put(table, "k", {B: StoredCell("x", 1), A: StoredCell("x", time)}, 3)
    with pytest.raises(NameRefusedError, match=r"the key 'x+\.\.\.' is refused"):
        await store.put(table, long, {A: StoredCell("x", 1)}, 3)
    with pytest.raises(NameRefusedError, match=r"the column 'x+\.\.\.' is refused"):
        await store.put(table, "k", {StoredColumn(long): StoredCell("x", 1)}, 3)
    with pytest.raises(StatementRefusedError, match="exceeds allowed maximum"):
        await store.put(table, "k", {A: StoredCell(long * 100, 1), B: StoredCell("x", 1)}, 3)
    with pytest.raises(QuorumError, match="the keyspace has no more"):
        await store.put(table, "k", {A: StoredCell("x", 1)}, 4)
    assert (await store.keys(table, None, 10)).keys == []
    # The longest key that fits does.
    fits = "x" * ((1 << 16) - 1 - 6 - len(table))
    await store.put(table, fits, {A: StoredCell("x", 1)}, 3)
    assert (await store.keys(table, None, 10)).keys == [fits]


async def test_a_view_key_that_is_too_long_for_a_row_is_refused_and_the_base_is_not_written(
    store: CassandraReplicas, table: str, new_leases: NewLeases
) -> None:
    view = VersionedView(f"of {table}", table, "assigned", ())
    long = "x" * ((1 << 16) - 1 - 6 - len(view.name) - len("key "))
    coordinator = ViewCoordinator(store, [view], new_leases(store))
    with pytest.raises(NameRefusedError, match="is refused"):
        await coordinator.put(Update(table, "1", "assigned", StoredCell(f"{long}x", 1)), 2)
    assert (await store.keys(table, None, 10)).keys == []
    await coordinator.put(Update(table, "1", "assigned", StoredCell(long, 1)), 2)
    await coordinator.settle()
    assert await coordinator.get_view(view, long) == {"1": {}}


async def test_a_keyspace_that_is_none_is_refused(servers: CassandraServers) -> None:
    with pytest.raises(ReplicaRefusedError, match="no keyspace 'nowhere'; make it: CREATE KEYSPACE"):
        await CassandraReplicas.open(f"cassandra://{HOSTS[0]}/nowhere")
    cluster = Cluster(HOSTS)
    session = cluster.connect()
    one = "WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    for name, table, reason in (
        ("empty", "", "the keyspace has no table 'cells'"),
        ("other", "CREATE TABLE other.cells (a int PRIMARY KEY)", "its table 'cells' is another one"),
    ):
        session.execute(f"CREATE KEYSPACE {name} {one}", timeout=60)
        if table:
            session.execute(table, timeout=60)
        with pytest.raises(ReplicaRefusedError, match=reason):
            await CassandraReplicas.open(f"cassandra://{HOSTS[0]}/{name}", missing="refused")
        session.execute(f"DROP KEYSPACE {name}", timeout=60)
    session.execute(f"CREATE KEYSPACE hasty {one} AND durable_writes = false", timeout=60)
    with pytest.raises(ReplicaRefusedError, match="durable_writes"):
        await CassandraReplicas.open(f"cassandra://{HOSTS[0]}/hasty")
    session.execute("DROP KEYSPACE hasty", timeout=60)
    cluster.shutdown()


async def test_views_are_kept_over_it(store: CassandraReplicas, table: str, new_leases: NewLeases) -> None:
    view, leases = VersionedView(f"of {table}", table, "assigned", ("status",)), new_leases(store)
    coordinator = ViewCoordinator(store, [view], leases)
    updates = [Update(table, "1", "assigned", StoredCell(name, at)) for at, name in enumerate([*"abc", None, "a"], 1)]
    updates.append(Update(table, "1", "status", StoredCell("x", 2)))
    for update in updates:
        await coordinator.put(update, 2)
    await coordinator.settle()
    shown = {(key, base): row for key in "abc" for base, row in (await coordinator.get_view(view, key)).items()}
    assert shown == view_of(view, updates) == {("a", "1"): {"status": StoredCell("x", 2)}}
    sweeper = ViewSweeper(store, [view], leases, forget_s=0.0)
    swept = await sweeper.sweep()
    # The tombstones of b, of c, and of no view key stay: nothing is forgotten.
    assert (swept.collected, swept.forgotten) == (3, 0)
    assert (await sweeper.sweep()).collected == 0
    # A row that comes back takes its cells with their old timestamps.
    await coordinator.put(Update(table, "1", "assigned", StoredCell("b", 9)), 2)
    await coordinator.settle()
    assert await coordinator.get_view(view, "b") == {"1": {"status": StoredCell("x", 2)}}


async def test_the_command_line_keeps_views_in_it(store: CassandraReplicas, table: str, tmp_path: Path) -> None:
    file = tmp_path / "versioned.toml"
    text = (
        FILE.replace(REPLICAS, f'"{ADDRESS}"').replace('"ticket"', f'"{table}"').replace("assigned_to", f"of {table}")
    )
    file.write_text(text)
    for key in ("1", "2"):
        await store.put(table, key, {base_column("assigned"): StoredCell("a", 1)}, 2)
    outcome = await asyncio.to_thread(run_command, "versioned", "sweep", str(file))
    assert (outcome.code, outcome.out) == (0, "propagated 2, finished 0, collected 0, forgotten 0\n"), outcome.err
    outcome = await asyncio.to_thread(run_command, "versioned", "check", str(file))
    assert (outcome.code, outcome.out) == (0, "2 records, 0 not propagated yet, 0 wrong\n"), outcome.err
    await store.put(table, "2", {base_column("assigned"): StoredCell("b", 2)}, 2)
    with serving(file) as (out, _):
        await asyncio.to_thread(read_until_propagated, out, 1)


def test_a_node_that_was_killed_keeps_what_it_acknowledged(servers: CassandraServers, table: str) -> None:
    async def write(value: str, time: int, quorum: int) -> None:
        store = await CassandraReplicas.open(ADDRESS, timeout_s=20.0)
        await store.put(table, "k", {A: StoredCell(value, time)}, quorum)
        await store.close()

    asyncio.run(write("x", 1, 3))
    servers.kill(1)
    asyncio.run(write("y", 2, 2))
    servers.start(1)
    servers.wait_until_up()
    for replica in contents([table]):
        # What it missed comes as a hint, sooner or later.
        assert replica[table]["k"][A] in {StoredCell("x", 1), StoredCell("y", 2)}
    asyncio.run(write("z", 0, 3))
    for replica in contents([table]):
        assert replica[table]["k"][A] != StoredCell("z", 0)


def test_processes_and_nodes_that_are_stopped_and_cut_off_leave_the_view_of_the_base(
    tmp_path: Path, servers: CassandraServers
) -> None:
    assert run(2, Cassandra(tmp_path, servers, 2)) == []
