"""What sets up the cluster of docs/deploy/cluster.compose.yaml does so, and can be run again."""

import asyncio
import os
import re
import secrets
import sys
import textwrap
from pathlib import Path

import asyncpg
from pequod_server.cluster.membership import coordinator_of

from pequod.cluster.map import HomeRange
from tests.cluster.conftest import Etcd

COMPOSE = Path(__file__).parents[2] / "docs/deploy/cluster.compose.yaml"


def _script() -> str:
    """Return the script of the container `setup`, as the shell gets it."""
    (script,) = re.findall(r"^    command:\n      - \|\n((?: {8}.*\n)+)", COMPOSE.read_text(), re.MULTILINE)
    return textwrap.dedent(script).replace("$$", "$")


async def test_the_setup_makes_tables_feeds_and_map_once(etcd: Etcd, dsn: str) -> None:
    place = etcd.setting(f"compose-{secrets.token_hex(4)}")
    script = _script().replace("postgresql://postgres:twip@database/twip", f"'{dsn}'")
    assert dsn in script
    variables = {**os.environ, "PEQUOD_CLUSTER": place, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for _ in range(2):
        shell = await asyncio.create_subprocess_exec("sh", "-ec", script, env=variables)
        assert await asyncio.wait_for(shell.wait(), 60) == 0
    coordinator = coordinator_of(place)
    state = await coordinator.read()
    await coordinator.close()
    assert state.map.home_ranges == (HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "a"))
    connection = await asyncpg.connect(dsn)
    feeds = await connection.fetch("SELECT pubname, tablename FROM pg_publication_tables ORDER BY pubname")
    await connection.close()
    assert [tuple(feed) for feed in feeds] == [("pequod_1", "pequod_base"), ("pequod_2", "pequod_base")]
