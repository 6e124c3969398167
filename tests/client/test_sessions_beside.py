"""Sessions and levels at servers beside one database: SQLite and PostgreSQL, fast feeds and slow ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest
from pequod_server.backing.postgres.schema import Mode

import pequod
from pequod import AsyncClient, Client
from pequod.errors import ClosedError, StaleError, TokenLostError
from pequod.freshness import NO_TOKEN
from pequod.interface import AsyncCalls
from tests.backing.conftest import dsn, postgres
from tests.client.beside import ahead, beside_one_database, beside_postgres, make_database, served

__all__ = ["dsn", "postgres"]

#: Without a wait, each look at the database comes too late.
NEVER_S = 3600.0


async def test_reads_that_wait_delay_no_others(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")):
        async with served(tmp_path / "db", NEVER_S) as target, AsyncClient(target) as client:
            await client.put("vote|ann|bob", "1")
            never = pequod.after(ahead(client.last_token), wait_s=9.0)
            waiting = [asyncio.create_task(client.get("vote|ann|bob", freshness=never)) for _ in range(3)]
            await asyncio.sleep(0.05)
            assert await client.get("vote|ann|bob") == b"1"
            assert await client.session(client.last_token).get("karma|ann") == b"1"
            await client.put("vote|ann|liz", "1")
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            with pytest.raises(StaleError) as stale:
                await client.get("vote|ann|bob", freshness=pequod.after(ahead(client.last_token), wait_s=0.1))
            assert stale.value.wait_s == 0.1
            assert stale.value.age_s is not None


async def test_many_reads_that_wait_in_vain_wait_together(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")):
        async with served(tmp_path / "db", NEVER_S) as target, AsyncClient(target) as client:
            await client.put("vote|ann|bob", "1")
            token = client.last_token
            began_s = time.monotonic()
            waiting = []
            for number in range(40):
                never = ahead(token) if number % 2 else ahead(ahead(token))
                session = client.session(never if number % 4 else token, wait_s=2)
                waiting.append(asyncio.create_task(session.get("karma|ann")))
                await asyncio.sleep(0.01)  # turns of their own
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert time.monotonic() - began_s < 30, "one by one they would wait for 60 s"
            for number, outcome in enumerate(outcomes):
                assert isinstance(outcome, StaleError) if number % 4 else outcome == b"1", number


async def test_held_reads_end_with_their_client(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")):
        async with served(tmp_path / "db", NEVER_S) as target:
            client = AsyncClient(target)
            await client.put("vote|ann|bob", "1")
            waiting = []
            for number in range(10):
                never = pequod.after(ahead(client.last_token), wait_s=5 + number)
                waiting.append(asyncio.create_task(client.get("karma|ann", freshness=never)))
            await asyncio.sleep(0.1)
            await client.close()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {ClosedError}


async def test_what_is_stale_fails_in_time_and_says_how_old_it_is(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")):
        async with served(tmp_path / "db", 0.01) as target, AsyncClient(target) as client:
            await client.put("vote|ann|bob", "1")
            for wait_s in (0.0, 0.3):
                never = pequod.after(ahead(client.last_token), wait_s=wait_s)
                began_s = time.monotonic()
                with pytest.raises(StaleError):
                    await client.scan("karma|", freshness=never)
                assert wait_s <= time.monotonic() - began_s
            batch = client.batch(freshness=pequod.after(ahead(client.last_token), wait_s=0.1))
            batch.put("vote|ann|liz", "1")
            batch.get("vote|ann|liz")
            written, stale = await batch.send()
            assert written is None
            assert isinstance(stale, StaleError)


TRIES = 100


async def misses(writer: AsyncCalls, reader: Callable[[], AsyncCalls]) -> int:
    """Write at one server and read at another; return how often the write is missed."""
    missed = 0
    for number in range(TRIES):
        await writer.put(f"vote|ann|{number}", "1")
        calls = reader()
        found, count = await calls.get(f"vote|ann|{number}"), await calls.get("karma|ann")
        missed += (found, count) != (b"1", b"%d" % (number + 1))
    return missed


async def test_sessions_over_two_servers_never_miss_their_writes(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")):
        async with (
            beside_one_database(tmp_path / "db", (NEVER_S, 0.3)) as (first, second),
            AsyncClient(first) as one,
            AsyncClient(second) as other,
        ):
            await other.count(prefix="vote|ann|")  # loaded, so that changes have to come by the feed
            session = one.session()
            assert await misses(session, lambda: other.session(session.token)) == 0


@pytest.mark.parametrize("mode", ["slot", "notify"])
async def test_sessions_over_two_servers_beside_postgresql_never_miss_their_writes(dsn: str, mode: Mode) -> None:
    async with beside_postgres(dsn, mode) as (first, second), AsyncClient(first) as one, AsyncClient(second) as other:
        await other.count(prefix="vote|ann|")
        session = one.session()
        assert await misses(session, lambda: other.session(session.token)) == 0
        around = await asyncpg.connect(dsn)
        for number in range(50):
            await around.execute("INSERT INTO vote VALUES ('liz', $1, '1')", str(number))
            level = pequod.after(await pequod.token_of(around))
            for client in (one, other):
                assert await client.get("karma|liz", freshness=level) == b"%d" % (number + 1)
                assert await client.get("karma|liz", freshness=pequod.LATEST) == b"%d" % (number + 1)
        await around.close()


async def test_without_sessions_two_servers_do_miss_writes(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")):
        async with (
            beside_one_database(tmp_path / "db", (NEVER_S, 0.3)) as (first, second),
            AsyncClient(first) as one,
            AsyncClient(second) as other,
        ):
            await other.count(prefix="vote|ann|")
            assert await misses(one, lambda: other) > 0


async def test_reads_of_a_session_never_go_back_between_servers(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")):
        async with (
            beside_one_database(tmp_path / "db", (0.01, NEVER_S)) as (first, second),
            AsyncClient(first) as one,
            AsyncClient(second) as other,
        ):
            await other.count(prefix="vote|ann|")
            token = NO_TOKEN
            for number in range(50):
                await one.put(f"vote|ann|{number}", "1")
                for client in (one, other):
                    session = client.session(token)
                    assert await session.count(prefix="vote|ann|") == number + 1
                    token = session.token


async def test_a_session_survives_restarts_of_servers_beside_a_database(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")):
        async with served(tmp_path / "db", NEVER_S) as target, AsyncClient(target) as client:
            session = client.session()
            await session.put("vote|ann|bob", "1")
            token = session.token
        async with served(tmp_path / "db", NEVER_S) as target, AsyncClient(target) as client:
            assert await client.session(token).get("karma|ann") == b"1"


async def test_a_program_that_writes_around_hands_its_token_to_readers(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")) as around:
        async with served(tmp_path / "db", NEVER_S) as target, AsyncClient(target) as client:
            assert await client.count(prefix="vote|ann|") == 0
            for number in range(20):
                around.execute("INSERT INTO vote VALUES ('ann', ?, '1')", (str(number),))
                around.commit()
                level = pequod.after(pequod.token_of(around))
                assert await client.get("karma|ann", freshness=level) == b"%d" % (number + 1)


async def test_another_database_is_another_history(tmp_path: Path) -> None:
    for name in ("one", "other"):
        make_database(tmp_path / name).close()
    async with served(tmp_path / "one", NEVER_S) as target, AsyncClient(target) as client:
        await client.put("vote|ann|bob", "1")
        token = client.last_token
    async with served(tmp_path / "other", NEVER_S) as target, AsyncClient(target) as client:
        with pytest.raises(TokenLostError):
            await client.get("vote|ann|bob", freshness=pequod.after(token))


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[list[str]]:
    """Two servers, for clients in other threads than this loop's."""
    with closing(make_database(tmp_path / "db")):
        async with beside_one_database(tmp_path / "db", (NEVER_S, NEVER_S)) as targets:
            yield targets


async def test_threads_share_a_session(pair: list[str]) -> None:
    def work() -> None:
        with Client(pair[0]) as one, Client(pair[1]) as other, ThreadPoolExecutor(4) as pool:
            writing, reading = one.session(), other.session()

            def vote(name: int) -> None:
                for number in range(20):
                    writing.put(f"vote|{name}|{number}", "1")
                    # Only this thread's writes are sure to have ended.
                    assert int(other.session(writing.token).get(f"karma|{name}") or 0) == number + 1
                    batch = reading.batch(pequod.after(writing.token))
                    batch.count(prefix=f"vote|{name}|")
                    assert batch.send() == [number + 1]

            list(pool.map(vote, range(4)))
            assert reading.count(prefix="vote|") == 80

    await asyncio.to_thread(work)


async def test_calls_of_one_session_at_the_same_time_see_what_ended_before_them(pair: list[str]) -> None:
    async with AsyncClient(pair[0]) as client:
        session = client.session()

        async def chain(name: int) -> None:
            for number in range(20):
                await session.put(f"vote|{name}|{number}", "1")
                assert await session.get(f"karma|{name}") == b"%d" % (number + 1)

        await asyncio.gather(*(chain(name) for name in range(10)))
        assert await session.count(prefix="vote|") == 200
