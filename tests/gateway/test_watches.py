"""Watches as Server-Sent Events: exact, shared by all readers of a range, and resumed where a reader left off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp
import pytest
from pequod_server import PequodServer

from tests.gateway.doors import TIMELINE, Event, Reader, events_of, opened

RANGE = {"first": "t|ann|", "last": "t|ann}"}


@asynccontextmanager
async def reading(
    client: aiohttp.ClientSession, query: dict[str, str], last: str = ""
) -> AsyncIterator[AsyncIterator[Event]]:
    """Yield the events of a watch."""
    headers = {"Last-Event-ID": last} if last else {}
    async with client.get("/v1/watch", params=query, headers=headers) as reply:
        assert (reply.status, reply.content_type) == (200, "text/event-stream"), await reply.text()
        yield events_of(reply)


async def _until(reader: Reader, events: AsyncIterator[Event], revision: int) -> None:
    while not (reader.is_ready and reader.revision >= revision):
        reader.take(await anext(events))


def _rows(server: PequodServer, first: bytes, last: bytes) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in zip(*server.engine.scan(first, last), strict=True)}


async def test_a_reader_has_the_rows_and_then_every_change() -> None:
    async with opened(chunk_bytes=100) as (server, client):
        await client.post("/v1/joins", json={"text": TIMELINE})
        server.engine.put(b"s|ann|bob", b"1")
        for number in range(30):
            server.engine.put(b"p|bob|%04d" % number, b"post %d" % number)
        async with reading(client, RANGE) as events:
            reader = Reader()
            await _until(reader, events, server.engine.revision)
            assert reader.rows == _rows(server, b"t|ann|", b"t|ann}")
            assert len(reader.rows) == 30
            server.engine.remove(b"p|bob|0003")
            server.engine.put(b"p|bob|0004", b"edited")
            await _until(reader, events, server.engine.revision)
            assert reader.rows == _rows(server, b"t|ann|", b"t|ann}")
            server.engine.remove(b"s|ann|bob")
            await _until(reader, events, server.engine.revision)
            assert reader.rows == {}


async def test_a_reader_goes_on_where_it_was_or_begins_anew() -> None:
    async with opened() as (server, client):
        server.engine.put(b"k|1", b"one")
        reader = Reader()
        async with reading(client, {"prefix": "k|"}) as events:
            await _until(reader, events, server.engine.revision)
        server.engine.put(b"k|2", b"two")
        async with reading(client, {"prefix": "k|"}, reader.name) as events:
            await _until(reader, events, server.engine.revision)
        assert (reader.rows, reader.resets) == ({"k|1": "one", "k|2": "two"}, 1)
        for name in ("1.1", f"{server.service.server_id}.0", f"{server.service.server_id}.99999999"):
            async with reading(client, {"prefix": "k|"}, name) as events:
                assert (await anext(events)).kind == "reset"
        async with client.get("/v1/watch?prefix=k|", headers={"Last-Event-ID": "x"}) as reply:
            assert (reply.status, "last event" in (await reply.json())["error"]["message"]) == (400, True)


async def test_many_readers_of_a_range_are_one_watch_which_ends_after_the_last() -> None:
    async with opened(watch_linger_s=0.05) as (server, client):
        readers = [Reader() for _ in range(100)]
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(server.http_url, connector=connector) as many:

            async def read(reader: Reader) -> None:
                async with reading(many, {"prefix": "k|"}) as events:
                    while "k|last" not in reader.rows:
                        reader.take(await anext(events))

            tasks = [asyncio.create_task(read(reader)) for reader in readers]
            while not all(reader.is_ready for reader in readers):  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
            assert server.service.watch_count == 1
            for key in (b"k|1", b"k|2", b"k|last"):
                server.engine.put(key, b"v")
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)
        assert all(reader.rows == {"k|1": "v", "k|2": "v", "k|last": "v"} for reader in readers)
        while server.service.watch_count:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
        assert server.engine.statistics().memory.watch_bytes == 0
        assert (await (await client.get("/v1/count?prefix=k|")).json())["count"] == 3


@pytest.mark.parametrize("seed", range(3))
async def test_readers_that_come_and_go_show_what_a_scan_shows(seed: int) -> None:
    random = Random(seed)
    async with opened(watch_linger_s=0.01, chunk_bytes=200) as (server, client):
        await client.post("/v1/joins", json={"text": TIMELINE})

        async def write() -> None:
            for _ in range(400):
                poster = b"p%d" % random.randrange(3)
                key = random.choice([b"s|ann|" + poster, b"p|%b|%04d" % (poster, random.randrange(20))])
                if random.random() < 0.3:
                    server.engine.remove(key)
                else:
                    server.engine.put(key, b"%d" % random.randrange(1000))
                if random.random() < 0.5:
                    await asyncio.sleep(random.random() / 500)
            server.engine.put(b"s|ann|p0", b"1")
            server.engine.put(b"p|p0|9999", b"the last")

        async def read(draw: Random) -> Reader:
            reader = Reader()
            while True:
                async with reading(client, RANGE, reader.name) as events:
                    for _ in range(draw.randrange(1, 40)):
                        if reader.is_ready and reader.rows.get("t|ann|9999|p0") == "the last":
                            return reader
                        reader.take(await anext(events))

        readers = [asyncio.create_task(read(Random(seed * 100 + number))) for number in range(8)]
        await write()
        for reader in await asyncio.wait_for(asyncio.gather(*readers), 60):
            assert reader.rows == _rows(server, b"t|ann|", b"t|ann}")


async def test_a_reader_that_is_too_far_behind_ends_and_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pequod_server.gateway.shared_watches._KEPT", 3)
    async with opened() as (server, client):
        reader = Reader()
        async with reading(client, {"prefix": "k|"}) as events:
            await _until(reader, events, server.engine.revision)
            large = "x" * 200_000
            kinds: set[str] = set()
            # What the sockets hold is not the server's: so much that it waits for the reader.
            for number in range(100):
                server.engine.put(b"k|%d" % (number % 3), large.encode() + b"%d" % number)
                await asyncio.sleep(0.002)
            async for event in events:
                kinds.add(event.kind)
                if event.kind != "end":
                    reader.take(event)
            assert "end" in kinds
        async with reading(client, {"prefix": "k|"}, reader.name) as events:
            await _until(reader, events, server.engine.revision)
        assert reader.resets == 2
        assert reader.rows == _rows(server, b"k|", b"k}")


async def test_a_key_that_expires_is_told_with_the_reason() -> None:
    async with opened() as (server, client), reading(client, {"prefix": "k|"}) as events:
        reader = Reader()
        await _until(reader, events, server.engine.revision)
        await client.put("/v1/keys/k|1", json={"value": "1", "ttl_s": 0.001})
        told: list[Any] = []
        while "reason" not in (told or [{}])[-1]:
            event = await anext(events)
            told += event.members["changes"]
        assert told[-1] == {"key": "k|1", "old": "1", "new": None, "reason": "expired"}


async def test_watches_end_with_the_server() -> None:
    async with opened() as (server, client), reading(client, {"prefix": "k|"}) as events:
        reader = Reader()
        await _until(reader, events, 0)
        stopping = asyncio.create_task(server.stop())
        kinds: list[Any] = [event async for event in events]
        assert [(event.kind, event.members["code"]) for event in kinds] == [("end", "UNAVAILABLE")]
        await stopping


@pytest.mark.parametrize(
    ("query", "message"),
    [("", "prefix, or first and last"), ("?first=b&last=a", "empty range"), ("?prefx=a", "no parameter 'prefx'")],
)
async def test_a_watch_that_tells_nothing_is_refused(query: str, message: str) -> None:
    async with opened() as (_, client), client.get(f"/v1/watch{query}") as reply:
        assert (reply.status, message in (await reply.json())["error"]["message"]) == (400, True)
