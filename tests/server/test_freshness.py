"""Levels of freshness and tokens of a server without a database, asked for by a plain gRPC client."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import ServerConfig

from pequod.commands.kinds import GET, PUT
from pequod.freshness import Mark, Token, database_of
from tests.backing.test_levels import after, latest, max_age, refusal
from tests.server.plain import outcomes_of, pieces_of
from tests.server.serving import connect, serving

LEVELS = [latest(0), max_age(0, 0)]


def token_of(header: pb.Header) -> Token:
    mark = Mark(database_of("server", header.server_id), 0)
    return Token({mark: header.revision})


async def test_a_token_is_the_servers_number_and_revision(stub: Any) -> None:
    put = await stub.Put(pb.PutRequest(key=b"a", value=b"1"))
    assert Token.parse(put.header.token) == token_of(put.header)
    assert (put.header.HasField("age_ms"), put.header.age_ms) == (True, 0)
    for level in [*LEVELS, after(put.header.token, 0)]:
        assert (await stub.Get(pb.GetRequest(key=b"a", freshness=level))).value == b"1"
        assert (await stub.MultiGet(pb.MultiGetRequest(keys=[b"a"], freshness=level))).values == [b"1"]
        assert (await stub.Count(pb.CountRequest(freshness=level))).count == 1
        (chunk,) = [reply async for reply in stub.Scan(pb.ScanRequest(freshness=level))]
        assert (list(chunk.keys), chunk.header.token) == ([b"a"], put.header.token)
        watch = stub.Watch(pb.WatchRequest(first=b"a", freshness=level))
        assert (await watch.read()).header.token == put.header.token
        watch.cancel()


async def test_batches_have_tokens_and_levels(stub: Any) -> None:
    kinds, arguments = bytes([PUT, GET]), [b"a", b"1", b"a"]
    call = stub.Execute()
    (piece,) = await pieces_of(call, pb.ExecuteRequest(kinds=kinds, arguments=arguments))
    assert Token.parse(piece.token) == token_of(pb.Header(server_id=piece.server_id, revision=piece.revision))
    assert (piece.HasField("age_ms"), piece.age_ms) == (True, 0)
    for level in [*LEVELS, after(piece.token)]:
        (again,) = await pieces_of(call, pb.ExecuteRequest(kinds=kinds, arguments=arguments, freshness=level))
        assert outcomes_of(kinds, [again]) == [None, b"1"]
        assert again.token == piece.token
    await call.done_writing()


async def test_every_piece_of_a_long_reply_names_its_state() -> None:
    async with serving(ServerConfig(listen="127.0.0.1:0", reply_bytes_max=65536)) as port, connect(port) as channel:
        call = PequodStub(channel).Execute()  # type: ignore[no-untyped-call]
        kinds = bytes([PUT, GET] * 5)
        arguments = [part for number in range(5) for part in (b"%d" % number, b"v" * 40_000, b"%d" % number)]
        pieces = await pieces_of(call, pb.ExecuteRequest(kinds=kinds, arguments=arguments))
        assert len(pieces) > 2
        for piece in pieces:
            assert Token.parse(piece.token) == token_of(pb.Header(server_id=piece.server_id, revision=piece.revision))
        assert [piece.revision for piece in pieces] == sorted(piece.revision for piece in pieces)
        await call.done_writing()


async def test_tokens_of_other_states_are_lost(stub: Any) -> None:
    header = (await stub.Put(pb.PutRequest(key=b"a", value=b"1"))).header
    mark = Mark(database_of("server", header.server_id), 0)
    for token, words in (
        (Token({Mark(database_of("server", 7), 0): 1}), "started anew"),
        (Token({Mark(database_of("sqlite", 7), 1): 1}), "no database is behind this server"),
        (Token({mark: header.revision + 1000}), "has not come so far"),
    ):
        call = stub.Get(pb.GetRequest(key=b"a", freshness=after(bytes(token))))
        code, reason, facts = await refusal(call)
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TokenLostError")
        assert words in facts["reason"]
        kinds, stream = bytes([PUT, GET]), stub.Execute()
        request = pb.ExecuteRequest(kinds=kinds, arguments=[b"b", b"", b"a"], freshness=after(bytes(token)))
        assert outcomes_of(kinds, await pieces_of(stream, request)) == [None, "TokenLostError"]
        await stream.done_writing()


async def test_a_token_is_lost_with_the_server_that_made_it() -> None:
    tokens = []
    for _ in range(2):
        async with serving(ServerConfig(listen="127.0.0.1:0")) as port, connect(port) as channel:
            stub: Any = PequodStub(channel)  # type: ignore[no-untyped-call]
            tokens.append((await stub.Put(pb.PutRequest(key=b"a"))).header.token)
            if len(tokens) == 2:
                _, reason, facts = await refusal(stub.Get(pb.GetRequest(key=b"a", freshness=after(tokens[0]))))
                assert reason == "TokenLostError"
                assert "started anew" in facts["reason"]


async def test_a_snapshot_is_taken_anew_for_a_level_that_asks_for_more(stub: Any) -> None:
    await stub.AddJoin(pb.AddJoinRequest(text="n|<poster> = snapshot 1000 count p|<poster>|<time>"))

    async def put(key: bytes) -> bytes:
        token: bytes = (await stub.Put(pb.PutRequest(key=key, value=b""))).header.token
        return token

    async def count(level: pb.Freshness | None = None) -> bytes:
        value: bytes = (await stub.Get(pb.GetRequest(key=b"n|bob", freshness=level))).value
        return value

    first = await put(b"p|bob|1")
    assert await count() == b"1"
    second = await put(b"p|bob|2")
    assert await count() == b"1"
    assert await count(after(second)) == b"2"
    await put(b"p|bob|3")
    # A snapshot that has what is asked for stays.
    assert await count(after(first)) == await count(after(second)) == await count(max_age(60_000)) == b"2"
    assert await count(latest()) == b"3"
    await put(b"p|bob|4")
    assert await count() == b"3"
    assert await count(max_age(0)) == b"4"


@pytest.mark.parametrize("message", [pb.Freshness(), pb.Freshness(latest=False), pb.Freshness(wait_ms=0)])
async def test_no_level_is_what_there_is(stub: Any, message: pb.Freshness) -> None:
    reply = await stub.Get(pb.GetRequest(key=b"a", freshness=message))
    assert not reply.HasField("value")


async def test_a_watch_that_is_refused_begins_nothing(stub: Any) -> None:
    token = bytes(Token({Mark(database_of("server", 7), 0): 1}))
    watch = stub.Watch(pb.WatchRequest(first=b"a", freshness=after(token)))
    with pytest.raises(aio.AioRpcError) as refused:
        await watch.read()
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
