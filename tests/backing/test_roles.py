"""What the page on deployment grants is enough: a server with a role of its own before PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path

import asyncpg
import pytest
from pequod_server import PequodServer, ServerConfig

from pequod.client import AsyncClient
from pequod.errors import PequodError
from tests.backing.test_twip import JOIN, Database, caught_up, database

__all__ = ["database"]

PAGE = Path(__file__).parents[2] / "docs/deployment.md"
GRANTS = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("database", ["slot", "notify"], indirect=True)
@pytest.mark.parametrize("mode", ["write-around", "write-through"])
async def test_the_grants_of_the_page_are_enough(database: Database, tmp_path: Path, mode: str) -> None:
    dsn = str(database.config["backing"])
    admin = await asyncpg.connect(dsn)
    reading, writing = GRANTS
    try:
        await admin.execute(reading.replace("DATABASE twip", "DATABASE postgres"))
        if mode == "write-through":
            await admin.execute(writing)
        settings = {**database.config, "backing": dsn.replace("//postgres@", "//pequod@"), "backing_mode": mode}
        for flights in (2, 0 if database.config["backing_feed"] == "slot" else 2):
            config = ServerConfig(listen="127.0.0.1:0", joins=JOIN, snapshot_file=tmp_path / "file", **settings)  # type: ignore[arg-type]
            server = PequodServer(config)
            async with AsyncClient(f"127.0.0.1:{await server.start()}") as client:
                if mode == "write-through":
                    await client.multi_put({"s|ann|bob": "", "p|bob|0000000001": "Hi"})
                    await client.put("p|bob|0000000001", "Hi again")
                    await client.remove("p|bob|0000000002")
                else:
                    await database.application._run([("DELETE FROM posts", ()), ("DELETE FROM subscriptions", ())])
                    with pytest.raises(PequodError):
                        await client.put("s|ann|bob", "")
                await caught_up(server)
                rows = await client.scan(prefix="t|ann|")
                assert [value for _, value in rows] == ([b"Hi again"] if mode == "write-through" else [])
                assert server.loader is not None
                if mode == "write-around":
                    assert server.loader.counters.flights == (1 if flights else 0)
            await server.stop()
    finally:
        await admin.execute("DROP OWNED BY pequod; DROP ROLE pequod")
        await admin.close()
