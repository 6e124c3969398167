"""Levels and sessions of a store in the process: the calls of a server's clients, and never a wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import pequod
from pequod.embedded import Embedded
from pequod.errors import ComputedKeyError, StaleError, TokenLostError
from pequod.freshness import NO_TOKEN, Token


@pytest.fixture
def client() -> Iterator[Embedded]:
    with pequod.open() as client:
        yield client


def ahead(token: Token) -> Token:
    ((mark, position),) = token.positions.items()
    return Token({mark: position + 1})


def test_every_level_is_met_at_once(client: Embedded) -> None:
    client.put("a", "1")
    for level in (pequod.ANY, pequod.LATEST, pequod.max_age(0), pequod.after(client.last_token)):
        assert client.get("a", freshness=level) == b"1"
        assert client.scan("a", freshness=level) == [(b"a", b"1")]
        assert client.count("a", freshness=level) == 1
        assert client.multi_get(["a", "b"], freshness=level) == [b"1", None]
        assert client.keys("a", freshness=level) == list(client.keys_iter("a", freshness=level)) == [b"a"]
        assert list(client.scan_iter("a", freshness=level)) == client.scan_page("a", freshness=level).rows
        assert [rows.keys for rows in client.scan_chunks("a", freshness=level)] == [[b"a"]]
        assert next(client.watch("a", rows=True, freshness=level)).rows is not None
    assert client.last_age_s == 0


def test_a_state_that_never_was_is_stale_and_one_of_another_store_lost(client: Embedded) -> None:
    client.put("a", "1")
    with pytest.raises(StaleError):
        client.get("a", freshness=pequod.after(ahead(client.last_token)))
    with pequod.open() as other:
        other.put("a", "1")
        foreign = pequod.after(other.last_token)
    for call in (client.get, client.scan, client.count, client.keys):
        with pytest.raises(TokenLostError):
            call("a", freshness=foreign)
    with pytest.raises(TokenLostError):
        next(client.watch("a", freshness=foreign))


def test_a_level_takes_snapshots_anew_that_are_too_old(client: Embedded) -> None:
    client.add_join("k|<a> = snapshot 1000 count v|<a>|<b>")
    session = client.session()
    session.put("v|1|1", "")
    assert client.get("k|1") == b"1"
    session.put("v|1|2", "")
    assert client.get("k|1") == client.get("k|1", freshness=pequod.ANY) == b"1", "the snapshot"
    assert client.get("k|1", freshness=pequod.max_age(1000)) == b"1"
    assert session.get("k|1") == b"2"
    client.put("v|1|3", "")
    assert client.get("k|1") == b"2"
    assert client.get("k|1", freshness=pequod.LATEST) == b"3"
    client.put("v|1|4", "")
    assert client.get("k|1", freshness=pequod.max_age(0)) == b"4"
    taken = client.statistics().joins["k"].computed_ranges
    for level in (pequod.LATEST, pequod.after(client.last_token)):
        assert client.get("k|1", freshness=level) == b"4"
    assert client.statistics().joins["k"].computed_ranges <= taken + 1, "a snapshot of the present state is kept"


def test_a_session_has_the_token_of_all_that_it_saw(client: Embedded) -> None:
    session = client.session()
    assert session.token == NO_TOKEN
    session.put("a", "1")
    written = session.token
    assert written == client.last_token
    client.put("b", "1")
    assert session.token == written, "it has not seen this"
    assert session.get("b") == b"1"
    assert session.token == client.last_token != written
    again = client.session(str(session.token))
    assert (again.token, again.scan("a")) == (session.token, [(b"a", b"1"), (b"b", b"1")])


def test_a_session_sees_what_refused_calls_show(client: Embedded) -> None:
    client.add_join("k|<a> = count v|<a>|<b>")
    session = client.session()
    with pytest.raises(ComputedKeyError):
        session.put("k|1", "")
    assert session.token == client.last_token
    client.put("v|1|1", "")
    batch = session.batch()
    batch.put("k|1", "")
    results = batch.send()
    assert isinstance(results[0], ComputedKeyError)
    assert results.token == session.token == client.last_token


def test_batches_have_levels_and_tokens(client: Embedded) -> None:
    client.put("a", "1")
    never = pequod.after(ahead(client.last_token))
    batch = client.batch(freshness=pequod.LATEST)
    batch.get("a")
    batch.get("a", freshness=never)
    batch.count("a", freshness=pequod.ANY)
    first, refused, third = results = batch.send()
    assert (first, third) == (b"1", 1)
    assert isinstance(refused, StaleError)
    assert (results.token, results.age_s) == (client.last_token, 0.0)


def test_a_session_notes_what_its_watches_show(client: Embedded) -> None:
    session = client.session()
    events = session.watch("a", "b")
    assert next(events).token == session.token == client.last_token
    client.put("a", "1")
    event = next(events)
    assert event.token == session.token == client.last_token
    assert event.age_s == 0
    events.close()


def test_a_session_stays_usable_when_it_is_closed_and_so_does_its_client(client: Embedded) -> None:
    with client.session() as session:
        session.put("a", "1")
    assert client.get("a") == session.get("a") == b"1"


async def test_a_session_of_an_asynchronous_store() -> None:
    async with pequod.open_async() as client:
        async with client.session() as session:
            await asyncio.gather(*(session.put(f"k|{number}", "") for number in range(10)))
            assert session.token == client.last_token
            results = await session.batch().send()
            assert (results, results.token) == ([], session.token)
        assert await client.session(session.token).count(prefix="k|") == 10


def test_many_threads_share_a_session(client: Embedded) -> None:
    session = client.session()

    def work(name: int) -> None:
        for number in range(100):
            session.put(f"{name}", f"{number}")
            assert session.get(f"{name}") == f"{number}".encode()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert session.token == client.last_token
