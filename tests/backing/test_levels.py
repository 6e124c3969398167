"""Levels of freshness where a database is behind the server, asked for by a plain gRPC client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server.database.loader import Loader

from pequod.commands.kinds import GET, PUT, SCAN
from pequod.errors import PequodError
from pequod.freshness import Latest, Mark, Token, database_of
from tests.backing.test_loader import FOLLOWING, Setting, serving, until
from tests.server.plain import outcomes_of, pieces_of

BOB = b"p|bob|0100"
SOON = 50


def after(token: bytes, wait_ms: int = 10_000) -> pb.Freshness:
    return pb.Freshness(after=token, wait_ms=wait_ms)


def latest(wait_ms: int = 10_000) -> pb.Freshness:
    return pb.Freshness(latest=True, wait_ms=wait_ms)


def max_age(age_ms: int, wait_ms: int = 10_000) -> pb.Freshness:
    return pb.Freshness(max_age_ms=age_ms, wait_ms=wait_ms)


class Plain:
    """A server behind a plain client."""

    def __init__(self, setting: Setting, stub: Any) -> None:
        self.setting = setting
        self.store = setting.store
        self.stub = stub

    def token(self, position: int, timeline: int | None = None) -> bytes:
        """Return the token of a position."""
        history = self.store.history
        return bytes(Token({Mark(history.database, timeline or history.timeline): position}))

    async def get(self, key: bytes, freshness: pb.Freshness | None = None) -> bytes | None:
        reply = await self.reply(key, freshness)
        return reply.value if reply.HasField("value") else None

    async def reply(self, key: bytes, freshness: pb.Freshness | None = None) -> pb.GetReply:
        reply: pb.GetReply = await self.stub.Get(pb.GetRequest(key=key, freshness=freshness))
        return reply


@asynccontextmanager
async def plain(rows: dict[bytes, bytes] | None = None, **settings: object) -> AsyncIterator[Plain]:
    async with (
        serving(FOLLOWING if rows is None else rows, **settings) as setting,
        aio.insecure_channel(setting.target) as channel,
    ):
        yield Plain(setting, PequodStub(channel))  # type: ignore[no-untyped-call]


async def refusal(call: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Return the code, the reason and the facts that a call is refused with."""
    with pytest.raises(aio.AioRpcError) as refused:
        await call
    status = rpc_status.from_call(refused.value)
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    return refused.value.code(), info.reason, dict(info.metadata)


# Tokens.


async def test_a_reply_names_the_state_that_answered() -> None:
    async with plain() as served:
        reply = await served.reply(BOB)
        assert reply.header.token == served.token(1)
        assert reply.header.HasField("age_ms")
        assert reply.header.age_ms < 10_000
        served.store.commit({BOB: b"again"})
        assert (await served.reply(BOB, after(served.token(2)))).header.token == served.token(2)


async def test_a_write_names_a_state_with_the_write() -> None:
    async with plain(backing_mode="write-through") as served:
        put = await served.stub.Put(pb.PutRequest(key=BOB, value=b"new"))
        assert put.header.token == served.token(2)
        removed = await served.stub.Remove(pb.RemoveRequest(key=BOB))
        assert removed.header.token == served.token(3)


async def test_every_reply_has_token_and_age() -> None:
    async with plain() as served:
        stub, token = served.stub, served.token(1)
        headers = [
            (await stub.Get(pb.GetRequest(key=BOB))).header,
            (await stub.MultiGet(pb.MultiGetRequest(keys=[BOB]))).header,
            (await stub.Count(pb.CountRequest(first=b"p|", last=b"p}"))).header,
            (await stub.Splits(pb.SplitsRequest(count=2))).header,
            (await stub.ListJoins(pb.ListJoinsRequest())).header,
            (await stub.Stats(pb.StatsRequest())).header,
            *[reply.header async for reply in stub.Scan(pb.ScanRequest(first=b"p|", last=b"p}"))],
        ]
        call = stub.Execute()
        (piece,) = await pieces_of(call, pb.ExecuteRequest(batch=1, kinds=bytes([GET]), arguments=[BOB]))
        await call.done_writing()
        watch = stub.Watch(pb.WatchRequest(first=b"p|", last=b"p}"))
        headers.append((await watch.read()).header)
        watch.cancel()
        for header in [*headers, piece]:
            assert header.token == token
            assert header.HasField("age_ms")


# After a token.


async def test_a_read_after_a_token_waits_for_the_feed() -> None:
    async with plain() as served:
        assert await served.get(BOB) == b"Hi"
        async with served.store.held("changes"):
            served.store.commit({BOB: b"new"})
            assert await served.get(BOB) == b"Hi"
            reading = asyncio.create_task(served.get(BOB, after(served.token(2))))
            await asyncio.sleep(0.05)
            assert not reading.done()
            # What is reached waits for nothing.
            assert await served.get(BOB, after(served.token(1))) == b"Hi"
        assert await reading == b"new"


async def test_what_does_not_come_in_time_is_refused_with_its_age() -> None:
    async with plain() as served:
        await served.get(BOB)
        async with served.store.held("changes"):
            served.store.commit({BOB: b"new"})
            for level in (after(served.token(2), SOON), latest(SOON), max_age(0, SOON)):
                code, reason, facts = await refusal(served.get(BOB, level))
                assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "StaleError")
                assert float(facts["wait_s"]) == SOON / 1000
                assert 0 <= float(facts["age_s"]) < 60
            _, _, facts = await refusal(served.get(BOB, after(served.token(2), 0)))
            assert facts["reason"] == "the feed of the database is ok, at 1, and 2 is asked for"
            # The others go on.
            assert await served.get(BOB) == b"Hi"


async def test_a_range_of_no_backed_source_waits_for_nothing() -> None:
    async with plain() as served:
        await served.setting.client.put("x|1", "mine")
        async with served.store.held("changes"):
            for level in (after(served.token(99), 0), latest(0), max_age(0, 0)):
                assert await served.get(b"x|1", level) == b"mine"


@pytest.mark.parametrize("token", [b"", b"\x02abcd\x01\x01", b"\x01abcd\x01", b"x" * 5000])
async def test_what_is_no_token_is_refused(token: bytes) -> None:
    async with plain() as served:
        code, reason, _ = await refusal(served.get(BOB, after(token)))
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "InvalidTokenError")
        kinds, call = bytes([GET, PUT, GET]), served.stub.Execute()
        request = pb.ExecuteRequest(batch=1, kinds=kinds, arguments=[BOB, b"x|1", b"1", b"x|1"], freshness=after(token))
        request.fresh_commands.append(2)
        request.fresh_levels.append(pb.Freshness())
        assert outcomes_of(kinds, await pieces_of(call, request)) == ["InvalidTokenError", None, b"1"]
        await call.done_writing()


@pytest.mark.parametrize(
    ("mark", "words"),
    [(Mark(b"else", 1), "another database"), (Mark(database_of("server", 7), 0), "without a database")],
)
async def test_a_foreign_token_is_refused(mark: Mark, words: str) -> None:
    async with plain() as served:
        code, reason, facts = await refusal(served.get(BOB, after(bytes(Token({mark: 1})))))
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TokenLostError")
        assert words in facts["reason"]


# The latest, and ages.


async def test_the_latest_is_what_the_database_has() -> None:
    async with plain() as served:
        await served.get(BOB)
        for number in range(20):
            served.store.commit({BOB: b"%d" % number})
            assert await served.get(BOB, latest()) == b"%d" % number


async def test_readers_of_one_moment_share_a_question() -> None:
    async with plain() as served:
        levels, databases = served.setting.server.service.levels, served.setting.server.databases.all

        def readers() -> list[asyncio.Task[dict[Loader, PequodError]]]:
            demands = [levels.demand(Latest(10.0)) for _ in range(20)]
            return [asyncio.create_task(levels.reach(demand, databases)) for demand in demands if demand is not None]

        async with served.store.held("latest"):
            first = readers()
            await until(lambda: served.store.questions == 1)
            # The question was asked before this commit, and before these readers came.
            served.store.commit({BOB: b"new"})
            later = readers()
            await asyncio.sleep(0.02)
            assert served.store.questions == 1
        await asyncio.gather(*first, *later)
        assert served.store.questions == 2
        assert await served.get(BOB) == b"new"


async def test_a_database_that_does_not_answer_refuses_the_latest_alone() -> None:
    async with plain() as served:
        await served.get(BOB)
        served.store.fail("latest", times=1000)
        _, reason, facts = await refusal(served.get(BOB, latest(SOON)))
        assert reason == "StaleError"
        assert "the server's log has more" in facts["reason"]
        assert await served.get(BOB) == b"Hi"


async def test_a_database_that_does_not_answer_is_asked_again_until_the_time_is_over() -> None:
    async with plain() as served:
        await served.get(BOB)
        served.store.fail("latest", times=3)
        assert await served.get(BOB, latest(30_000)) == b"Hi"


async def test_a_reader_that_goes_away_takes_no_question_with_it() -> None:
    async with plain() as served:
        await served.get(BOB)
        async with served.store.held("latest"):
            gone = served.stub.Get(pb.GetRequest(key=BOB, freshness=latest()))
            staying = asyncio.create_task(served.get(BOB, latest()))
            await until(lambda: served.store.questions == 1)
            gone.cancel()
            await asyncio.sleep(0.02)
        assert await staying == b"Hi"


async def test_a_state_that_is_fresh_enough_is_asked_nothing() -> None:
    async with plain() as served:
        await served.get(BOB)
        async with served.store.held("position"):
            # The feed was complete a moment ago.
            assert await served.get(BOB, max_age(60_000)) == b"Hi"
            code, reason, _ = await refusal(served.get(BOB, max_age(0, SOON)))
            assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "StaleError")
        served.store.commit({BOB: b"new"})
        assert await served.get(BOB, max_age(0)) == b"new"
        assert (await served.reply(BOB)).header.age_ms < 1000


async def test_a_level_takes_the_place_of_the_operators_bound() -> None:
    async with plain(backing_stale_max_s=3.0) as served:
        await served.get(BOB)
        loader = served.setting.server.loader
        assert loader is not None
        async with served.store.held("changes"):
            served.store.commit({BOB: b"new"})
            await until(lambda: loader.is_stale)
            assert (await refusal(served.get(BOB)))[1] == "BackingStaleError"
            assert (await refusal(served.get(BOB, pb.Freshness(wait_ms=SOON))))[1] == "BackingStaleError"
            assert await served.get(BOB, after(served.token(1))) == b"Hi"
            assert await served.get(BOB, max_age(600_000)) == b"Hi"


# Batches.


async def test_the_levels_of_a_batch_are_met_before_its_first_command() -> None:
    kinds = bytes([PUT, GET, GET, SCAN])
    arguments = [b"x|1", b"mine", BOB, b"x|1", b"t|ann|", b"t|ann}"]
    async with plain() as served:
        await served.get(BOB)
        call = served.stub.Execute()
        async with served.store.held("changes"):
            served.store.commit({BOB: b"new"})
            request = pb.ExecuteRequest(batch=1, kinds=kinds, arguments=arguments, freshness=after(served.token(2)))
            sent = asyncio.create_task(pieces_of(call, request))
            await asyncio.sleep(0.05)
            assert await served.get(b"x|1") is None
        pieces = await sent
        rows = [(b"t|ann|0100|bob", b"new"), (b"t|ann|0110|liz", b"Ho")]
        assert outcomes_of(kinds, pieces) == [None, b"new", b"mine", rows]
        assert pieces[-1].token == served.token(2)
        await call.done_writing()


async def test_reads_of_a_batch_whose_level_cannot_be_had_fail_and_the_others_run() -> None:
    kinds = bytes([GET, PUT, GET, GET, GET])
    async with plain() as served:
        await served.get(BOB)
        call = served.stub.Execute()
        async with served.store.held("changes"):
            served.store.commit({BOB: b"new"})
            request = pb.ExecuteRequest(
                batch=1,
                kinds=kinds,
                arguments=[BOB, b"x|1", b"mine", BOB, BOB, b"x|1"],
                freshness=after(served.token(2), SOON),
                fresh_commands=[2, 3],
                fresh_levels=[after(served.token(1)), pb.Freshness()],
            )
            found = outcomes_of(kinds, await pieces_of(call, request))
        assert found == ["StaleError", None, b"Hi", b"Hi", b"mine"]
        await call.done_writing()


@pytest.mark.parametrize(
    ("names", "levels"), [([0], []), ([], [latest()]), ([1, 0], [latest()] * 2), ([2], [latest()]), ([1], [latest()])]
)
async def test_columns_of_levels_that_do_not_fit_end_the_stream(names: list[int], levels: list[pb.Freshness]) -> None:
    async with plain() as served:
        call = served.stub.Execute()
        request = pb.ExecuteRequest(kinds=bytes([GET, PUT]), arguments=[BOB, b"x|1", b""])
        request.fresh_commands.extend(names)
        request.fresh_levels.extend(levels)
        await call.write(request)
        with pytest.raises(aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert await served.get(b"x|1") is None


# Snapshots.


async def test_a_snapshot_is_taken_anew_for_a_level_that_asks_for_more() -> None:
    join = "n|<poster> = snapshot 1000 count p|<poster>|<time:4>"
    async with plain() as served:
        await served.setting.client.add_join(join)
        await served.setting.client.add_join("m|<poster> = pull copy n|<poster>")
        for key in (b"n|bob", b"m|bob"):
            assert await served.get(key) == b"1"
        served.store.commit({b"p|bob|0200": b"more"})
        await served.setting.caught_up()
        assert await served.get(b"n|bob") == b"1"
        # The snapshot is of the state that this token names.
        assert await served.get(b"n|bob", after(served.token(1))) in (b"1", b"2")
        assert await served.get(b"m|bob", after(served.token(2))) == b"2"
        assert await served.get(b"n|bob", after(served.token(2))) == b"2"
        served.store.commit({b"p|bob|0300": b"more"})
        assert await served.get(b"n|bob", latest()) == b"3"
        served.store.commit({b"p|bob|0400": b"more"})
        assert await served.get(b"n|bob") == b"3"
        assert await served.get(b"n|bob", max_age(60_000)) in (b"3", b"4")
        assert await served.get(b"n|bob", max_age(0)) == b"4"
        kinds, call = bytes([GET]), served.stub.Execute()
        served.store.commit({b"p|bob|0500": b"more"})
        request = pb.ExecuteRequest(kinds=kinds, arguments=[b"m|bob"], freshness=latest())
        assert outcomes_of(kinds, await pieces_of(call, request)) == [b"5"]
        await call.done_writing()


# Watches.


async def test_each_event_of_a_watch_names_the_state_that_it_leads_to() -> None:
    async with plain() as served:
        watch = served.stub.Watch(pb.WatchRequest(first=b"p|bob|", last=b"p|bob}", freshness=latest()))
        assert (await watch.read()).header.token == served.token(1)
        for number in range(2, 5):
            served.store.commit({BOB: b"%d" % number})
            await served.setting.caught_up()
        for number in range(2, 5):
            event = await watch.read()
            assert (event.changes[0].new, event.header.token) == (b"%d" % number, served.token(number))
        watch.cancel()
