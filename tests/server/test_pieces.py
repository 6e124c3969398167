"""Replies in pieces: a batch is in order, whatever its size, and what happens between two pieces."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode, aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig
from pequod_server.steps.executor import Executor
from pequod_server.steps.steps import Step

from pequod import AsyncClient
from pequod.commands.columns import Command
from pequod.commands.kinds import COUNT, FAILED, GET, OK, PART, PUT, SCAN, SCAN_DOWN
from pequod.engine import ComputedKeyError, Engine, PequodError
from pequod.errors import UnavailableError
from pequod.native import NativeBatch
from tests.client.test_retries import until
from tests.server.plain import Row, outcomes_of, pieces_of, read_pieces
from tests.server.serving import connect

OLD, NEW = b"o" * (1 << 20), b"n" * (1 << 20)
#: More than a connection holds on its way, so that a scan that nobody reads stays under way.
ROWS = [(b"x|%02d" % number, OLD) for number in range(64)]
ACCESS = """
[roles.all]
read = ["x|", "y|"]
write = [""]

[roles.less]
read = ["y|"]
write = [""]
"""


def _access_text(role: str | None) -> str:
    token = f'[tokens.me]\nrole = "{role}"\nsha256 = "{sha256(b"me").hexdigest()}"\n'
    return ACCESS + (token if role else "")


def _rewrite(server: PequodServer, access_file: Path, role: str | None) -> None:
    access_file.write_text(_access_text(role))
    server.reload()


@pytest.fixture
def access_file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(_access_text("all"))
    return path


@pytest.fixture
def drain_s() -> float:
    return 60


@pytest.fixture
async def server(access_file: Path, drain_s: float) -> AsyncIterator[PequodServer]:
    """A server with the limits of the defaults, and many large values."""
    server = PequodServer(ServerConfig(listen="127.0.0.1:0", access_file=access_file, drain_s=drain_s))
    server.port = await server.start()  # type: ignore[attr-defined]
    server.engine.put(b"x|k", OLD)
    for key, value in ROWS:
        server.engine.put(key, value)
    yield server
    await server.stop()
    server.engine._check()


@pytest.fixture
async def execute(server: PequodServer) -> AsyncIterator[Callable[[], Any]]:
    """Open streams over a connection each."""
    channels = []

    def open_stream() -> Any:
        channels.append(connect(server.port))  # type: ignore[attr-defined]
        stub: Any = PequodStub(channels[-1])  # type: ignore[no-untyped-call]
        return stub.Execute(metadata=(("authorization", "Bearer me"),))

    yield open_stream
    for channel in channels:
        await channel.close()


async def _begin(call: Any, kinds: bytes, arguments: list[bytes]) -> pb.ExecuteReply:
    """Send a batch, and return the first piece of its reply; the server waits with the others until they are read."""
    await call.write(pb.ExecuteRequest(kinds=kinds, arguments=arguments))
    piece: pb.ExecuteReply = await call.read()
    assert piece.more
    await asyncio.sleep(0.5)
    return piece


async def test_reads_that_do_not_fit_into_one_message_do_not_see_later_writes(execute: Callable[[], Any]) -> None:
    kinds = bytes([GET] * 4 + [PUT, GET])
    arguments = [b"x|k"] * 4 + [b"x|k", NEW, b"x|k"]
    pieces = await pieces_of(execute(), pb.ExecuteRequest(kinds=kinds, arguments=arguments))
    assert outcomes_of(kinds, pieces) == [OLD] * 4 + [None, NEW]


async def test_gets_before_a_put_of_a_batch_never_see_it(server: PequodServer) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}", token="me") as client:  # type: ignore[attr-defined]
        batch = client.batch()
        for _ in range(4):
            batch.get("x|k")
        batch.put("x|k", NEW)
        batch.get("x|k")
        assert [result == OLD for result in await batch.send()] == [True] * 4 + [False] * 2
        # The client gathers these into one message by itself.
        gets = [client.get("x|k") for _ in range(4)]
        results = await asyncio.gather(*gets, client.put("x|k", OLD), client.get("x|k"))
        assert results == [NEW] * 4 + [None, OLD]


async def test_between_two_pieces_others_write_and_read(server: PequodServer, execute: Callable[[], Any]) -> None:
    call, other = execute(), execute()
    kinds = bytes([SCAN, PUT, GET])
    piece = await _begin(call, kinds, [b"x|", b"x}", b"x|k", b"1", b"x|k"])
    assert server.engine.get(b"x|k") == OLD, "the put waits behind the scan"
    changes = bytes([PUT, PUT, GET])
    arguments = [b"x|00", NEW, b"x|63", NEW, b"x|k"]
    (reply,) = await pieces_of(other, pb.ExecuteRequest(kinds=changes, arguments=arguments))
    assert list(reply.values) == [OLD]
    rows, put, got = outcomes_of(kinds, [piece, *await read_pieces(call, 0)])
    assert rows == [*ROWS[:-1], (b"x|63", NEW), (b"x|k", OLD)]
    assert (put, got) == (None, b"1")


async def test_a_batch_holds_one_piece_and_no_more_at_a_time(server: PequodServer, execute: Callable[[], Any]) -> None:
    calls = [execute() for _ in range(3)]
    for number, call in enumerate(calls):
        await _begin(call, bytes([SCAN, PUT]), [b"x|", b"x}", b"y|%d" % number, b""])
    assert server.engine.count(b"y|", b"y}") == 0
    for call in calls:
        await read_pieces(call, 0)
    assert server.engine.count(b"y|", b"y}") == 3


async def test_what_a_cancelled_batch_has_not_run_yet_does_not_run(
    server: PequodServer, execute: Callable[[], Any]
) -> None:
    call = execute()
    await _begin(call, bytes([PUT, SCAN, PUT]), [b"y|1", b"", b"x|", b"x}", b"y|2", b""])
    call.cancel()
    await until(lambda: not server._calls._streams)
    assert server.engine.scan(b"y|", b"y}").keys == [b"y|1"]


async def test_rights_that_are_taken_away_are_gone_at_the_next_piece(
    server: PequodServer, execute: Callable[[], Any], access_file: Path
) -> None:
    call = execute()
    kinds = bytes([GET, SCAN, GET, PUT, GET, SCAN_DOWN])
    arguments = [b"none", b"x|", b"x}", b"x|k", b"y|1", b"1", b"y|1", b"y|", b"y}"]
    request = pb.ExecuteRequest(kinds=kinds, arguments=arguments, numbers=[1])
    await call.write(request)
    pieces = [await call.read()]
    await asyncio.sleep(0.5)
    _rewrite(server, access_file, "less")
    pieces += await read_pieces(call, 0)
    denied = "PermissionDeniedError"
    assert outcomes_of(kinds, pieces) == [denied, denied, denied, None, b"1", [(b"y|1", b"1")]]
    _rewrite(server, access_file, "all")
    assert outcomes_of(kinds, await pieces_of(call, request))[1:3] == [[*ROWS, (b"x|k", OLD)], OLD]


async def test_a_token_that_is_withdrawn_ends_a_batch_at_its_next_piece(
    server: PequodServer, execute: Callable[[], Any], access_file: Path
) -> None:
    call = execute()
    await _begin(call, bytes([SCAN, PUT]), [b"x|", b"x}", b"y|1", b""])
    _rewrite(server, access_file, None)
    with pytest.raises(aio.AioRpcError, match="withdrawn") as caught:
        await read_pieces(call, 0)
    assert caught.value.code() is StatusCode.UNAUTHENTICATED
    assert server.engine.get(b"y|1") is None


@pytest.mark.parametrize(("is_read", "drain_s"), [(True, 60), (False, 0.5)])
async def test_a_server_that_stops_ends_the_batch_that_it_is_at(
    server: PequodServer, execute: Callable[[], Any], *, is_read: bool
) -> None:
    call = execute()
    kinds = bytes([PUT, SCAN, PUT])
    piece = await _begin(call, kinds, [b"y|1", b"", b"x|", b"x}", b"y|2", b""])
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0.1)
    if is_read:
        pieces = [piece, *await read_pieces(call, 0)]
        assert outcomes_of(kinds, pieces) == [None, [*ROWS, (b"x|k", OLD)], None]
    await stopping
    with pytest.raises(aio.AioRpcError) as caught:
        while await call.read() is not aio.EOF:
            pass
    assert (caught.value.details() == "the server is stopping") is is_read, "it is only said of what was not applied"


async def test_writes_of_a_batch_that_a_stop_cuts_off_are_not_said_to_be_unapplied(server: PequodServer) -> None:
    async with AsyncClient(f"127.0.0.1:{server.port}", token="me", retries=100) as client:  # type: ignore[attr-defined]
        batch = client.batch()
        batch.put("y|1", "")
        for _ in range(20):
            batch.scan("x|", "x}")
        answer = batch.send()
        await until(lambda: server.engine.get(b"y|1") is not None)
        await server.close()
        with pytest.raises(UnavailableError) as caught:
            await answer
        assert not caught.value.is_unapplied


class _Moody:
    """Refuses scans and gets from the moment on that it is told to."""

    is_cross = False

    def basis(self) -> object:
        return self.is_cross

    def refused(self, commands: Iterator[Command]) -> dict[int, PequodError]:
        return {at: ComputedKeyError(key, "j") for at, kind, key, _ in commands if kind != PUT and self.is_cross}

    def passes(self, _batch: NativeBatch) -> bool:
        return not self.is_cross


def _piece(step: Step) -> pb.ExecuteReply:
    assert isinstance(step, pb.ExecuteReply)
    return step


def test_what_may_not_run_is_judged_again_when_that_changes() -> None:
    engine, judge = Engine(), _Moody()
    for number in range(9):
        engine.put(b"x|%d" % number, b"v" * 10)
    executor = Executor(engine, 1, commands_max=100, reply_bytes_max=60, rows_max=2)
    kinds = bytes([COUNT, SCAN, PUT, GET, SCAN])
    arguments = [b"", b"", b"x|", b"x}", b"x|3", b"w", b"x|3", b"x|8", b"x|9"]
    steps = executor.steps(pb.ExecuteRequest(kinds=kinds, arguments=arguments), (judge,))
    pieces = [_piece(steps.run())]
    while pieces[-1].more:
        judge.is_cross = len(pieces) >= 2
        pieces.append(_piece(steps.go_on()))
    assert [list(piece.statuses) for piece in pieces] == [[OK, PART], [PART], [FAILED], [OK, FAILED], [FAILED]]
    assert outcomes_of(kinds, pieces) == [9, "ComputedKeyError", None, "ComputedKeyError", "ComputedKeyError"]


def test_a_scan_of_others_writes_between_pieces_has_no_row_twice_and_loses_none() -> None:
    engine = Engine()
    for number in range(0, 100, 2):
        engine.put(b"x|%02d" % number, b"")
    executor = Executor(engine, 1, commands_max=100, reply_bytes_max=1000, rows_max=5)
    for kind, key in ((SCAN, b"x|%02d"), (SCAN_DOWN, b"x|%02d")):
        kinds = bytes([kind])
        steps = executor.steps(pb.ExecuteRequest(kinds=kinds, arguments=[b"x|", b"x}"], numbers=[0] * (kind != SCAN)))
        pieces = [_piece(steps.run())]
        while pieces[-1].more:
            for number in range(1, 100, 14):
                (engine.remove if len(pieces) % 2 else lambda one: engine.put(one, b""))(key % number)
            pieces.append(_piece(steps.go_on()))
        (rows,) = outcomes_of(kinds, pieces)
        assert isinstance(rows, list)
        found = [key for key, _ in rows]
        assert found == sorted(set(found), reverse=kind == SCAN_DOWN)
        assert {b"x|%02d" % number for number in range(0, 100, 2)} <= set(found)
        last: Row = rows[-1]
        assert last[0] in (b"x|98", b"x|99") if kind == SCAN else last[0] in (b"x|00", b"x|01")
