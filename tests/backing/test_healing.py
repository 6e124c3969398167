"""What breaks between the cache and a real PostgreSQL, and how it mends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest
from pequod_server import PequodServer, ServerConfig
from pequod_server.backing import BackingUnavailableError, SchemaError
from pequod_server.backing.postgres.install import notify_trigger
from pequod_server.backing.postgres.store import PostgresStore

from pequod.client import AsyncClient
from pequod.errors import PequodError
from tests.backing.conftest import Connection, Mode, Postgres
from tests.backing.feed import Follower, following, until
from tests.backing.postgres_stores import EVERYTHING, MAPPINGS, content, installed, make


@pytest.fixture
def restarted(postgres: Postgres) -> Iterator[Postgres]:
    """The cluster, started again afterwards if a test leaves it stopped."""
    yield postgres
    if not postgres.is_running:
        postgres.start()


async def insert(database: Connection, poster: str) -> None:
    await database.execute("INSERT INTO posts (poster, at) VALUES ($1, 1)", poster)


async def equal_again(follower: Follower, store: PostgresStore) -> None:
    """Wait until the feed stands again and the cache has what the database has."""
    await until(lambda: store.status.state == "ok")
    await follower.caught_up()
    assert follower.rows == await content(store)


async def test_a_lost_connection(dsn: str, database: Connection, mode: Mode) -> None:
    store = await installed(dsn, mode)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await insert(database, "before")
        await follower.caught_up()
        await database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name LIKE 'pequod%'"
        )
        await insert(database, "meanwhile")
        await until(lambda: store.status.failure_count > 0)
        await equal_again(follower, store)
        assert sorted(follower.rows) == [b"p|before|0001", b"p|meanwhile|0001"]
        # A slot has kept what happened; notifications are gone.
        assert len(follower.reloads) == (mode == "notify")


@pytest.mark.parametrize("kill", [False, True], ids=["restarted", "crashed"])
async def test_a_database_that_restarts(
    dsn: str, database: Connection, mode: Mode, restarted: Postgres, kill: bool
) -> None:
    store = await installed(dsn, mode)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await insert(database, "before")
        await follower.caught_up()
        await asyncio.to_thread(restarted.stop, kill=kill)
        await until(lambda: store.status.state == "down")
        with pytest.raises(BackingUnavailableError):
            await store.load([EVERYTHING])
        since = store.status.since_s
        failures = store.status.failure_count
        await until(lambda: store.status.failure_count > failures)
        assert store.status.since_s == since
        assert store.status.error
        await asyncio.to_thread(restarted.start)
        again = await asyncpg.connect(dsn)
        await insert(again, "after")
        await equal_again(follower, store)
        assert sorted(follower.rows) == [b"p|after|0001", b"p|before|0001"]
        await until(lambda: (store.status.fresh_s or 0.0) > since)
        await again.close()


async def test_a_dropped_slot(dsn: str, database: Connection) -> None:
    store = await installed(dsn, "slot")
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await drop_slot(database)
        await insert(database, "meanwhile")
        await follower.until(lambda: len(follower.reloads) == 1)
        await equal_again(follower, store)
        # Found when it is looked for, or when it is opened.
        assert "the replication slot is gone" in follower.reloads[0] or '"pequod" does not exist' in follower.reloads[0]
        assert len(follower.reloads) == 1
        await insert(database, "after")
        await follower.caught_up()
        assert b"p|after|0001" in follower.rows


async def drop_slot(database: Connection) -> None:
    """Drop the slot in the moment in which its feed is cut."""
    async with asyncio.timeout(30):
        while True:
            await database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
            try:
                await database.execute("SELECT pg_drop_replication_slot('pequod')")
                return
            except asyncpg.ObjectInUseError:
                continue


async def test_an_invalidated_slot(dsn: str, database: Connection) -> None:
    store = await installed(dsn, "slot")
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await insert(database, "before")
        await follower.caught_up()
        position = follower.position
    # More than max_slot_wal_keep_size, and a checkpoint, which lets go of it.
    async with asyncio.timeout(60):
        while await database.fetchval("SELECT wal_status FROM pg_replication_slots") != "lost":
            for _ in range(3):
                await database.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 10000000))")
                await database.execute("SELECT pg_switch_wal()")
            await database.execute("CHECKPOINT")
    await insert(database, "after")
    store = make(dsn, "slot")
    async with following(store, position, [EVERYTHING]) as follower:
        await follower.until(lambda: len(follower.reloads) == 1)
        await equal_again(follower, store)
        assert "max_slot_wal_keep_size" in follower.reloads[0]


async def test_a_slot_that_another_server_uses(dsn: str, database: Connection) -> None:
    first, second = await installed(dsn, "slot"), make(dsn, "slot")
    async with following(first) as follower:
        await insert(database, "ann")
        # The first streams: a slot that nobody uses yet is anybody's.
        await follower.caught_up()
        events = second.changes()
        waiting = asyncio.ensure_future(anext(events))
        await until(lambda: "give each server a replication slot of its own" in second.status.error)
        await insert(database, "bob")
        await follower.caught_up()
        assert first.status.failure_count == 0
    # The second takes over when the first is gone.
    async with asyncio.timeout(30):
        await waiting
    await second.close()
    async with asyncio.timeout(30):
        async for _ in events:
            pass


BREAKS = {
    "slot": [
        "ALTER PUBLICATION pequod DROP TABLE posts",
        "DROP PUBLICATION pequod",
        "ALTER PUBLICATION pequod SET (publish = 'insert')",
        "ALTER TABLE posts REPLICA IDENTITY NOTHING",
    ],
    "notify": [
        f"DROP TRIGGER {notify_trigger('pequod', MAPPINGS[0], 'insert')} ON posts",
        "ALTER TABLE posts DISABLE TRIGGER ALL",
        "DROP SCHEMA pequod CASCADE",
    ],
}


@pytest.mark.parametrize(
    ("mode", "statement"), [(mode, statement) for mode, statements in BREAKS.items() for statement in statements]
)
async def test_what_was_installed_is_taken_away(dsn: str, database: Connection, mode: Mode, statement: str) -> None:
    store = await installed(dsn, mode)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute(statement)
        await until(lambda: store.status.state == "down" and "pequod backing install" in store.status.error)
        await insert(database, "missed")
        await store.install()
        if "DISABLE" in statement:
            await database.execute("ALTER TABLE posts ENABLE TRIGGER ALL")
        if "publish" in statement:
            await database.execute("ALTER PUBLICATION pequod SET (publish = 'insert, update, delete, truncate')")
        await follower.until(lambda: len(follower.reloads) >= 1)
        await equal_again(follower, store)
        assert list(follower.rows) == [b"p|missed|0001"]
        await insert(database, "told")
        await follower.caught_up()
        assert b"p|told|0001" in follower.rows


async def test_a_trigger_that_was_away_for_a_moment(dsn: str, database: Connection) -> None:
    store = await installed(dsn, "notify")
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute(f"DROP TRIGGER {notify_trigger('pequod', MAPPINGS[0], 'insert')} ON posts")
        await insert(database, "missed")
        await store.install()
        await follower.until(lambda: len(follower.reloads) >= 1)
        await equal_again(follower, store)
        assert list(follower.rows) == [b"p|missed|0001"]


async def test_feeds_of_two_names_hear_triggers_of_their_own(dsn: str, database: Connection) -> None:
    stores = [PostgresStore(dsn, MAPPINGS, mode="notify", feed_name=name) for name in ("pequod", "another")]
    for store in stores:
        await store.install()
    async with following(stores[0]) as follower, following(stores[1]) as other:
        for each in (follower, other):
            await each.load(EVERYTHING)
        await insert(database, "told")
        for each in (follower, other):
            await each.caught_up()
            assert list(each.rows) == [b"p|told|0001"]
        for statement in await stores[1].removal():
            await database.execute(statement)
        await insert(database, "later")
        await follower.caught_up()
        assert sorted(follower.rows) == [b"p|later|0001", b"p|told|0001"]
        assert not follower.reloads


async def test_a_changed_schema(dsn: str, database: Connection, mode: Mode) -> None:
    store = await installed(dsn, mode)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await insert(database, "bob")
        await database.execute("ALTER TABLE posts RENAME COLUMN body TO text")
        await insert(database, "liz")
        await until(lambda: store.status.state == "down" and "has no column body" in store.status.error)
        with pytest.raises(SchemaError, match="has no column body"):
            await store.load([EVERYTHING])
        await database.execute("ALTER TABLE posts RENAME COLUMN text TO body")
        await follower.until(lambda: len(follower.reloads) >= 1)
        await equal_again(follower, store)
        assert sorted(follower.rows) == [b"p|bob|0001", b"p|liz|0001"]


async def test_a_trigger_that_fails_leaves_the_write_of_the_application_alone(dsn: str, database: Connection) -> None:
    server = PequodServer(ServerConfig(listen="127.0.0.1:0"), store=await installed(dsn, "notify"))
    target = f"127.0.0.1:{await server.start()}"
    await insert(database, "bob")
    async with AsyncClient(target) as client:

        async def state() -> tuple[str, str]:
            backing = (await client.statistics()).backing
            assert backing is not None
            return backing.state, backing.error

        assert await client.count("p|", "p}") == 1
        # In one transaction, so that the trigger fails before the feed sees another catalog.
        await database.execute(
            "BEGIN; ALTER TABLE posts RENAME COLUMN poster TO author;"
            "INSERT INTO posts (author, at) VALUES ('liz', 1); UPDATE posts SET body = 'x' WHERE author = 'bob';"
            "DELETE FROM posts WHERE author = 'bob'; COMMIT"
        )
        assert await database.fetchval("SELECT string_agg(author, ',') FROM posts") == "liz"
        # A statement may fail first, in the database's words; the next start looks at the catalog.
        async with asyncio.timeout(30):
            while "has no column poster" not in (await state())[1]:  # noqa: ASYNC110 - a status has no event
                await asyncio.sleep(0.01)
        assert (await state())[0] == "down"
        checking = make(dsn, "notify")
        with pytest.raises(SchemaError, match="has no column poster"):
            await checking.check()
        await checking.close()
        # What is loaded may be served still: the feed sees the catalog or the trigger's note first.
        with pytest.raises(PequodError):
            await client.count("s|", "s}")
        await database.execute("ALTER TABLE posts RENAME COLUMN author TO poster")
        async with asyncio.timeout(30):
            while (await state())[0] != "ok":  # noqa: ASYNC110 - a status has no event to wait for
                await asyncio.sleep(0.01)
        assert await client.scan("p|", "p}") == [(b"p|liz|0001", b"")]
    await server.stop()


async def test_a_trigger_that_failed_once_has_its_pattern_read_again(dsn: str, database: Connection) -> None:
    store = await installed(dsn, "notify")
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await insert(database, "bob")
        await database.execute(
            "BEGIN; ALTER TABLE posts RENAME COLUMN poster TO author; DELETE FROM posts;"
            "ALTER TABLE posts RENAME COLUMN author TO poster; COMMIT"
        )
        await follower.until(lambda: len(follower.reloads) >= 1)
        await equal_again(follower, store)
        assert follower.rows == {}
        assert any("the trigger of p|<poster>|" in reason and "author" not in reason for reason in follower.reloads)


async def test_a_column_that_is_added_or_changes_its_type_costs_at_most_a_reload(
    dsn: str, database: Connection, mode: Mode
) -> None:
    store = await installed(dsn, mode)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute("ALTER TABLE posts ADD COLUMN extra text")
        await insert(database, "bob")
        await database.execute("ALTER TABLE posts ALTER COLUMN at TYPE integer, ALTER COLUMN body TYPE varchar")
        await insert(database, "liz")
        await follower.until(lambda: len(follower.reloads) >= 1)
        await equal_again(follower, store)
        assert sorted(follower.rows) == [b"p|bob|0001", b"p|liz|0001"]


async def test_a_database_that_is_not_there_yet(postgres: Postgres, dsn: str) -> None:
    store = make(postgres.dsn("nowhere"), "slot")
    events = store.changes()
    first = asyncio.ensure_future(anext(events, None))
    await until(lambda: "nowhere" in store.status.error)
    with pytest.raises(BackingUnavailableError, match="nowhere"):
        await store.check()
    await store.close()
    async with asyncio.timeout(30):
        assert await first is None
    assert store.status.state == "closed"
