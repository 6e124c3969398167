"""Links between clients and servers that say nothing, or are slow: reads go where an answer comes from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

import pytest

from pequod import AsyncClient
from pequod.client.cluster import node as node_module
from pequod.cluster.map import ClusterState
from pequod.errors import UnavailableError
from tests.backing.chaos.proxy import TcpProxy
from tests.cluster_client.site import Site, until
from tests.cluster_client.test_mishaps import link_of, node_of, stored
from tests.forked import ForkedServer


@asynccontextmanager
async def links(site: Site) -> AsyncIterator[dict[str, TcpProxy]]:
    """Have clients reach each server through a proxy."""
    async with AsyncExitStack() as stack:
        proxies: dict[str, TcpProxy] = {}
        for server in site.state.servers:
            proxies[server.id] = TcpProxy(server.address)
            await proxies[server.id].start()
            stack.push_async_callback(proxies[server.id].stop)
        servers = [replace(one, address=proxies[one.id].address) for one in site.state.servers]
        site.state = ClusterState.of(site.state.map, servers)
        await site.map_server.set(site.state)
        yield proxies


async def test_reads_stay_with_the_one_server_that_answers_though_it_is_slow(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server is dead, the link of another says nothing, and the third has much to do: its probes are late."""
    # A read that goes to the silent server is never given up.
    monkeypatch.setattr(node_module, "STALLED_S", 1000.0)
    keys = [f"p|u{number}|1" for number in range(9)]
    async with links(site) as proxies, AsyncClient(site.target, timeout_s=60, retries=3) as client:
        await client.multi_put(dict.fromkeys(keys, "x"))
        assert await client.multi_get(keys) == [b"x"] * len(keys)
        site.kill("s1")
        proxies["s1"].take_away()
        await asyncio.gather(*[client.get(key) for key in keys])
        proxies["s2"].hold_on()
        proxies["s3"].delay_s = 2 * node_module.SILENCE_S
        async with asyncio.timeout(30):
            for _ in range(5):
                assert await asyncio.gather(*[client.get(key) for key in keys]) == [b"x"] * len(keys)
            assert await client.multi_get(keys) == [b"x"] * len(keys)
            for key in keys[:3]:
                assert [one async for rows in client.scan_chunks(prefix=key) for one in rows.keys] == [key.encode()]
        proxies["s3"].delay_s = 0.0
        routes = link_of(client).routes
        assert routes is not None
        await until(lambda: not routes.nodes["s3"].is_away)


async def mute_port(stack: AsyncExitStack, behind: str) -> str:
    """Listen as a load balancer does whose server is dead: it takes connections, and says nothing."""
    proxy = TcpProxy(behind)
    proxy.hold_on()
    await proxy.start()
    stack.push_async_callback(proxy.stop)
    return proxy.address


@pytest.mark.parametrize("call", ["put", "batch", "multi_put", "remove_range"])
async def test_a_write_that_was_not_sent_goes_to_another_home(
    site: Site, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port of the home takes connections, and nobody is behind it."""
    monkeypatch.setattr(node_module, "STALLED_S", 1000.0)
    async with AsyncExitStack() as stack:
        async with AsyncClient(site.target) as client:
            await client.put("p|u1|0", "x")
            owner = node_of(client, b"p|u1|").id
        mute = await mute_port(stack, site.processes[owner].target)
        servers = [replace(one, address=mute) if one.id == owner else one for one in site.state.servers]
        site.state = ClusterState.of(site.state.map, servers)
        await site.map_server.set(site.state)
        client = await stack.enter_async_context(AsyncClient(site.target, timeout_s=20))
        match call:
            case "put":
                await client.put("p|u1|1", "y")
            case "batch":
                batch = client.batch()
                batch.put("p|u1|1", "y")
                batch.get("p|u1|0")
                assert list(await batch.send()) == [None, b"x"]
            case "multi_put":
                await client.multi_put({"p|u1|1": "y"})
            case "remove_range":
                assert await client.remove_range(prefix="p|u1|") == 1
        assert stored(site) == ({} if call == "remove_range" else {b"p|u1|0": b"x", b"p|u1|1": b"y"})


async def test_of_writes_to_a_home_that_dies_only_those_that_were_sent_are_unknown(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home takes no more of a stream than gRPC lets out; what is behind it was never sent."""
    monkeypatch.setattr(node_module, "STALLED_S", 1000.0)
    async with links(site) as proxies, AsyncClient(site.target, timeout_s=60) as client:
        await client.put("p|u1|0", "x")
        owner = node_of(client, b"p|u1|").id
        proxies[owner].hold_on()
        writes = []
        for number in range(40):
            batch = client.batch()
            batch.put(f"p|u1|{number}", b"y" * 1_000_000)
            writes.append(batch.send())
            await asyncio.sleep(0)
        await until(lambda: len(proxies[owner]._writers) > 0)
        await asyncio.sleep(0.1)
        proxies[owner].take_away()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        unknown = [one for one in outcomes if isinstance(one, UnavailableError)]
        assert all("whether writes under way were applied is not known" in str(one) for one in unknown)
        assert all(list(one) == [None] for one in outcomes if isinstance(one, Sequence))
        assert len(unknown) < len(writes) / 2


async def test_the_error_of_a_read_says_nothing_of_writes() -> None:
    async with AsyncExitStack() as stack:
        server = await asyncio.to_thread(ForkedServer, "--listen", "127.0.0.1:0")
        stack.callback(server.kill)
        proxy = TcpProxy(server.target)
        await proxy.start()
        stack.push_async_callback(proxy.stop)
        client = await stack.enter_async_context(AsyncClient(proxy.address, retries=0))
        await client.put("a|1", "x")
        proxy.hold_on()
        calls = [
            asyncio.create_task(call)
            for call in (client.get("a|1"), client.multi_get(["a|1"]), client.scan_page(prefix="a|"))
        ]
        await asyncio.sleep(0.1)
        proxy.take_away()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, UnavailableError)
            assert "writes" not in str(outcome)
        proxy.let_go()
        client = await stack.enter_async_context(AsyncClient(proxy.address, retries=0))
        # The connection of before is found broken when it is used.
        with suppress(UnavailableError):
            await client.get("a|1")
        await client.put("a|1", "x")
        proxy.hold_on()
        write = asyncio.create_task(client.put("a|1", "y"))
        await asyncio.sleep(0.1)
        proxy.take_away()
        with pytest.raises(UnavailableError, match="whether writes under way were applied is not known"):
            await write
