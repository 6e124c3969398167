"""Levels of freshness while the database fails over, the feed breaks, clients go away and servers stop."""

from __future__ import annotations

import asyncio

import aiohttp
import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb

from pequod.commands.kinds import GET, PUT
from pequod.freshness import Mark, Token
from tests.backing.test_levels import BOB, SOON, after, latest, max_age, plain, refusal
from tests.backing.test_loader import until
from tests.server.plain import outcomes_of, pieces_of

# Failovers.


async def test_a_token_from_before_a_failover_holds_up_to_where_the_timeline_was_left() -> None:
    async with plain() as served:
        await served.get(BOB)
        for number in range(5):
            served.store.commit({BOB: b"%d" % number})
        await served.setting.caught_up()
        kept, lost = served.token(4), served.token(5)
        served.store.fail_over(lost=2)
        assert await served.get(BOB, latest()) == b"2"
        assert await served.get(BOB, after(kept)) == b"2"
        code, reason, facts = await refusal(served.get(BOB, after(lost)))
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TokenLostError")
        assert "failed over" in facts["reason"]
        header = (await served.reply(BOB)).header
        assert Token.parse(header.token).positions == {served.store.history.mark: 4}


async def test_who_waits_for_what_a_failover_loses_is_told() -> None:
    async with plain() as served:
        await served.get(BOB)
        async with served.store.held("changes"):
            served.store.commit({BOB: b"lost"})
            reading = asyncio.create_task(refusal(served.get(BOB, after(served.token(2)))))
            await asyncio.sleep(0.05)
            served.store.fail_over(lost=1)
        assert (await reading)[1] == "TokenLostError"


async def test_a_token_of_a_timeline_that_is_not_known_yet_is_waited_for() -> None:
    async with plain() as served:
        await served.get(BOB)
        async with served.store.held("changes"):
            assert (await refusal(served.get(BOB, after(served.token(1, timeline=2), SOON))))[1] == "StaleError"
            reading = asyncio.create_task(served.get(BOB, after(served.token(2, timeline=2))))
            await asyncio.sleep(0.05)
            served.store.fail_over()
            served.store.commit({BOB: b"new"})
        assert await reading == b"new"


@pytest.mark.parametrize("kind", [PUT, GET], ids=["put", "get"])
@pytest.mark.parametrize("lost", [0, 1])
async def test_a_batch_names_what_a_failover_loses_while_it_waits(kind: int, lost: int) -> None:
    async with plain(backing_mode="write-through") as served:
        await served.get(BOB)
        if kind == GET:
            served.store.commit({BOB: b"seen"})
            await served.setting.caught_up()
        arguments = [BOB, b"seen"] if kind == PUT else [BOB]
        kinds = bytes([kind, GET])
        async with served.store.held("load"):
            batch = pb.ExecuteRequest(kinds=kinds, arguments=[*arguments, b"p|liz|0100"])
            call = served.stub.Execute()
            reading = asyncio.create_task(pieces_of(call, batch))
            await until(lambda: len(served.store.loads) == 2)
            served.store.fail_over(lost=lost)
            loader = served.setting.server.loader
            assert loader is not None
            await until(lambda: loader.followed.history == served.store.history)
        pieces = await reading
        assert outcomes_of(kinds, pieces) == [b"seen" if kind == GET else None, None]
        token = pieces[-1].token
        marks = [mark.timeline for mark in Token.parse(token).positions]
        if lost:
            assert marks == [1, 2]
            assert (await refusal(served.get(BOB, after(token))))[1] == "TokenLostError"
        else:
            assert marks == [2]
            assert await served.get(BOB, after(token)) == b"seen"
        call.cancel()


# Faults while a read waits.


async def test_a_feed_that_breaks_while_a_read_waits_comes_back_for_it() -> None:
    async with plain() as served:
        await served.get(BOB)
        async with served.store.held("changes"):
            served.store.commit({BOB: b"new"})
            reading = asyncio.create_task(served.get(BOB, after(served.token(2))))
            await asyncio.sleep(0.02)
            served.store.fail("changes", times=3)
            served.store.break_feed("cut", is_lost=False)
        assert await reading == b"new"


async def test_a_client_that_goes_away_while_its_read_waits_leaves_nothing() -> None:
    async with plain() as served:
        await served.get(BOB)
        async with served.store.held("changes"):
            served.store.commit({BOB: b"new"})
            call = served.stub.Get(pb.GetRequest(key=BOB, freshness=after(served.token(2), 60_000)))
            batches = served.stub.Execute()
            request = pb.ExecuteRequest(kinds=bytes([GET]), arguments=[BOB], freshness=after(served.token(2), 60_000))
            await batches.write(request)
            loader = served.setting.server.loader
            assert loader is not None
            followed = loader.followed
            await until(lambda: followed._waiters == 2)
            call.cancel()
            batches.cancel()
            await until(lambda: followed._waiters == 0)


async def test_a_server_that_stops_while_reads_wait_ends_them() -> None:
    async with plain(drain_s=0.2) as served:
        await served.get(BOB)
        async with served.store.held("changes"), served.store.held("latest"):
            served.store.commit({BOB: b"new"})
            levels = (after(served.token(2), 60_000), latest(60_000))
            readings = [asyncio.create_task(served.get(BOB, level)) for level in levels]
            await until(lambda: served.store.questions == 1)
            async with asyncio.timeout(10):
                await served.setting.server.stop()
                found = await asyncio.gather(*readings, return_exceptions=True)
        assert all(isinstance(one, aio.AioRpcError) for one in found)


# What operators see.


async def test_a_range_is_explained_with_its_freshness() -> None:
    async with plain() as served:
        await served.get(BOB)
        client = served.setting.client
        found = (await client.explain_range("t|ann|", "t|ann}")).freshness
        assert found.endswith(
            " s old, at position 1 of timeline 1; a level waits for the feed of the database, which is ok"
        )
        own = (await client.explain_range("x|", "x}")).freshness
        assert own == "as fresh as can be, since it depends on no database; a level waits for nothing"


async def test_what_reads_asked_for_is_counted() -> None:
    async with plain(metrics="127.0.0.1:0") as served:
        call = served.stub.Execute()
        await served.get(BOB)
        await served.get(BOB, after(served.token(1)))
        await served.get(BOB, latest())
        await served.get(BOB, max_age(60_000))
        reached = after(served.token(1))
        # Of each two, the first runs at once, and the second waits for rows.
        batches = [(BOB, None), (b"p|liz|0100", None), (BOB, reached), (b"p|joe|0100", reached)]
        for number, (key, level) in enumerate(batches):
            request = pb.ExecuteRequest(batch=number, kinds=bytes([GET]), arguments=[key], freshness=level)
            await pieces_of(call, request)
        await refusal(served.get(BOB, after(served.token(9), SOON)))
        await refusal(served.get(BOB, after(bytes(Token({Mark(b"else", 1): 1})))))
        await call.done_writing()
        url = served.setting.server.instruments.url
        assert url is not None
        async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as reply:
            lines = (await reply.text()).splitlines()
        found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("pequod_level_"))
        reads = {level: found[f'pequod_level_reads_total{{level="{level}"}}'] for level in ("any", "latest", "max_age")}
        assert reads == {"any": "3.0", "latest": "1.0", "max_age": "1.0"}
        assert found['pequod_level_reads_total{level="after"}'] == "5.0"
        assert found['pequod_level_refusals_total{reason="StaleError"}'] == "1.0"
        assert found['pequod_level_refusals_total{reason="TokenLostError"}'] == "1.0"
        assert float(found['pequod_level_wait_seconds_bucket{le="+Inf"}']) == 2.0
        # Timers of the loop may end a resolution of its clock early.
        assert float(found["pequod_level_wait_seconds_sum"]) > 0.9 * SOON / 1000
        assert found["pequod_level_questions_total"] == "1.0"


async def test_a_batch_that_waits_for_rows_is_judged_anew_after_a_failover() -> None:
    """Its level was met when it began, and the rows that it gets are of the timeline that lost it."""
    async with plain() as served:
        await served.get(BOB)
        served.store.commit({BOB: b"lost"})
        await served.setting.caught_up()
        call = served.stub.Execute()
        async with served.store.held("load"):
            request = pb.ExecuteRequest(kinds=bytes([GET]), arguments=[b"p|liz|0100"], freshness=after(served.token(2)))
            sent = asyncio.create_task(pieces_of(call, request))
            await until(lambda: len(served.store.loads) == 2)
            served.store.fail_over(lost=1)
            loader = served.setting.server.loader
            assert loader is not None
            await until(lambda: loader.followed.history == served.store.history)
        assert outcomes_of(bytes([GET]), await sent) == ["TokenLostError"]
        await call.done_writing()
