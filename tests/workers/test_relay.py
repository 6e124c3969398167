"""Reads that the native core passes on: the replies of the owner's worker, to the byte, or those of any call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_server.access.access_file import token_as

from pequod.native.http2 import why_absent
from pequod.native.http2.relay import Lack, new_relay_end
from tests.workers.pair import (
    ANSWERED,
    CALL,
    HEAD,
    MINE,
    OTHER,
    RETURNED,
    ROLE,
    STATE,
    THEIRS,
    TOKEN,
    FakeDoor,
    Pair,
    fill,
    give_back,
    make_pair,
    posts,
    timeline,
    users_of,
    value,
)

pytestmark = pytest.mark.skipif(why_absent() is not None, reason="there are no hot calls without the native core")

ACCESS: Final = f"""
[roles.reader]
read = ["s|", "p|", "t|{users_of("w0", 1)[0].decode()}|"]

[roles.root]
read = [""]
write = [""]

[tokens.reader]
role = "reader"
sha256 = "{sha256(b"reader").hexdigest()}"

[tokens.root]
role = "root"
sha256 = "{sha256(b"root").hexdigest()}"
"""


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with make_pair(tmp_path) as pair:
        async with pair.stub() as stub:
            await fill(stub)
        await pair.until(lambda: bool(pair.link.is_up))
        yield pair


async def test_each_read_is_answered_by_the_core_of_the_other_worker(pair: Pair) -> None:
    first, last = b"t|" + THEIRS + b"|", b"t|" + THEIRS + b"}"
    quick = [
        ("Get", pb.GetRequest(key=posts(THEIRS)[1])),
        ("Ttl", pb.TtlRequest(key=posts(THEIRS)[1])),
        ("MultiGet", pb.MultiGetRequest(keys=posts(THEIRS))),
        ("Count", pb.CountRequest(first=b"note|", last=b"note}")),
        ("Scan", timeline(THEIRS)),
        ("Scan", timeline(THEIRS, reverse=True, limit=2)),
        ("Scan", timeline(THEIRS, keys_only=True, limit=3, one_chunk=True)),
    ]
    # The core answers these nowhere.
    slow = [
        ("Get", pb.GetRequest(key=first + b"0000000009|bob")),
        ("MultiGet", pb.MultiGetRequest(keys=[*posts(THEIRS), first + b"0000000009|bob"])),
        ("Count", pb.CountRequest(first=first, last=last)),
        ("Scan", pb.ScanRequest(prefix=first)),
    ]
    async with pair.stub() as passing, pair.stub("w0") as owning:
        await owning.Put(pb.PutRequest(key=b"note|1", value=b"of the home"))
        for name, request in [*quick, *slow]:
            replies = []
            # From the second time on, it is quick there.
            for stub in (owning, owning, passing):
                before, answered = (pair.native.passed, pair.native.returned), pair.native.answered
                call = getattr(stub, name)(request)
                replies.append([one async for one in call] if name == "Scan" else [await call])
            assert replies[2] == replies[1], name
            if (name, request) in quick:
                assert (pair.native.passed, pair.native.returned) == (before[0] + 1, before[1]), request
                assert pair.native.answered == answered + 1, "the worker that its client has called counts it"


async def test_a_read_of_an_own_group_or_of_several_goes_nowhere(pair: Pair) -> None:
    before = pair.native.passed
    async with pair.stub() as stub:
        assert await value(stub, MINE) == b"post 1"
        reply = await stub.MultiGet(pb.MultiGetRequest(keys=[posts(MINE)[0], posts(THEIRS)[0]]))
        assert list(reply.values) == [b"post 0", b"post 0"]
    assert pair.native.passed == before


async def test_a_key_that_only_the_home_has_is_read_there(pair: Pair) -> None:
    before = pair.native.passed, pair.native.returned
    async with pair.stub() as stub:
        await stub.Put(pb.PutRequest(key=b"note|1", value=b"of the home"))
        assert (await stub.Get(pb.GetRequest(key=b"note|1"))).value == b"of the home"
    assert (pair.native.passed, pair.native.returned) == (before[0] + 1, before[1])


async def test_without_joins_all_keys_are_read_at_the_home(tmp_path: Path) -> None:
    async with make_pair(tmp_path, joins="") as pair, pair.stub() as stub:
        await stub.Put(pb.PutRequest(key=b"note|1", value=b"of the home"))
        await pair.until(lambda: bool(pair.link.is_up))
        for number in range(3):
            assert (await stub.Get(pb.GetRequest(key=b"note|1"))).value == b"of the home"
            assert (pair.native.passed, pair.native.returned) == (number + 1, 0)


async def test_many_calls_at_once_are_each_answered_with_their_own(pair: Pair) -> None:
    async with pair.stub() as one, pair.stub() as other:

        async def read(number: int) -> None:
            stub, user, at = (one, other)[number % 2], (THEIRS, OTHER)[number % 3 == 0], number % 5
            reply = await stub.Get(pb.GetRequest(key=posts(user)[at]))
            assert reply.value == b"post %d" % at

        await asyncio.gather(*(read(number) for number in range(600)))
    assert pair.native.passed >= 600
    await pair.until(lambda: pair.native.relayed_count == 0)


async def test_a_read_shows_what_its_connection_has_written(pair: Pair) -> None:
    async with pair.stub() as stub:
        for number in range(50):
            await stub.Put(pb.PutRequest(key=b"p|bob|%010d" % 1, value=b"%d" % number))
            assert await value(stub) == b"%d" % number


async def test_a_read_at_the_home_shows_what_was_written_there(pair: Pair) -> None:
    assert pair.home._passing is not None and pair.home._passing.relay is not None
    native: Any = pair.home._server.hot.native  # type: ignore[attr-defined]
    async with pair.stub("w0") as stub:
        # The compute is told of each write somewhat later.
        for number in range(50):
            await stub.Put(pb.PutRequest(key=b"p|bob|%010d" % 1, value=b"%d" % number))
            assert await value(stub, MINE) == b"%d" % number
    assert native.passed >= 50


async def test_a_read_that_is_not_quick_there_begins_anew(pair: Pair) -> None:
    cold = users_of("w0", 3)[2]
    async with pair.stub() as stub:
        await stub.Put(pb.PutRequest(key=b"s|%b|bob" % cold, value=b"1"))
        before = pair.native.returned
        assert await value(stub, cold) == b"post 1"
        assert pair.native.returned == before + 1


async def test_what_a_call_says_wrong_is_said_as_ever(pair: Pair) -> None:
    first = b"t|" + THEIRS + b"|"
    wrong = [
        ("Get", pb.GetRequest(key=b"")),
        ("Get", pb.GetRequest(key=first + b"x" * 5000)),
        ("Count", pb.CountRequest(first=first + b"z", last=first)),
        ("Get", pb.GetRequest(key=posts(THEIRS)[0], freshness=pb.Freshness(after=b"no token"))),
        ("MultiGet", pb.MultiGetRequest(keys=[b"t|" + THEIRS + b"|1", b""])),
    ]
    async with pair.stub() as passing, pair.stub("w0") as owning:
        for name, request in wrong:
            found = []
            for stub in (passing, owning):
                try:
                    reply = await getattr(stub, name)(request)
                    found.append((grpc.StatusCode.OK, reply))
                except aio.AioRpcError as error:
                    found.append((error.code(), error.details()))
            assert found[0] == found[1], name


async def test_the_other_worker_answers_as_of_the_role_of_the_caller(tmp_path: Path) -> None:
    def as_role(name: str) -> dict[str, Any]:
        return {"metadata": (("authorization", f"Bearer {name}"),)}

    async with make_pair(tmp_path, ACCESS) as pair, pair.stub() as stub:
        await fill(stub, **as_role("root"))
        await pair.until(lambda: bool(pair.link.is_up))
        before = pair.native.passed, pair.native.returned
        assert await value(stub, **as_role("reader")) == b"post 1"
        assert await value(stub, OTHER, **as_role("root")) == b"post 1"
        assert (pair.native.passed, pair.native.returned) == (before[0] + 2, before[1])
        with pytest.raises(aio.AioRpcError, match="PERMISSION_DENIED"):
            await value(stub, OTHER, **as_role("reader"))
        with pytest.raises(aio.AioRpcError, match="UNAUTHENTICATED"):
            await value(stub)
        text = ACCESS.replace(f'"t|{THEIRS.decode()}|"', f'"t|{OTHER.decode()}|"')
        (tmp_path / "access.toml").write_text(text)
        for server in (pair.home, pair.compute):
            server.reload()
        assert await value(stub, OTHER, **as_role("reader")) == b"post 1"
        with pytest.raises(aio.AioRpcError, match="PERMISSION_DENIED"):
            await value(stub, **as_role("reader"))
        async with FakeDoor(pair, give_back) as door:
            await value(stub, OTHER, **as_role("reader"))
            assert door.parts[1] == (ROLE, f"Bearer {token_as(TOKEN, 'reader')}".encode())


async def test_what_is_passed_on_asks_for_the_present_state_once(pair: Pair) -> None:
    async with FakeDoor(pair, give_back) as door, pair.stub() as stub:
        for _ in range(3):
            assert await value(stub) == b"post 1"
        token = pair.compute.service.levels.token
        assert token
        assert [kind for kind, _ in door.parts] == [STATE, CALL, CALL, CALL]
        assert door.parts[0] == (STATE, token)


async def test_a_call_waits_for_the_state_and_the_rights_that_its_worker_lacks(pair: Pair) -> None:
    hot: Any = pair.home._server.hot  # type: ignore[attr-defined]
    end = new_relay_end(hot.native)
    message = pb.GetRequest(key=posts(THEIRS)[1]).SerializeToString()
    async with pair.stub("w0") as stub:
        assert await value(stub) == b"post 1"

    def call(number: int, token: bytes) -> bytes:
        return HEAD.pack(len(token), 0, STATE, 0) + token + HEAD.pack(len(message), number, CALL, 1) + message

    def answer() -> tuple[int, int]:
        _, number, kind, _ = HEAD.unpack(end.output()[: HEAD.size])
        return number, kind

    end.receive(call(1, b"a state"))
    assert (end.run(hot.relay_turn()), end.token, end.output()) == (Lack.REACHED, b"a state", b"")
    end.reach(True)
    assert (end.run(hot.relay_turn()), end.output()) == (Lack.RIGHTS, b"")
    end.admit(None)
    assert end.run(hot.relay_turn()) == Lack.NOTHING
    assert answer() == (1, ANSWERED)
    end.receive(call(2, b"another state"))
    assert end.run(hot.relay_turn()) == Lack.REACHED
    end.reach(False)
    assert end.run(hot.relay_turn()) == Lack.NOTHING
    assert answer() == (2, RETURNED)
    # Without a state, and for a role that there is none of, and where nothing may be answered.
    end.receive(call(3, b""))
    end.admit(False)
    assert end.run(hot.relay_turn()) == Lack.NOTHING
    assert answer() == (3, RETURNED)
    end.receive(call(4, b"a third state"))
    assert end.run(None) == Lack.NOTHING
    assert answer() == (4, RETURNED)
