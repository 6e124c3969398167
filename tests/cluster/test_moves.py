"""`pequod cluster move` that ends at any step: run again, or undone, no row and no write is lost."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pequod_server import PequodServer
from pequod_server.cluster import copying, own_entry
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.cluster.followed_home import FollowedHome
from pequod_server.cluster.operating import ClusterEditor
from pequod_server.homes.compute.channel import GrpcPeerChannel

from pequod.cli import cluster_move
from pequod.client import AsyncClient
from pequod.cluster import edits
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
    monkeypatch.setattr(own_entry, "LEASE_S", 60)
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
                await cluster_move.move_range(editor, bounds, "b", copied=False)
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
                await cluster_move.move_range(editor, bounds, "b", copied=False)
                await taken_in(servers, (await editor.state()).map)
            assert dict(await new.scan(prefix=table)) == {key.encode(): one.encode() for key, one in rows.items()}
            await new.put(f"{table}9", "new")
            with pytest.raises(NotHomeError):
                await old.put(f"{table}9", "old")


class Meanwhile:
    """Has a client write at the old home before each message of copies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, writes: Sequence[Callable[[], Awaitable[object]]]) -> None:
        self.left = list(writes)
        write = GrpcPeerChannel.write

        async def written(channel: GrpcPeerChannel, request: Any) -> Any:
            if self.left:
                await self.left.pop(0)()
            return await write(channel, request)

        monkeypatch.setattr(GrpcPeerChannel, "write", written)


async def test_what_is_written_while_rows_are_copied_comes_along(
    homes: tuple[Cluster, PequodServer, PequodServer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster, *servers = homes
    monkeypatch.setattr(copying, "PAGE_ROWS", 2)
    async with AsyncExitStack() as stack:
        old, new = [await client_of(server, stack) for server in servers]
        editor = ClusterEditor(cluster.etcd.setting(cluster.name))
        stack.push_async_callback(editor.close)
        await old.multi_put({f"p00|{row}": f"{row}" for row in range(8)})
        await old.expire("p00|6", 3_600)
        meanwhile = Meanwhile(
            monkeypatch,
            [
                lambda: old.put("p00|0", "put"),
                lambda: old.remove("p00|1"),
                lambda: old.add("p00|2", 40),
                lambda: old.expire("p00|3", 3_600),
                lambda: old.persist("p00|6"),
                lambda: old.put("p00|00", "new", ttl_s=3_600),
                lambda: old.remove("p00|7"),
            ],
        )
        await cluster_move.move_range(editor, (b"p00|", b"p00}"), "b", copied=False)
        assert not meanwhile.left
        assert " changes meanwhile, a to b" in capsys.readouterr().out
        found = {key.decode(): value.decode() for key, value in await new.scan(prefix="p00|")}
        assert found == {
            "p00|0": "put",
            "p00|00": "new",
            "p00|2": "42",
            "p00|3": "3",
            "p00|4": "4",
            "p00|5": "5",
            "p00|6": "6",
        }
        left_s = {key: await new.ttl(key) for key in found}
        assert [key for key, one in left_s.items() if one is not None and 3_500 < one <= 3_600] == ["p00|00", "p00|3"]


async def test_a_change_that_is_left_out_of_the_copy_is_found_before_anything_moves(
    homes: tuple[Cluster, PequodServer, PequodServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, *servers = homes
    monkeypatch.setattr(copying, "_AGAIN_S", 0.01)
    monkeypatch.setattr(FollowedHome, "take", lambda _: [])
    async with AsyncExitStack() as stack:
        old, _ = [await client_of(server, stack) for server in servers]
        editor = ClusterEditor(cluster.etcd.setting(cluster.name))
        stack.push_async_callback(editor.close)
        await old.multi_put({"p00|1": "one", "p00|2": "two"})
        Meanwhile(monkeypatch, [lambda: old.put("p00|1", "changed")])
        with pytest.raises(ClusterMapError, match=r"is not the same at h2 as at h1, as 'p00.1'; nothing has moved"):
            await cluster_move.move_range(editor, (b"p00|", b"p00}"), "b", copied=False)
        await taken_in(servers, (await editor.state()).map)
        await old.put("p00|1", "writes go on")


async def test_a_command_that_was_overtaken_changes_nothing_any_more(
    homes: tuple[Cluster, PequodServer, PequodServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, *servers = homes
    async with AsyncExitStack() as stack:
        old, new = [await client_of(server, stack) for server in servers]
        editors = [ClusterEditor(cluster.etcd.setting(cluster.name)) for _ in range(2)]
        for editor in editors:
            stack.push_async_callback(editor.close)
        bounds = b"p00|", b"p00}"
        await old.put("p00|1", "one")
        for at_end in ("copy", "compare"):
            await old.put("p00|1", at_end)

            # Another command begins it while the first one is there.
            async def overtake() -> None:
                await editors[1].change(lambda present: edits.copying(present, *bounds, "b"))
                await taken_in(servers, (await editors[1].state()).map)

            whole = getattr(copying.RangeCopy, at_end)

            async def step(copy: copying.RangeCopy, whole: Any = whole) -> None:
                await overtake()
                await whole(copy)

            with monkeypatch.context() as patched:
                patched.setattr(copying.RangeCopy, at_end, step)
                with pytest.raises(NotHomeError if at_end == "copy" else ClusterMapError):
                    await cluster_move.move_range(editors[0], bounds, "b", copied=False)
            known = (await editors[1].state()).map.home_range_of(b"p00|1")
            assert known is not None
            assert (known.group, known.copies_to) == ("a", "b")
        await cluster_move.move_range(editors[1], bounds, "b", copied=False)
        assert await new.get("p00|1") == b"compare"


async def test_keys_take_their_deadlines_with_them(homes: tuple[Cluster, PequodServer, PequodServer]) -> None:
    cluster, *servers = homes
    async with AsyncExitStack() as stack:
        old, new = [await client_of(server, stack) for server in servers]
        editor = ClusterEditor(cluster.etcd.setting(cluster.name))
        stack.push_async_callback(editor.close)
        await old.multi_put({"p00|1": "one", "p00|2": "two"})
        assert await old.expire("p00|1", 3_600)
        await cluster_move.move_range(editor, (b"p00|", b"p00}"), "b", copied=False)
        left_s = [await new.ttl(key) for key in ("p00|1", "p00|2", "p00|3")]
        assert left_s[0] is not None
        assert 3_500 < left_s[0] <= 3_600
        assert left_s[1:] == [math.inf, None]


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
                await cluster_move.move_range(editor, bounds, "b", copied=True)
            await copied(servers[1], rows)
        await copied(servers[1], {"p00|2": "two", "p00|3": "more"})
        with pytest.raises(ClusterMapError, match=r"has keys in it that h1 does not have, as 'p00\|3'"):
            await cluster_move.move_range(editor, bounds, "b", copied=True)
        await copied(servers[1], {"p00|3": None})
        await cluster_move.move_range(editor, bounds, "b", copied=True)
        assert "2 rows compared" in capsys.readouterr().out
        assert await new.scan(prefix="p00|") == [(b"p00|1", b"one"), (b"p00|2", b"two")]
