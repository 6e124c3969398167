"""Watches over a real connection: what they tell, how they go on, and how they end."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Self

import pytest

from pequod import AsyncClient, Client
from pequod.client import Change, WatchEvent
from pequod.engine import Rows
from pequod.errors import (
    ClosedError,
    LimitExceededError,
    NotWatchableError,
    PequodError,
    UnavailableError,
    WatchCompactedError,
)
from tests.client.conftest import ServerProcess
from tests.forked import ForkedServer

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Run a server with options, and see that it ends cleanly."""
    server = ForkedServer("--listen", "127.0.0.1:0", *options)
    try:
        yield server.target
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0
    finally:
        server.kill()


async def events_until(events: AsyncIterator[WatchEvent], revision: int) -> list[Change]:
    """Take events until the range is as of a revision."""
    changes: list[Change] = []
    async for event in events:
        changes += event.changes
        if event.revision >= revision:
            return changes
    raise AssertionError("a watch does not end by itself")


async def test_changes_come_in_order_with_the_rows_before_them(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client, asyncio.timeout(20):
        await client.add_join(TIMELINE)
        await client.put("s|ann|bob", "1")
        await client.put("p|bob|0001", "a")
        events = client.watch("t|ann|", "t|ann}", rows=True)
        event = await anext(events)
        assert event == WatchEvent(client.revision, [], Rows([b"t|ann|0001|bob"], [b"a"]))
        await client.put("p|bob|0002", "b")
        await client.put("p|bob|0002", "c")
        await client.put("p|liz|0003", "z")
        await client.put("s|ann|liz", "1")
        await client.remove("p|bob|0001")
        await client.put("unrelated", "1")
        assert await events_until(events, client.revision - 1) == [
            Change(b"t|ann|0002|bob", None, b"b"),
            Change(b"t|ann|0002|bob", b"b", b"c"),
            Change(b"t|ann|0003|liz", None, b"z"),
            Change(b"t|ann|0001|bob", b"a", None),
        ]
        await events.aclose()


async def test_client_written_keys_of_many_tables(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client, asyncio.timeout(20):
        events = client.watch("")
        assert (await anext(events)).rows is None
        await client.put("a|1", "x")
        await client.put("loose", "y")
        await client.remove("a|1")
        assert await events_until(events, client.revision) == [
            Change(b"a|1", None, b"x"),
            Change(b"loose", None, b"y"),
            Change(b"a|1", b"x", None),
        ]


async def test_who_follows_has_what_a_scan_returns(server: ServerProcess) -> None:
    random = Random(1)
    users = ["ann", "bob", "liz"]
    async with AsyncClient(server.target) as client, asyncio.timeout(60):
        await client.add_join(TIMELINE)
        events = client.watch("p|", "t}", rows=True)
        rows: dict[bytes, bytes] = {}
        assert (await anext(events)).rows == Rows([], [])
        for _ in range(20):
            for _ in range(20):
                time, user, other = random.randrange(10), random.choice(users), random.choice(users)
                key = f"s|{user}|{other}" if random.random() < 0.4 else f"p|{user}|{time:04}"
                await (client.remove(key) if random.random() < 0.3 else client.put(key, str(random.random())))
            for change in await events_until(events, client.revision):
                assert rows.pop(change.key, None) == change.old
                if change.new is not None:
                    rows[change.key] = change.new
            assert sorted(rows.items()) == await client.scan("p|", "t}")


async def test_many_changes_of_one_batch_are_one_event(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client, asyncio.timeout(20):
        events = client.watch("a", "b")
        await anext(events)
        batch = client.batch()
        for number in range(100):
            batch.put(f"a{number:02}", "x")
        await batch.send()
        event = await anext(events)
        assert len(event.changes) == 100
        assert event.revision == client.revision


class Wire:
    """A connection to a server that can be cut."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.target = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
        self._writers += [writer, far_writer]
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_a_broken_connection_loses_nothing(server: ServerProcess) -> None:
    async with (
        asyncio.timeout(60),
        Wire(server.target) as wire,
        AsyncClient(server.target) as writer,
        AsyncClient(wire.target) as reader,
    ):
        events = reader.watch("a", "b")
        await anext(events)
        for number in range(5):
            await writer.put(f"a{number}", "x")
            wire.cut()
            await writer.put(f"a{number}", "y")
            assert await events_until(events, writer.revision) == [
                Change(b"a%d" % number, None, b"x"),
                Change(b"a%d" % number, b"x", b"y"),
            ]


async def test_a_server_started_anew_is_told(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client, asyncio.timeout(60):
        events = client.watch("a", "b", rows=True)
        await anext(events)
        server.kill()
        server.start()
        with pytest.raises(WatchCompactedError, match="started anew; start again, with the rows"):
            await anext(events)


async def test_a_server_that_stays_away_is_given_up(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client, asyncio.timeout(60):
        events = client.watch("a", reconnect_s=0.2)
        await anext(events)
        server.kill()
        with pytest.raises(UnavailableError):
            await anext(events)
    server.start()


@pytest.mark.parametrize("join", ["t|<a> = pull copy p|<a>", "t|<a> = snapshot 5 copy p|<a>"])
async def test_joins_that_tell_no_changes_cannot_be_watched(server: ServerProcess, join: str) -> None:
    async with AsyncClient(server.target) as client, asyncio.timeout(20):
        await client.add_join(join)
        with pytest.raises(NotWatchableError, match="the join 't' cannot be watched"):
            await anext(client.watch("t|", "t}"))
        assert (await anext(client.watch("p|", "p}"))).changes == []


async def test_a_join_that_comes_or_goes_ends_the_watch(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client, asyncio.timeout(20):
        events = client.watch("t|", "t}")
        await anext(events)
        await client.add_join(TIMELINE)
        with pytest.raises(WatchCompactedError, match="the join 't' over this range came or went"):
            await anext(events)


async def test_a_watcher_that_takes_nothing_holds_up_nobody() -> None:
    with serving("--watch-changes-max", "100") as target:
        async with AsyncClient(target) as slow, AsyncClient(target) as client, asyncio.timeout(60):
            events = slow.watch("a", "b")
            await anext(events)
            for round_number in range(40):
                value = str(round_number) * 20_000
                await asyncio.gather(*(client.put(f"a{number}", value) for number in range(20)))
            with pytest.raises(WatchCompactedError, match="watch_changes_max"):
                async for _ in events:
                    pass


async def test_too_many_watches_are_refused_and_ended_ones_make_room() -> None:
    with serving("--watches-max", "2") as target:
        async with AsyncClient(target) as client, asyncio.timeout(20):
            watches = [client.watch("a"), client.watch("a")]
            for events in watches:
                await anext(events)
            with pytest.raises(LimitExceededError, match="watches_max"):
                await anext(client.watch("b"))
            await watches[0].aclose()
            while True:
                try:
                    await anext(client.watch("b"))
                    break
                except LimitExceededError:
                    await asyncio.sleep(0.05)


def test_the_synchronous_client_watches_too(server: ServerProcess) -> None:
    with Client(server.target) as client:
        events = client.watch("a", "b", rows=True)
        assert next(events).rows == Rows([], [])
        client.put("a1", "x")
        assert next(events).changes == [Change(b"a1", None, b"x")]
        events.close()
        client.put("a2", "x")


def test_closing_the_client_ends_a_watch_in_another_thread(server: ServerProcess) -> None:
    client = Client(server.target)
    events = client.watch("a", "b")
    next(events)
    heard: list[BaseException] = []

    def wait() -> None:
        try:
            next(events)
        except PequodError as error:
            heard.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    client.close()
    thread.join(10)
    assert [type(error) for error in heard] == [ClosedError]


async def test_progress_tells_the_revision_without_changes(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client, asyncio.timeout(20):
        events = client.watch("a|", "a}", progress_s=0.01)
        assert (await anext(events)).changes == []
        await client.put("b|1", "x")
        assert await events_until(events, client.revision) == []
        await events.aclose()
