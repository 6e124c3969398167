"""Getting in where one does not belong: each call over a real socket, with tokens that may do little."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status
from pequod_proto import pequod_pb2 as pb
from pequod_server import PequodServer

from pequod.commands.kinds import FAILED, SCAN
from pequod.escapes import shown
from tests.server import roles
from tests.server.roles import As, bearer

# Fixtures of this module.
access_file, server, stub = roles.access_file, roles.server, roles.stub

TIMELINE = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
METHODS = list(pb.DESCRIPTOR.services_by_name["Pequod"].methods)
REQUESTS = {
    "MultiGet": pb.MultiGetRequest(keys=[b"p|bob|0001"]),
    "Splits": pb.SplitsRequest(prefix=b"p|", count=4),
    "MultiPut": pb.MultiPutRequest(keys=[b"p|bob|0001"], values=[b""]),
    "Transaction": pb.TransactionRequest(compare_keys=[b"p|bob|0001"], compare_operators=b"\1", compare_values=[b""]),
    "WatchRanges": pb.WatchRangesRequest(ranges=[pb.WatchedRange(first=b"p|")]),
    "Explain": pb.ExplainRequest(join="t"),
    "Invalidate": pb.InvalidateRequest(join="t"),
    "BeginBackfill": pb.BeginBackfillRequest(join="t"),
    "ReadBackfill": pb.ReadBackfillRequest(join="t"),
    "LoadBackfill": pb.LoadBackfillRequest(join="t"),
    "RenewBackfill": pb.RenewBackfillRequest(join="t"),
    "EndBackfill": pb.EndBackfillRequest(join="t"),
    "AddJoin": pb.AddJoinRequest(text="o|<a> = copy p|<b>|<a>"),
    "CheckJoin": pb.CheckJoinRequest(text="o|<a> = copy p|<b>|<a>"),
    "DropJoin": pb.DropJoinRequest(name="t"),
    "ReplaceJoin": pb.ReplaceJoinRequest(name="t", text=TIMELINE),
    "EndReplacement": pb.EndReplacementRequest(name="t"),
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


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        bearer("guess"),
        bearer(""),
        bearer("root "),
        bearer("Root"),
        (("authorization", "root"),),
        (("authorization", "Basic root"),),
        (*bearer("nobody"), *bearer("root")),
        bearer(sha256(b"root").hexdigest()),
    ],
)
async def test_nobody_comes_in_without_a_token_that_is_known(
    stub: Any, server: PequodServer, metadata: tuple[tuple[str, str], ...]
) -> None:
    revision = server.engine.revision
    for method in METHODS:
        is_stream = method.name == "Execute"
        request = REQUESTS.get(method.name, getattr(pb, method.input_type.name)())
        call = getattr(stub, method.name)(*(() if is_stream else (request,)), metadata=metadata)
        with pytest.raises(aio.AioRpcError) as caught:
            if is_stream or isinstance(call, aio.UnaryStreamCall):
                await call.read()
            else:
                await call
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, method.name
        assert server.engine.revision == revision, method.name


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_a_role_without_rights_may_do_nothing(stub: Any, method: Any) -> None:
    root, nobody = As(stub, "root"), As(stub, "nobody")
    await root.AddJoin(pb.AddJoinRequest(text=TIMELINE))
    if method.name == "FollowCluster":
        # Every client may have the map. This server has none.
        outcome = await _outcome(nobody.FollowCluster(pb.FollowClusterRequest()), None, is_stream=False)
        assert outcome is grpc.StatusCode.FAILED_PRECONDITION
        with_joins = pb.FollowClusterRequest(with_joins=True)
        for role, wanted in ((nobody, grpc.StatusCode.PERMISSION_DENIED), (root, grpc.StatusCode.FAILED_PRECONDITION)):
            assert await _outcome(role.FollowCluster(with_joins), None, is_stream=False) is wanted
        return
    if method.name in ("ListJoins", "Stats", "ListBackfills", "ListReplacements"):
        await root.BeginBackfill(pb.BeginBackfillRequest(join="t"))
        await root.ReplaceJoin(pb.ReplaceJoinRequest(name="t", text=TIMELINE))
        reply = await getattr(nobody, method.name)(getattr(pb, method.input_type.name)())
        assert not getattr(reply, "joins", ()), "they show what the caller may see"
        assert not getattr(reply, "backfills", ())
        assert not getattr(reply, "replacements", ())
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
    ("web", "Expire", pb.ExpireRequest(key=b"secret", ttl_ms=1), "write", b"secret", b"secret\0"),
    ("web", "Ttl", pb.TtlRequest(key=b"secret"), "read", b"secret", b"secret\0"),
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
    ("watch", "RestoreSnapshot", pb.RestoreSnapshotRequest(), "write", b"", None),
    ("watch", "DropJoin", pb.DropJoinRequest(name="t"), "join", b"t|", b"t}"),
    ("author", "AddJoin", pb.AddJoinRequest(text="u|<x> = copy p|<x>"), "join", b"u|", b"u}"),
    ("watch", "EndReplacement", pb.EndReplacementRequest(name="t"), "join", b"t|", b"t}"),
    ("ann", "ReplaceJoin", pb.ReplaceJoinRequest(name="t", text=TIMELINE), "join", b"t|", b"t}"),
    ("author", "ReplaceJoin", pb.ReplaceJoinRequest(name="t", text="o|<x> = copy p|<x>"), "join", b"o|", b"o}"),
    (
        "author",
        "ReplaceJoin",
        pb.ReplaceJoinRequest(name="t", text="t|<x> = copy secret|<x>"),
        "read",
        b"secret|",
        b"secret}",
    ),
    ("author", "AddJoin", pb.AddJoinRequest(text="o|<x> = copy p|<x>"), "join", b"o|", b"o}"),
    ("author", "CheckJoin", pb.CheckJoinRequest(text="o|<x> = copy p|<x>"), "join", b"o|", b"o}"),
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
    await As(stub, "root").AddJoin(pb.AddJoinRequest(text=TIMELINE))
    revision = server.engine.revision
    call = getattr(As(stub, token), name)(request_)
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
    root, watch, driver = As(stub, "root"), As(stub, "watch"), As(stub, "driver")
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
    web, author, ann = As(stub, "web"), As(stub, "author"), As(stub, "ann")
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
    await As(stub, "watch").Explain(pb.ExplainRequest(join="t"))
    await As(stub, "watch").Explain(pb.ExplainRequest(range=pb.Range(first=b"")))
    await As(stub, "watch").Invalidate(pb.InvalidateRequest(join="t"))
    await author.DropJoin(pb.DropJoinRequest(name="t"))


async def test_lists_and_statistics_show_what_the_caller_may_see(stub: Any) -> None:
    await As(stub, "root").AddJoin(pb.AddJoinRequest(text=TIMELINE + "; z|<a> = copy p|<b>|<a>"))

    async def seen(token: str) -> tuple[list[str], list[str], list[bytes], int]:
        joins = (await As(stub, token).ListJoins(pb.ListJoinsRequest())).joins
        stats = await As(stub, token).Stats(pb.StatsRequest())
        tables = [table.table for table in stats.tables]
        return [join.name for join in joins], [join.join for join in stats.joins], tables, stats.loose_keys

    assert await seen("root") == await seen("watch") == (["t", "z"], ["t", "z"], [b"p", b"s"], 1)
    assert await seen("web") == (["t"], ["t"], [b"p"], 0)
    assert await seen("ann") == ([], [], [], 0)
    assert await seen("author") == (["t"], ["t"], [b"p", b"s"], 0)
