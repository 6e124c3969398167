"""Keys that expire and that a database owns: on every server beside it, in the database itself, and over migrations."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, closing
from pathlib import Path
from random import Random

import asyncpg
import pytest
from pequod_grammar import parse
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import KeyRange, RowChange, SqliteStore, parse_mappings, timed
from pequod_server.backing.mapping import GENERIC_TABLE, Mapping
from pequod_server.backing.postgres.store import PostgresStore
from pequod_server.stores import make_store

from pequod import Add, Get, Put, Remove, absent
from pequod.client import AsyncClient
from pequod.engine.testing import NaiveModel
from pequod.errors import InvalidTtlError, NoDeadlineError, PequodError
from pequod.freshness import after
from pequod.interface.transaction_parts import TransactionCommand, transaction_of_parts
from pequod.language.conditions import IF_ABSENT, IF_PRESENT, MET, Unmet
from tests.backing.test_generic import JOIN, Keeping, place, serving

__all__ = ["place"]


class Clock:
    """The time of all stores and servers as a test sets it."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timed.now_ms, "wall_ms", clock)
    monkeypatch.setattr(timed.now_ms, "_latest_ms", 0)
    return clock


async def rows_in(place: Keeping) -> dict[bytes, int | None]:
    """Return the keys of the table with their deadlines."""
    statement = f"SELECT key, expires_at FROM {GENERIC_TABLE}"
    if place.feed == "sqlite":
        with closing(sqlite3.connect(place.backing.removeprefix("sqlite:"))) as file:
            return dict(file.execute(statement).fetchall())
    connection = await asyncpg.connect(place.backing)
    try:
        return {row[0]: row[1] for row in await connection.fetch(statement)}
    finally:
        await connection.close()


@pytest.fixture
async def two(place: Keeping, clock: Clock) -> AsyncIterator[tuple[AsyncClient, AsyncClient]]:
    """Clients of two servers beside one database, whose time the test sets."""
    other = Keeping(place.backing, place.feed)
    if place.feed != "sqlite":
        other.settings["backing_feed_name"] = "second"
        store = make_store_of(other)
        await store.install()
        await store.close()
    async with AsyncExitStack() as stack:
        clients = []
        for one in (place, other):
            server, client = await stack.enter_async_context(serving(one))
            server.databases.expiring.clock_ms = clock
            clients.append(client)
        yield clients[0], clients[1]


def make_store_of(place: Keeping) -> PostgresStore | SqliteStore:
    store = make_store(ServerConfig(**place.settings))  # type: ignore[arg-type]
    assert isinstance(store, PostgresStore | SqliteStore)
    return store


async def test_all_servers_know_a_deadline_and_none_shows_the_key_after_it(
    two: tuple[AsyncClient, AsyncClient], place: Keeping, clock: Clock
) -> None:
    one, other = two
    await one.put("s|ann|bob", "")
    await one.put("p|bob|0001", "Hi", ttl_s=30)
    await one.put("p|bob|0002", "Ho")
    session = other.session(one.last_token)
    assert [await session.ttl(f"p|bob|000{number}") for number in (1, 2, 3)] == [30.0, math.inf, None]
    assert len(await session.scan("t|ann|", "t|ann}")) == 2
    assert await one.expire("p|bob|0002", 40)
    assert not await one.expire("p|bob|0003", 40)
    assert await other.session(one.last_token).ttl("p|bob|0002") == 40.0
    async with aclosing(other.watch("p|", "p}")) as events:
        await anext(events)
        clock.now_ms += 30_000
        for client in two:
            assert await client.get("p|bob|0001") is None
            assert await client.scan("p|bob|", "p|bob}") == [(b"p|bob|0002", b"Ho")]
            assert await client.scan("t|ann|", "t|ann}") == [(b"t|ann|0002|bob", b"Ho")]
        (gone,) = (await anext(events)).changes
        assert (gone.key, gone.new) == (b"p|bob|0001", None)
    while b"p|bob|0001" in await rows_in(place):  # noqa: ASYNC110 - a server's own task deletes it
        await asyncio.sleep(0.05)
    assert await one.persist("p|bob|0002")
    clock.now_ms += 3_600_000
    assert await other.session(one.last_token).ttl("p|bob|0002") == math.inf
    assert (await rows_in(place))[b"p|bob|0002"] is None


async def test_conditions_adds_and_transactions_go_by_deadlines_that_another_server_has_set(
    two: tuple[AsyncClient, AsyncClient], clock: Clock
) -> None:
    one, other = two
    assert await one.put("p|lock", "one", condition=IF_ABSENT, ttl_s=5) == MET
    assert await other.put("p|lock", "other", condition=IF_ABSENT, ttl_s=5) == Unmet(b"one")
    assert await one.put("p|lock", "one again", condition=IF_PRESENT, keep_ttl=True) == MET
    assert await one.add("p|n", 1) == b"1"
    await one.multi_put({"p|n": "2", "p|m": "7"}, ttl_s=5)
    assert await other.add("p|n", 1) == b"3"
    assert await other.session(other.last_token).ttl("p|n") == 5.0
    done = await other.transaction([], [Put("p|n", "4", keep_ttl=True), Add("p|m", 1), Put("p|k", "x", ttl_s=9)])
    assert done.held
    session = one.session(other.last_token)
    assert [await session.ttl(key) for key in ("p|lock", "p|n", "p|m", "p|k")] == [5.0, 5.0, 5.0, 9.0]
    batch = one.batch()
    batch.put("p|a", "1", ttl_s=5)
    batch.put("p|b", "1", ttl_s=6)
    batch.put("p|c", "1")
    batch.put("p|a", "2", keep_ttl=True)
    batch.expire("p|c", 7)
    for key in ("p|a", "p|b", "p|c"):
        batch.ttl(key)
    assert list(await batch.send()) == [None, None, None, None, True, 5.0, 6.0, 7.0]
    clock.now_ms += 5_000
    assert await other.put("p|lock", "other", condition=IF_ABSENT) == MET
    assert await one.add("p|n", 1) == b"1", "what is due counts as absent"
    await one.put("p|a", "3", keep_ttl=True)
    done = await one.transaction([absent("p|m")], [Get("p|m"), Put("p|m", "1", keep_ttl=True)])
    assert (done.held, done.outcomes) == (True, [None, None])
    session = other.session(one.last_token)
    assert [await session.ttl(key) for key in ("p|lock", "p|n", "p|a", "p|m", "p|k")] == [math.inf] * 4 + [4.0]
    with pytest.raises(InvalidTtlError):
        await one.put("p|a", "1", ttl_s=-1)


async def test_a_clock_that_steps_back_shows_nothing_again(
    two: tuple[AsyncClient, AsyncClient], place: Keeping, clock: Clock
) -> None:
    one, _ = two
    store = make_store_of(place)
    await store.write([RowChange(b"p|1", timed.timed(b"1", 5_000)), RowChange(b"p|2", timed.timed(b"1", 50_000))])
    clock.now_ms += 5_000
    assert [row[0] for row in (await store.load([KeyRange(b"p|", b"p}")])).rows] == [b"p|2"]
    clock.now_ms -= 3_000
    assert [row[0] for row in (await store.load([KeyRange(b"p|", b"p}")])).rows] == [b"p|2"]
    await store.close()
    assert await one.keys("p|", "p}") == [b"p|2"]


async def test_servers_delete_what_is_due_in_pieces_and_none_deletes_what_is_not(place: Keeping, clock: Clock) -> None:
    store = make_store_of(place)
    await store.write([RowChange(b"p|%02d" % number, timed.timed(b"1", 1_000 + number)) for number in range(50)])
    await store.write([RowChange(b"p|x", b"1")])
    assert await store.remove_due(20) == 0
    clock.now_ms += 1_039
    found = [*await asyncio.gather(store.remove_due(15), store.remove_due(15))]
    assert sum(found) in range(15, 31)
    while sum(found) < 40:
        found.append(await store.remove_due(15))
    assert await store.remove_due(15) == 0
    assert sorted(await rows_in(place)) == [*(b"p|%02d" % number for number in range(40, 50)), b"p|x"]
    await store.close()


async def test_a_table_of_an_earlier_version_gets_its_column_when_a_server_starts(
    place: Keeping, caplog: pytest.LogCaptureFixture
) -> None:
    statements = (
        f"DROP INDEX {GENERIC_TABLE}_expires_at",
        f"ALTER TABLE {GENERIC_TABLE} DROP COLUMN expires_at",
        f"INSERT INTO {GENERIC_TABLE} (key, value) VALUES ({{}}, {{}})",
    )
    if place.feed == "sqlite":
        with closing(sqlite3.connect(place.backing.removeprefix("sqlite:"))) as file, file:
            for statement in statements:
                file.execute(statement.format("CAST('p|old' AS BLOB)", "CAST('1' AS BLOB)"))
    else:
        connection = await asyncpg.connect(place.backing)
        for statement in statements:
            await connection.execute(statement.format("'p|old'", "'1'"))
        await connection.close()
    async with serving(place) as (_, client):
        assert await client.get("p|old") == b"1"
        await client.put("p|new", "1", ttl_s=3600)
        assert await client.expire("p|old", 3600)
    told = [record for record in caplog.records if "table was changed" in record.message]
    assert len(told) == 2
    assert None not in (await rows_in(place)).values()
    caplog.clear()
    async with serving(place):
        pass
    assert not [record for record in caplog.records if "table was changed" in record.message]


MAPPINGS = """
[[mapping]]
keys = "p|<poster>|<n>"
table = "posts"
value = "body"
expires = "until"

[[mapping]]
keys = "s|<user>|<poster>"
table = "subscriptions"
"""


async def test_a_mapping_may_name_the_column_of_deadlines(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "twip.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE posts (poster TEXT, n TEXT, body TEXT, until INTEGER, PRIMARY KEY (poster, n))")
        file.execute("CREATE TABLE subscriptions (user TEXT, poster TEXT, PRIMARY KEY (user, poster))")
    store = SqliteStore(path, parse_mappings(MAPPINGS))
    await store.install()
    assert any("when the row expires" in line for line in (await store.described())[0])
    await store.write([RowChange(b"p|bob|1", timed.timed(b"Hi", 5_000)), RowChange(b"s|ann|bob", b"")])
    with pytest.raises(NoDeadlineError, match=r"s\|ann\|bob"):
        await store.write([RowChange(b"s|ann|bob", timed.timed(b"", 5_000))])
    (row, _) = (await store.load([KeyRange(b"", None)])).rows
    assert (row, timed.deadline_of(row[1])) == ((b"p|bob|1", b"Hi"), clock.now_ms + 5_000)
    clock.now_ms += 5_000
    assert await store.remove_due(10) == 1
    await store.close()
    with pytest.raises(PequodError, match="which a slot or the value has already"):
        parse_mappings(MAPPINGS.replace("until", "body"))
    assert Mapping.generic([b"p"]).expires == "expires_at"


JOINS = f"{JOIN}; posts|<poster> = count p|<poster>|<time:4>"
RANGES = (("p|", "p}"), ("s|", "s}"), ("t|ann|", "t|ann}"), ("posts|", "posts}"), ("p|b", "p|c"))


class Walk:
    """Two servers beside one database, and a model that is told the same."""

    def __init__(self, random: Random, clients: Sequence[AsyncClient], servers: Sequence[PequodServer]) -> None:
        self.random = random
        self.clients = clients
        self.servers = servers
        self.model = NaiveModel()
        for spec in parse(JOINS):
            self.model.add(spec)

    def key(self) -> str:
        poster = self.random.choice(("ann", "bob"))
        return f"s|ann|{poster}" if self.random.random() < 0.2 else f"p|{poster}|{self.random.randrange(4):04}"

    async def write(self, client: AsyncClient) -> None:
        """Have a server and the model do the same."""
        random, model = self.random, self.model
        key, value, ttl_ms = self.key(), str(random.randrange(5)), random.choice((1_000, 2_000, 5_000))
        name, data = key.encode(), value.encode()
        match random.randrange(9):
            case 0:
                await client.put(key, value)
                model.put(name, data)
            case 1:
                await client.put(key, value, ttl_s=ttl_ms / 1000)
                model.put_for(name, data, ttl_ms)
            case 2:
                await client.put(key, value, keep_ttl=True)
                model.put_for(name, data, None)
            case 3:
                assert await client.remove(key) == model.remove(name)
            case 4:
                assert await client.expire(key, ttl_ms / 1000) == model.expire(name, ttl_ms)
            case 5:
                assert await client.persist(key) == model.expire(name, None)
            case 6:
                assert await client.add(key, 2) == model.add_to(name, b"2")
            case 7:
                outcome = model.write_if(name, data, IF_ABSENT)
                assert await client.put(key, value, condition=IF_ABSENT, ttl_s=ttl_ms / 1000) == outcome
                if outcome:
                    model.expire(name, ttl_ms)
            case _:
                other = self.key()
                parts: list[TransactionCommand] = [
                    Put(key, value, ttl_s=ttl_ms / 1000),
                    Add(other, 1),
                    Put(key, value, keep_ttl=True),
                    Get(other),
                ]
                done = await client.transaction([absent(other)], parts, [Remove(other), Put(key, value, keep_ttl=True)])
                expected = model.transact(
                    transaction_of_parts([absent(other)], parts, [Remove(other), Put(key, value, keep_ttl=True)])
                )
                assert done == expected

    async def look(self, clock: Clock) -> None:
        """Compare what both servers show with the model."""
        token = self.clients[0].last_token.merged(self.clients[1].last_token)
        for client in self.clients:
            for first, last in RANGES:
                found = await client.scan(first, last, freshness=after(token))
                assert list(found) == self.model.scan(first.encode(), last.encode()), (first, clock.now_ms)
            key = self.key()
            at_ms = self.model.deadlines.get(key.encode())
            left_s = math.inf if at_ms is None else (at_ms - clock.now_ms) / 1000
            expected = left_s if key.encode() in self.model.base else None
            assert await client.ttl(key, freshness=after(token)) == expected


@pytest.mark.parametrize("seed", range(3))
async def test_two_servers_agree_with_the_model_at_every_moment(place: Keeping, clock: Clock, seed: int) -> None:
    other = Keeping(place.backing, place.feed)
    if place.feed != "sqlite":
        other.settings["backing_feed_name"] = "second"
        store = make_store_of(other)
        await store.install()
        await store.close()
    random = Random(seed)
    async with serving(place) as (first, one), serving(other) as (second, two):
        walk = Walk(random, (one, two), (first, second))
        for server, client in ((first, one), (second, two)):
            server.databases.expiring.clock_ms = clock
            await client.add_join("posts|<poster> = count p|<poster>|<time:4>")
        walk.model.tell(clock.now_ms)
        for _ in range(40):
            for _ in range(random.randrange(4)):
                await walk.write(random.choice(walk.clients))
            if random.random() < 0.4:
                clock.now_ms += random.choice((1, 700, 1_000, 3_000))
                walk.model.tell(clock.now_ms)
            if random.random() < 0.2:
                random.choice(walk.servers).engine.forget(
                    *random.choice(((b"p|", b"p}"), (b"p|b", b"p|c"), (b"", None)))
                )
            await walk.look(clock)


async def test_forgotten_rows_leave_no_deadline_and_loaded_ones_take_little(place: Keeping, clock: Clock) -> None:
    store = make_store_of(place)
    await store.write([RowChange(b"p|%05d" % number, timed.timed(b"1", 60_000)) for number in range(3_000)])
    await store.close()
    async with serving(place) as (server, client):
        server.databases.expiring.clock_ms = clock
        assert await client.count("p|", "p}") == 3_000
        deadlines = server.engine.deadlines
        assert len(deadlines) == 3_000
        if deadlines.byte_count < 100 * 3_000:
            assert deadlines.byte_count <= 24 * 3_000, "natively"
        server.engine.forget(b"p|01", b"p|02")
        assert len(deadlines) == 2_000
        server.engine.forget(b"", None)
        assert len(deadlines) == 0
        assert await client.ttl("p|00000") == 60.0
        await client.put("p|00000", "2")
        await client.remove("p|00001")
        assert len(deadlines) == 0
