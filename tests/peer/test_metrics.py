"""What a home's metrics tell of its computes."""

from __future__ import annotations

import urllib.request
from asyncio import to_thread

from tests.peer.homes import LATEST, computing, running, until


def scraped(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


async def test_a_home_counts_its_computes_and_what_it_tells_them() -> None:
    async with running(metrics="127.0.0.1:0") as home, computing([home.address], own_id="c7") as compute:
        await home.client.put("s|ann|bob", "1")
        assert await compute.client.scan(prefix="t|ann|", freshness=LATEST) == []
        await home.client.put("p|bob|0001", "Hi")
        assert len(await compute.client.scan(prefix="t|ann|", freshness=LATEST)) == 1
        url = home.server.instruments.url
        assert url is not None
        found = await to_thread(scraped, url.removesuffix("/metrics"))
        assert found["pequod_peer_feeds"] == 1
        assert found["pequod_peer_subscription_bounds"] == 5
        assert found['pequod_peer_subscriptions{peer="c7"}'] == 2, "ann's subscriptions and bob's posts"
        assert found['pequod_peer_changes_total{peer="c7"}'] == 1
        assert found['pequod_peer_bytes_total{peer="c7"}'] == len(b"p|bob|0001" + b"Hi")
        assert found["pequod_peer_loads_total"] == 1, "the posts come with the subscriptions"
        assert found["pequod_peer_loaded_rows_total"] == 1
        assert found['pequod_peer_reloads_total{peer="c7"}'] == 0
        assert found['pequod_peer_lag_events{peer="c7"}'] == 0
        await compute.server.stop()
        await until(lambda: not home.server.peers.feeds)
        gone = await to_thread(scraped, url.removesuffix("/metrics"))
        assert gone["pequod_peer_feeds"] == 0
        assert gone['pequod_peer_changes_total{peer=""}'] == 1
        assert not [name for name in gone if "c7" in name]


async def test_a_home_says_in_its_statistics_who_follows_it() -> None:
    async with running() as home, computing([home.address], own_id="c7") as compute:
        await home.client.multi_put({"s|ann|bob": "1", "p|bob|0001": "Hi"})
        assert len(await compute.client.scan(prefix="t|ann|", freshness=LATEST)) == 1
        await home.client.put("p|bob|0002", "Ho")
        assert len(await compute.client.scan(prefix="t|ann|", freshness=LATEST)) == 2
        found = await home.client.statistics()
        (peer,) = found.peers
        assert (peer.id, peer.lag_events, peer.changes, peer.reloads) == ("c7", 0, 1, 0)
        assert peer.bytes == len(b"p|bob|0002" + b"Ho")
        assert found.subscription_bounds == 5
        assert peer.subscriptions == 2, "ann's subscriptions and bob's posts"
        assert (await compute.client.statistics()).peers == ()
