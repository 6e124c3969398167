"""Views in topics of Kafka, which consumers of committed records read."""

from __future__ import annotations

import asyncio

from pequod_views import DurableView, open_target
from pequod_views.install import check, install, uninstall

from pequod import AsyncClient
from tests.views.sites import KafkaSite, check_log, equal, installed, managing

KARMA = DurableView.parse(
    {"name": "karma", "keys": "karma|<who>", "value": {"column": "votes", "type": "integer"}, "log": True}
)


async def test_a_topic_follows_its_range(kafka_site: KafkaSite, client: AsyncClient) -> None:
    await client.multi_put({f"karma|{number:03}": str(number) for number in range(100)})
    print(await installed(kafka_site, client, KARMA))
    async with managing(kafka_site, client, [KARMA]):
        await equal(kafka_site, client, KARMA)
        await client.remove("karma|001")
        await client.put("karma|000", "7")
        await equal(kafka_site, client, KARMA)
    assert await check_log(kafka_site, KARMA) >= 2
