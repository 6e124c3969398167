"""Servers of a cluster die, hang and come back: reads go elsewhere, writes are applied once or said to be unknown."""

import asyncio
import gc
import random
import signal
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pequod_proto import pequod_pb2 as pb

from pequod import LATEST, AsyncClient
from pequod.calls import Result, Results, WatchEvent
from pequod.client.cluster import watching
from pequod.client.cluster.connection import ClusterConnection
from pequod.client.cluster.node import Node
from pequod.errors import PequodError, UnavailableError, WatchCompactedError
from tests.cluster_client.site import Site, until


def link_of(client: AsyncClient) -> ClusterConnection:
    link = client._link
    assert isinstance(link, ClusterConnection)
    return link


def node_of(client: AsyncClient, key: bytes) -> Node:
    routes = link_of(client).routes
    assert routes is not None
    node = routes.reader(key)
    assert node is not None
    return node


def stored(site: Site) -> dict[bytes, bytes]:
    with closing(sqlite3.connect(site.database)) as connection:
        return {f"p|{a}|{b}".encode(): str(value).encode() for a, b, value in connection.execute("SELECT * FROM p")}


async def test_a_killed_server_s_reads_go_to_its_spare_and_each_write_is_once_or_unknown(
    site: Site, client: AsyncClient
) -> None:
    """Batches are under way all the time; all reads are answered, and what is stored is what was answered."""
    rng = random.Random(7)
    certain: dict[bytes, bytes] = {}
    unknown: dict[bytes, set[bytes]] = {}

    async def work(worker: int) -> None:
        for turn in range(40):
            batch, keys = client.batch(), list[tuple[bytes, bytes | None]]()
            for _ in range(20):
                key = b"p|w%d|%d" % (worker, rng.randrange(30))
                if rng.random() < 0.5:
                    batch.get(key)
                    keys.append((key, None))
                else:
                    batch.put(key, written := b"%d.%d" % (turn, len(keys)))
                    keys.append((key, written))
            results: list[Result] = await sent(batch.send(), len(keys))
            for (key, value), result in zip(keys, results, strict=True):
                if value is None:
                    assert not isinstance(result, PequodError), result
                elif result is None:
                    certain[key] = value
                    unknown.pop(key, None)
                else:
                    assert isinstance(result, UnavailableError)
                    unknown.setdefault(key, set()).add(value)
            if worker == 0 and turn in (10, 25):
                site.kill("s1" if turn == 10 else "s3")
                if turn == 10:
                    await asyncio.to_thread(site.restart, "s1")

    async def sent(sending: asyncio.Future[Results], count: int) -> list[Result]:
        try:
            return list(await sending)
        except UnavailableError as error:
            return [error] * count

    await asyncio.gather(*map(work, range(4)))
    rows = stored(site)
    for key, value in certain.items():
        assert rows[key] in {value, *unknown.get(key, ())}
    assert rows.keys() <= certain.keys() | unknown.keys()


async def test_a_stopped_server_s_reads_go_to_its_spare_and_come_back_when_it_goes_on(
    site: Site, client: AsyncClient
) -> None:
    await client.put("p|u1|1", "x")
    node = node_of(client, b"p|u1|")
    site.signal(node.id, signal.SIGSTOP)
    reads = [
        client.get("p|u1|1", freshness=LATEST),
        client.get("p|u1|1"),
        client.multi_get(["p|u1|1", "p|u2|1"]),
        client.scan_page(prefix="p|u1|"),
        client.keys(prefix="p|u1|"),
    ]
    found = await asyncio.gather(*reads)
    assert found[0] in (b"x", None)
    assert node.is_away
    assert node_of(client, b"p|u1|") is not node
    site.signal(node.id, signal.SIGCONT)
    await until(lambda: node_of(client, b"p|u1|") is node)
    assert await client.get("p|u1|1", freshness=LATEST) == b"x"


async def test_a_write_to_a_stopped_server_is_not_sent_twice(site: Site, client: AsyncClient) -> None:
    await client.put("vote|u1|a", "1")
    node = node_of(client, b"vote|u1|")
    site.signal(node.id, signal.SIGSTOP)
    with pytest.raises(UnavailableError) as failed:
        await client.put("vote|u1|b", "1")
    assert not failed.value.is_unapplied
    # The next ones go to the spare, since the stream is broken.
    await client.put("vote|u1|c", "1")
    site.signal(node.id, signal.SIGCONT)


async def test_writes_keep_their_order_while_no_home_answers(site: Site, client: AsyncClient) -> None:
    """All servers are dead; writes that wait go, in order, once one is back."""
    await client.put("p|u1|1", "x")
    for name in site.names:
        site.kill(name)
    await until(lambda: link_of(client).routes is not None)
    with pytest.raises(UnavailableError):
        await client.get("p|u1|1")
    writing = [asyncio.create_task(client.put("p|u1|1", str(number))) for number in range(50)]
    for _ in range(20):
        await asyncio.sleep(0)
        writing.append(asyncio.create_task(client.put("p|u1|1", str(len(writing)))))
    await asyncio.to_thread(site.restart, "s2")
    outcomes = await asyncio.gather(*writing, return_exceptions=True)
    applied = [at for at, outcome in enumerate(outcomes) if outcome is None]
    assert all(isinstance(one, UnavailableError) for one in outcomes if one is not None)
    rows = stored(site)
    assert rows[b"p|u1|1"] == (str(applied[-1]).encode() if applied else b"x")


async def test_a_scan_in_chunks_goes_on_at_another_server(site: Site, client: AsyncClient) -> None:
    value = "v" * 2000
    for part in range(10):
        await client.multi_put({f"p|u1|{part}.{number:03}": value for number in range(300)})
    keys: list[bytes] = []
    killed = ""
    async for rows in client.scan_chunks(prefix="p|u1|", freshness=LATEST):
        keys += rows.keys
        if not killed:
            killed = node_of(client, b"p|u1|").id
            site.kill(killed)
    assert keys == [b"p|u1|%d.%03d" % (part, number) for part in range(10) for number in range(300)]


def replayed(events: list[WatchEvent]) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for event in events:
        if event.rows is not None:
            assert event is events[0]
            rows = dict(zip(event.rows.keys, event.rows.values, strict=True))
        for change in event.changes:
            assert rows.get(change.key) == change.old
            if change.new is None:
                del rows[change.key]
            else:
                rows[change.key] = change.new
    return rows


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_a_watch_goes_on_at_another_server_and_its_events_give_the_rows(
    site: Site, client: AsyncClient, number: signal.Signals
) -> None:
    await client.put("s|ann|bob", "1")
    await client.multi_put({f"p|bob|{time:03}": "x" for time in range(10)})
    events: list[WatchEvent] = []
    async with AsyncClient(f"{site.target}") as other:
        async with aclosing(other.watch("t|ann|", "t|ann}", rows=True, freshness=LATEST)) as watch:

            async def follow(count: int) -> None:
                async with asyncio.timeout(60):
                    while len(replayed(events)) != count:
                        events.append(await anext(watch))

            await follow(10)
            await client.put("p|bob|010", "x")
            await follow(11)
            name = node_of(other, b"t|ann|").id
            site.signal(name, number)
            # What happens meanwhile is in the differences.
            for time in range(20, 25):
                await written(client, f"p|bob|{time:03}")
            await removed(client, "p|bob|003")
            await follow(15)
            await written(client, "p|bob|030")
            await follow(16)
            assert len({event.server_id for event in events}) == 2
        rows = await client.scan("t|ann|", "t|ann}", freshness=LATEST)
        assert replayed(events) == dict(rows)


async def written(client: AsyncClient, key: str) -> None:
    """Put a key, again if the outcome is not known."""
    async with asyncio.timeout(60):
        while True:
            try:
                await client.put(key, "x")
            except UnavailableError:
                continue
            return


async def removed(client: AsyncClient, key: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.remove(key)
            except UnavailableError:
                continue
            return


async def test_a_watch_after_an_event_finds_its_server_and_cannot_go_on_without_it(
    site: Site, client: AsyncClient
) -> None:
    async with aclosing(client.watch("p|u1|", "p|u1}", rows=True)) as watch:
        first = await anext(watch)
    await client.put("p|u1|1", "x")
    async with aclosing(client.watch("p|u1|", "p|u1}", after=first)) as watch:
        async with asyncio.timeout(30):
            changes = (await anext(watch)).changes or (await anext(watch)).changes
        assert [change.key for change in changes] == [b"p|u1|1"]
    site.kill(node_of(client, b"p|u1|").id)
    with pytest.raises(WatchCompactedError):
        async with aclosing(client.watch("p|u1|", "p|u1}", after=first)) as watch:
            await anext(watch)


async def test_a_server_that_leaves_the_map_and_one_that_comes_are_noticed(site: Site, client: AsyncClient) -> None:
    await client.put("p|u1|1", "x")
    gone = node_of(client, b"p|u1|")
    site.state = replace(site.state, servers=tuple(one for one in site.state.servers if one.id != gone.id))
    await site.map_server.set(site.state)
    await until(lambda: node_of(client, b"p|u1|") is not gone)
    assert await client.get("p|u1|1", freshness=LATEST) == b"x"
    await until(lambda: gone.connection.is_closed or gone in link_of(client)._gone)


async def test_an_older_map_replaces_no_newer_one(site: Site, client: AsyncClient) -> None:
    await client.get("p|u1|1")
    older = site.state
    await site.tell(joins="# newer")
    await until(lambda: link_of(client).routes.state.map.version == 2)  # type: ignore[union-attr]
    await site.map_server.set(replace(older, servers=()))
    for _ in range(20):
        await client.get("p|u1|1")
    assert link_of(client).routes.state == site.state  # type: ignore[union-attr]


async def test_without_the_server_that_told_the_map_all_goes_on(site: Site, client: AsyncClient) -> None:
    await client.put("p|u1|1", "x")
    await site.map_server.stop()
    assert await client.get("p|u1|1", freshness=LATEST) == b"x"
    await client.put("p|u1|1", "y")
    assert await client.get("p|u1|1", freshness=LATEST) == b"y"


async def test_a_watch_that_fails_while_its_server_is_asked_for_a_sign_of_life_is_no_error_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing = asyncio.Event()

    async def follow(*_: object) -> AsyncGenerator[WatchEvent]:
        await failing.wait()
        if failing.is_set():
            raise UnavailableError("c1", "its connection broke")
        yield WatchEvent(0, [])

    async def see_alive(_: object) -> None:
        failing.set()
        await asyncio.sleep(0.01)
        raise UnavailableError("c1", "it gives no sign of life")

    monkeypatch.setattr(watching, "follow", follow)
    monkeypatch.setattr(watching, "_see_alive", see_alive)
    monkeypatch.setattr(watching, "_QUIET_S", 0.01)
    errors = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    node: Any = SimpleNamespace(connection=None)
    with pytest.raises(UnavailableError):
        await anext(watching._at(node, pb.WatchRequest(), lambda _: None))
    gc.collect()
    assert errors == []
