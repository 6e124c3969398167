"""What the metrics tell of a folder of data."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
from pequod_server import PequodServer
from prometheus_client.parser import text_string_to_metric_families

from tests.disk import test_beyond
from tests.disk.folders import served

PAGE = (Path(__file__).parents[2] / "docs/operations.md").read_text()


async def figures(server: PequodServer) -> dict[str, float]:
    """Return the figures of the folder, by name."""
    async with aiohttp.ClientSession() as web, web.get(f"{server.instruments.url}/metrics") as reply:
        text = await reply.text()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {one.name.removeprefix("pequod_data_"): one.value for one in samples if one.name.startswith("pequod_data_")}


async def test_the_figures_of_a_folder_are_those_of_the_page(tmp_path: Path) -> None:
    async with served(tmp_path / "data", metrics="127.0.0.1:0", fsync="never") as (server, client):
        await client.multi_put({f"p|{number:04}": "" for number in range(300)})
        found = await figures(server)
        assert set(found) == set(re.findall(r"`pequod_data_(\w+)`", PAGE))
        assert 300 <= found["keys"] < 305
        assert found["unsynced"] == 300
        assert found["whole"] == 1
        assert (found["loads_total"], found["ranges"], found["full"]) == (0, 0, 0)
        assert found["free_bytes"] > 1 << 20
    async with served(tmp_path / "data", metrics="127.0.0.1:0", fsync="always") as (server, client):
        await client.put("p|0300", "")
        found = await figures(server)
        assert (found["unsynced"], found["whole"]) == (0, 1)
        assert found["file_bytes"] > 300


async def test_the_figures_tell_how_much_more_there_is_than_memory(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as (_, client):
        await client.multi_put(test_beyond.beyond("p"))
    async with test_beyond.served(tmp_path / "data", metrics="127.0.0.1:0") as (server, client, _):
        await test_beyond.filled(server, client)
        before = await figures(server)
        assert (before["whole"], before["loads_total"]) == (0, 0)
        assert await client.get("p|1999") is not None
        after = await figures(server)
        assert after["loads_total"] == 1
        assert after["keys_loaded_total"] >= 1
        assert 0 < after["ranges"] == server.engine.loaded_range_count
