"""PostgreSQL behind the cache, in both ways of hearing of changes, against a real server."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest
from pequod_server.backing import Backoff, Changes, KeyRange, Landing, Reload, RowChange, SchemaError, parse_mappings
from pequod_server.backing.postgres.notify import _listening
from pequod_server.backing.postgres.session import SnapshotHorizon
from pequod_server.backing.postgres.store import PostgresStore

from tests.backing.conftest import Connection, Mode
from tests.backing.feed import following, prefix, until
from tests.backing.postgres_stores import EVERYTHING, MAPPINGS, commits_wait, content, installed, make, no_standby


async def test_a_load_reads_many_ranges_of_many_patterns_at_one_moment(dsn: str, database: Connection) -> None:
    await database.execute("""
        INSERT INTO posts (poster, at, body, hidden) VALUES
            ('bob', 100, 'hi', false), ('bob', 120, 'again', false), ('liz', 50, 'é', false), ('bob', 130, 'no', true);
        INSERT INTO subscriptions VALUES ('ann', 'bob', '2001-09-09 01:46:40.5+00', 1.50, true),
            ('ann', 'liz', NULL, 'NaN', false);
    """)
    store = make(dsn, "slot")
    loaded = await store.load([*prefix("s|ann|"), KeyRange(b"p|bob|0100", b"p|bob|0120"), *prefix("p|liz|", "p|no|")])
    assert loaded.rows == (
        (b"p|bob|0100", b"hi"),
        (b"p|liz|0050", "é".encode()),
        (b"s|ann|bob", b'{"since":"2001-09-09T01:46:40.5+00:00","score":1.50,"ok":true}'),
        (b"s|ann|liz", b'{"since":null,"score":"NaN","ok":false}'),
    )
    await store.close()


async def test_a_thousand_ranges_are_one_statement(dsn: str, database: Connection) -> None:
    await database.execute("INSERT INTO posts (poster, at) SELECT 'u' || n, n % 10000 FROM generate_series(1, 3000) n")
    await database.execute("ANALYZE posts")
    store = make(dsn, "slot")
    ranges = [KeyRange(f"p|u{n}|0000".encode(), f"p|u{n}}}".encode()) for n in range(1, 3001, 3)]
    await store.load(ranges[:1])
    async with store._session.connection() as connection:
        statements: list[str] = []
        connection.add_query_logger(lambda record: statements.append(record.query))
    assert len((await store.load(ranges)).rows) == 1000
    assert len([text for text in statements if '"posts"' in text]) == 1, statements
    await store.close()


async def test_changes_of_every_kind_are_told(dsn: str, database: Connection, mode: Mode) -> None:
    store = await installed(dsn, mode)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        for statement in (
            "INSERT INTO posts (id, poster, at, body) VALUES (1, 'bob', 1, 'a'), (2, 'bob', 2, 'é'), (3, 'z', 5, NULL)",
            "UPDATE posts SET body = 'changed' WHERE id = 1",
            "UPDATE posts SET at = 3 WHERE id = 2",
            "UPDATE posts SET id = 20 WHERE id = 2",
            "UPDATE posts SET hidden = true WHERE id = 1",
            "UPDATE posts SET hidden = false WHERE id = 1",
            "BEGIN; INSERT INTO posts (poster, at) VALUES ('lost', 1); ROLLBACK",
            "BEGIN; DELETE FROM posts WHERE id = 1; INSERT INTO posts (id, poster, at, body) VALUES (1, 'bob', 1, 'n')",
            "UPDATE posts SET poster = 'new' WHERE id = 1; COMMIT",
            "INSERT INTO subscriptions VALUES ('ann', 'bob', now(), 1.50, true), ('liz', 'bob', 'infinity', 1e3, NULL)",
            "UPDATE subscriptions SET ok = false",
            "UPDATE subscriptions SET poster = 'x' WHERE \"user\" = 'ann'",
            "INSERT INTO posts (poster, at, body) VALUES ('b|b', 1, ''), ('', 1, ''), ('w', 12345, ''), ('v', -1, '')",
            "DELETE FROM posts",
        ):
            await database.execute(statement)
            await follower.caught_up()
            # The test's own connection alone sees what it has not committed yet.
            assert follower.rows == await content(store), statement
        assert sorted(follower.rows) == [b"s|ann|x", b"s|liz|bob"]
        assert follower.reloads == []
        assert "b|b" in store.status.unpackable or store.status.unpackable_count >= 4


async def test_a_truncated_table_and_a_large_value_that_stays_are_read_again(
    dsn: str, database: Connection, mode: Mode
) -> None:
    store = await installed(dsn, mode)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute(
            "INSERT INTO posts (id, poster, at, body) "
            "SELECT 1, 'bob', 1, string_agg(md5(n::text), '') FROM generate_series(1, 2000) n"
        )
        await database.execute("UPDATE posts SET at = 2")
        await database.execute("UPDATE posts SET hidden = hidden")
        await follower.caught_up()
        assert follower.rows == await content(store)
        assert len(follower.rows[b"p|bob|0002"]) == 64000
        await database.execute("TRUNCATE posts")
        await follower.caught_up()
        assert follower.rows == {}


async def test_more_rows_than_are_worth_telling_apart(dsn: str, database: Connection, mode: Mode) -> None:
    store = await installed(dsn, mode)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute(
            "INSERT INTO posts (poster, at) SELECT 'u' || n / 9999, n % 9999 FROM generate_series(1, 10500) n"
        )
        await follower.caught_up()
        assert len(follower.rows) == 10500
        await database.execute("INSERT INTO posts (poster, at) VALUES (repeat('x', 2000), 1), (repeat('y', 2000), 1)")
        await database.execute(
            "INSERT INTO posts (poster, at) SELECT repeat('v', 50) || n, n FROM generate_series(1, 500) n"
        )
        await follower.caught_up()
        assert follower.rows == await content(store)
        assert len(follower.reloads) == (mode == "notify")


async def test_commits_between_a_snapshot_and_its_delivery_are_neither_lost_nor_applied_twice(
    dsn: str, database: Connection, mode: Mode
) -> None:
    store = await installed(dsn, mode)
    rng = random.Random(3)
    async with following(store) as follower:
        # What the cache showed for each key, to see that it never goes back.
        shown: list[bytes] = []
        follower.ranges = []
        for n in range(40):
            await database.execute(
                "INSERT INTO posts (poster, at, body) VALUES ('bob', 1, $1) "
                "ON CONFLICT (poster, at) DO UPDATE SET body = EXCLUDED.body",
                f"{2 * n:04}",
            )
            token = follower.landing.start(prefix("p|bob|"))
            loading = asyncio.ensure_future(store.load(prefix("p|bob|")))
            if rng.random() < 0.5:
                await asyncio.sleep(0)
            await database.execute("UPDATE posts SET body = $1", f"{2 * n + 1:04}")
            loaded = await loading
            if rng.random() < 0.7:
                # The feed may be ahead of the load now.
                await follower.caught_up()
            rows = follower.landing.land(token, loaded)
            assert rows is not None
            follower.rows = dict(rows)
            follower.ranges = list(prefix("p|bob|"))
            shown.append(follower.rows[b"p|bob|0001"])
            if rng.random() < 0.5:
                await follower.caught_up()
                shown.append(follower.rows[b"p|bob|0001"])
                assert shown[-1] == f"{2 * n + 1:04}".encode()
        assert shown == sorted(shown)
        assert follower.reloads == []


async def test_a_feed_that_is_behind_does_not_set_a_load_back(dsn: str, database: Connection, mode: Mode) -> None:
    store = await installed(dsn, mode)
    landing, events = Landing(), store.changes()
    applied: list[RowChange] = []
    async with asyncio.timeout(30):
        await anext(events)
        await database.execute("INSERT INTO posts (poster, at, body) VALUES ('bob', 1, '1')")
        await database.execute("UPDATE posts SET body = '2'")
        token = landing.start([EVERYTHING])
        assert landing.land(token, await store.load([EVERYTHING])) == [(b"p|bob|0001", b"2")]
        # The feed tells both commits only now.
        (_, position) = await store.position()
        while landing.position < position:
            event = await anext(events)
            if isinstance(event, Changes):
                applied += landing.arrive(event)
            landing.pass_by(event.position)
        assert all(change.value == b"2" for change in applied)
        assert mode == "notify" or not applied
        await store.close()
        async for _ in events:
            pass


async def test_a_load_before_a_slow_commit_is_followed_by_it(dsn: str, database: Connection, mode: Mode) -> None:
    """Sequence order is not commit order: the transaction that began first commits last."""
    store = await installed(dsn, mode)
    other = await asyncpg.connect(dsn)
    async with following(store) as follower:
        slow = other.transaction()
        await slow.start()
        await other.execute("INSERT INTO posts (poster, at, body) VALUES ('slow', 1, 'first')")
        await database.execute("INSERT INTO posts (poster, at, body) VALUES ('fast', 1, 'second')")
        await follower.load(EVERYTHING)
        await follower.caught_up()
        assert list(follower.rows) == [b"p|fast|0001"]
        await slow.commit()
        await follower.caught_up()
        assert sorted(follower.rows) == [b"p|fast|0001", b"p|slow|0001"]
    await other.close()


async def test_many_writers_at_once_lose_nothing(dsn: str, database: Connection, mode: Mode) -> None:
    store = await installed(dsn, mode)

    async def write(seed: int) -> None:
        rng = random.Random(seed)
        connection = await asyncpg.connect(dsn)
        for _ in range(60):
            async with connection.transaction():
                for _ in range(rng.randrange(1, 4)):
                    poster, at = f"{seed}{rng.choice('ab')}", rng.randrange(5)
                    if rng.random() < 0.7:
                        await connection.execute(
                            "INSERT INTO posts (poster, at, body) VALUES ($1, $2, $3) "
                            "ON CONFLICT (poster, at) DO UPDATE SET body = EXCLUDED.body",
                            poster, at, str(rng.random()),
                        )  # fmt: skip
                    else:
                        await connection.execute("DELETE FROM posts WHERE poster = $1 AND at = $2", poster, at)
        await connection.close()

    async def read() -> None:
        rng = random.Random(0)
        for _ in range(60):
            await follower.load(*prefix(f"p|{rng.randrange(3)}{rng.choice('ab')}|"))

    async with following(store) as follower:
        await asyncio.gather(*(write(seed) for seed in range(3)), read())
        await follower.load(*prefix(*(f"p|{seed}{letter}|" for seed in range(3) for letter in "ab")))
        await follower.caught_up()
        assert follower.rows == await content(store)
        assert follower.reloads == []


async def test_a_slot_resumes_where_the_feed_was(dsn: str, database: Connection) -> None:
    async with following(await installed(dsn, "slot")) as follower:
        await database.execute("INSERT INTO posts (poster, at, body) VALUES ('bob', 1, 'a')")
        await follower.caught_up()
        position = follower.position
    await database.execute("INSERT INTO posts (poster, at, body) VALUES ('bob', 2, 'b')")
    await database.execute("DELETE FROM posts WHERE at = 1")
    async with following(make(dsn, "slot"), position, [EVERYTHING]) as follower:
        await follower.caught_up()
        assert follower.rows == {b"p|bob|0002": b"b"}
        assert follower.reloads == []
        assert [c.changes for c in follower.events if isinstance(c, Changes)] == [
            (RowChange(b"p|bob|0002", b"b"),),
            (RowChange(b"p|bob|0001", None),),
        ]


async def test_a_position_of_another_log_costs_a_reload(dsn: str, database: Connection, mode: Mode) -> None:
    async with following(await installed(dsn, mode), 1 << 60) as follower:
        await follower.until(lambda: any(isinstance(event, Reload) for event in follower.events))
        assert follower.store.status.reload_count == 1


def test_a_snapshot_covers_what_had_ended_when_it_was_taken() -> None:
    horizon = SnapshotHorizon.parse(f"{(1 << 32) + 5}:{(1 << 32) + 9}:{(1 << 32) + 5},{(1 << 32) + 7}", 1)
    covered = [n for n in range(12) if horizon.covers(n)]
    assert covered == [0, 1, 2, 3, 4, 6, 8]
    assert horizon.covers((1 << 32) - 3)
    assert not SnapshotHorizon.parse(f"{(1 << 32) - 2}:{(1 << 32) - 2}:", 1).covers(3)


async def test_a_cancelled_load_leaves_its_connection_as_it_was(dsn: str, database: Connection) -> None:
    store = PostgresStore(dsn, MAPPINGS, connections_max=1)
    await store.load([EVERYTHING])
    for _ in range(3):
        async with database.transaction():
            await database.execute("LOCK TABLE posts")
            loading = asyncio.ensure_future(store.load([EVERYTHING]))
            async with asyncio.timeout(30):
                while not await database.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            loading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await loading
    assert (await store.load([EVERYTHING])).rows == ()
    await store.close()


async def test_a_slot_waits_for_transactions_that_are_under_way_and_says_so(dsn: str, database: Connection) -> None:
    await (await installed(dsn, "slot")).close()
    store = PostgresStore(dsn, MAPPINGS, timeout_s=0.5, backoff=Backoff(first_s=0.02, most_s=0.1))
    events = store.changes()
    transaction = database.transaction()
    await transaction.start()
    await database.execute("INSERT INTO posts (poster, at) VALUES ('early', 1)")
    first = asyncio.ensure_future(anext(events))
    await until(lambda: "pg_stat_activity" in store.status.error)
    await transaction.commit()
    async with asyncio.timeout(30):
        await first
    assert list(await content(store)) == [b"p|early|0001"]
    await store.close()
    async with asyncio.timeout(30):
        async for _ in events:
            pass


async def test_a_load_has_a_commit_that_was_told_before_reads_see_it(dsn: str, database: Connection) -> None:
    writer = await asyncpg.connect(dsn)
    store = await installed(dsn, "slot")
    async with following(store) as follower:
        async with no_standby(database):
            await commits_wait(dsn, writer)
            writing = asyncio.ensure_future(writer.execute("INSERT INTO posts (poster, at) VALUES ('bob', 1)"))
            await follower.until(lambda: any(isinstance(event, Changes) for event in follower.events))
            assert await content(store) == {}
            await follower.load(EVERYTHING)
            assert list(follower.rows) == [b"p|bob|0001"]
            assert not writing.done()
        await writing
        # The feed says once a second what reads see.
        await until(lambda: follower.landing._unseen == [])
        await follower.load(EVERYTHING)
        assert list(follower.rows) == [b"p|bob|0001"]
    await writer.close()


async def test_a_condition_that_fails_is_told(dsn: str, database: Connection, mode: Mode) -> None:
    mappings = parse_mappings("""
        [[mapping]]
        keys = "p|<poster>|<time:4>"
        table = "posts"
        slots.time = { column = "at", type = "integer" }
        where = "10 / at > 0"
    """)
    store = await installed(dsn, mode, mappings)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute("INSERT INTO posts (poster, at) VALUES ('bob', 0)")
        if mode == "notify":
            await until(lambda: store.status.state == "down" and "division by zero" in store.status.error)
        else:
            # The feed has the key read again, and goes on.
            await follower.until(lambda: bool(follower.reloads))
            assert "division by zero" in follower.reloads[0]
            assert "division by zero" in store.status.error
            assert store.status.failure_count == 0
        with pytest.raises(SchemaError, match="division by zero"):
            await store.load([EVERYTHING])


async def test_a_commit_under_a_number_below_that_of_the_feed_s_own_is_made_sure_of(
    dsn: str, database: Connection
) -> None:
    """Its notes may come long after it is in the log; only a notification of the feed's own shows that they came."""
    store = await installed(dsn, "notify")
    taken = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    async with _listening(store._session) as listener:
        async with database.transaction():
            await database.execute("INSERT INTO posts (poster, at, body, hidden) VALUES ('bob', 1, 'Hi', false)")
            await listener.progress()
        before = await database.fetchval(taken)
        await listener.progress()
        assert await database.fetchval(taken) == before + 1
        # A database in which nothing happens is left alone.
        await listener.progress()
        assert await database.fetchval(taken) == before + 1
    await store.close()
