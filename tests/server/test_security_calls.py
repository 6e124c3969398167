"""Getting in where one does not belong: each call over a real socket, with tokens that may do little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status
from pequod_proto import pequod_pb2 as pb
from pequod_proto.commands import ABSENT, COUNT, FAILED, GET, OK, PUT, REMOVE, SCAN, SCAN_DOWN, SCAN_LIMIT
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server import PequodServer, ServerConfig

from pequod.escapes import shown
from tests.server.plain import joined, outcomes_of, pieces_of

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
ROLES = """
[roles.web]
read = ["t|", "p|"]
write = ["p|", "s|"]

[roles.author]
read = ["s|", "p|"]
join = ["t|", "o|mine|"]

[roles.ann]
read = ["t|ann|"]

[roles.watch]
admin = [""]

[roles.driver]
read = ["s|", "p|"]
write = ["t|ann|"]
admin = ["t|"]

[roles.root]
read = [""]
write = [""]
join = [""]
admin = [""]

[roles.nobody]
"""


def access_text(*names: str) -> str:
    tokens = (f'[tokens.{name}]\nrole = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n' for name in names)
    return ROLES + "".join(tokens)


@pytest.fixture
def access_file(tmp_path: Path) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(access_text("web", "author", "ann", "watch", "driver", "root", "nobody"))
    return path


@pytest.fixture
async def server(access_file: Path) -> AsyncIterator[PequodServer]:
    config = ServerConfig(
        listen="127.0.0.1:0", drain_s=0.5, access_file=access_file, chunk_bytes=10, reply_bytes_max=100
    )
    server = PequodServer(config)
    server.port = await server.start()  # type: ignore[attr-defined]
    for key in (b"p|bob|0001", b"p|bob|0002", b"s|ann|bob", b"secret"):
        server.engine.put(key, b"value of " + key)
    yield server
    await server.stop()
    server.engine._check()


def _rewrite(path: Path, text: str | None) -> None:
    """Put another file in the place of ``path``, as editors do; None for no file."""
    if text is None:
        path.unlink()
    else:
        scratch = path.with_suffix(".new")
        scratch.write_text(text)
        scratch.replace(path)


def _bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


class _As:
    """The stub's calls with a token."""

    def __init__(self, stub: Any, token: str) -> None:
        self._stub = stub
        self._metadata = _bearer(token)

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: getattr(self._stub, name)(*arguments, metadata=self._metadata)


@pytest.fixture
async def stub(server: PequodServer) -> AsyncIterator[Any]:
    async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:  # type: ignore[attr-defined]
        yield PequodStub(channel)  # type: ignore[no-untyped-call]


METHODS = list(pb.DESCRIPTOR.services_by_name["Pequod"].methods)
REQUESTS = {
    "MultiGet": pb.MultiGetRequest(keys=[b"p|bob|0001"]),
    "Splits": pb.SplitsRequest(prefix=b"p|", count=4),
    "MultiPut": pb.MultiPutRequest(keys=[b"p|bob|0001"], values=[b""]),
    "Explain": pb.ExplainRequest(join="t"),
    "Invalidate": pb.InvalidateRequest(join="t"),
    "BeginBackfill": pb.BeginBackfillRequest(join="t"),
    "ReadBackfill": pb.ReadBackfillRequest(join="t"),
    "LoadBackfill": pb.LoadBackfillRequest(join="t"),
    "RenewBackfill": pb.RenewBackfillRequest(join="t"),
    "EndBackfill": pb.EndBackfillRequest(join="t"),
    "AddJoin": pb.AddJoinRequest(text="o|<a> = copy p|<b>|<a>"),
    "DropJoin": pb.DropJoinRequest(name="t"),
    "Execute": pb.ExecuteRequest(kinds=bytes([SCAN]), arguments=[b"", b""]),
}


async def _outcome(call: Any, request: Any, *, is_stream: bool) -> grpc.StatusCode:
    """Make any call, of any shape; return how it ended."""
    try:
        if is_stream:
            await call.write(request)
            while (reply := await call.read()) is not aio.EOF:
                if isinstance(reply, pb.ExecuteReply):
                    assert list(reply.statuses) == [FAILED]
                    return {code.value[0]: code for code in grpc.StatusCode}[reply.errors[0].code]
        elif isinstance(call, aio.UnaryStreamCall):
            async for _ in call:
                pass
        else:
            await call
    except aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode(await call.code())


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize(
    "metadata",
    [
        (),
        _bearer("guess"),
        _bearer(""),
        _bearer("root "),
        _bearer("Root"),
        (("authorization", "root"),),
        (("authorization", "Basic root"),),
        (*_bearer("nobody"), *_bearer("root")),
        _bearer(sha256(b"root").hexdigest()),
    ],
)
async def test_nobody_comes_in_without_a_token_that_is_known(
    stub: Any, server: PequodServer, method: Any, metadata: tuple[tuple[str, str], ...]
) -> None:
    revision = server.engine.revision
    is_stream = method.name == "Execute"
    request = REQUESTS.get(method.name, getattr(pb, method.input_type.name)())
    call = getattr(stub, method.name)(*(() if is_stream else (request,)), metadata=metadata)
    with pytest.raises(aio.AioRpcError) as caught:
        if is_stream or isinstance(call, aio.UnaryStreamCall):
            await call.read()
        else:
            await call
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert server.engine.revision == revision


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_a_role_without_rights_may_do_nothing(stub: Any, method: Any) -> None:
    root, nobody = _As(stub, "root"), _As(stub, "nobody")
    await root.AddJoin(pb.AddJoinRequest(text=TIMELINE))
    if method.name in ("ListJoins", "Stats", "ListBackfills"):
        await root.BeginBackfill(pb.BeginBackfillRequest(join="t"))
        reply = await getattr(nobody, method.name)(getattr(pb, method.input_type.name)())
        assert not getattr(reply, "joins", ()), "they show what the caller may see"
        assert not getattr(reply, "backfills", ())
        assert not getattr(reply, "tables", ())
        assert not getattr(reply, "loose_keys", 0)
        return
    is_stream = method.name == "Execute"
    request = REQUESTS.get(method.name, getattr(pb, method.input_type.name)())
    call = getattr(nobody, method.name)(*(() if is_stream else (request,)))
    assert await _outcome(call, request, is_stream=is_stream) is grpc.StatusCode.PERMISSION_DENIED
    assert len((await root.ListJoins(pb.ListJoinsRequest())).joins) == 1


REFUSED = [
    ("web", "Get", pb.GetRequest(key=b"secret"), "read", b"secret", b"secret\0"),
    ("web", "Get", pb.GetRequest(key=b"t"), "read", b"t", b"t\0"),
    ("web", "Get", pb.GetRequest(key=b"s|ann|bob"), "read", b"s|ann|bob", b"s|ann|bob\0"),
    ("web", "Put", pb.PutRequest(key=b"t|x"), "write", b"t|x", b"t|x\0"),
    ("web", "Put", pb.PutRequest(key=b"p}"), "write", b"p}", b"p}\0"),
    ("web", "Put", pb.PutRequest(key=b""), "write", b"", b"\0"),
    ("web", "Remove", pb.RemoveRequest(key=b"secret"), "write", b"secret", b"secret\0"),
    ("web", "Scan", pb.ScanRequest(first=b"p|"), "read", b"p|", None),
    ("web", "Scan", pb.ScanRequest(first=b"p|", last=b"p}\0"), "read", b"p|", b"p}\0"),
    ("web", "Scan", pb.ScanRequest(first=b"p{\xff", last=b"p}"), "read", b"p{\xff", b"p}"),
    ("web", "Scan", pb.ScanRequest(first=b"p|", limit=1), "read", b"p|", None),
    ("web", "Scan", pb.ScanRequest(first=b"", last=b"p}", reverse=True, limit=1), "read", b"", b"p}"),
    ("web", "Count", pb.CountRequest(first=b""), "read", b"", None),
    ("web", "Count", pb.CountRequest(first=b"s|", last=b"s}"), "read", b"s|", b"s}"),
    ("web", "Splits", pb.SplitsRequest(first=b"s|", last=b"s}", count=2), "read", b"s|", b"s}"),
    ("web", "MultiGet", pb.MultiGetRequest(keys=[b"p|bob|0001", b"secret"]), "read", b"secret", b"secret\0"),
    ("web", "MultiPut", pb.MultiPutRequest(keys=[b"p|x", b"t|x"], values=[b"", b""]), "write", b"t|x", b"t|x\0"),
    ("web", "RemoveRange", pb.RemoveRangeRequest(first=b""), "write", b"", None),
    ("web", "RemoveRange", pb.RemoveRangeRequest(), "write", b"", None),
    ("web", "RemoveRange", pb.RemoveRangeRequest(prefix=b"t|"), "write", b"t|", b"t}"),
    ("web", "RemoveRange", pb.RemoveRangeRequest(first=b"t|a", last=b"t|a"), "write", b"t|a", b"t|a\0"),
    ("web", "RemoveRange", pb.RemoveRangeRequest(prefix=b"p", first=b"p|"), "write", b"p|", b"q"),
    ("web", "Scan", pb.ScanRequest(prefix=b"secret"), "read", b"secret", b"secreu"),
    ("web", "Scan", pb.ScanRequest(prefix=b"p", first=b"p|", keys_only=True), "read", b"p|", b"q"),
    ("web", "Count", pb.CountRequest(prefix=b"s|"), "read", b"s|", b"s}"),
    ("ann", "Scan", pb.ScanRequest(first=b"t|", last=b"t}"), "read", b"t|", b"t}"),
    ("ann", "Scan", pb.ScanRequest(first=b"t|ann|", last=b"t|ann}\0"), "read", b"t|ann|", b"t|ann}\0"),
    ("ann", "Get", pb.GetRequest(key=b"t|anna|0001|bob"), "read", b"t|anna|0001|bob", b"t|anna|0001|bob\0"),
    ("ann", "Explain", pb.ExplainRequest(join="t"), "read", b"t|", b"t}"),
    ("ann", "Explain", pb.ExplainRequest(range=pb.Range(first=b"s|", last=b"s}")), "read", b"s|", b"s}"),
    ("web", "Invalidate", pb.InvalidateRequest(join="t"), "admin", b"t|", b"t}"),
    ("web", "Invalidate", pb.InvalidateRequest(range=pb.Range(first=b"t|")), "admin", b"t|", None),
    ("web", "Invalidate", pb.InvalidateRequest(range=pb.Range(first=b"t|", last=b"t|")), "admin", b"t|", b"t|\0"),
    ("web", "BeginBackfill", pb.BeginBackfillRequest(join="t"), "admin", b"t|", b"t}"),
    ("web", "ReadBackfill", pb.ReadBackfillRequest(id=1, join="t"), "admin", b"t|", b"t}"),
    ("web", "LoadBackfill", pb.LoadBackfillRequest(id=1, join="t"), "admin", b"t|", b"t}"),
    ("web", "RenewBackfill", pb.RenewBackfillRequest(id=1, join="t"), "admin", b"t|", b"t}"),
    ("web", "EndBackfill", pb.EndBackfillRequest(id=1, join="t"), "admin", b"t|", b"t}"),
    ("watch", "BeginBackfill", pb.BeginBackfillRequest(join="t"), "read", b"s|", b"s}"),
    ("driver", "BeginBackfill", pb.BeginBackfillRequest(join="t"), "write", b"t|", b"t}"),
    ("driver", "BeginBackfill", pb.BeginBackfillRequest(join="t", first=b"t|ann|"), "write", b"t|ann|", b"t}"),
    ("ann", "DropJoin", pb.DropJoinRequest(name="t"), "join", b"t|", b"t}"),
    ("watch", "Get", pb.GetRequest(key=b"p|bob|0001"), "read", b"p|bob|0001", b"p|bob|0001\0"),
    ("watch", "DropJoin", pb.DropJoinRequest(name="t"), "join", b"t|", b"t}"),
    ("author", "AddJoin", pb.AddJoinRequest(text="u|<x> = copy p|<x>"), "join", b"u|", b"u}"),
    ("author", "AddJoin", pb.AddJoinRequest(text="o|<x> = copy p|<x>"), "join", b"o|", b"o}"),
    ("author", "AddJoin", pb.AddJoinRequest(text="o|m<x> = copy p|<x>"), "join", b"o|m", b"o|n"),
    ("author", "AddJoin", pb.AddJoinRequest(text="t|<x> = copy secret|<x>"), "read", b"secret|", b"secret}"),
    (
        "author",
        "AddJoin",
        pb.AddJoinRequest(text="t|<x> = check secret|<x> copy p|<x>"),
        "read",
        b"secret|",
        b"secret}",
    ),
    ("author", "AddJoin", pb.AddJoinRequest(text="t|all = count pp|<x>"), "read", b"pp|", b"pp}"),
    (
        "author",
        "AddJoin",
        pb.AddJoinRequest(text="t|2|<x> = copy p|<x>; t|3|<x> = copy t|<x>"),
        "read",
        b"t|",
        b"t}",
    ),
    ("author", "AddJoin", pb.AddJoinRequest(text="o|mine = count p|<x>"), "join", b"o|mine", b"o|mine\0"),
    ("web", "AddJoin", pb.AddJoinRequest(text="t|<x> = copy p|<x>"), "join", b"", None),
    ("web", "AddJoin", pb.AddJoinRequest(text="neither parsed nor looked at"), "join", b"", None),
]


@pytest.mark.parametrize(("token", "name", "request_", "right", "first", "last"), REFUSED)
async def test_what_a_role_may_not_do(
    stub: Any, server: PequodServer, token: str, name: str, request_: Any, right: str, first: bytes, last: bytes | None
) -> None:
    await _As(stub, "root").AddJoin(pb.AddJoinRequest(text=TIMELINE))
    revision = server.engine.revision
    call = getattr(_As(stub, token), name)(request_)
    with pytest.raises(aio.AioRpcError) as caught:
        await (call.read() if isinstance(call, aio.UnaryStreamCall) else call)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    info = error_details_pb2.ErrorInfo()
    assert rpc_status.from_call(caught.value).details[0].Unpack(info)
    facts = {"role": token, "right": right, "first_hex": first.hex()}
    assert dict(info.metadata) == facts | ({} if last is None else {"last_hex": last.hex()})
    assert shown(first) in (caught.value.details() or "")
    assert "value" not in (caught.value.details() or "")
    assert server.engine.revision == revision


async def test_admin_alone_reads_and_loads_no_data(stub: Any, server: PequodServer) -> None:
    root, watch, driver = _As(stub, "root"), _As(stub, "watch"), _As(stub, "driver")
    await root.AddJoin(pb.AddJoinRequest(text=TIMELINE))
    begun = (await root.BeginBackfill(pb.BeginBackfillRequest(join="t"))).backfill
    ids = {"id": begun.id, "join": "t"}

    def load(first: bytes, last: bytes) -> pb.LoadBackfillRequest:
        return pb.LoadBackfillRequest(
            **ids, firsts=[first], lasts=[last], row_counts=[1], tails=[b"0001|eve"], tail_at=[0], values=[b"forged"],
            value_at=[0],
        )  # fmt: skip

    refused = [
        (watch.ReadBackfill(pb.ReadBackfillRequest(**ids, first=b"p|", last=b"p}")), "read", b"p|", b"p}"),
        (
            watch.ReadBackfill(pb.ReadBackfillRequest(**ids, first=b"p|bob|", last=b"p|bob}", digest_only=True)),
            *("read", b"p|bob|", b"p|bob}"),
        ),
        (watch.LoadBackfill(load(b"t|ann|", b"t|ann}")), "write", b"t|ann|", b"t|ann}"),
        (driver.LoadBackfill(load(b"t|bob|", b"t|bob}")), "write", b"t|bob|", b"t|bob}"),
        (driver.LoadBackfill(load(b"t|ann|", b"t|b")), "write", b"t|ann|", b"t|b"),
    ]
    for call, right, first, last in refused:
        with pytest.raises(aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        info = error_details_pb2.ErrorInfo()
        assert rpc_status.from_call(caught.value).details[0].Unpack(info)
        assert (info.metadata["right"], info.metadata["first_hex"]) == (right, first.hex())
        assert info.metadata["last_hex"] == last.hex()
    for message in (pb.RenewBackfillRequest(**ids), pb.EndBackfillRequest(**ids)):
        await getattr(watch, type(message).__name__.removesuffix("Request"))(message)
    narrow = pb.BeginBackfillRequest(join="t", first=b"t|ann|", last=b"t|ann}")
    begun = (await driver.BeginBackfill(narrow)).backfill
    ids["id"] = begun.id
    rows = await driver.ReadBackfill(pb.ReadBackfillRequest(**ids, first=b"p|", last=b"p}"))
    assert list(rows.keys) == [b"p|bob|0001", b"p|bob|0002"]
    assert (await driver.LoadBackfill(load(b"t|ann|", b"t|ann}"))).rows_loaded == 1


async def test_what_roles_may_do(stub: Any) -> None:
    web, author, ann = _As(stub, "web"), _As(stub, "author"), _As(stub, "ann")
    assert [join.name for join in (await author.AddJoin(pb.AddJoinRequest(text=TIMELINE))).joins] == ["t"]
    await author.AddJoin(pb.AddJoinRequest(text="o|mine|<x:4>|<p> = copy p|<p>|<x>"))
    await web.Put(pb.PutRequest(key=b"p|bob|0003", value=b"new"))
    assert (await web.Get(pb.GetRequest(key=b"p|bob|0003"))).value == b"new"
    chunks = [chunk async for chunk in web.Scan(pb.ScanRequest(first=b"p|", last=b"p}", reverse=True))]
    assert [key for chunk in chunks for key in chunk.keys] == [b"p|bob|0003", b"p|bob|0002", b"p|bob|0001"]
    assert (await web.Count(pb.CountRequest(first=b"p|bob|0002", last=b"p}"))).count == 2
    assert (await ann.Count(pb.CountRequest(first=b"x", last=b"x"))).count == 0, "an empty range is nobody's"
    found = [chunk async for chunk in ann.Scan(pb.ScanRequest(first=b"t|ann|", last=b"t|ann}"))]
    assert sum(len(chunk.keys) for chunk in found) == 3, "without a right on the sources"
    await web.MultiPut(pb.MultiPutRequest(keys=[b"p|bob|0004", b"s|ann|liz"], values=[b"", b""]))
    assert list((await web.MultiGet(pb.MultiGetRequest(keys=[b"p|bob|0004", b"p|no"]))).present) == [True, False]
    assert (await web.RemoveRange(pb.RemoveRangeRequest(prefix=b"p|bob|0004"))).removed == 1
    assert (await web.RemoveRange(pb.RemoveRangeRequest(first=b"s|ann|liz", prefix=b"s|"))).removed == 1
    chunks = [chunk async for chunk in web.Scan(pb.ScanRequest(prefix=b"p|", keys_only=True))]
    assert sum(len(chunk.keys) for chunk in chunks) == 3
    assert (await web.Remove(pb.RemoveRequest(key=b"s|ann|bob"))).removed
    await web.Explain(pb.ExplainRequest(range=pb.Range(first=b"t|ann|", last=b"t|ann}")))
    await _As(stub, "watch").Explain(pb.ExplainRequest(join="t"))
    await _As(stub, "watch").Explain(pb.ExplainRequest(range=pb.Range(first=b"")))
    await _As(stub, "watch").Invalidate(pb.InvalidateRequest(join="t"))
    await author.DropJoin(pb.DropJoinRequest(name="t"))


async def test_lists_and_statistics_show_what_the_caller_may_see(stub: Any) -> None:
    await _As(stub, "root").AddJoin(pb.AddJoinRequest(text=TIMELINE + "; z|<a> = copy p|<b>|<a>"))

    async def seen(token: str) -> tuple[list[str], list[str], list[bytes], int]:
        joins = (await _As(stub, token).ListJoins(pb.ListJoinsRequest())).joins
        stats = await _As(stub, token).Stats(pb.StatsRequest())
        tables = [table.table for table in stats.tables]
        return [join.name for join in joins], [join.join for join in stats.joins], tables, stats.loose_keys

    assert await seen("root") == await seen("watch") == (["t", "z"], ["t", "z"], [b"p", b"s"], 1)
    assert await seen("web") == (["t"], ["t"], [b"p"], 0)
    assert await seen("ann") == ([], [], [], 0)
    assert await seen("author") == (["t"], ["t"], [b"p", b"s"], 0)


async def _execute(stream: Any, kinds: list[int], arguments: list[bytes], numbers: tuple[int, ...] = ()) -> Any:
    request = pb.ExecuteRequest(batch=5, kinds=bytes(kinds), arguments=arguments, numbers=numbers)
    return joined(await pieces_of(stream, request))


async def test_commands_of_a_batch_are_refused_alone(stub: Any, server: PequodServer) -> None:
    stream = _As(stub, "web").Execute()
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
    await _As(stub, "root").AddJoin(pb.AddJoinRequest(text="p|all|<x:4>|<y> = copy p|<y>|<x>"))
    stream = _As(stub, "web").Execute()
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
            await _execute(_As(stub, token).Execute(), [PUT, GET], [b"p|1", b""])
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_token_that_is_withdrawn_ends_streams_at_their_next_step(
    stub: Any, server: PequodServer, access_file: Path
) -> None:
    web = _As(stub, "web").Execute()
    root = _As(stub, "root").Execute()
    for number in range(2000):
        server.engine.put(b"p|long|%04d" % number, b"*" * 1000)
    scan = _As(stub, "web").Scan(pb.ScanRequest(first=b"p|", last=b"p}"))
    await scan.read()
    for stream in (web, root):
        assert list((await _execute(stream, [GET], [b"p|bob|0001"])).statuses) == [OK]
    _rewrite(access_file, access_text("author"))
    server.reload()
    for stream in (web, root, scan):
        with pytest.raises(aio.AioRpcError, match="withdrawn") as caught:
            if stream is scan:
                while await scan.read() is not aio.EOF:
                    pass
            else:
                await _execute(stream, [GET], [b"p|bob|0001"])
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert len((await _As(stub, "author").ListJoins(pb.ListJoinsRequest())).joins) == 0


async def test_rights_that_are_taken_away_are_gone_at_once(stub: Any, server: PequodServer, access_file: Path) -> None:
    stream = _As(stub, "root").Execute()
    assert list((await _execute(stream, [GET], [b"secret"])).statuses) == [OK]
    _rewrite(access_file, access_text("root").replace('[roles.root]\nread = [""]', '[roles.root]\nread = ["p|"]'))
    server.reload()
    assert list((await _execute(stream, [GET], [b"secret"])).statuses) == [FAILED]


async def test_a_changed_file_is_noticed_without_a_signal(stub: Any, access_file: Path) -> None:
    _rewrite(access_file, access_text("web"))
    async with asyncio.timeout(20):
        while True:
            try:
                await _As(stub, "root").ListJoins(pb.ListJoinsRequest())
            except aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAUTHENTICATED
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("text", [None, "not toml [", '[roles.web]\nread = "t|"', ""])
async def test_a_file_that_is_not_right_leaves_the_rules(
    stub: Any, server: PequodServer, access_file: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    _rewrite(access_file, text)
    server.reload()
    if text == "":
        with pytest.raises(aio.AioRpcError):
            await _As(stub, "web").ListJoins(pb.ListJoinsRequest())
        return
    assert "the rules read before stay in force" in caplog.text
    await _As(stub, "web").ListJoins(pb.ListJoinsRequest())
