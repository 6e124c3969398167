"""What a caller may do in streams of batches, and what a changed access file does to calls under way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer

from pequod.commands.kinds import ABSENT, COUNT, FAILED, GET, OK, PUT, REMOVE, SCAN, SCAN_DOWN, SCAN_LIMIT
from tests.server import roles
from tests.server.plain import joined, outcomes_of, pieces_of
from tests.server.roles import As, access_text, rewrite

# Fixtures of this module.
access_file, server, stub = roles.access_file, roles.server, roles.stub


async def _execute(stream: Any, kinds: list[int], arguments: list[bytes], numbers: tuple[int, ...] = ()) -> Any:
    request = pb.ExecuteRequest(batch=5, kinds=bytes(kinds), arguments=arguments, numbers=numbers)
    return joined(await pieces_of(stream, request))


async def test_commands_of_a_batch_are_refused_alone(stub: Any, server: PequodServer) -> None:
    stream = As(stub, "web").Execute()
    kinds = [PUT, GET, PUT, SCAN, GET, SCAN_LIMIT, SCAN_DOWN, COUNT, REMOVE, PUT, SCAN, SCAN_LIMIT, GET, COUNT, REMOVE]
    arguments = [b"p|a|1", b"1", b"secret", b"t|x", b"no", b"p|", b"", b"p|a|1", b"p|", b"p|b", b"", b"p}"]
    arguments += [b"p|", b"p}\0", b"s|ann|bob", b"", b"empty", b"p|a|", b"p|a}", b"s|", b"s}", b"p|none", b"p|", b"p}"]
    arguments += [b"p|bob|0002"]
    reply = await _execute(stream, kinds, arguments, (3, 4, 9))
    expected = [OK, FAILED, FAILED, FAILED, OK, OK, FAILED, FAILED, OK, FAILED, OK, FAILED, ABSENT, OK, OK]
    assert list(reply.statuses) == expected
    assert (list(reply.values), list(reply.keys)) == ([b"1", b"1", b"1"], [b"p|a|1", b"p|a|1"])
    assert list(reply.counts) == [1, 1, 3]
    assert reply.batch == 5
    shown = [(error.reason, error.facts["right"], bytes.fromhex(error.facts["first_hex"])) for error in reply.errors]
    assert shown == [
        ("PermissionDeniedError", right, first)
        for right, first in [
            ("read", b"secret"),
            ("write", b"t|x"),
            ("read", b"p|"),
            ("read", b""),
            ("read", b"p|"),
            ("write", b""),
            ("read", b"s|"),
        ]
    ]
    assert all(error.code == grpc.StatusCode.PERMISSION_DENIED.value[0] for error in reply.errors)
    assert server.engine.get(b"t|x") is None
    assert server.engine.get(b"s|ann|bob") is None


async def test_refused_and_failed_commands_keep_their_places(stub: Any) -> None:
    await As(stub, "root").AddJoin(pb.AddJoinRequest(text="p|all|<x:4>|<y> = copy p|<y>|<x>"))
    stream = As(stub, "web").Execute()
    kinds = bytes([GET, PUT, GET, PUT, SCAN])
    arguments = [b"a", b"p|all|0001|b", b"", b"b", b"p|", b"", b"p|", b"p}"]
    pieces = await pieces_of(stream, pb.ExecuteRequest(kinds=kinds, arguments=arguments))
    *refused, put, rows = outcomes_of(kinds, pieces)
    assert (refused, put) == (["PermissionDeniedError", "ComputedKeyError", "PermissionDeniedError"], None)
    assert isinstance(rows, list)
    assert b"p|" in dict(rows)
    limited = await _execute(
        stream, [SCAN_DOWN, SCAN_LIMIT, SCAN_LIMIT], [b"", b"", b"p|", b"p}", b"s", b"t"], (5, 1, 7)
    )
    assert (list(limited.statuses), list(limited.counts)) == ([FAILED, OK, FAILED], [1]), "each its own limit"
    refused = await _execute(stream, [GET, COUNT], [b"a", b"", b""])
    assert list(refused.statuses) == [FAILED, FAILED], "a batch of which nothing is left"


async def test_a_batch_that_does_not_fit_ends_the_stream_of_a_limited_role_too(stub: Any) -> None:
    for token in ("web", "root"):
        with pytest.raises(aio.AioRpcError) as caught:
            await _execute(As(stub, token).Execute(), [PUT, GET], [b"p|1", b""])
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_token_that_is_withdrawn_ends_streams_at_their_next_step(
    stub: Any, server: PequodServer, access_file: Path
) -> None:
    web = As(stub, "web").Execute()
    root = As(stub, "root").Execute()
    for number in range(2000):
        server.engine.put(b"p|long|%04d" % number, b"*" * 1000)
    scan = As(stub, "web").Scan(pb.ScanRequest(first=b"p|", last=b"p}"))
    await scan.read()
    for stream in (web, root):
        assert list((await _execute(stream, [GET], [b"p|bob|0001"])).statuses) == [OK]
    rewrite(access_file, access_text("author"))
    server.reload()
    for stream in (web, root, scan):
        with pytest.raises(aio.AioRpcError, match="withdrawn") as caught:
            if stream is scan:
                while await scan.read() is not aio.EOF:
                    pass
            else:
                await _execute(stream, [GET], [b"p|bob|0001"])
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert len((await As(stub, "author").ListJoins(pb.ListJoinsRequest())).joins) == 0


async def test_rights_that_are_taken_away_are_gone_at_once(stub: Any, server: PequodServer, access_file: Path) -> None:
    stream = As(stub, "root").Execute()
    assert list((await _execute(stream, [GET], [b"secret"])).statuses) == [OK]
    rewrite(access_file, access_text("root").replace('[roles.root]\nread = [""]', '[roles.root]\nread = ["p|"]'))
    server.reload()
    assert list((await _execute(stream, [GET], [b"secret"])).statuses) == [FAILED]


async def test_a_changed_file_is_noticed_without_a_signal(stub: Any, access_file: Path) -> None:
    rewrite(access_file, access_text("web"))
    async with asyncio.timeout(20):
        while True:
            try:
                await As(stub, "root").ListJoins(pb.ListJoinsRequest())
            except aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAUTHENTICATED
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("text", [None, "not toml [", '[roles.web]\nread = "t|"', ""])
async def test_a_file_that_is_not_right_leaves_the_rules(
    stub: Any, server: PequodServer, access_file: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    rewrite(access_file, text)
    server.reload()
    if text == "":
        with pytest.raises(aio.AioRpcError):
            await As(stub, "web").ListJoins(pb.ListJoinsRequest())
        return
    assert "the rules read before stay in force" in caplog.text
    await As(stub, "web").ListJoins(pb.ListJoinsRequest())
