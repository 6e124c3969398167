"""A folder in which clients have added joins is no folder for workers, which have the joins of the settings alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pequod_grammar import parse
from pequod_server import PequodServer, ServerConfig
from pequod_server.cluster.static import write_anew
from pequod_server.data.errors import FolderError
from pequod_server.worker import Worker
from pequod_server.workers.plan import map_file, place_of, plan_of

from pequod import AsyncClient
from tests.workers.conftest import TIMELINES

ADDED = "karma|<author> = count vote|<author>|<voter>"


async def test_joins_that_clients_have_added_are_not_lost_by_workers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    alone = PequodServer(ServerConfig(listen="127.0.0.1:0", data=data, drain_s=0, joins=TIMELINES))
    async with AsyncClient(f"127.0.0.1:{await alone.start()}") as client:
        await client.add_join(ADDED)
    await alone.stop()

    def home(joins: str) -> PequodServer:
        plan = plan_of(ServerConfig(workers="2", joins=joins, data=data, drain_s=0))
        doors = {one.id: f"unix:{tmp_path / one.id}.sock" for one in plan.workers}
        write_anew(map_file(tmp_path), plan.state(doors))
        changed = {"listen": "127.0.0.1:0", "cluster": place_of(tmp_path), "cluster_id": "w0"}
        config = plan.workers[0].config.model_copy(update=changed)
        return PequodServer(config, worker=Worker("w0", doors["w0"], joins=plan.joins))

    with pytest.raises(FolderError, match=r"clients have added the join karma.* put it there"):
        await home(TIMELINES).start()
    server = home(f"{TIMELINES}; {ADDED}")
    await server.start()
    assert {join.spec for join in server.engine.joins()} == set(parse(f"{TIMELINES}; {ADDED}"))
    await server.stop()
