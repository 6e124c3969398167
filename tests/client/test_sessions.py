"""Levels and sessions against a real server; those beside a database are in test_sessions_beside.py."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

import pequod
from pequod import AsyncClient, Client
from pequod.errors import ComputedKeyError, InvalidTokenError, PequodError, StaleError, TokenLostError
from pequod.freshness import NO_TOKEN, Freshness, Mark, Token, database_of
from pequod.interface import Calls
from tests.client.beside import KARMA, ahead
from tests.client.conftest import ServerProcess

#: Of a server that never was.
FOREIGN = Token({Mark(database_of("server", 7), 0): 1})


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
    with pytest.raises((StaleError, TokenLostError)):
        read(client, pequod.after(ahead(client.last_token), wait_s=0.1))
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
