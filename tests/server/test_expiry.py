"""Keys that expire on a server: batches and calls of a plain client, watches and joins, time that a test tells."""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer
from pequod_server.backing import turns

from pequod import Put, absent
from pequod.client import AsyncClient, Change, Client, Expired
from pequod.commands.kinds import ABSENT, COUNT, EXPIRE, FAILED, GET, OK, PUT, PUT_IF, PUT_TTL, REMOVE, SCAN, TTL
from pequod.language.conditions import IF_ABSENT, IF_PRESENT, MET, Unmet
from pequod.language.errors import InvalidTtlError
from tests.server.plain import joined, pieces_of

KEEP = NEVER = (1 << 64) - 1
JOINS = """
    t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:2>;
    posts|<poster> = count p|<poster>|<time:2>;
"""


class Clock:
    """The time as a test sets it."""

    def __init__(self, server: PequodServer) -> None:
        self.now_ms = 1_000_000
        server.databases.expiring.clock_ms = lambda: self.now_ms


@pytest.fixture
def clock(server: PequodServer) -> Clock:
    return Clock(server)


async def _execute(stub: Any, kinds: list[int], arguments: list[bytes], numbers: list[int]) -> pb.ExecuteReply:
    stream = stub.Execute()
    request = pb.ExecuteRequest(batch=1, kinds=bytes(kinds), arguments=arguments, numbers=numbers)
    return joined(await pieces_of(stream, request))


async def test_a_batch_sets_asks_and_takes_deadlines_away(stub: Any, clock: Clock) -> None:
    kinds = [PUT_TTL, TTL, PUT_TTL, TTL, EXPIRE, TTL, PUT_TTL, TTL, EXPIRE, TTL, EXPIRE, TTL, PUT_TTL]
    arguments = [b"k", b"1", b"k", b"k", b"2", b"k", b"k", b"k", b"k", b"3", b"k", b"k", b"k", b"no", b"no", b"k", b"4"]
    reply = await _execute(stub, kinds, arguments, [30, KEEP, 40, 0, 50, 60, 1 << 50])
    assert list(reply.counts) == [30, 30, 40, NEVER, 50]
    assert list(reply.statuses) == [OK] * 10 + [ABSENT, ABSENT, FAILED]
    (error,) = reply.errors
    assert error.reason == "InvalidTtlError"
    clock.now_ms += 49
    reply = await _execute(stub, [GET, TTL], [b"k", b"k"], [])
    assert (list(reply.values), list(reply.counts)) == ([b"3"], [1])
    clock.now_ms += 1
    reply = await _execute(stub, [TTL, GET, REMOVE, EXPIRE, COUNT, SCAN], [b"k"] * 4 + [b"", b"", b"", b""], [5])
    assert list(reply.statuses) == [ABSENT] * 4 + [OK, OK]
    assert list(reply.counts) == [0, 0]


async def test_a_put_clears_the_deadline_in_a_batch_of_quick_commands_too(stub: Any, clock: Clock) -> None:
    keys = [b"k|%d" % number for number in range(10)]
    await _execute(stub, [PUT_TTL] * 10, [part for key in keys for part in (key, b"1")], [5] * 10)
    await _execute(stub, [PUT] * 5, [part for key in keys[:5] for part in (key, b"1")], [])
    clock.now_ms += 5
    reply = await _execute(stub, [GET] * 10, keys, [])
    assert list(reply.statuses) == [OK] * 5 + [ABSENT] * 5


async def test_a_condition_sees_no_key_after_its_deadline_and_may_set_one(stub: Any, clock: Clock) -> None:
    absent, present = 1, 2
    numbers = [absent, 10, absent, 20, present, KEEP, present, 0]
    arguments = [b"lock", b"a", b"", b"lock", b"b", b"", b"lock", b"c", b"", b"no", b"", b"", b"lock"]
    reply = await _execute(stub, [PUT_IF] * 4 + [TTL], arguments, numbers)
    assert (list(reply.statuses), list(reply.counts)) == ([OK, 4, OK, ABSENT, OK], [10])
    clock.now_ms += 10
    reply = await _execute(stub, [PUT_IF, TTL], [b"lock", b"b", b"", b"lock"], [absent, 0])
    assert (list(reply.statuses), list(reply.counts)) == ([OK, OK], [NEVER])


async def test_calls_set_ask_and_take_deadlines_away(stub: Any, clock: Clock) -> None:
    await stub.Put(pb.PutRequest(key=b"k", value=b"1", ttl_ms=30))
    assert (await stub.Ttl(pb.TtlRequest(key=b"k"))).remaining_ms == 30
    await stub.Put(pb.PutRequest(key=b"k", value=b"2", keep_ttl=True))
    assert (await stub.Ttl(pb.TtlRequest(key=b"k"))).remaining_ms == 30
    assert (await stub.Expire(pb.ExpireRequest(key=b"k", ttl_ms=20))).was_there
    assert not (await stub.Expire(pb.ExpireRequest(key=b"no", ttl_ms=20))).was_there
    clock.now_ms += 19
    assert (await stub.Get(pb.GetRequest(key=b"k"))).value == b"2"
    clock.now_ms += 1
    assert not (await stub.Get(pb.GetRequest(key=b"k"))).HasField("value")
    assert not (await stub.Ttl(pb.TtlRequest(key=b"k"))).HasField("remaining_ms")
    met = await stub.WriteIf(pb.WriteIfRequest(key=b"k", value=b"3", condition=1, ttl_ms=7))
    assert met.met
    assert (await stub.WriteIf(pb.WriteIfRequest(key=b"k", value=b"4", condition=2, keep_ttl=True))).met
    assert (await stub.Ttl(pb.TtlRequest(key=b"k"))).remaining_ms == 7
    await stub.Put(pb.PutRequest(key=b"k", value=b"5"))
    assert (await stub.Ttl(pb.TtlRequest(key=b"k"))).remaining_ms == NEVER
    too_long = pb.CommandColumns(kinds=bytes([PUT, PUT_TTL]), arguments=[b"k", b"6", b"k", b"7"], numbers=[1 << 50])
    for call in (
        stub.Put(pb.PutRequest(key=b"k", ttl_ms=1 << 50)),
        stub.Put(pb.PutRequest(key=b"k", ttl_ms=1, keep_ttl=True)),
        stub.MultiPut(pb.MultiPutRequest(keys=[b"k"], values=[b"6"], ttl_ms=1 << 50)),
        stub.Transaction(pb.TransactionRequest(then=too_long)),
    ):
        with pytest.raises(aio.AioRpcError) as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await stub.Get(pb.GetRequest(key=b"k"))).value == b"5"


async def test_every_read_of_a_key_after_its_deadline_finds_nothing(stub: Any, server: PequodServer) -> None:
    """Nothing was removed ahead: each call removes what it would show."""
    server.databases.expiring.clock_ms = lambda: 1_000
    await server.databases.expiring.stop()
    reads = (
        lambda: stub.Get(pb.GetRequest(key=b"k|01")),
        lambda: stub.MultiGet(pb.MultiGetRequest(keys=[b"k|01"])),
        lambda: stub.Count(pb.CountRequest(first=b"k|01", last=b"k|02")),
        lambda: stub.Scan(pb.ScanRequest(first=b"k|01", last=b"k|02")).read(),
        lambda: _execute(stub, [SCAN, GET, COUNT], [b"k|01", b"k|02", b"k|01", b"k|01", b"k|02"], []),
    )
    for read in reads:
        server.databases.expiring.clock_ms = lambda: 1_000
        keys = [b"k|%02d" % number for number in range(60)]
        await _execute(stub, [PUT_TTL] * 60, [part for key in keys for part in (key, b"what-was-kept")], [9] * 60)
        server.databases.expiring.clock_ms = lambda: 1_009
        # More are due than are removed before a command; the earliest may be others than the one that is read.
        reply = await read()
        assert b"k|01" not in reply.SerializeToString()
        assert b"what-was-kept" not in reply.SerializeToString()


async def test_joins_follow_and_watches_are_told(stub: Any, server: PequodServer, clock: Clock) -> None:
    server.engine.add_joins(parse(JOINS))
    await stub.Put(pb.PutRequest(key=b"s|ann|bob", value=b"1"))
    await stub.Put(pb.PutRequest(key=b"p|bob|01", value=b"Hi", ttl_ms=50))
    await stub.Put(pb.PutRequest(key=b"p|bob|02", value=b"Ho"))
    watch = stub.Watch(pb.WatchRequest(first=b"t|ann|", last=b"t|ann}", rows=True))
    first = await watch.read()
    assert list(first.keys) == [b"t|ann|01|bob", b"t|ann|02|bob"]
    assert (await stub.Get(pb.GetRequest(key=b"posts|bob"))).value == b"2"
    clock.now_ms += 50
    # No command comes: the server removes the key by itself.
    told = await watch.read()
    while not told.changes:
        told = await watch.read()
    assert [(change.key, change.HasField("new")) for change in told.changes] == [(b"t|ann|01|bob", False)]
    assert told.changes[0].reason == pb.Change.WRITTEN, "a computed key has no deadline"
    watch.cancel()
    reply = await _execute(stub, [GET, SCAN], [b"posts|bob", b"t|ann|", b"t|ann}"], [])
    assert list(reply.values) == [b"1", b"Ho"]


@pytest.mark.parametrize("prefix", [b"p|", b"loose"])
async def test_a_watch_tells_what_expired_from_what_was_removed(
    server: PequodServer, clock: Clock, prefix: bytes
) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:  # type: ignore[attr-defined]
        await client.multi_put({prefix + b"1": "1", prefix + b"2": "2"}, ttl_s=0.05)
        await client.put(prefix + b"3", "3")
        async with aclosing(client.watch(prefix, rows=True)) as events:
            await anext(events)
            await client.remove(prefix + b"1")
            clock.now_ms += 50
            await client.remove(prefix + b"3")
            changes: list[Change] = []
            while len(changes) < 3:
                changes += (await anext(events)).changes
    told = [(change.key[-1:], change.new, change.reason) for change in changes]
    assert told == [(b"1", None, ""), (b"2", None, "expired"), (b"3", None, "")]
    assert [isinstance(change, Expired) for change in changes] == [False, True, False]


async def test_a_clock_that_steps_back_shows_nothing_again(stub: Any, clock: Clock) -> None:
    await stub.Put(pb.PutRequest(key=b"k|1", value=b"1", ttl_ms=50))
    await stub.Put(pb.PutRequest(key=b"k|2", value=b"1", ttl_ms=500))
    clock.now_ms += 60
    assert not (await stub.Get(pb.GetRequest(key=b"k|1"))).HasField("value")
    clock.now_ms -= 60
    assert (await stub.Count(pb.CountRequest(first=b"k|"))).count == 1
    assert (await stub.Ttl(pb.TtlRequest(key=b"k|2"))).remaining_ms == 500


async def test_many_due_keys_go_in_slices_while_a_long_scan_waits(
    stub: Any, server: PequodServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.databases.expiring.stop()
    server.engine.expire_due(clock.now_ms, 0)
    for number in range(6_000):
        server.engine.put_for(b"k|%05d" % number, b"", 10)
    await stub.Put(pb.PutRequest(key=b"k|9", value=b"stays"))
    clock.now_ms += 10
    slices, begun = list[int](), asyncio.Event()
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    expire_due = server.engine.expire_due

    def noted(now_ms: int, keys_max: int) -> int:
        slices.append(keys_max)
        begun.set()
        return expire_due(now_ms, keys_max)

    monkeypatch.setattr(server.engine, "expire_due", noted)
    counting = asyncio.ensure_future(_count(stub))
    await begun.wait()
    assert (await stub.Get(pb.GetRequest(key=b"k|9"))).value == b"stays", "a call between the slices"
    assert await counting == 1
    assert max(slices) < 100
    assert server.engine.expired_count == 6_000


async def _count(stub: Any) -> int:
    count: int = (await stub.Count(pb.CountRequest(first=b"k|"))).count
    return count


async def test_clients_set_ask_and_take_deadlines_away(server: PequodServer, clock: Clock) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}") as client:  # type: ignore[attr-defined]
        await client.put("k", "1", ttl_s=0.03)
        assert await client.ttl("k") == 0.03
        await client.put("k", "2", keep_ttl=True)
        assert await client.put("k", "3", condition=IF_PRESENT, keep_ttl=True) == MET
        assert await client.ttl("k") == 0.03
        assert await client.persist("k")
        assert await client.ttl("k") == math.inf
        assert await client.expire("k", 2)
        batch = client.batch()
        batch.put("l", "1", ttl_s=5)
        batch.ttl("l")
        batch.expire("l", 1)
        batch.ttl("k")
        batch.persist("no")
        batch.ttl("no")
        batch.put("l", "2", condition=IF_ABSENT, ttl_s=1)
        assert list(await batch.send()) == [None, 5.0, True, 2.0, False, None, Unmet(b"1")]
        clock.now_ms += 2_000
        assert await client.multi_get(["k", "l"]) == [None, None]
        assert await client.ttl("k") is None
        assert not await client.expire("k", 1)
        await client.multi_put({"m|1": "1", "m|2": "2"}, ttl_s=0.05)
        await client.multi_put({"m|1": "2", "m|3": "3"}, keep_ttl=True)
        done = await client.transaction([absent("l|1")], [Put("l|1", "1", ttl_s=0.05), Put("m|2", "3", keep_ttl=True)])
        assert done.held
        left_s = [await client.ttl(key) for key in ("m|1", "m|2", "m|3", "l|1")]
        assert left_s == [0.05, 0.05, math.inf, 0.05]
        clock.now_ms += 50
        assert await client.multi_get(["m|1", "m|2", "m|3", "l|1"]) == [None, None, b"3", None]
        for wrong in (client.multi_put({"k": "1"}, ttl_s=-1), client.transaction([], [Put("k", "1", ttl_s=-1)])):
            with pytest.raises(InvalidTtlError):
                await wrong
        for ttl_s in (0, -1, math.nan, math.inf, 4e9):
            with pytest.raises(InvalidTtlError, match="a time to live"):
                await client.put("k", "1", ttl_s=ttl_s)
            with pytest.raises(InvalidTtlError, match="a time to live"):
                await client.expire("k", ttl_s)
        with pytest.raises(InvalidTtlError, match="not both"):
            await client.put("k", "1", ttl_s=1, keep_ttl=True)


async def test_a_waiting_client_does_the_same(server: PequodServer, clock: Clock) -> None:
    def use() -> list[object]:
        with Client(f"127.0.0.1:{server.port}") as client:  # type: ignore[attr-defined]
            client.put("k", "1", ttl_s=3)
            return [client.ttl("k"), client.expire("k", 4), client.ttl("k"), client.persist("k"), client.ttl("k")]

    assert await asyncio.to_thread(use) == [3.0, True, 4.0, True, math.inf]
    assert clock.now_ms == 1_000_000
