"""Loads and changes brought together, with a store that does them in every order."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_server.backing import (
    BackingUnavailableError,
    FakeStore,
    KeyRange,
    Landing,
    PackError,
    Place,
    Progress,
    Reload,
    RowChange,
    parse_mappings,
)
from pequod_server.backing.store import Changes, Loaded, SequenceHorizon

from tests.backing.feed import following, prefix, until

MAPPINGS = parse_mappings("[[mapping]]\nkeys = 'p|<a>'\ntable = 'p'\nvalue = 'v'")
KEYS = [b"p|a", b"p|b"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(KEYS), st.booleans()),
        st.tuples(st.just("deliver")),
        st.tuples(st.just("snapshot"), st.sampled_from([(b"p|a", b"p|b"), (b"p|", b"p}"), (b"p|b", b"p|c")])),
        st.tuples(st.just("land"), st.integers(0, 3)),
        st.tuples(st.just("abandon"), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_a_cache_never_loses_a_change_nor_goes_back(steps: list[tuple[object, ...]]) -> None:
    landing = Landing()
    database: dict[bytes, bytes] = {}
    log: list[Changes] = []
    delivered = 0
    flights: list[tuple[int, KeyRange, Loaded]] = []
    cached: dict[bytes, bytes | None] = {}
    #: The number of the change that each cached key shows.
    shown: dict[bytes, int] = {}

    def number(key: bytes, position: int) -> int:
        return max((c.position for c in log[:position] if c.changes[0].key == key), default=0)

    def deliver() -> None:
        nonlocal delivered
        changes = log[delivered]
        delivered += 1
        for change in landing.arrive(changes):
            if change.key in cached:
                assert changes.position > shown[change.key], "it went back, or was applied twice"
                cached[change.key] = change.value
                shown[change.key] = changes.position
        landing._check()

    for step in steps:
        match step:
            case ("commit", bytes() as key, is_put):
                value = str(len(log)).encode() if is_put else None
                if value is None:
                    database.pop(key, None)
                else:
                    database[key] = value
                log.append(Changes(len(log) + 1, len(log) + 1, (RowChange(key, value),)))
            case ("deliver",) if delivered < len(log):
                deliver()
            case ("snapshot", (bytes() as first, bytes() as last)):
                one = KeyRange(first, last)
                rows = tuple(sorted((key, value) for key, value in database.items() if one.holds(key)))
                flights.append((landing.start([one]), one, Loaded(rows, SequenceHorizon(len(log), len(log)))))
            case ("land", int() as which) if which < len(flights):
                token, one, loaded = flights.pop(which)
                landed = landing.land(token, loaded)
                assert landed is not None
                for key in KEYS:
                    if one.holds(key):
                        cached[key] = dict(landed).get(key)
                        shown[key] = max(number(key, loaded.horizon.position), number(key, delivered))
                landing._check()
            case ("abandon", int() as which) if which < len(flights):
                token, one, loaded = flights.pop(which)
                landing.abandon(token)
                assert landing.land(token, loaded) is None
    while delivered < len(log):
        deliver()
    assert cached == {key: database.get(key) for key in cached}
    assert not landing._landed


def test_a_change_that_loads_do_not_see_yet_is_in_their_rows() -> None:
    landing = Landing()
    old, new = RowChange(b"p|a", b"1"), RowChange(b"p|a", b"2")
    landing.arrive(Changes(1, 1, (old,), are_seen=False))
    landing.arrive(Changes(2, 2, (new,), are_seen=False))
    everything = [KeyRange(b"", None)]
    before = Loaded(((b"p|a", b"1"),), SequenceHorizon(2, 1))
    first, second = landing.start(everything), landing.start(everything)
    assert landing.land(first, before) == [(b"p|a", b"2")]
    after = Loaded(((b"p|a", b"3"),), SequenceHorizon(3, 3))
    assert landing.land(second, after) == [(b"p|a", b"3")]
    # Now every load sees them, and a reload forgets those of its ranges.
    assert landing.land(landing.start(everything), before) == [(b"p|a", b"1")]
    landing.arrive(Changes(4, 4, (new,), are_seen=False))
    landing.reload(everything)
    assert landing.land(landing.start(everything), before) == [(b"p|a", b"1")]
    landing._check()


async def test_a_change_that_comes_while_its_range_is_loaded_is_in_the_rows() -> None:
    store = FakeStore(MAPPINGS)
    store.commit({b"p|a": b"1", b"p|b": b"1"})
    async with following(store) as follower:
        async with store.held("load"):
            loading = asyncio.ensure_future(follower.load(*prefix("p|")))
            await until(lambda: bool(store.loads))
            store.commit({b"p|a": b"2", b"p|b": None, b"p|c": b"2"})
            await follower.caught_up()
            assert not loading.done()
        await loading
        assert follower.rows == {b"p|a": b"2", b"p|c": b"2"} == store.rows


async def test_a_load_that_is_ahead_of_the_feed_is_not_set_back_by_it() -> None:
    store = FakeStore(MAPPINGS)
    async with following(store) as follower:
        async with store.held("changes"):
            store.commit({b"p|a": b"1"})
            store.commit({b"p|a": b"2"})
            await follower.load(*prefix("p|"))
            assert follower.rows == {b"p|a": b"2"}
            follower.shown = []
        await follower.until(lambda: follower.position == 2)
        assert follower.shown == [{b"p|a": b"2"}] * 2


async def test_a_reload_takes_back_loads_that_are_under_way() -> None:
    store = FakeStore(MAPPINGS)
    async with following(store) as follower:
        async with store.held("load"):
            loading = asyncio.ensure_future(follower.load(*prefix("p|")))
            await until(lambda: bool(store.loads))
            store.commit({b"p|a": b"1"})
            store.break_feed("restarted", is_lost=True)
            await until(lambda: store.status.failure_count == 1)
        await loading
        await follower.until(lambda: bool(follower.reloads))
        assert follower.rows == store.rows
        assert follower.reloads == ["restarted"]


async def test_failures_are_as_told_and_retried() -> None:
    store = FakeStore(MAPPINGS)
    store.fail("load", times=2)
    for _ in range(2):
        with pytest.raises(BackingUnavailableError):
            await store.load(prefix("p|"))
    assert (await store.load(prefix("p|"))).rows == ()
    store.fail("write")
    with pytest.raises(BackingUnavailableError):
        await store.write([RowChange(b"p|a", b"1")])
    assert store.rows == {}
    with pytest.raises(PackError):
        await store.write([RowChange(b"q|a", b"1")])
    store.fail("changes", times=3)
    async with following(store) as follower:
        assert store.status.failure_count == 3
        assert follower.events[0] == Progress(0, history=store.history)
        assert (await store.write([RowChange(b"p|a", b"1")])).place == Place(1, 1)
        await follower.caught_up()
        store.break_feed("cut", is_lost=False)
        await until(lambda: store.status.failure_count == 4)
        store.commit({b"p|b": b"2"})
        await follower.caught_up()
        assert follower.reloads == []
        assert [event for event in follower.events if isinstance(event, Changes)][-1].position == 2
    store._check()


async def test_a_position_that_was_never_reached_costs_a_reload() -> None:
    store = FakeStore(MAPPINGS)
    async with following(store, 7) as follower:
        await follower.until(lambda: any(isinstance(event, Reload) for event in follower.events))


async def test_a_random_script_ends_with_what_the_database_has() -> None:
    rng = random.Random(5)
    store = FakeStore(MAPPINGS)
    async with following(store) as follower:
        for _ in range(200):
            match rng.randrange(5):
                case 0 | 1:
                    store.commit({rng.choice(KEYS): rng.choice([None, b"x", b"y", b"z"])})
                case 2:
                    await follower.load(*prefix("p|"))
                case 3:
                    store.fail(rng.choice(("changes", "load")))
                case 4:
                    store.break_feed("cut", is_lost=rng.random() < 0.5)
            await asyncio.sleep(0)
        await follower.load(*prefix("p|"))
        await follower.caught_up()
        assert follower.rows == store.rows
