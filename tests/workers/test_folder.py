"""Joins that clients have added to a folder of data are given to the workers, and kept there."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import pytest
from pequod_grammar import parse
from pequod_server import PequodServer, ServerConfig
from pequod_server.cluster.joins import specs_of
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
        folder = Path(mkdtemp(dir=tmp_path))
        plan = plan_of(ServerConfig(workers="2", joins=joins, data=data, drain_s=0))
        doors = {one.id: f"unix:{folder / one.id}.sock" for one in plan.workers}
        write_anew(map_file(folder), plan.state(doors))
        changed = {"listen": "127.0.0.1:0", "cluster": place_of(folder), "cluster_id": "w0"}
        config = plan.workers[0].config.model_copy(update=changed)
        return PequodServer(config, worker=Worker("w0", doors["w0"], joins=plan.joins))

    for _ in range(2):
        server = home(TIMELINES)
        await server.start()
        assert server.member is not None
        assert set(specs_of(server.member.map)) == set(parse(f"{TIMELINES}; {ADDED}"))
        assert {join.spec for join in server.engine.joins()} == set(parse(f"{TIMELINES}; {ADDED}"))
        await server.stop()
    with pytest.raises(FolderError, match="do not go with the settings"):
        await home(f"{TIMELINES}; vote|<author>|<voter> = check x|<voter> copy karma|<author>").start()
