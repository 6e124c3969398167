"""A server with a scripted database behind it: flights, misses, changes and what clients are told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import FakeStore, parse_mappings
from typer.testing import CliRunner

from pequod.cli.app import app
from pequod.client import AsyncClient
from pequod.commands.kinds import GET, SCAN
from pequod.engine import Rows
from pequod.errors import BackedKeyError, PequodError
from tests.server.plain import outcomes_of, read_pieces

MAPPINGS = parse_mappings("""
[[mapping]]
keys = "s|<user>|<poster>"
table = "subscriptions"

[[mapping]]
keys = "p|<poster>|<time:4>"
table = "posts"
value = "body"
""")
TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
PAGE = Path(__file__).parents[2] / "docs/backing.md"
DOCUMENTED = set(re.findall(r"`pequod_backing_(\w+)`", PAGE.read_text()))
FOLLOWING = {b"s|ann|bob": b"", b"s|ann|liz": b"", b"p|bob|0100": b"Hi", b"p|liz|0110": b"Ho"}


class Setting:
    """A server, the store behind it, and a client."""

    def __init__(self, server: PequodServer, store: FakeStore, target: str) -> None:
        self.server = server
        self.store = store
        self.target = target
        # Large loads take long where the machine has other things to do.
        self.client = AsyncClient(target, timeout_s=100.0)

    @property
    def loads(self) -> list[int]:
        """How many ranges each load had."""
        return [len(ranges) for ranges in self.store.loads]

    async def caught_up(self) -> None:
        assert self.server.loader is not None
        await self.server.loader.caught_up()

    async def timeline(self, user: str) -> list[bytes]:
        rows = await self.client.scan(f"t|{user}|", f"t|{user}}}")
        return [value for _, value in rows]


@asynccontextmanager
async def serving(rows: dict[bytes, bytes], **settings: object) -> AsyncIterator[Setting]:
    store = FakeStore(MAPPINGS)
    if rows:
        store.commit(rows)
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", joins=TIMELINE, **settings), store=store)  # type: ignore[arg-type]
    setting = Setting(server, store, f"127.0.0.1:{await server.start()}")
    try:
        async with setting.client:
            yield setting
    finally:
        await server.stop()
        server.engine._check()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - a load has no event to wait for
            await asyncio.sleep(0.002)


async def test_a_thousand_absent_source_ranges_are_one_load() -> None:
    rows = {b"s|ann|%04d" % number: b"" for number in range(1000)}
    rows |= {b"p|%04d|0100" % number: b"Hi" for number in range(1000)}
    async with serving(rows) as setting:
        assert len(await setting.timeline("ann")) == 1000
        assert setting.loads == [1, 1000]
        assert len(await setting.timeline("ann")) == 1000
        assert setting.loads == [1, 1000]


async def test_a_batch_of_reads_that_lack_something_waits_once() -> None:
    rows = {b"p|%04d|0100" % number: b"Hi" for number in range(500)}
    async with serving(rows) as setting:
        found = await asyncio.gather(*(setting.client.get(b"p|%04d|0100" % number) for number in range(500)))
        assert found == [b"Hi"] * 500
        assert len(setting.loads) <= 2


async def test_readers_of_one_absent_range_share_a_load() -> None:
    async with serving(FOLLOWING) as setting:
        clients = [AsyncClient(setting.target) for _ in range(10)]
        async with setting.store.held("load"):
            reads = [asyncio.create_task(client.scan("p|bob|", "p|bob}")) for client in clients]
            await until(lambda: bool(setting.store.loads))
        assert [await read for read in reads] == [[(b"p|bob|0100", b"Hi")]] * 10
        assert setting.loads == [1]
        for client in clients:
            await client.close()


async def test_a_reader_that_goes_away_does_not_cancel_the_load_of_others() -> None:
    async with serving(FOLLOWING) as setting:
        databases = setting.server.databases
        async with setting.store.held("load"):
            scan = setting.server.engine.scan
            reads = [
                asyncio.create_task(databases.read(lambda: scan(b"p|bob|", b"p|bob}"), [(b"p|bob|", b"p|bob}")]))
                for _ in range(2)
            ]
            await until(lambda: bool(setting.store.loads))
            reads[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await reads[0]
        assert (await reads[1]).values == [b"Hi"]
        assert setting.loads == [1]


async def test_other_streams_go_on_while_a_batch_waits() -> None:
    async with serving(FOLLOWING) as setting, AsyncClient(setting.target) as other:
        async with setting.store.held("load"):
            waiting = asyncio.create_task(setting.timeline("ann"))
            await until(lambda: bool(setting.store.loads))
            await other.put("x|1", "ours")
            assert await other.get("x|1") == b"ours"
            assert not waiting.done()
        assert await waiting == [b"Hi", b"Ho"]


async def test_commands_after_one_that_waited_run_in_their_order() -> None:
    async with serving(FOLLOWING) as setting:
        client = setting.client
        results = await asyncio.gather(
            client.put("x|1", "a"),
            client.scan("t|ann|", "t|ann}"),
            client.put("x|1", "b"),
            client.get("p|bob|0100"),
            client.get("x|1"),
            client.count("p|", "p}"),
            client.get("p|bob|0999"),
            client.remove("x|1"),
            client.get("x|1"),
        )
        rows = [(b"t|ann|0100|bob", b"Hi"), (b"t|ann|0110|liz", b"Ho")]
        assert list(results) == [None, rows, None, b"Hi", b"b", 2, None, True, None]


async def test_a_change_between_snapshot_and_delivery_is_neither_lost_nor_undone() -> None:
    async with serving(FOLLOWING) as setting:
        async with setting.store.held("load"):
            read = asyncio.create_task(setting.client.scan("p|bob|", "p|bob}"))
            await until(lambda: bool(setting.store.loads))
            setting.store.commit({b"p|bob|0100": b"changed", b"p|bob|0120": b"new"})
            await setting.caught_up()
        assert await read == [(b"p|bob|0100", b"changed"), (b"p|bob|0120", b"new")]


async def test_a_late_change_that_the_load_holds_is_not_applied_over_a_newer_one() -> None:
    async with serving(FOLLOWING) as setting:
        async with setting.store.held("changes"):
            setting.store.commit({b"p|bob|0100": None})
            setting.store.commit({b"p|bob|0100": b"back"})
            reading = asyncio.create_task(setting.client.get("p|bob|0100"))
            while not setting.loads:  # noqa: ASYNC110 - the store has no event for it
                await asyncio.sleep(0.001)
        assert await reading == b"back"
        told = setting.client.watch("p|bob|", "p|bob}")
        assert not (await anext(told)).changes
        await setting.caught_up()
        setting.store.commit({b"p|bob|0130": b"end"})
        async with asyncio.timeout(30):
            event = await anext(told)
        assert [change.key for change in event.changes] == [b"p|bob|0130"]
        assert isinstance(told, AsyncGenerator)
        await told.aclose()


async def test_changes_of_the_database_reach_timelines_and_watches() -> None:
    async with serving(FOLLOWING) as setting:
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        setting.store.commit({b"p|bob|0120": b"again", b"s|ann|liz": None, b"p|cat|0001": b"nobody asked"})
        await setting.caught_up()
        assert await setting.timeline("ann") == [b"Hi", b"again"]
        assert setting.loads == [1, 2]


async def test_lost_changes_have_the_ranges_read_again() -> None:
    async with serving(FOLLOWING) as setting:
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        setting.store.break_feed("the slot is gone", is_lost=True)
        setting.store.commit({b"p|bob|0100": b"unheard"})
        counters = setting.server.loader.counters if setting.server.loader else None
        await until(lambda: counters is not None and counters.reloads == 1)
        assert await setting.timeline("ann") == [b"unheard", b"Ho"]
        assert setting.loads == [1, 2, 1, 2]


async def test_a_database_that_does_not_answer_is_said_and_asked_again() -> None:
    async with serving(FOLLOWING) as setting:
        setting.store.fail("load")
        with pytest.raises(PequodError, match="is not available"):
            await setting.timeline("ann")
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]


async def test_puts_on_the_keys_of_the_database_are_refused_in_write_around() -> None:
    async with serving(FOLLOWING) as setting:
        with pytest.raises(BackedKeyError, match="write it to the database"):
            await setting.client.put("p|bob|0200", "mine")
        with pytest.raises(BackedKeyError):
            await setting.client.remove("p|bob|0100")
        with pytest.raises(BackedKeyError):
            await setting.client.multi_put({"x|1": "ours", "p|bob|0200": "mine"})
        with pytest.raises(BackedKeyError):
            await setting.client.remove_range("p|", "p}")
        assert await setting.client.multi_get(["x|1", "p|bob|0100"]) == [None, b"Hi"]
        assert setting.store.rows == FOLLOWING


async def test_puts_go_to_the_database_and_then_to_the_cache_in_write_through() -> None:
    async with serving(FOLLOWING, backing_mode="write-through") as setting:
        client = setting.client
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        await client.put("p|bob|0200", "mine")
        assert setting.store.rows[b"p|bob|0200"] == b"mine"
        assert await setting.timeline("ann") == [b"Hi", b"Ho", b"mine"]
        assert [await client.remove("p|bob|0200"), await client.remove("p|bob|0200")] == [True, False]
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        with pytest.raises(PequodError, match="mapped pattern"):
            await client.put("p|bob", "no row has this key")
        setting.store.fail("write")
        with pytest.raises(PequodError, match="is not available"):
            await client.put("p|bob|0300", "lost")
        assert b"p|bob|0300" not in setting.store.rows


async def test_a_database_in_look_aside_is_left_alone() -> None:
    config = ServerConfig(listen="127.0.0.1:0", backing="sqlite:nowhere.db", backing_mode="look-aside")
    assert PequodServer(config).loader is None


async def test_reads_fail_when_the_feed_is_older_than_it_may_be() -> None:
    async with serving(FOLLOWING, backing_stale_max_s=1000.0) as setting:
        loader, client = setting.server.loader, setting.client
        assert loader is not None
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        await client.put("x|1", "ours")
        clock, loader._clock = loader._clock, lambda: clock() + 2000
        for first in ("t|ann|", "p|bob|"):
            with pytest.raises(PequodError, match="backing_stale_max_s is 1000"):
                await client.scan(first, first[:-1] + "}")
            with pytest.raises(PequodError, match="backing_stale_max_s is 1000"):
                _ = [row async for row in client.scan_iter(first, first[:-1] + "}")]
        found = await asyncio.gather(client.get("x|1"), client.get("p|bob|0100"), return_exceptions=True)
        assert found[0] == b"ours"
        assert isinstance(found[1], PequodError)
        loader._clock = clock
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]


async def test_reads_of_a_batch_whose_feed_grows_too_old_between_two_pieces_fail() -> None:
    async with (
        serving(FOLLOWING, backing_stale_max_s=1000.0) as setting,
        aio.insecure_channel(setting.target) as channel,
    ):
        loader = setting.server.loader
        assert loader is not None
        for number in range(64):
            setting.server.engine.put(b"x|%02d" % number, b"v" * (1 << 20))
        call = PequodStub(channel).Execute()  # type: ignore[no-untyped-call]
        kinds = bytes([GET, SCAN, GET, GET])
        arguments = [b"p|bob|0100", b"x|", b"x}", b"p|bob|0100", b"x|00"]
        await call.write(pb.ExecuteRequest(kinds=kinds, arguments=arguments))
        pieces = [await call.read()]
        clock, loader._clock = loader._clock, lambda: clock() + 2000
        pieces += await read_pieces(call, 0)
        first, rows, second, other = outcomes_of(kinds, pieces)
        assert (first, second, other) == (b"Hi", "BackingStaleError", b"v" * (1 << 20))
        assert isinstance(rows, list)
        assert len(rows) == 64
        await call.done_writing()


async def test_a_batch_whose_reply_comes_in_pieces_loads_what_it_lacks() -> None:
    rows = {b"p|%04d|0100" % number: b"body %d" % number for number in range(50)}
    async with serving(rows, reply_bytes_max=100, rows_max=2) as setting:
        batch = setting.client.batch()
        for number in range(50):
            batch.scan(f"p|{number:04}|", f"p|{number:04}}}")
            batch.put(f"x|{number}", "")
        batch.scan("x|", "x}", limit=40, reverse=True)
        results = await batch.send()
        expected = [Rows([b"p|%04d|0100" % number], [b"body %d" % number]) for number in range(50)]
        assert results[:100:2] == expected
        last = results[-1]
        assert isinstance(last, Rows)
        assert last.keys == sorted((b"x|%d" % number for number in range(50)), reverse=True)[:40]


async def test_a_watch_goes_on_over_a_range_that_was_read_again() -> None:
    async with serving(FOLLOWING) as setting:
        told = setting.client.watch("t|ann|", "t|ann}")
        assert not (await anext(told)).changes
        setting.store.break_feed("the slot is gone", is_lost=True)
        setting.store.commit({b"p|bob|0100": b"unheard"})
        async with asyncio.timeout(30):
            event = await anext(told)
        assert [tuple(change) for change in event.changes] == [(b"t|ann|0100|bob", b"Hi", b"unheard")]
        assert isinstance(told, AsyncGenerator)
        await told.aclose()


async def test_statistics_tell_of_the_database() -> None:
    async with serving(FOLLOWING) as setting:
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        setting.store.break_feed("the cable is cut", is_lost=True)
        await until(lambda: setting.store.status.failure_count > 0)
        setting.store.commit({b"p|bob|0101": b"unheard"})
        await setting.caught_up()
        assert await setting.timeline("ann") == [b"Hi", b"unheard", b"Ho"]
        backing = (await setting.client.statistics()).backing
        assert backing is not None
        assert (backing.mode, backing.state, backing.error) == ("write-around", "ok", "the cable is cut")
        assert (backing.position, backing.lag) == ((await setting.store.position()).position, 0)
        assert (backing.loaded_ranges, backing.reloads, backing.feed_failures) == (3, 1, 1)
        assert (backing.flights, backing.ranges, backing.rows) == (4, 6, 9)
        for command in (["stats"], ["top", "--once", "--interval", "0.05"]):
            done = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--target", setting.target])
            assert "database ok (write-around), position 2, " in done.output


async def test_metrics_tell_of_the_database() -> None:
    async with serving(FOLLOWING, metrics="127.0.0.1:0") as setting:
        assert await setting.timeline("ann") == [b"Hi", b"Ho"]
        url = setting.server.instruments.url
        assert url is not None
        async with aiohttp.ClientSession() as session, session.get(url.removesuffix("/metrics") + "/metrics") as reply:
            text = await reply.text()
        found = dict(re.findall(r"^pequod_backing_(\w+) (.*)$", text, re.MULTILINE))
        assert found.keys() == DOCUMENTED
        assert [float(found[name]) for name in ("up", "flights_total", "ranges_total", "rows_total")] == [1, 2, 3, 4]
