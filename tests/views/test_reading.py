"""What readers of a table ask by SQL, as docs/views.md has it, with tokens of real sessions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from pequod_server import ServerConfig
from pequod_views import DurableView, open_target
from pequod_views.reading import wait_for
from pequod_views.targets import postgres as postgres_target

from pequod import AsyncClient
from tests.server.serving import serving
from tests.views.chaos.behind import SqliteBehind
from tests.views.sites import PostgresSite, Site, installed, managing

_DOCS: Final = (Path(__file__).parents[2] / "docs" / "views.md").read_text()
_VIEW: Final = DurableView.parse(
    {"name": "karma", "keys": "karma|<author>", "value": {"column": "votes", "type": "integer"}}
)
_JOIN: Final = "karma|<author> = count vote|<author>|<id>|<voter>"


@pytest.fixture
async def backed(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """A client of a server that has a database behind it, and so tokens."""
    path = tmp_path / "base.db"
    await SqliteBehind(path).install(tmp_path)
    config = ServerConfig(
        listen="127.0.0.1:0",
        drain_s=0.5,
        joins=_JOIN,
        backing=f"sqlite:{path}",
        backing_mapping=tmp_path / "mapping.toml",
        backing_mode="write-through",
    )
    async with serving(config) as port, AsyncClient(f"127.0.0.1:{port}") as client:
        yield client


def documented(site: Site, beginning: str) -> str:
    """Return the query of the page for a database."""
    table, clock = f"{site.prefix}parts", site.clock
    (found,) = [
        re.sub(r"\s+", " ", query)
        for query in re.findall(r"`(SELECT [^`]*)`", _DOCS)
        if query.startswith(beginning) and table in query and clock in query
    ]
    return found


async def test_a_table_has_what_a_session_wrote_once_its_token_is_reached(site: Site, backed: AsyncClient) -> None:
    await installed(site, backed, _VIEW)
    target = open_target(site.database)
    async with managing(site, backed, [_VIEW]):
        for count in range(1, 6):
            async with backed.session() as session:
                await session.put(f"vote|ann|{count}|bob", "")
                token = session.token
            assert token.positions
            if isinstance(site, PostgresSite):
                assert await site.fetch(f"SELECT pequod_views.wait_for('karma', '{token}', 30)") == [(True,)]
            else:
                assert await wait_for(target, "karma", token, 30)
            assert await site.fetch("SELECT author, votes FROM karma ORDER BY votes DESC LIMIT 10") == [("ann", count)]
        ((age_s,),) = await site.fetch(documented(site, "SELECT max("))
        assert -0.1 < age_s < 30
    await target.close()


async def test_a_waiting_reader_is_told_of_transactions(
    postgres_site: PostgresSite, backed: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not look again by itself, for longer than the test."""
    monkeypatch.setattr(postgres_target, "_LOOK_S", 3600.0)
    await installed(postgres_site, backed, _VIEW)
    async with backed.session() as session:
        await session.put("vote|ann|1|bob", "")
        token = session.token
    target = open_target(postgres_site.database)
    waiting = asyncio.create_task(wait_for(target, "karma", token, 3600))
    listening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"
    while await postgres_site.fetch(listening) == [(0,)]:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.01)
    async with managing(postgres_site, backed, [_VIEW]), asyncio.timeout(60):
        assert await waiting
    await target.close()
