"""One server over two home groups: loads, feeds, levels, tokens and writes of each."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import KeyRange
from pequod_server.database.databases import DATABASES_MAX, Databases, HomeGroup

import pequod
from pequod.commands.kinds import GET, SCAN
from pequod.engine import Engine
from pequod.errors import (
    BackingUnavailableError,
    MixedWriteError,
    StaleError,
    TokenLostError,
    UnassignedKeyError,
)
from pequod.freshness import TOKEN_BYTES_MAX, Mark, Token
from tests.backing.test_levels import after, latest, max_age, refusal
from tests.groups.pair import A_RANGES, B_RANGES, groups, pair, store, until

SOON = 50


async def test_each_group_loads_its_own_ranges_and_its_rows_alone_are_seen() -> None:
    async with pair() as served:
        assert await served.timeline() == [b"Hi", b"Ho"]
        assert served.a.loads == [(KeyRange(b"s|ann|", b"s|ann}"),), (KeyRange(b"p|bob|", b"p|bob}"),)]
        assert served.b.loads == [(KeyRange(b"p|zoe|", b"p|zoe}"),)]


async def test_a_range_over_both_is_loaded_in_pieces_at_the_same_time() -> None:
    async with pair() as served, served.a.held("load"), served.b.held("load"):
        scan = asyncio.create_task(served.client.scan("p|", "p}"))
        await until(lambda: bool(served.a.loads and served.b.loads))
        assert served.a.loads == [(KeyRange(b"p|", b"p|m"),)]
        assert served.b.loads == [(KeyRange(b"p|m", b"p}"),)]
        scan.cancel()


async def test_changes_outside_of_a_groups_ranges_are_not_taken() -> None:
    async with pair() as served:
        await served.timeline()
        served.a.commit({b"p|zoe|0110": b"A has no say here", b"p|bob|0120": b"new"})
        served.b.commit({b"p|bob|0100": None, b"p|zoe|0130": b"newer"})
        await served.caught_up()
        assert await served.timeline() == [b"Hi", b"Ho", b"new", b"newer"]


async def test_a_reload_of_one_group_leaves_the_others_ranges() -> None:
    async with pair() as served:
        await served.timeline()
        served.a.break_feed("told to", is_lost=True)
        await until(lambda: served.a.status.reload_count == 1)
        await served.caught_up()
        assert all(one.first >= b"p|m" for one in served.server.engine.loaded())
        assert await served.timeline() == [b"Hi", b"Ho"]
        assert len(served.b.loads) == 1


# One group is down.


async def test_a_group_that_is_down_takes_its_own_cold_ranges_with_it_alone() -> None:
    async with pair() as served:
        assert await served.client.get("p|bob|0100") == b"Hi"
        served.b.fail("load", times=100)
        assert await served.client.get("p|al|0001") is None
        assert await served.client.get("p|bob|0100") == b"Hi"
        with pytest.raises(BackingUnavailableError, match="the database B is not available"):
            await served.client.get("p|zoe|0110")
        with pytest.raises(BackingUnavailableError, match="the database B"):
            await served.timeline()
        served.b._failures.clear()
        assert await served.timeline() == [b"Hi", b"Ho"]


async def test_a_batch_fails_where_it_needs_the_group_that_is_down() -> None:
    async with pair() as served:
        served.b.fail("load", times=100)
        request = pb.ExecuteRequest(kinds=bytes([GET, GET]), arguments=[b"p|bob|0100", b"p|zoe|0110"])
        outcomes = await served.outcomes(request)
        assert outcomes == [b"Hi", "BackingUnavailableError"]


async def test_errors_name_the_group_and_nothing_of_its_database() -> None:
    async with pair() as served:
        served.b.fail("load")
        code, reason, facts = await refusal(served.get(b"p|zoe|0110"))
        assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "BackingUnavailableError")
        assert facts["store"] == "the database B"
        assert "told to fail" not in str(facts)


async def test_a_group_that_does_not_answer_at_the_start_is_followed_once_it_does() -> None:
    stores = {name: store(name) for name in "AB"}
    stores["A"].commit({b"p|bob|0100": b"Hi"})
    stores["B"].commit({b"p|zoe|0110": b"Ho"})
    stores["B"].fail("check", times=2)
    engine = Engine()
    databases = Databases(engine, groups(stores))
    databases.begin()
    try:
        a, b = databases.all
        await until(lambda: a.position is not None)
        bounds = (b"p|bob|", b"p|bob}")
        assert (await databases.read(lambda: engine.scan(*bounds), [bounds])).values == [b"Hi"]
        bounds = (b"p|zoe|", b"p|zoe}")
        with pytest.raises(BackingUnavailableError, match="the database B"):
            await databases.read(lambda: engine.scan(*bounds), [bounds])
        await until(lambda: b.position is not None)
        assert (await databases.read(lambda: engine.scan(*bounds), [bounds])).values == [b"Ho"]
    finally:
        await databases.stop()


async def test_a_start_that_waits_for_all_stops_all_if_one_fails() -> None:
    stores = {name: store(name) for name in "AB"}
    stores["B"].fail("check")
    databases = Databases(Engine(), groups(stores))
    with pytest.raises(BackingUnavailableError):
        await databases.start()
    assert [one.status.state for one in stores.values()] == ["closed", "closed"]


# Tokens and levels.


async def test_a_token_names_the_state_of_each_group() -> None:
    async with pair() as served:
        assert (await served.get(b"p|bob|0100")).header.token == served.token(A=1, B=1)
        served.b.commit({b"p|zoe|0120": b"new"})
        await served.caught_up()
        reply = await served.get(b"x|1")
        assert reply.header.token == served.token(A=1, B=2)
        assert reply.header.HasField("age_ms")


async def test_after_a_token_a_read_waits_for_the_groups_alone_that_its_range_depends_on() -> None:
    async with pair() as served:
        await served.timeline()
        async with served.b.held("changes"):
            served.b.commit({b"p|zoe|0120": b"new"})
            token = served.token(A=1, B=2)
            # A's rows, A's rows through the join of subscriptions, and keys of no group.
            assert (await served.get(b"p|bob|0100", after(token, SOON))).value == b"Hi"
            assert (await served.get(b"x|1", after(token, SOON))).header.token == served.token(A=1, B=1)
            for key in (b"p|zoe|0110", b"karma|bob", b"t|ann|0110|zoe"):
                code, reason, facts = await refusal(served.get(key, after(token, SOON)))
                assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "StaleError")
                assert "the database B" in facts["reason"]
        assert (await served.get(b"p|zoe|0120", after(token))).value == b"new"


async def test_the_latest_asks_the_groups_alone_that_the_range_depends_on() -> None:
    async with pair() as served:
        await served.timeline()
        served.a.commit({b"p|bob|0100": b"newer"})
        assert (await served.get(b"p|bob|0100", latest())).value == b"newer"
        assert (served.a.questions, served.b.questions) == (1, 0)
        served.b.commit({b"p|zoe|0110": b"newest"})
        assert (await served.get(b"t|ann|0110|zoe", latest())).value == b"newest"
        assert (served.a.questions, served.b.questions) == (2, 1)
        served.b.fail("latest", times=100)
        assert (await served.get(b"p|bob|0100", latest(SOON))).value == b"newer"
        with pytest.raises(StaleError, match="not as fresh"):
            await served.client.get("karma|bob", freshness=pequod.LATEST)


async def test_a_maximal_age_counts_the_oldest_of_the_groups_that_a_range_depends_on() -> None:
    async with pair() as served:
        await served.timeline()
        served.b.fail("position", times=1000)
        async with served.b.held("changes"):
            served.b.commit({b"p|zoe|0110": b"not told"})
            await asyncio.sleep(0.02)
            assert (await served.get(b"p|bob|0100", max_age(1, 1000))).value == b"Hi"
            code, reason, _ = await refusal(served.get(b"p|zoe|0110", max_age(1, SOON)))
            assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "StaleError")
            header = (await served.get(b"p|bob|0100")).header
            assert header.age_ms >= 20, "the age of the oldest"


async def test_a_batch_after_a_token_fails_where_a_group_has_not_come_so_far() -> None:
    async with pair() as served:
        await served.timeline()
        async with served.b.held("changes"):
            served.b.commit({b"p|zoe|0120": b"new"})
            request = pb.ExecuteRequest(
                kinds=bytes([GET, SCAN, GET]),
                arguments=[b"p|bob|0100", b"karma|", b"karma}", b"x|1"],
                freshness=after(served.token(A=1, B=2), SOON),
            )
            assert await served.outcomes(request) == [b"Hi", "StaleError", None]


async def test_a_token_of_no_group_is_lost_where_databases_are_read() -> None:
    async with pair() as served:
        strange = bytes(Token({served.a.history.mark: 1, Mark(b"none", 1): 3}))
        code, reason, _ = await refusal(served.get(b"p|bob|0100", after(strange)))
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TokenLostError")
        assert not (await served.get(b"x|1", after(strange))).HasField("value")


async def test_a_failover_of_one_group_loses_tokens_of_this_group_alone() -> None:
    async with pair() as served:
        await served.timeline()
        served.b.commit({b"p|zoe|0120": b"lost"})
        await served.caught_up()
        token = (await served.get(b"p|bob|0100")).header.token
        assert token == served.token(A=1, B=2)
        served.b.fail_over(lost=1)
        await until(lambda: served.server.databases.named("B").followed.history == served.b.history)
        assert (await served.get(b"p|bob|0100", after(token))).value == b"Hi"
        with pytest.raises(TokenLostError, match="the database B has failed over"):
            await served.client.get("p|zoe|0110", freshness=pequod.after(token))


async def test_a_bound_of_staleness_refuses_the_old_groups_ranges_alone() -> None:
    async with pair(backing_stale_max_s=1) as served:
        await served.timeline()
        async with served.b.held("changes"):
            served.b.commit({b"p|zoe|0110": b"not told"})
            await until(lambda: served.server.databases.named("B").is_stale)
            served.a.commit({b"p|bob|0100": b"told"})
            await served.server.databases.named("A").caught_up()
            kinds, keys = bytes([GET, GET, GET]), [b"p|zoe|0110", b"karma|bob", b"p|bob|0100"]
            outcomes = await served.outcomes(pb.ExecuteRequest(kinds=kinds, arguments=keys))
            assert outcomes == ["BackingStaleError", "BackingStaleError", b"told"]


async def test_a_session_over_both_groups_reads_its_own_writes_and_never_goes_back() -> None:
    async with pair(backing_mode="write-through") as served:
        session = served.client.session()
        await session.put("p|bob|0200", "mine")
        await session.put("p|zoe|0200", "mine, too")
        assert session.token == Token.parse(served.token(A=2, B=2))
        rows = await session.scan("t|ann|", "t|ann}")
        assert [value for _, value in rows] == [b"Hi", b"Ho", b"mine", b"mine, too"]


async def test_a_session_keeps_what_it_knows_of_a_group_that_a_server_lags_behind_in() -> None:
    # One server has B at 2, the other at 1; between them a read of A's rows alone.
    async with pair() as ahead, pair() as behind:
        for one in (ahead, behind):
            await one.timeline()
        ahead.b.commit({b"p|zoe|0110": b"seen"})
        await ahead.caught_up()
        session = ahead.client.session()
        assert await session.get("p|zoe|0110") == b"seen"
        other = behind.client.session(token=session.token)
        assert await other.get("p|bob|0100") == b"Hi"
        assert other.token == session.token, "B has not gone back"
        with pytest.raises(StaleError, match="the database B"):
            await other.get("p|zoe|0110", freshness=pequod.after(other.token, wait_s=0.05))


def test_a_token_of_as_many_databases_as_a_server_may_have_fits_into_a_message() -> None:
    # With the largest timelines and positions that PostgreSQL has.
    marks = [Mark(number.to_bytes(4, "big"), (1 << 32) - 1) for number in range(DATABASES_MAX)]
    token = Token(dict.fromkeys(marks, (1 << 64) - 1))
    assert len(bytes(token)) <= TOKEN_BYTES_MAX
    assert Token.parse(bytes(token)) == token


def test_more_databases_than_fit_into_a_token_are_refused() -> None:
    many = [
        HomeGroup(str(number), store(str(number)), (KeyRange(b"p|%04d" % number, b"p|%04d" % (number + 1)),))
        for number in range(DATABASES_MAX + 1)
    ]
    Databases(Engine(), many[:-1])
    with pytest.raises(ValueError, match=f"there may be {DATABASES_MAX} groups"):
        Databases(Engine(), many)


# Writes.


async def test_writes_go_to_the_group_that_owns_their_keys() -> None:
    async with pair(backing_mode="write-through") as served:
        await asyncio.gather(*(served.client.put(f"p|{name}|0300", name) for name in ("al", "mo", "zoe")))
        assert {key for key in served.a.rows if key.endswith(b"0300")} == {b"p|al|0300"}
        assert {key for key in served.b.rows if key.endswith(b"0300")} == {b"p|mo|0300", b"p|zoe|0300"}
        assert await served.client.remove("p|zoe|0300")
        assert not await served.client.remove("p|al|0301")
        assert b"p|zoe|0300" not in served.b.rows


async def test_a_write_over_both_that_is_all_or_nothing_is_refused() -> None:
    async with pair(backing_mode="write-through") as served:
        with pytest.raises(MixedWriteError):
            await served.client.multi_put({"p|bob|0300": "1", "p|zoe|0300": "2"})
        assert b"p|bob|0300" not in served.a.rows
        assert b"p|zoe|0300" not in served.b.rows
        await served.client.multi_put({"p|bob|0300": "1", "p|al|0300": "2"})
        assert await served.client.get("p|al|0300") == b"2"


async def test_a_range_over_both_is_removed_in_transactions_of_each() -> None:
    async with pair(backing_mode="write-through") as served:
        assert await served.client.remove_range("p|", "p}") == 2
        assert await served.client.scan("p|", "p}") == []
        assert b"p|zoe|0100" in served.a.rows, "it is not A's to remove"


async def test_writes_of_a_group_that_is_down_fail_and_the_others_are_carried_out() -> None:
    async with pair(backing_mode="write-through") as served:
        served.b.fail("write", times=100)
        outcomes = await asyncio.gather(
            served.client.put("p|bob|0300", "1"), served.client.put("p|zoe|0300", "2"), return_exceptions=True
        )
        assert outcomes[0] is None
        assert isinstance(outcomes[1], BackingUnavailableError)
        assert "the database B" in str(outcomes[1])
        assert await served.client.get("p|bob|0300") == b"1"


async def test_keys_of_no_group_are_refused_where_their_table_is_of_groups() -> None:
    stores = {name: store(name) for name in "AB"}
    engine = Engine()
    databases = Databases(engine, [HomeGroup("A", stores["A"], A_RANGES), HomeGroup("B", stores["B"], B_RANGES[1:])])
    databases.begin()
    try:
        await until(lambda: all(one.position is not None for one in databases.all))
        with pytest.raises(UnassignedKeyError) as refused:
            await databases.read(lambda: engine.scan(b"p|", b"p}"), [(b"p|", b"p}")])
        assert refused.value.key == b"p|m"
        with pytest.raises(UnassignedKeyError):
            databases.taker_of([b"p|zoe|0100"])
    finally:
        await databases.stop()


# What operators see.


async def test_explain_tells_the_state_of_each_group_that_a_range_depends_on() -> None:
    async with pair() as served:
        told = (await served.client.explain_range("t|ann|", "t|ann}")).freshness
        assert "the database A" in told
        assert "the database B" in told
        told = (await served.client.explain_range("karma|", "karma}")).freshness
        assert "the database A" not in told
        assert "the database B" in told


async def test_statistics_tell_of_each_group() -> None:
    async with pair() as served:
        await served.timeline()
        a, b = (await served.client.statistics()).databases
        assert (a.name, a.flights, a.loaded_ranges) == ("A", 2, 2)
        assert (b.name, b.flights, b.loaded_ranges) == ("B", 1, 1)


async def test_a_read_waits_while_a_commit_of_its_own_group_is_half_applied() -> None:
    async with pair() as served:
        await served.timeline()
        gate = served.server.databases.named("B").gate
        gate.close()
        try:
            assert await served.client.get("p|bob|0100") == b"Hi"
            assert (await served.get(b"p|bob|0100")).value == b"Hi"
            waiting = [
                asyncio.create_task(served.client.get("p|zoe|0110")),
                asyncio.create_task(served.timeline()),
                asyncio.create_task(served.client.get("karma|bob", freshness=pequod.max_age(1000))),
            ]
            started_s = time.monotonic()
            await until(lambda: time.monotonic() - started_s > 0.05)
            assert not any(task.done() for task in waiting)
        finally:
            gate.open()
        assert await asyncio.gather(*waiting) == [b"Ho", [b"Hi", b"Ho"], b"1"]
