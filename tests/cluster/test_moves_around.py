"""A range moves while a program writes to the PostgreSQL behind its old home, beside Pequod."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import pytest
import typer
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.cluster.operating import ClusterEditor

from pequod.cli import cluster_move
from pequod.client import AsyncClient
from pequod.cluster.map import ClusterMap, HomeRange
from tests.backing.conftest import Connection, dsn, postgres
from tests.cluster.conftest import Etcd
from tests.cluster.test_joins import Cluster

__all__ = ["dsn", "postgres"]

BOUNDS = b"p|", b"p}"
ROWS = {f"p|{number:04}".encode(): b"%d" % number for number in range(7)}
#: The program's.
AROUND = b"p|0003|around"


@pytest.fixture
async def site(etcd: Etcd, dsn: str) -> AsyncIterator[tuple[Cluster, AsyncClient, AsyncClient]]:
    """A home beside a PostgreSQL, another one without a database, and a client of each."""
    store = PostgresStore(dsn, (Mapping.generic([b"p"]),))
    await store.install()
    await store.close()
    async with AsyncExitStack() as stack:
        cluster = Cluster(etcd, stack)
        coordinator = EtcdCoordinator(etcd.endpoints, cluster.name)
        await coordinator.put_map(ClusterMap(cluster.name, 1, home_ranges=(HomeRange(*BOUNDS, "a"),)))
        await coordinator.close()
        old = await cluster.server(
            "h1",
            cluster_roles="home",
            cluster_group="a",
            backing=dsn,
            backing_tables="p",
            backing_mode="write-through",
        )
        new = await cluster.server("h2", cluster_roles="home", cluster_group="b")
        clients = await cluster.client(old), await cluster.client(new)
        await clients[0].multi_put(ROWS)
        yield cluster, *clients


@pytest.fixture
async def around(dsn: str) -> AsyncIterator[Connection]:
    """The program's connection."""
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


class Committing(ClusterEditor):
    """Ends the program's transaction right before a change of the map.

    Args:
        change: 1: that rows are copied; 2: that writes are refused; 3: that it has moved; 4: that writes are taken.
    """

    def __init__(self, place: str, around: Connection, change: int) -> None:
        super().__init__(place)
        self._around = around
        self._left = change

    async def change(self, edit):  # type: ignore[no-untyped-def]
        self._left -= 1
        if self._left == 0:
            await self._around.execute("COMMIT")
        return await super().change(edit)


async def move(cluster: Cluster, around: Connection, change: int) -> None:
    """Move the range while a transaction of the program is open, which ends before a change; see `Committing`."""
    await around.execute("BEGIN")
    await around.execute("INSERT INTO pequod_base (key, value) VALUES ($1, 'x')", AROUND)
    editor = Committing(cluster.etcd.setting(cluster.name), around, change)
    try:
        await cluster_move.move_range(editor, BOUNDS, "b", copied=False)
    finally:
        await editor.close()


@pytest.mark.parametrize(("change", "said"), [(1, "8 rows copied and compared"), (2, "7 rows copied and compared")])
async def test_what_is_committed_before_writes_are_refused_is_moved(
    change: int,
    said: str,
    site: tuple[Cluster, AsyncClient, AsyncClient],
    around: Connection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster, _, new = site
    await move(cluster, around, change)
    assert said in capsys.readouterr().out
    assert dict(await new.scan(*BOUNDS)) == {**ROWS, AROUND: b"x"}


@pytest.mark.parametrize("change", [3, 4])
async def test_what_is_committed_after_the_last_change_was_copied_is_not_moved_and_the_command_says_where(
    change: int,
    site: tuple[Cluster, AsyncClient, AsyncClient],
    around: Connection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster, old, new = site
    with pytest.raises(typer.Exit) as ended:
        await move(cluster, around, change)
    assert ended.value.exit_code == 3
    said = capsys.readouterr()
    assert "the range belongs to b" in said.out
    assert "the range has moved without what they wrote in 'p|0003|around':" in said.err
    assert await old.get(AROUND) == b"x"
    assert dict(await new.scan(*BOUNDS)) == ROWS


async def test_what_is_committed_when_the_command_has_ended_is_not_moved_and_nobody_says_so(
    site: tuple[Cluster, AsyncClient, AsyncClient], around: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, _, new = site
    await move(cluster, around, 5)
    await around.execute("COMMIT")
    said = capsys.readouterr()
    assert "the range belongs to b" in said.out
    assert "wrote" not in said.err
    assert dict(await new.scan(*BOUNDS)) == ROWS


async def test_a_range_without_rows_is_looked_at_again_as_well(
    site: tuple[Cluster, AsyncClient, AsyncClient], around: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, old, _ = site
    for key in ROWS:
        await old.remove(key)
    with pytest.raises(typer.Exit):
        await move(cluster, around, 3)
    assert "what they wrote in 'p|0003|around'" in capsys.readouterr().err
