"""`pequod cluster move` that ends at any step: run again, or undone, no row and no write is lost."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
import typer
from pequod_server import PequodServer
from pequod_server.cluster import copying
from pequod_server.cluster import etcd as etcd_module
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.cluster.operating import ClusterEditor
from pequod_server.homes.compute.channel import GrpcPeerChannel

from pequod.cli import cluster_move
from pequod.client import AsyncClient
from pequod.cluster.edits import moving
from pequod.cluster.map import ClusterMap, HomeRange
from pequod.errors import ClusterMapError, NotHomeError
from tests.cluster.conftest import Etcd
from tests.cluster.copies import copied
from tests.cluster.test_joins import Cluster
from tests.cluster.waiting import eventually

#: A move changes the map, writes two pages of rows, and changes the map three times; it may end before or after each.
EFFECTS = 6
CLOSED, MOVED = 3, 4
PAGE = 3


class KilledError(BaseException):
    """The command is gone."""


class Deadly:
    """Ends the command before or after one of its effects."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: float | None = None
        for kind, name in ((ClusterEditor, "change"), (GrpcPeerChannel, "write")):
            monkeypatch.setattr(kind, name, self._deadly(getattr(kind, name)))

    def _deadly(self, effect: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def carry_out(*args: Any, **settings: Any) -> Any:
            if self.left is not None and self.left < 1:
                is_after, self.left = self.left > 0, None
                if is_after:
                    await effect(*args, **settings)
                raise KilledError
            if self.left is not None:
                self.left -= 1
            return await effect(*args, **settings)

        return carry_out


@pytest.fixture
async def homes(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Cluster, PequodServer, PequodServer]]:
    """Two homes, and a table for each test of the first one."""
    # Homes and tests share a process, which may be too busy to renew leases of a few seconds.
    monkeypatch.setattr(etcd_module, "LEASE_S", 60)
    async with AsyncExitStack() as stack:
        cluster = Cluster(etcd, stack)
        ranges = tuple(HomeRange(b"p%02d|" % at, b"p%02d}" % at, "a") for at in range(4 * EFFECTS + 2))
        coordinator = EtcdCoordinator(etcd.endpoints, cluster.name)
        await coordinator.put_map(ClusterMap(cluster.name, 1, home_ranges=ranges))
        await coordinator.close()
        settings = {"cluster_roles": "home"}
        old = await cluster.server("h1", cluster_group="a", **settings)
        yield cluster, old, await cluster.server("h2", cluster_group="b", **settings)


async def client_of(server: PequodServer, stack: AsyncExitStack) -> AsyncClient:
    assert server.member is not None
    return await stack.enter_async_context(AsyncClient(server.member.entry.address))


async def taken_in(servers: Sequence[PequodServer], known: ClusterMap) -> None:
    """Wait until servers go by a map."""
    for server in servers:
        member = server.member
        assert member is not None
        await eventually(lambda: member.entry.map_version == known.version)  # noqa: B023


async def test_a_move_that_ends_anywhere_is_run_again_or_undone(
    homes: tuple[Cluster, PequodServer, PequodServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, *servers = homes
    monkeypatch.setattr(copying, "PAGE_ROWS", PAGE)
    async with AsyncExitStack() as stack:
        old, new = [await client_of(server, stack) for server in servers]
        deadly = Deadly(monkeypatch)
        editor = ClusterEditor(cluster.etcd.setting(cluster.name))
        stack.push_async_callback(editor.close)
        for number in range(4 * EFFECTS):
            step, is_undone = number // 2 / 2, number % 2 == 1
            table = f"p{number:02}|"
            bounds = table.encode(), table.encode()[:-1] + b"}"
            rows = {f"{table}{row}": f"{number} {row}" for row in range(2 * PAGE)}
            await old.multi_put(rows)
            deadly.left = step
            with pytest.raises(KilledError):
                await cluster_move._move(editor, bounds, "b", copied=False)
            known = (await editor.state()).map
            home = known.home_range_of(bounds[0])
            assert home is not None
            has_come, is_over = home.group == "b", home.group == "b" and not home.moves_to
            assert (has_come, is_over) == (step > MOVED, step == EFFECTS - 0.5)
            assert bool(home.moves_to) == (CLOSED < step < EFFECTS - 0.5)
            await taken_in(servers, known)
            if home.moves_to:
                for one in (old, new):
                    with pytest.raises(NotHomeError):
                        await one.put(f"{table}0", "meanwhile")
            elif not has_come:
                await old.put(f"{table}0", "meanwhile")
                rows[f"{table}0"] = "meanwhile"
            if is_undone and (home.moves_to or home.copies_to):
                await cluster_move._undo(editor, bounds)
                await taken_in(servers, (await editor.state()).map)
                # What the earlier try has left at the new home is old, or gone, by the next one.
                owner = new if has_come else old
                await owner.put(f"{table}0", "changed")
                await owner.remove(f"{table}1")
                rows[f"{table}0"] = "changed"
                del rows[f"{table}1"]
            if not (is_over or (is_undone and has_come)):
                await cluster_move._move(editor, bounds, "b", copied=False)
                await taken_in(servers, (await editor.state()).map)
            assert dict(await new.scan(prefix=table)) == {key.encode(): one.encode() for key, one in rows.items()}
            await new.put(f"{table}9", "new")
            with pytest.raises(NotHomeError):
                await old.put(f"{table}9", "old")


async def test_keys_take_their_deadlines_with_them(homes: tuple[Cluster, PequodServer, PequodServer]) -> None:
    cluster, *servers = homes
    async with AsyncExitStack() as stack:
        old, new = [await client_of(server, stack) for server in servers]
        editor = ClusterEditor(cluster.etcd.setting(cluster.name))
        stack.push_async_callback(editor.close)
        await old.multi_put({"p00|1": "one", "p00|2": "two"})
        assert await old.expire("p00|1", 3_600)
        await cluster_move._move(editor, (b"p00|", b"p00}"), "b", copied=False)
        left_s = [await new.ttl(key) for key in ("p00|1", "p00|2", "p00|3")]
        assert left_s[0] is not None
        assert 3_500 < left_s[0] <= 3_600
        assert left_s[1:] == [math.inf, None]


async def test_what_does_not_move_is_not_said_to_stay(
    homes: tuple[Cluster, PequodServer, PequodServer], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, *_ = homes
    editor = ClusterEditor(cluster.etcd.setting(cluster.name))
    await editor.change(lambda known: moving(known, b"p01|", b"p01}", "b"))
    with pytest.raises(typer.Exit):
        await cluster_move._undo(editor, (b"p01|m", b"p01}"))
    assert "what moves is home range ['p01|', 'p01}')" in capsys.readouterr().err
    assert (await editor.state()).map.version == 2
    await editor.close()


async def test_rows_that_were_copied_by_other_means_are_compared(
    homes: tuple[Cluster, PequodServer, PequodServer],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, *servers = homes
    monkeypatch.setattr(copying, "PAGE_ROWS", 2)
    async with AsyncExitStack() as stack:
        old, new = [await client_of(server, stack) for server in servers]
        editor = ClusterEditor(cluster.etcd.setting(cluster.name))
        stack.push_async_callback(editor.close)
        bounds = b"p00|", b"p00}"
        await old.multi_put({"p00|1": "one", "p00|2": "two"})
        for rows, reason in (({}, "is not the same"), ({"p00|1": "one", "p00|2": "other"}, "is not the same")):
            with pytest.raises(ClusterMapError, match=reason):
                await cluster_move._move(editor, bounds, "b", copied=True)
            await copied(servers[1], rows)
        await copied(servers[1], {"p00|2": "two", "p00|3": "more"})
        with pytest.raises(ClusterMapError, match=r"has keys in it that h1 does not have, as 'p00\|3'"):
            await cluster_move._move(editor, bounds, "b", copied=True)
        await copied(servers[1], {"p00|3": None})
        await cluster_move._move(editor, bounds, "b", copied=True)
        assert "2 rows compared" in capsys.readouterr().out
        assert await new.scan(prefix="p00|") == [(b"p00|1", b"one"), (b"p00|2", b"two")]
