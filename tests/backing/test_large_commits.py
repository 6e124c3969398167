"""Commits that are larger than what the feed likes to hold, against a real server with room for them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest
from pequod_server.backing import Backoff, Changes, Mapping, SchemaError, parse_mappings
from pequod_server.backing.postgres import lookout
from pequod_server.backing.postgres.judge import PIECE_BYTES_MAX, Judge
from pequod_server.backing.postgres.store import PostgresStore

from tests.backing.chaos.proxy import Proxy
from tests.backing.conftest import Connection, Postgres, clear, started
from tests.backing.feed import following, prefix, until
from tests.backing.postgres_stores import EVERYTHING, MAPPINGS, commits_wait, content, no_standby
from tests.backing.turns import turns

#: The bytes of a row of which a piece holds some 200.
LONG = 10_500


class RoomyPostgres(Postgres):
    """Keeps the log of the largest commits here."""

    SETTINGS = (
        *(setting for setting in Postgres.SETTINGS if "wal" not in setting),
        "wal_level=logical",
        "max_wal_size=4GB",
        "autovacuum=off",
    )


@pytest.fixture(scope="module")
def roomy() -> Iterator[RoomyPostgres]:
    with started(RoomyPostgres) as cluster:
        yield cluster


@pytest.fixture
async def dsn(roomy: RoomyPostgres) -> AsyncIterator[str]:
    dsn = roomy.dsn("postgres")
    await clear(dsn)
    yield dsn
    await clear(dsn)


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(dsn)
    await connection.execute("""
        CREATE TABLE posts (
            poster text, at bigint, body text, hidden boolean DEFAULT false, extra text, PRIMARY KEY (poster, at)
        );
        CREATE TABLE subscriptions (
            "user" text, poster text, since timestamptz, score numeric, ok boolean, PRIMARY KEY ("user", poster)
        );
        CREATE TABLE unmapped (n int);
    """)
    yield connection
    await connection.close()


async def make(
    dsn: str,
    *,
    mappings: tuple[Mapping, ...] = MAPPINGS,
    timeout_s: float = 10.0,
    held_bytes_max: int = 64 << 20,
) -> PostgresStore:
    backoff = Backoff(first_s=0.02, most_s=0.2)
    store = PostgresStore(dsn, mappings, timeout_s=timeout_s, held_bytes_max=held_bytes_max, backoff=backoff)
    await store.install()
    return store


async def busy(database: Connection, rows: int) -> None:
    """Commit so many rows that no mapping reads: the sender decodes them, and has nothing to say of them."""
    await database.execute(f"COPY unmapped FROM PROGRAM 'seq {rows}'", timeout=60)


async def test_the_feed_is_not_fresh_while_it_misses_a_commit(dsn: str, database: Connection) -> None:
    store = await make(dsn)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await follower.caught_up()
        for n in range(3):
            await busy(database, 500_000)
            await database.execute("INSERT INTO posts VALUES ('bob', $1, 'hi')", n)
            committed_s = time.monotonic()
            key = f"p|bob|{n:04}".encode()
            # Nothing runs between the status and the row.
            while (store.status.fresh_s or 0.0) < committed_s:  # noqa: ASYNC110 - a status has no event to wait for
                await asyncio.sleep(0.001)
            assert key in follower.rows
        assert store.status.failure_count == 0


async def test_an_idle_feed_stays_fresh(dsn: str, database: Connection) -> None:
    store = await make(dsn)
    async with following(store) as follower:
        await follower.caught_up()
        await until(lambda: store.status.fresh_s is not None)
        ages = []
        for n in range(300):
            if n == 150:
                # Of tables that are not mapped, the feed hears nothing.
                await busy(database, 10)
            ages.append(time.monotonic() - (store.status.fresh_s or 0.0))
            await asyncio.sleep(0.01)
        assert max(ages) < 10.0
        assert store.status.lag is not None


async def test_a_sender_that_neither_works_nor_answers_is_given_up(dsn: str, database: Connection) -> None:
    store = await make(dsn, timeout_s=1.0)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await until(lambda: store.status.state == "ok")
        sender = await database.fetchval("SELECT active_pid FROM pg_replication_slots")
        os.kill(sender, signal.SIGSTOP)
        try:
            await until(lambda: "no sign of life" in store.status.error)
        finally:
            os.kill(sender, signal.SIGCONT)
        await database.execute("INSERT INTO posts VALUES ('bob', 1, 'hi')")
        await follower.until(lambda: b"p|bob|0001" in follower.rows)
        assert follower.reloads == []


async def test_a_sender_that_works_may_be_silent(
    dsn: str, database: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    took_s = []
    for _ in range(3):
        began_s = time.monotonic()
        await busy(database, 250_000)
        took_s.append(time.monotonic() - began_s)
    # On this machine, as busy as it is: to decode the rows below takes three times as long. What says that the sender
    # works is asked for ten times meanwhile, as a server does in the ten seconds that it has.
    timeout_s = 2 * max(took_s)
    monkeypatch.setattr(lookout, "ASK_S", timeout_s / 10)
    store = await make(dsn, timeout_s=timeout_s)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await busy(database, 1_000_000)
        await database.execute("INSERT INTO posts VALUES ('bob', 1, 'hi')")
        await follower.until(lambda: b"p|bob|0001" in follower.rows)
        assert "no sign of life" not in store.status.error
        assert follower.rows == await content(store)


async def test_a_commit_is_judged_in_pieces(dsn: str, database: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of a commit as one JSON could be more than PostgreSQL takes."""
    pieces_bytes: list[int] = []
    judge = Judge.judge

    async def noted(self: Judge) -> list[tuple[bytes, bytes | None]]:
        pieces_bytes.append(self._bytes)
        return await judge(self)

    monkeypatch.setattr(Judge, "judge", noted)
    store = await make(dsn)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute(
            "INSERT INTO posts SELECT 'u' || n % 7, n, n, n % 3 = 0, repeat('x', $1) FROM generate_series(1, 1000) n",
            LONG,
        )
        await follower.caught_up()
        assert follower.rows == await content(store)
        assert len(follower.rows) > 600
        assert sum(pieces_bytes) > 1000 * LONG
        assert max(pieces_bytes) < PIECE_BYTES_MAX + 2 * LONG
        assert store.status.failure_count == 0
        assert follower.reloads == []


async def test_a_row_that_cannot_be_judged_is_read_again_and_the_feed_goes_on(dsn: str, database: Connection) -> None:
    mappings = parse_mappings("""
        [[mapping]]
        keys = "p|<poster>|<time:4>"
        table = "posts"
        slots.time = { column = "at", type = "integer" }
        where = "10 / at > 0"
    """)
    store = await make(dsn, mappings=mappings)
    async with following(store) as follower:
        await follower.load(*prefix("p|bob|"))
        await database.execute("INSERT INTO posts (poster, at) SELECT 'bad', n FROM generate_series(0, 2500) n")
        await database.execute("INSERT INTO posts (poster, at) VALUES ('bob', 0), ('bob', 1), ('bob', 20)")
        await follower.until(lambda: bool(follower.reloads))
        assert "the condition of p|<poster>|<time:4> fails: division by zero" in follower.reloads[0]
        with pytest.raises(SchemaError, match="division by zero"):
            await store.load(prefix("p|bob|"))
        await database.execute("DELETE FROM posts WHERE at = 0")
        await follower.caught_up()
        assert sorted(follower.rows) == [b"p|bob|0001"]
        assert store.status.failure_count == 0


async def test_a_commit_at_which_the_feed_breaks_again_and_again_is_read_instead(
    dsn: str, database: Connection, roomy: RoomyPostgres
) -> None:
    class Fuse(Proxy):
        """Breaks a connection over which a megabyte has come."""

        blown = 0

        async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            passed = 0
            with suppress(OSError):
                while passed < 1 << 20 and (data := await reader.read(65536)):
                    passed += len(data)
                    writer.write(data)
                    await writer.drain()
            self.blown += passed >= 1 << 20

    await (await make(dsn)).close()
    with tempfile.TemporaryDirectory(prefix="pequod-fuse-") as short:
        fuse = Fuse(Path(short), roomy.directory)
        await fuse.start()
        store = await make(f"postgresql://postgres@/postgres?host={short}")
        async with following(store) as follower:
            await follower.load(*prefix("p|bob|"))
            await database.execute("INSERT INTO posts SELECT 'u', n, repeat('x', 1000) FROM generate_series(0, 9000) n")
            await database.execute("INSERT INTO posts VALUES ('bob', 1, 'hi')")
            await follower.until(lambda: b"p|bob|0001" in follower.rows)
            # Between them, the slot may be in use for a moment, which is a failure as well.
            assert fuse.blown == 3
            assert store.status.failure_count >= 3
            (reason,) = follower.reloads
            assert "3 times at one commit" in reason
            await database.execute("INSERT INTO posts VALUES ('bob', 2, 'hi')")
            await follower.until(lambda: b"p|bob|0002" in follower.rows)
        await fuse.stop()


async def test_a_commit_that_is_too_large_to_hold_is_read_again(dsn: str, database: Connection) -> None:
    store = await make(dsn, held_bytes_max=1 << 20)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        async with database.transaction():
            await database.execute("INSERT INTO subscriptions VALUES ('ann', 'bob')")
            await database.execute(
                "INSERT INTO posts SELECT 'u' || n / 9999, n % 9999, repeat('x', 100) FROM generate_series(0, 20000) n"
            )
            await database.execute("INSERT INTO subscriptions VALUES ('ann', 'liz')")
        await database.execute("INSERT INTO posts VALUES ('bob', 1, 'hi')")
        await follower.caught_up()
        assert follower.rows == await content(store)
        assert len(follower.rows) == 20004
        (reason,) = follower.reloads
        assert "more than 1048576 bytes" in reason
        # No other mapping is read again for that.
        told = [change.key for event in follower.events if isinstance(event, Changes) for change in event.changes]
        assert sorted(told) == [b"p|bob|0001", b"s|ann|bob", b"s|ann|liz"]
        assert store.status.failure_count == 0


async def test_others_have_their_turn_while_a_commit_comes(dsn: str, database: Connection) -> None:
    store = await make(dsn)
    async with following(store) as follower:
        await follower.load(*prefix("p|bob|"))
        await database.execute(
            "INSERT INTO posts SELECT 'u' || n / 9999, n % 9999, repeat('x', 100) FROM generate_series(0, 100000) n"
        )
        await database.execute("INSERT INTO posts VALUES ('bob', 1, 'hi')")
        async with turns() as longest:
            await follower.until(lambda: b"p|bob|0001" in follower.rows)
        # Ten times what a turn may take.
        assert longest.s < 0.2
        assert sum(len(event.changes) for event in follower.events if isinstance(event, Changes)) < 1000


async def test_a_load_that_begins_after_rows_came_has_them_if_reads_do_not_see_the_commit(
    dsn: str, database: Connection
) -> None:
    """A commit that waits for a standby is told, and not seen, so nobody may take its rows for unneeded."""
    writer = await asyncpg.connect(dsn)
    store = await make(dsn)
    async with following(store) as follower:
        await until(lambda: store.status.state == "ok")
        async with no_standby(database):
            await commits_wait(dsn, writer)
            writing = asyncio.ensure_future(
                writer.execute("INSERT INTO posts (poster, at) SELECT 'bob', n FROM generate_series(0, 2999) n")
            )
            # All rows have come, and nobody has their keys.
            await follower.until(lambda: any(isinstance(event, Changes) for event in follower.events))
            assert await content(store) == {}
            await follower.load(*prefix("p|bob|"))
            assert len(follower.rows) == 3000
        await writing
        await follower.caught_up()
        assert follower.rows == await content(store)
    await writer.close()


async def test_ranges_that_come_and_go_while_large_commits_come(dsn: str, database: Connection) -> None:
    store = await make(dsn)
    draw = random.Random(5)
    await database.execute("INSERT INTO posts (poster, at) SELECT 'u' || n % 9, n FROM generate_series(0, 4999) n")

    async def commit() -> None:
        for n in range(25):
            where = draw.choice(["true", "at % 2 = 0", "poster < 'u5'"])
            await database.execute(f"UPDATE posts SET body = '{n}', hidden = at % 7 = {n % 7} WHERE {where}")

    async def come_and_go() -> None:
        while not committing.done():
            ranges = prefix(*{f"p|u{draw.randrange(9)}|" for _ in range(3)})
            follower.forget(*follower.ranges)
            await follower.load(*ranges)
            await asyncio.sleep(draw.uniform(0, 0.02))

    async with following(store) as follower:
        committing = asyncio.ensure_future(commit())
        await come_and_go()
        await committing
        await follower.caught_up()
        held = {key: value for key, value in (await content(store)).items() if follower.is_wanted(key)}
        assert follower.rows == held
        assert follower.reloads == []


async def test_a_large_value_that_stays_while_its_key_changes_is_read_again(dsn: str, database: Connection) -> None:
    """The old row has the columns of the key alone, and nothing of the value."""
    store = await make(dsn)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute(
            "INSERT INTO posts SELECT 'bob', 1, string_agg(md5(n::text), '') FROM generate_series(1, 2000) n"
        )
        await database.execute("UPDATE posts SET at = 2")
        await follower.caught_up()
        assert follower.rows == await content(store)
        assert len(follower.rows[b"p|bob|0002"]) == 64000


async def test_a_condition_on_json_is_judged_as_the_database_has_it(dsn: str, database: Connection) -> None:
    await database.execute("CREATE TABLE notes (id text PRIMARY KEY, facts jsonb, tags text[], more json)")
    mappings = parse_mappings("""
        [[mapping]]
        keys = "n|<id>"
        table = "notes"
        value = "facts"
        where = "facts->>'shown' = 'yes' AND 'a' = ANY (tags) AND (more IS NULL OR more->>'b' = 'c')"
    """)
    store = await make(dsn, mappings=mappings)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        await database.execute("""
            INSERT INTO notes VALUES ('1', '{"shown": "yes"}', '{a,b}', NULL), ('2', '{"shown": "no"}', '{a}', NULL),
                ('3', '"x"', '{a}', NULL), ('4', '{"shown": "yes"}', '{b}', NULL), ('5', NULL, '{a}', NULL),
                ('6', '{"shown": "yes", "é\\"": [1]}', '{"a","b c"}', '{"b": "c"}')
        """)
        await follower.caught_up()
        assert sorted(follower.rows) == [b"n|1", b"n|6"]
        assert follower.rows == await content(store)


async def test_changes_of_partitions_are_told_of_their_table(dsn: str, database: Connection) -> None:
    await database.execute("""
        CREATE TABLE events (name text, n bigint, body text, PRIMARY KEY (name, n)) PARTITION BY RANGE (n);
        CREATE TABLE early PARTITION OF events FOR VALUES FROM (0) TO (1000);
        CREATE TABLE late PARTITION OF events FOR VALUES FROM (1000) TO (9999);
    """)
    mappings = parse_mappings("""
        [[mapping]]
        keys = "e|<name>|<n:4>"
        table = "events"
        slots.n = { type = "integer" }
        value = "body"
    """)
    store = await make(dsn, mappings=mappings)
    async with following(store) as follower:
        await follower.load(EVERYTHING)
        for statement in (
            "INSERT INTO events VALUES ('x', 1, 'one'), ('x', 1001, 'two'), ('x', 2, 'three')",
            "UPDATE events SET n = n + 2000 WHERE n = 1",
            "DELETE FROM events WHERE n = 1001 AND body = 'two' OR n = 2",
            "INSERT INTO late VALUES ('y', 1002, 'four')",
        ):
            await database.execute(statement)
            await follower.caught_up()
            assert follower.rows == await content(store)
        await database.execute("TRUNCATE events")
        await follower.caught_up()
        assert follower.rows == {}
