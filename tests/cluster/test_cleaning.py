"""`pequod cluster clean`: what moves have left goes, and nothing else."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pequod_server import PequodServer
from pequod_server.cluster import cleaning
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.cluster.operating import ClusterEditor
from pequod_server.homes.messages import rests_request, write_request
from pequod_server.homes.rules import HomeRules

from pequod.cli import cluster_clean, cluster_move
from pequod.cluster import edits
from pequod.cluster.map import ClusterMap, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import BadRequestError, ClusterMapError
from tests.cluster.conftest import Etcd
from tests.cluster.test_computes import sqlite_settings
from tests.cluster.test_joins import Cluster
from tests.cluster.test_moves import client_of, homes

__all__ = ["homes"]

BOUNDS = b"p00|", b"p00}"


async def test_what_a_move_has_left_is_shown_and_removed(
    homes: tuple[Cluster, PequodServer, PequodServer],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cleaning, "PAGE_ROWS", 2)
    cluster, *servers = homes
    async with AsyncExitStack() as stack:
        old, new = [await client_of(server, stack) for server in servers]
        editor = ClusterEditor(cluster.etcd.setting(cluster.name))
        stack.push_async_callback(editor.close)
        await old.multi_put({f"p00|{row}": "x" for row in range(5)} | {"p01|1": "stays"})
        await cluster_move.move_range(editor, BOUNDS, "b", copied=False)
        await new.put("p00|9", "new")
        capsys.readouterr()
        for bounds, is_dry, said in (
            (BOUNDS, True, "5 rows would be removed at h1 of group a; group b has the range"),
            ((b"p00|3", b"p00}"), False, "home range ['p00|3', 'p00}'): 2 rows removed at h1 of group a"),
            (BOUNDS, False, "3 rows removed at h1"),
        ):
            await cluster_clean._clean(editor, bounds, is_dry)
            assert said in capsys.readouterr().out
        await cluster_clean._clean(editor, BOUNDS, dry_run=False)
        assert "nothing is left there" in capsys.readouterr().err
        assert await old.scan() == [(b"p01|1", b"stays")]
        assert len(await new.scan()) == 6
        await editor.change(lambda known: edits.copying(known, *BOUNDS, "a"))
        with pytest.raises(ClusterMapError, match=r"it moves: `pequod cluster move PLACE .* --to a` goes on"):
            await cluster_clean._clean(editor, BOUNDS, dry_run=True)


async def test_a_home_judges_by_itself_what_is_left() -> None:
    home = ServerEntry("h1", "h1:7744", frozenset({ServerRole.HOME}), "a")
    rules = {group: HomeRules(replace(home, id=group, group=group)) for group in "ab"}
    known = ClusterMap("twip", 1, home_ranges=(HomeRange(b"p|", b"p}", "a"),))
    steps = [known, edits.copying(known, b"p|", b"p}", "b")]
    steps.append(edits.closed(steps[-1], 2))
    steps.append(edits.moved(steps[-1], 2))
    steps.append(edits.opened(steps[-1], b"", None))
    taken = []
    for step in steps:
        for one in rules.values():
            await one.take_in(step)
        taken.append("".join(group for group, one in rules.items() if is_taken(one, b"p|1")))
        assert not any(is_taken(one, b"q|1") for one in rules.values())
    assert taken == ["b", "", "", "", "a"]


def is_taken(rules: HomeRules, key: bytes) -> bool:
    try:
        rules.refuse_rests([key])
    except BadRequestError:
        return False
    return True


async def test_what_is_no_rest_is_refused(homes: tuple[Cluster, PequodServer, PequodServer]) -> None:
    _, old, _ = homes
    async with AsyncExitStack() as stack:
        client = await client_of(old, stack)
        await client.put("p00|1", "mine")
        assert old.member is not None
        home = cluster_move.OpenHome(old.member.entry)
        stack.push_async_callback(home.close)
        with pytest.raises(BadRequestError, match=r"'p00.1' is not removed: .* it belongs to this home"):
            await home.channel.write(rests_request([b"p00|1"]))
        put = write_request([(b"p00|1", b"other")])
        put.rests = True
        with pytest.raises(BadRequestError, match="are removed, and nothing else"):
            await home.channel.write(put)
        assert await client.get("p00|1") == b"mine"


async def test_groups_beside_one_database_keep_their_rows(
    etcd: Etcd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncExitStack() as stack:
        cluster = Cluster(etcd, stack)
        coordinator = EtcdCoordinator(etcd.endpoints, cluster.name)
        await coordinator.put_map(ClusterMap(cluster.name, 1, home_ranges=(HomeRange(b"s|", b"s}", "a"),)))
        await coordinator.close()
        settings = await sqlite_settings(tmp_path)
        old = await cluster.server("h1", cluster_roles="home", cluster_group="a", **settings)
        new = await cluster.server("h2", cluster_roles="home", cluster_group="b", **settings)
        client = await client_of(old, stack)
        await client.put("s|ann|bob", "one")
        editor = ClusterEditor(cluster.etcd.setting(cluster.name))
        stack.push_async_callback(editor.close)
        with pytest.raises(ClusterMapError, match="are beside one database"):
            await cluster_move.move_range(editor, (b"s|", b"s}"), "b", copied=False)
        await cluster_move.move_range(editor, (b"s|", b"s}"), "b", copied=True)
        await cluster_clean._clean(editor, (b"s|", b"s}"), dry_run=False)
        assert "nothing is left there" in capsys.readouterr().err
        assert await (await client_of(new, stack)).get("s|ann|bob") == b"one"
