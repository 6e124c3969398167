"""Levels and sessions against real servers: alone, and several beside one database."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pequod_server.backing.pg_schema import Mode

import pequod
from pequod import AsyncClient, Client
from pequod.errors import ComputedKeyError, InvalidTokenError, PequodError, StaleError, TokenLostError
from pequod.freshness import NO_TOKEN, Freshness, Mark, Token, database_of
from pequod.interface import AsyncCalls, Calls
from tests.backing.conftest import dsn, postgres
from tests.client.beside import KARMA, beside_one_database, beside_postgres, make_database, served
from tests.client.conftest import ServerProcess

__all__ = ["dsn", "postgres"]

#: Of a server that never was.
FOREIGN = Token({Mark(database_of("server", 7), 0): 1})
#: Without a wait, each look at the database comes too late.
NEVER_S = 3600.0


def ahead(token: Token) -> Token:
    """Return a token of a state that has not come."""
    ((mark, position),) = token.positions.items()
    return Token({mark: position + 1000})


def _first(client: Calls, freshness: Freshness | None) -> object:
    with closing(client.watch("a", "b", rows=True, freshness=freshness)) as events:
        return next(events).rows


def _batched(client: Any, freshness: Freshness | None) -> object:
    batch = client.batch(freshness)
    batch.count("a", "b")
    (result,) = batch.send()
    if isinstance(result, PequodError):
        raise result
    return result


READS: dict[str, Callable[[Calls, Freshness | None], object]] = {
    "get": lambda client, freshness: client.get("a", freshness=freshness),
    "multi_get": lambda client, freshness: client.multi_get(["a"], freshness=freshness),
    "scan": lambda client, freshness: client.scan("a", "b", freshness=freshness),
    "scan_iter": lambda client, freshness: list(client.scan_iter("a", "b", freshness=freshness)),
    "scan_chunks": lambda client, freshness: list(client.scan_chunks("a", "b", freshness=freshness)),
    "scan_page": lambda client, freshness: client.scan_page("a", "b", freshness=freshness),
    "keys": lambda client, freshness: client.keys("a", "b", freshness=freshness),
    "keys_iter": lambda client, freshness: list(client.keys_iter("a", "b", freshness=freshness)),
    "count": lambda client, freshness: client.count("a", "b", freshness=freshness),
    "watch": _first,
    "batch": _batched,
}


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.target) as client:
        client.put("a", "1")
        yield client


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_read_takes_every_level(client: Client, read: Callable[[Calls, Freshness | None], object]) -> None:
    plain = read(client, None)
    token = client.last_token
    assert token.positions
    for level in (pequod.ANY, pequod.LATEST, pequod.max_age(0.5), pequod.after(token)):
        assert read(client, level) == plain
        assert read(client.session(token), level) == plain
    assert read(client.session(token), None) == plain
    assert client.last_age_s == 0, "the server itself is the authority"


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_read_refuses_what_cannot_be_had(
    client: Client, read: Callable[[Calls, Freshness | None], object]
) -> None:
    with pytest.raises(TokenLostError):
        read(client, pequod.after(FOREIGN))
    with pytest.raises(TokenLostError):
        read(client.session(FOREIGN), None)
    began_s = time.monotonic()
    with pytest.raises((StaleError, TokenLostError)):
        read(client, pequod.after(ahead(client.last_token), wait_s=0.1))
    assert time.monotonic() - began_s < 2
    assert read(client, None), "and the client goes on"


def test_a_forged_token_is_refused_before_anything_is_sent(client: Client) -> None:
    for forged in ("pq1.AAAA", "x", b"\x01\x02", b""):
        with pytest.raises(InvalidTokenError):
            pequod.after(forged)
        with pytest.raises(InvalidTokenError):
            client.session(forged)


def test_a_batch_has_one_level_and_single_reads_their_own(client: Client) -> None:
    batch = client.batch(freshness=pequod.after(FOREIGN))
    batch.put("a", "2")
    batch.get("a")
    batch.get("a", freshness=pequod.LATEST)
    batch.get("a", freshness=pequod.ANY)
    written, lost, latest, there = results = batch.send()
    assert (written, latest, there) == (None, b"2", b"2")
    assert isinstance(lost, TokenLostError)
    assert results.token == client.last_token
    assert results.age_s == 0


def test_a_session_goes_on_in_another_client(server: ServerProcess) -> None:
    with Client(server.target) as one, Client(server.target) as other:
        session = one.session()
        assert session.token == NO_TOKEN
        session.put("a", "1")
        handed = str(session.token)
        again = other.session(handed)
        assert str(again.token) == handed
        assert again.get("a") == b"1"
        assert other.session(bytes(session.token)).token == other.session(session.token).token == session.token


def test_a_session_sees_what_refused_calls_show(client: Client) -> None:
    client.add_join(KARMA)
    session = client.session()
    with pytest.raises(ComputedKeyError):
        session.put("karma|ann", "")
    assert session.token == client.last_token != NO_TOKEN
    client.put("b", "1")
    batch = session.batch()
    batch.put("karma|ann", "")
    (refused,) = batch.send()
    assert isinstance(refused, ComputedKeyError)
    assert session.token == client.last_token


def test_a_session_sees_what_its_watches_show(client: Client) -> None:
    session = client.session()
    with closing(session.watch("a", "b")) as events:
        assert next(events).token == session.token
        client.put("a", "2")
        event = next(events)
        assert event.changes
        assert session.token == event.token == client.last_token


def test_after_a_restart_without_a_database_a_session_is_lost_and_says_so(server: ServerProcess) -> None:
    with Client(server.target) as client:
        session = client.session()
        session.put("a", "1")
        server.kill()
        server.start()
        for read in READS.values():
            with pytest.raises(TokenLostError, match="go on without the token"):
                read(session, None)
        session.put("a", "2")
        assert client.session().get("a") == session.get("a", freshness=pequod.ANY) == b"2"


async def test_levels_do_not_mix_in_one_turn_of_the_loop(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        await client.put("a", "1")
        there = [client.session(client.last_token) for _ in range(10)]
        lost = client.session(FOREIGN)
        before = client.batches_sent
        results = await asyncio.gather(
            client.get("a"),
            *(session.get("a") for session in there),
            lost.get("a"),
            client.get("a", freshness=pequod.ANY),
            client.get("a", freshness=pequod.LATEST),
            return_exceptions=True,
        )
        assert [type(result) for result in results].count(TokenLostError) == 1
        assert isinstance(results[11], TokenLostError)
        assert results.count(b"1") == 13
        assert client.batches_sent - before == 4, "none or any, after one token, after another, latest"


async def test_sessions_whose_tokens_are_reached_share_a_batch(server: ServerProcess) -> None:
    async with AsyncClient(server.target) as client:
        sessions = []
        for number in range(20):
            await client.put("a", str(number))
            sessions.append(client.session(client.last_token))
        before = client.batches_sent
        results = await asyncio.gather(
            *(session.get("a") for session in sessions),
            sessions[0].get(7),  # type: ignore[arg-type]
            sessions[0].session(FOREIGN).get("a"),
            return_exceptions=True,
        )
        assert results[:20] == [b"19"] * 20
        assert [type(result) for result in results[20:]] == [TypeError, TokenLostError]
        assert client.batches_sent - before == 2
        assert {session.token for session in sessions} == {client.last_token}


async def test_reads_that_wait_delay_no_others(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")):
        async with served(tmp_path / "db", NEVER_S) as target, AsyncClient(target) as client:
            await client.put("vote|ann|bob", "1")
            never = pequod.after(ahead(client.last_token), wait_s=1.5)
            waiting = [asyncio.create_task(client.get("vote|ann|bob", freshness=never)) for _ in range(3)]
            await asyncio.sleep(0.05)
            began_s = time.monotonic()
            assert await client.get("vote|ann|bob") == b"1"
            assert await client.session(client.last_token).get("karma|ann") == b"1"
            await client.put("vote|ann|liz", "1")
            assert time.monotonic() - began_s < 1
            assert not any(task.done() for task in waiting)
            for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(outcome, StaleError)
                assert outcome.wait_s == 1.5
                assert outcome.age_s is not None


async def test_what_is_stale_fails_in_time_and_says_how_old_it_is(tmp_path: Path) -> None:
    with closing(make_database(tmp_path / "db")):
        async with served(tmp_path / "db", 0.01) as target, AsyncClient(target) as client:
            await client.put("vote|ann|bob", "1")
            for wait_s in (0.0, 0.3):
                never = pequod.after(ahead(client.last_token), wait_s=wait_s)
                began_s = time.monotonic()
                with pytest.raises(StaleError):
                    await client.scan("karma|", freshness=never)
                assert wait_s <= time.monotonic() - began_s < wait_s + 1
            batch = client.batch(freshness=pequod.after(ahead(client.last_token), wait_s=0.1))
            batch.put("vote|ann|liz", "1")
            batch.get("vote|ann|liz")
            written, stale = await batch.send()
            assert written is None
            assert isinstance(stale, StaleError)


TRIES = 200


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


def test_a_session_in_use_while_its_client_is_closed_says_so(server: ServerProcess) -> None:
    client = Client(server.target)
    session = client.session()
    closed = threading.Event()

    def work() -> BaseException | None:
        try:
            while True:
                session.put("a", "1")
                session.get("a")
        except PequodError as error:
            return error
        finally:
            closed.wait(5)

    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(work)
        time.sleep(0.1)
        client.close()
        closed.set()
        assert "closed" in str(outcome.result())
