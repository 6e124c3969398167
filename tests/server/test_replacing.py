"""Replacements of joins on a server: their progress, their end, and the calls that go on beside them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pequod_server import PequodServer, ServerConfig

from pequod import AsyncClient
from pequod.engine.reads.building import Building
from pequod.errors import JoinError, NotReplaceableError, ReplacementEndedError
from tests.disk.folders import served

COUNT = "karma|<author> = count vote|<author>|<id>"
SUM = "karma|<author> = sum vote|<author>|<id>"


class Held:
    """Holds the building of joins where a test wants it: it goes on while nothing is left to be built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_held = True
        build = Building.build_some
        monkeypatch.setattr(Building, "build_some", lambda building, now: build(building, now) or self.is_held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


@pytest.fixture
async def client() -> Any:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"))
    port = await server.start()
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        await client.add_join(COUNT)
        await client.multi_put({f"vote|a{number}|1": "5" for number in range(10)})
        for number in range(10):
            assert await client.get(f"karma|a{number}") == b"1"
        yield client
    await server.stop()


async def _built(client: AsyncClient, count: int) -> None:
    """Wait until some ranges are built."""
    while True:
        found = await client.replacements()
        if found and found[0].ranges_built >= count:
            return


async def test_reads_and_writes_go_on_while_a_join_is_built(client: AsyncClient, held: Held) -> None:
    replaced = asyncio.create_task(client.replace_join("karma", SUM))
    await _built(client, 10)
    await client.put("vote|a3|2", "4")
    assert await client.get("karma|a3") == b"2"
    (status,) = await client.replacements()
    assert (status.join, status.text, status.ranges_built, status.ranges_expected) == ("karma", SUM, 10, 10)
    assert (status.is_in_place, status.ended) == (False, "")
    held.is_held = False
    assert (await client.replace_join("karma", SUM)).is_in_place, "the same again"
    assert (await replaced).id == status.id
    assert await client.get("karma|a3") == b"9"


async def test_a_cancelled_replacement_ends_for_its_caller(client: AsyncClient, held: Held) -> None:
    replaced = asyncio.create_task(client.replace_join("karma", SUM))
    await _built(client, 1)
    with pytest.raises(NotReplaceableError, match="under way"):
        await client.replace_join("karma", "karma|<author> = max vote|<author>|<id>")
    await client.cancel_replacement("other")
    await client.cancel_replacement("karma")
    with pytest.raises(ReplacementEndedError, match="it was cancelled"):
        await replaced
    assert await client.get("karma|a3") == b"1"
    held.is_held = False
    assert (await client.replace_join("karma", SUM)).is_in_place


async def test_a_join_of_keys_that_clients_write_meanwhile_ends_with_the_reason(
    client: AsyncClient, held: Held
) -> None:
    replaced = asyncio.create_task(client.replace_join("karma", "karma|<author>|<id> = copy vote|<author>|<id>"))
    await _built(client, 0)
    await client.put("karma|a1|1", "by a client")
    held.is_held = False
    with pytest.raises(ReplacementEndedError, match="which a client has written"):
        await replaced
    assert [join.text for join in await client.joins()] == [COUNT]


async def test_a_server_stops_in_the_middle_of_a_replacement(held: Held) -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", drain_s=0.1))
    port = await server.start()
    async with AsyncClient(f"127.0.0.1:{port}", retries=0) as client:
        await client.add_join(COUNT)
        replaced = asyncio.create_task(client.replace_join("karma", SUM))
        await _built(client, 0)
        await server.stop()
        assert held.is_held
        assert server.engine.replacement is None
        with pytest.raises(Exception, match=r".+"):
            await replaced


async def test_the_joins_of_the_settings_beside_a_folder_are_not_replaced(tmp_path: Path) -> None:
    async with served(tmp_path / "data", joins=COUNT) as (_, client):
        with pytest.raises(NotReplaceableError, match="it is in the settings"):
            await client.replace_join("karma", SUM)
        assert [join.text for join in await client.joins()] == [COUNT]
    # Without a folder nothing would come back beside it.
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", joins=COUNT))
    port = await server.start()
    async with AsyncClient(f"127.0.0.1:{port}") as client:
        await client.add_join(COUNT)
        assert (await client.replace_join("karma", SUM)).is_in_place
    await server.stop()


async def test_a_replaced_join_is_there_after_a_restart(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.add_join(COUNT)
        await client.put("vote|ann|1", "5")
        await client.replace_join("karma", SUM)
    async with served(tmp_path / "data") as (_, client):
        assert [(join.name, join.text) for join in await client.joins()] == [("karma", SUM)]
        assert await client.get("karma|ann") == b"5"
        with pytest.raises(NotReplaceableError, match="no earlier text"):
            await client.undo_replacement("karma")
        with pytest.raises(JoinError):
            await client.replace_join("karma", "nonsense")
