"""A map in files, of which each server has a copy: they do not change at the same moment."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from pequod_bench.systems.server import free_port
from pequod_server import PequodServer, ServerConfig

from pequod import LATEST, AsyncClient
from pequod.cluster.document import written
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from tests.cluster_client.site import until
from tests.cluster_client.test_mishaps import link_of, node_of

POSTERS = [f"u{number}" for number in range(30)]


def goes_by(client: AsyncClient, version: int) -> bool:
    """Tell whether a client has heard of a map, and that the server which told it goes by it."""
    routes = link_of(client).routes
    return routes is not None and routes.state.map.version == version == max(
        server.map_version for server in routes.state.servers
    )


def reads_at_both(client: AsyncClient, table: str) -> bool:
    return {node_of(client, f"{table}|{poster}|".encode()).id for poster in POSTERS} == {"c1", "c2"}


async def test_a_new_table_is_read_only_where_its_join_is_known(tmp_path: Path) -> None:
    """One compute has the new map, the other has not: it would answer that nothing is there."""
    entries = [
        ServerEntry(name, f"127.0.0.1:{free_port()}", frozenset({role}), "a" if role is ServerRole.HOME else "")
        for name, role in (("h1", ServerRole.HOME), ("c1", ServerRole.COMPUTE), ("c2", ServerRole.COMPUTE))
    ]
    before = ClusterMap("copied", 2, home_ranges=(HomeRange(b"p|", b"p}", "a"),))
    after = replace(before, version=3, joins="y|<user>|<post> = copy p|<user>|<post>;")

    def copy(known: ClusterMap, name: str) -> None:
        (tmp_path / f"{name}.toml").write_text(written(ClusterState.of(known, entries)))

    async with AsyncExitStack() as stack:
        servers = {}
        for entry in entries:
            copy(before, entry.id)
            place = f"static:{tmp_path}/{entry.id}.toml"
            servers[entry.id] = PequodServer(ServerConfig(listen=entry.address, cluster=place, drain_s=0.1))
            await servers[entry.id].start()
            stack.push_async_callback(servers[entry.id].stop)
        target = f"pequod+cluster://{entries[1].address}"
        client = await stack.enter_async_context(AsyncClient(target))
        await client.multi_put({f"p|{poster}|1": "x" for poster in POSTERS})
        # Both are read.
        await until(partial(reads_at_both, client, "p"))
        copy(after, "c1")
        servers["c1"].reload()
        await until(servers["c1"].engine.joins)
        late = await stack.enter_async_context(AsyncClient(target))
        for reader in (client, late):
            # Until it has heard of the map, it may read anywhere.
            await reader.get("p|u1|1")
            await until(partial(goes_by, reader, 3))
            for poster in POSTERS:
                assert await reader.get(f"y|{poster}|1", freshness=LATEST) == b"x", poster
        copy(after, "c2")
        servers["c2"].reload()
        for reader in (client, late):
            await until(partial(reads_at_both, reader, "y"))
            for poster in POSTERS:
                assert await reader.get(f"y|{poster}|1", freshness=LATEST) == b"x", poster
