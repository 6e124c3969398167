"""Servers leave the map while clients are about to call them, or in the middle of it: the calls go elsewhere.

The client closes its connection to a server that has left; this is no close of the client.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from pequod import LATEST, AsyncClient
from pequod.calls import WatchEvent
from pequod.client.cluster.node import Node
from pequod.client.connection import ServerConnection
from pequod.client.credentials import Credentials
from pequod.client.watch_ranges import RangesEvent, WatchedRange
from pequod.errors import ClosedError, UnavailableError
from tests.cluster_client.site import Site, until
from tests.cluster_client.test_mishaps import link_of, node_of


async def known(client: AsyncClient) -> None:
    await client.put("p|u1|1", "x")
    await until(lambda: link_of(client).routes is not None)


async def remove(site: Site, *names: str) -> None:
    """Remove servers from the map, which go on to run."""
    left = tuple(one for one in site.state.servers if one.id not in names)
    site.state = replace(site.state, servers=left)
    await site.map_server.set(site.state)


async def is_closed(node: Node) -> None:
    await until(lambda: node.connection.is_closed)


async def test_a_watch_that_begins_at_a_server_that_leaves_begins_at_another(site: Site, client: AsyncClient) -> None:
    await known(client)
    node = node_of(client, b"p|u1|")
    site.signal(node.id, signal.SIGSTOP)
    async with aclosing(client.watch("p|u1|", "p|u1}", rows=True)) as events:
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.1)
        await remove(site, node.id)
        await is_closed(node)
        event = await first
        assert event.rows is not None
        assert event.rows.values == [b"x"]
    site.signal(node.id, signal.SIGCONT)


async def test_a_watch_whose_server_was_chosen_and_has_left_begins_at_another(site: Site, client: AsyncClient) -> None:
    """The connection is closed between the choice of the server and the begin of the watch."""
    await known(client)
    node = node_of(client, b"p|u1|")
    stub, told = node.connection.stub, []

    def stub_of_one_that_leaves() -> Any:
        told.append(node.connection.is_closed)
        link_of(client)._take(
            replace(site.state, servers=tuple(one for one in site.state.servers if one.id != node.id))
        )
        return stub()

    node.connection.stub = stub_of_one_that_leaves  # type: ignore[method-assign]
    async with aclosing(client.watch("p|u1|", "p|u1}", rows=True)) as events:
        event = await anext(events)
        assert event.rows is not None
        assert event.rows.values == [b"x"]
    assert told == [False]


async def test_a_watch_goes_on_elsewhere_when_its_server_leaves(site: Site, client: AsyncClient) -> None:
    await known(client)
    async with aclosing(client.watch("p|u1|", "p|u1}")) as events:
        await anext(events)
        node = node_of(client, b"p|u1|")
        await remove(site, node.id)
        await is_closed(node)
        await client.put("p|u1|2", "y")
        seen: dict[bytes, bytes | None] = {}
        async with asyncio.timeout(20):
            while b"p|u1|2" not in seen:
                seen |= {change.key: change.new for change in (await anext(events)).changes}
        assert seen == {b"p|u1|2": b"y"}


async def test_a_watch_begins_anew_at_a_server_whose_address_changes(site: Site, client: AsyncClient) -> None:
    """No other server answers reads: the watch begins anew at the same one."""
    await known(client)
    await remove(site, "s2", "s3")
    await until(lambda: list(link_of(client)._nodes) == ["s1"])
    async with aclosing(client.watch("p|u1|", "p|u1}")) as events:
        await anext(events)
        (entry,) = site.state.servers
        moved = replace(entry, address=entry.address.replace("127.0.0.1", "localhost"))
        site.state = replace(site.state, servers=(moved,))
        node = node_of(client, b"p|u1|")
        await site.map_server.set(site.state)
        await is_closed(node)
        await client.put("p|u1|2", "y")
        async with asyncio.timeout(20):
            while b"p|u1|2" not in {change.key for change in (await anext(events)).changes}:
                pass


async def test_a_watch_waits_while_no_server_is_in_the_map(site: Site, client: AsyncClient) -> None:
    await known(client)
    state = site.state
    async with aclosing(client.watch("p|u1|", "p|u1}")) as events:
        await anext(events)
        following = asyncio.ensure_future(anext(events))
        await remove(site, *site.names)
        await until(lambda: not link_of(client)._nodes)
        await asyncio.sleep(0.1)
        await site.map_server.set(state)
        await until(lambda: link_of(client)._nodes)
        await client.put("p|u1|2", "y")
        async with asyncio.timeout(20):
            changes = list((await following).changes)
            while b"p|u1|2" not in {change.key for change in changes}:
                changes += (await anext(events)).changes


async def test_a_watch_of_ranges_ends_as_unavailable_when_its_server_leaves(site: Site, client: AsyncClient) -> None:
    await known(client)
    ranges = [WatchedRange(b"p|u1|", b"p|u1}", rows=True)]
    events: AsyncGenerator[RangesEvent] = link_of(client).watch_ranges(ranges, 0, lambda _: None)
    async with aclosing(events):
        await anext(events)
        node = node_of(client, b"p|u1|")
        await remove(site, node.id)
        with pytest.raises(UnavailableError):
            await anext(events)
    # Nobody probes a server that has left.
    await until(lambda: node._watching is None)


async def test_a_scan_goes_on_elsewhere_when_its_server_leaves_between_chunks(site: Site, client: AsyncClient) -> None:
    for part in range(10):
        await client.multi_put({f"p|u1|{part}.{number:03}": "v" * 2000 for number in range(300)})
    keys: list[bytes] = []
    async for rows in client.scan_chunks(prefix="p|u1|", freshness=LATEST):
        if not keys:
            node = node_of(client, b"p|u1|")
            await remove(site, node.id)
            await is_closed(node)
        keys += rows.keys
    assert keys == [f"p|u1|{part}.{number:03}".encode() for part in range(10) for number in range(300)]


async def test_a_call_passes_over_a_server_that_leaves_before_its_turn(site: Site, client: AsyncClient) -> None:
    """The first server is silent; the second one leaves meanwhile; the third one answers."""
    await known(client)
    routes = link_of(client).routes
    assert routes is not None
    first, second, _ = routes.readers(b"p|u1|")
    site.signal(first.id, signal.SIGSTOP)
    reading = asyncio.ensure_future(client.multi_get(["p|u1|1"]))
    await until(lambda: not first.is_idle)
    await remove(site, second.id)
    await is_closed(second)
    assert await reading == [b"x"]
    site.signal(first.id, signal.SIGCONT)


async def test_a_connection_whose_server_has_left_says_so_and_one_of_a_closed_client_that_it_is_closed() -> None:
    left, closed = (ServerConnection("127.0.0.1:1", Credentials(), 1.0, retries=0) for _ in range(2))
    left.leave()
    await left.close()
    await closed.close()
    with pytest.raises(UnavailableError, match="left the cluster") as failed:
        left.stub()
    assert failed.value.is_unapplied
    with pytest.raises(ClosedError):
        closed.stub()


async def test_a_watch_of_a_closed_client_says_so(site: Site) -> None:
    client = AsyncClient(site.target)
    await known(client)
    events: AsyncGenerator[WatchEvent] = client.watch("p|u1|", "p|u1}")
    async with aclosing(events):
        await anext(events)
        following = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ClosedError):
            await following
