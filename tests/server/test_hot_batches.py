"""Hot batches of a server, by a client of gRPC's own: what handlers would have said, and what they are still told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer
from pequod_server.ops.tallies import COMMANDS

from pequod.commands.kinds import COUNT, GET, PUT, SCAN
from pequod.native.http2 import why_absent
from tests.server.test_hot import served, value_at_last

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there is no native transport")


def batch(*commands: tuple[Any, ...], number: int = 1, **more: Any) -> pb.ExecuteRequest:
    arguments = [argument for _, *its in commands for argument in its]
    return pb.ExecuteRequest(batch=number, kinds=bytes(kind for kind, *_ in commands), arguments=arguments, **more)


READ = batch((GET, b"x|1"))


@asynccontextmanager
async def executing(stub: Any, **options: Any) -> AsyncIterator[Any]:
    """Yield a stream of batches whose handler waits for the second one."""
    stream = stub.Execute(**options)
    await ask(stream, READ)
    yield stream
    with contextlib.suppress(asyncio.InvalidStateError):
        await stream.done_writing()


async def ask(stream: Any, request: pb.ExecuteRequest) -> pb.ExecuteReply:
    await stream.write(request)
    reply: pb.ExecuteReply = await stream.read()
    return reply


def hot_count(server: PequodServer) -> int:
    """Return how many batches were hot."""
    count: int = server._server.hot.native.batch_tallies()[0][0]  # type: ignore[attr-defined]
    return count


def test_the_core_has_the_bounds_of_the_metrics() -> None:
    source = (Path(__file__).parents[2] / "pequod/native/http2/hot_calls.hpp").read_text()
    assert f"BATCH_BOUNDS[] = {{{', '.join(map(str, COMMANDS))}}};" in source


async def test_batches_are_hot_from_the_second_one_on() -> None:
    async with served() as (server, stub), executing(stub) as stream:
        for number in range(20):
            request = batch((PUT, b"x|2", b"%d" % number), (GET, b"x|2"), (SCAN, b"x|", b"x}"), number=number)
            reply = await ask(stream, request)
            assert (reply.batch, list(reply.values)) == (number, [b"%d" % number, b"one", b"%d" % number])
            assert (reply.server_id, reply.revision) == (server.service.server_id, server.engine.revision)
            assert reply.token == server.service.levels.token
            assert reply.HasField("age_ms")
        assert hot_count(server) == 20
        assert server.service.levels.counters.all_reads()["any"] == 21
        assert server._server.counts.succeeded == 0  # type: ignore[attr-defined]
        await stream.done_writing()
        assert await stream.read() is aio.EOF
        assert await stream.code() is grpc.StatusCode.OK


async def test_a_pipeline_of_batches_is_answered_in_order() -> None:
    async with served() as (server, stub), executing(stub) as stream:
        odd = pb.Freshness(latest=True)
        for number in range(200):
            more: dict[str, Any] = {"freshness": odd} if number % 7 == 3 else {}
            await stream.write(batch((PUT, b"x|2", b"%d" % number), (GET, b"x|2"), number=number, **more))
        replies = [await stream.read() for _ in range(200)]
        assert [(reply.batch, *reply.values) for reply in replies] == [(at, b"%d" % at) for at in range(200)]
        # One that two reads of the socket brought is hot all the same.
        assert hot_count(server) == 200 - len(range(3, 200, 7))


async def test_what_is_not_quick_is_gone_on_with_in_the_same_batch() -> None:
    async with served() as (server, stub), executing(stub) as stream:
        server.engine.add_joins(parse("t|<a> = copy y|<a>"))
        reply = await ask(
            stream, batch((PUT, b"y|1", b"new"), (SCAN, b"t|", b"t}"), (PUT, b"", b""), (COUNT, b"y|", b"y}"))
        )
        assert (list(reply.keys), list(reply.values), list(reply.counts)) == ([b"t|1"], [b"new"], [1, 1])
        assert [error.reason for error in reply.errors] == ["InvalidKeyError"]
        assert hot_count(server) == 0
        # And the next ones are hot again: the join's rows are there.
        assert list((await ask(stream, batch((PUT, b"y|2", b"2"), (SCAN, b"t|", b"t}")))).values) == [b"new", b"2"]
        assert (await ask(stream, READ)).values == [b"one"]
        assert hot_count(server) >= 1
        server.engine._check()


async def test_a_long_reply_comes_in_pieces_or_whole() -> None:
    async with served(rows_max=8192, reply_bytes_max=70_000) as (server, stub), executing(stub) as stream:
        for number in range(100):
            server.engine.put(b"z|%03d" % number, bytes(1000))
        assert len((await ask(stream, batch((SCAN, b"z|", b"z|05")))).keys) == 50
        await stream.write(batch((SCAN, b"z|", b"z}")))
        pieces = [await stream.read()]
        while pieces[-1].more:
            pieces.append(await stream.read())
        assert len(pieces) == 2
        assert sum(len(piece.keys) for piece in pieces) == 100
        assert hot_count(server) == 0
        assert server._admission.free_bytes == server._admission.bytes_max


async def test_metrics_have_them_beside_the_others() -> None:
    async with served(metrics="127.0.0.1:0") as (server, stub), executing(stub) as stream:
        for _ in range(3):
            await ask(stream, batch((PUT, b"x|2", b"v"), (GET, b"x|2")))
        await ask(stream, batch((PUT, b"", b""), (GET, b"x|2")))
        assert hot_count(server) == 3
        scraped, _ = await server.instruments._metrics.scrape("")  # type: ignore[union-attr]
        for line in (
            b'pequod_commands_total{kind="GET"} 5.0',
            b'pequod_commands_total{kind="PUT"} 4.0',
            b"pequod_batch_seconds_count 5.0",
            b"pequod_batch_commands_sum 9.0",
            b'pequod_batch_commands_bucket{le="1.0"} 1.0',
            b'pequod_command_errors_total{reason="InvalidKeyError"} 1.0',
            b'pequod_calls_open{method="Execute"} 1.0',
        ):
            assert line in scraped, line


async def test_a_slow_batch_is_logged_whoever_ran_it(caplog: pytest.LogCaptureFixture) -> None:
    async with served(slow_ms=1e-6) as (server, stub), executing(stub) as stream:
        await ask(stream, batch((SCAN, b"x|", b"x}"), (GET, b"x|1")))
        assert hot_count(server) == 1
    records: list[Any] = [record for record in caplog.records if record.message == "slow batch"]
    assert [(one.commands, one.kinds, one.rows, one.first) for one in records] == [
        (1, {"GET": 1}, 0, "x|1"),
        (2, {"SCAN": 1, "GET": 1}, 1, "x|"),
    ]


async def test_a_stream_whose_batches_are_hot_is_in_use() -> None:
    async with served() as (server, stub), executing(stub) as stream:
        streams = server._admission.pressure.streams
        ((task, since_s),) = streams.items()
        await ask(stream, READ)
        assert hot_count(server) == 1
        assert streams[task] > since_s


async def test_a_token_that_is_withdrawn_ends_the_stream(tmp_path: Path) -> None:
    text = '[roles.web]\nread = ["x|"]\n[tokens.a]\nrole = "web"\nsha256 = "{}"\n'
    path = tmp_path / "access.toml"
    path.write_text(text.format(sha256(b"mine").hexdigest()))
    mine: Any = {"metadata": (("authorization", "Bearer mine"),)}
    async with served(access_file=path) as (server, stub), executing(stub, **mine) as stream:
        assert (await ask(stream, READ)).values == [b"one"]
        refused = batch((GET, b"x|1"), (GET, b"y|1"), (PUT, b"x|1", b"n"))
        reply = await ask(stream, refused)
        assert [error.reason for error in reply.errors] == ["PermissionDeniedError"] * 2
        assert hot_count(server) == 1
        assert server.engine.get(b"x|1") == b"one"
        path.write_text(text.format(sha256(b"yours").hexdigest()))
        server.reload()
        await stream.write(READ)
        with pytest.raises(aio.AioRpcError) as error:
            await stream.read()
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert hot_count(server) == 1


async def test_a_server_that_stops_ends_streams_whose_batches_were_hot() -> None:
    async with served() as (server, stub), executing(stub) as stream:
        await ask(stream, READ)
        server.service.end_streams()
        with pytest.raises(aio.AioRpcError) as error:
            await stream.read()
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_stream_that_stops_with_a_batch_begun_does_not_say_that_it_was_not_applied() -> None:
    async with served() as (server, stub), executing(stub) as stream:
        batches = server.service.batches
        go_on = batches.go_on

        def stopped(*arguments: Any) -> object:
            handed = go_on(*arguments)
            server.service.end_streams()
            return handed

        batches.go_on = stopped  # type: ignore[method-assign, assignment]
        reply = await ask(stream, batch((PUT, b"x|1", b"new"), (PUT, b"loose", b"1")))
        assert len(reply.statuses) == 2
        assert server.engine.get(b"loose") == b"1"


async def test_a_defect_ends_the_connection_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as (server, stub):
        async with executing(stub) as stream:
            right, server.engine.ledger = server.engine.ledger, None  # type: ignore[assignment]
            await stream.write(READ)
            with pytest.raises(aio.AioRpcError) as error:
                await stream.read()
            server.engine.ledger = right
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await value_at_last(stub) == b"one"
        async with executing(stub) as stream:
            assert (await ask(stream, READ)).values == [b"one"]
    assert [record.message for record in caplog.records].count("a defect ended a connection") >= 1
