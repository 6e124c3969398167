"""What a home answers to a plain gRPC client: versions, rights, malformed requests, releases in their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import grpc
import pytest
from grpc import aio
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodPeerStub
from pequod_server import PequodServer
from pequod_server.homes.compute.channel import PeerCredentials
from pequod_server.homes.compute.store import PequodStore

from pequod.client import AsyncClient
from pequod.errors import BackedKeyError, PermissionDeniedError, SchemaError
from tests.peer.homes import LATEST, TIMELINE, Running, fake, running, until

ACCESS = """
[roles.compute]
feed = ["s|", "p|bob|"]
write = ["p|"]

[roles.web]
read = [""]
write = [""]
"""


def hello(feed: int, **fields: Any) -> pb.PeerFeedRequest:
    return pb.PeerFeedRequest(hello=pb.PeerFeedHello(version_min=2, version_max=2, feed=feed, **fields))


def load(*ranges: tuple[bytes, bytes], **fields: Any) -> pb.PeerLoadRequest:
    firsts, lasts = [first for first, _ in ranges], [last for _, last in ranges]
    return pb.PeerLoadRequest(**{"version_min": 2, "version_max": 2, "firsts": firsts, "lasts": lasts, **fields})


class Plain:
    """A client of a home that is nothing but the generated stub."""

    def __init__(self, home: Running, token: str = "") -> None:
        self.channel = aio.insecure_channel(home.address)
        self.stub: Any = PequodPeerStub(self.channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._requests: asyncio.Queue[pb.PeerFeedRequest] = asyncio.Queue()

    async def load(self, request: pb.PeerLoadRequest) -> list[tuple[bytes, bytes]]:
        rows = list[tuple[bytes, bytes]]()
        async for reply in self.stub.Load(request, metadata=self._metadata):
            rows += zip(reply.keys, reply.values, strict=True)
        return rows

    def feed(self, first: pb.PeerFeedRequest) -> Any:
        async def requests() -> AsyncIterator[pb.PeerFeedRequest]:
            yield first
            while True:
                yield await self._requests.get()

        return self.stub.Feed(requests(), metadata=self._metadata)

    def say(self, **fields: Any) -> None:
        self._requests.put_nowait(pb.PeerFeedRequest(**fields))

    async def position(self) -> pb.PeerPositionReply:
        reply: pb.PeerPositionReply = await self.stub.Position(pb.PeerPositionRequest(), metadata=self._metadata)
        return reply

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()


async def refusal(call: Any) -> aio.AioRpcError:
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_a_caller_of_another_version_is_told_both_versions() -> None:
    async with running() as home, Plain(home) as plain:
        error = await refusal(plain.load(load((b"p|", b"p}"), version_min=3, version_max=4)))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "version 2" in (error.details() or "")
        assert "3 to 4" in (error.details() or "")
        request = hello(7)
        request.hello.version_min, request.hello.version_max = 3, 4
        error = await refusal(plain.feed(request).read())
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_compute_of_another_version_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pequod_server.homes.compute.answers.VERSION_MIN", 3)
    monkeypatch.setattr("pequod_server.homes.compute.answers.VERSION_MAX", 3)
    async with running() as home:
        with pytest.raises(SchemaError, match="older one"):
            await PequodStore([home.address], [b"p"]).check()


async def test_a_compute_whose_home_does_not_own_its_table_does_not_start() -> None:
    async with running(fake()) as home:
        with pytest.raises(SchemaError, match="does not own the table q"):
            await PequodStore([home.address], [b"p", b"q"]).check()


@pytest.mark.parametrize(
    "request_",
    [
        load((b"p|", b"")),
        load((b"p|", b"s}")),
        load((b"loose", b"loose\0")),
        pb.PeerLoadRequest(version_min=2, version_max=2, firsts=[b"p|"]),
    ],
)
async def test_a_load_of_what_is_no_range_of_one_table_is_refused(request_: pb.PeerLoadRequest) -> None:
    async with running() as home, Plain(home) as plain:
        assert (await refusal(plain.load(request_))).code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_computed_keys_of_a_home_are_no_base_data() -> None:
    async with running(joins=TIMELINE) as home, Plain(home) as plain:
        error = await refusal(plain.load(load((b"t|", b"t}"))))
        assert "no base data" in (error.details() or "")


async def test_a_load_for_a_feed_that_is_not_there_is_refused() -> None:
    async with running() as home, Plain(home) as plain:
        assert (await refusal(plain.load(load((b"p|", b"p}"), feed=9)))).code() is grpc.StatusCode.UNAVAILABLE


async def test_a_load_comes_after_the_releases_that_were_sent_before_it() -> None:
    async with running() as home, Plain(home) as plain:
        await home.client.put("p|bob|1", "a")
        feed = plain.feed(hello(7))
        assert (await feed.read()).version == 2
        assert await plain.load(load((b"p|bob|", b"p|bob}"), feed=7)) == [(b"p|bob|1", b"a")]
        # The load says that one release comes before it, which is sent later: it has to wait.
        again = asyncio.create_task(plain.load(load((b"p|bob|", b"p|bob}"), feed=7, released=1)))
        await plain.position()
        assert not again.done()
        plain.say(released_firsts=[b"p|bob|"], released_lasts=[b"p|bob}"])
        assert await again == [(b"p|bob|1", b"a")]
        await home.client.put("p|bob|2", "b")
        while not (reply := await feed.read()).keys:
            pass
        assert list(reply.keys) == [b"p|bob|2"], "the release did not take the later subscription away"


async def test_a_question_is_answered_with_its_number_position_and_age() -> None:
    async with running() as home, Plain(home) as plain:
        feed = plain.feed(hello(7))
        await feed.read()
        plain.say(asked=41)
        reply = await feed.read()
        assert (reply.answered, reply.age_ms, reply.position) == (41, 0, home.server.engine.revision)


async def test_a_continued_hello_holds_all_its_ranges() -> None:
    async with running() as home, Plain(home) as plain:
        database = home.server.peers.origin.history.database
        since = pb.PeerPlace(timeline=0, position=0)
        await plain.position()
        feed = plain.feed(hello(7, since=since, database=database, firsts=[b"p|bob|"], lasts=[b"p|bob}"], more=True))
        plain.say(hello=pb.PeerFeedHello(firsts=[b"p|cat|"], lasts=[b"p|cat}"]))
        assert not (await feed.read()).reload_firsts, "nothing has changed since"
        await home.client.put("p|cat|1", "a")
        await home.client.put("p|dan|1", "a")
        await home.client.put("p|bob|1", "a")
        keys = list[bytes]()
        while len(keys) < 2:
            keys += (await feed.read()).keys
        assert keys == [b"p|cat|1", b"p|bob|1"]


async def test_a_compute_sees_no_more_than_its_role_allows(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    tokens = "".join(
        f'[tokens.{name}]\nrole = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n'
        for name in ("compute", "web")
    )
    access.write_text(ACCESS + tokens)
    async with running(access_file=access) as home, Plain(home, "compute") as plain, Plain(home, "web") as web:
        error = await refusal(plain.load(load((b"p|", b"p}"))))
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "feed" in (error.details() or "")
        assert (await refusal(web.load(load((b"p|bob|", b"p|bob}"))))).code() is grpc.StatusCode.PERMISSION_DENIED
        assert (await refusal(web.position())).code() is grpc.StatusCode.PERMISSION_DENIED
        feed = plain.feed(hello(3, firsts=[b"p|"], lasts=[b"p}"]))
        assert (await refusal(feed.read())).code() is grpc.StatusCode.PERMISSION_DENIED
        assert await plain.load(load((b"p|bob|", b"p|bob}"))) == []

        store = PequodStore([home.address], [b"p", b"s"], connect=PeerCredentials(token="compute").connect)
        async with running(store, backing_mode="write-through") as compute:
            await compute.client.put("p|bob|1", "a")
            assert await compute.client.get("p|bob|1", freshness=LATEST) == b"a"
            with pytest.raises(PermissionDeniedError, match="feed"):
                await compute.client.get("p|cat|1")


async def test_a_compute_that_loses_a_right_goes_on_with_what_it_may_see(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    token = f'[tokens.compute]\nrole = "compute"\nsha256 = "{sha256(b"compute").hexdigest()}"\n'
    access.write_text(ACCESS + token)
    database = fake()
    async with running(database, access_file=access) as home:
        store = PequodStore([home.address], [b"p", b"s"], connect=PeerCredentials(token="compute").connect)
        async with running(store) as compute:
            database.commit({b"p|bob|0001": b"a", b"p|cat|0001": b"a", b"s|ann|bob": b"1"})
            assert await compute.client.get("p|bob|0001", freshness=LATEST) == b"a"
            assert await compute.client.get("s|ann|bob") == b"1"
            access.write_text((ACCESS + token).replace('"p|bob|"', '"p|cat|"'))
            home.server.reload()
            assert compute.server.loader is not None
            counters = compute.server.loader.counters
            await until(lambda: counters.reloads == 1)
            database.commit({b"s|ann|bob": b"2"})
            assert await compute.client.get("s|ann|bob", freshness=LATEST) == b"2"
            assert await compute.client.get("p|cat|0001", freshness=LATEST) == b"a"
            with pytest.raises(PermissionDeniedError):
                await compute.client.get("p|bob|0001")


async def test_a_feed_ends_when_its_role_loses_the_right(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    token = f'[tokens.compute]\nrole = "compute"\nsha256 = "{sha256(b"compute").hexdigest()}"\n'
    access.write_text(ACCESS + token)
    async with running(access_file=access) as home, Plain(home, "compute") as plain:
        feed = plain.feed(hello(7))
        await feed.read()
        await plain.load(load((b"p|bob|", b"p|bob}"), feed=7))
        access.write_text((ACCESS + token).replace('"p|bob|"', '"p|cat|"'))
        server: PequodServer = home.server
        server.reload()
        plain.say(asked=1)
        error = await refusal(_drained(feed))
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED


async def _drained(feed: Any) -> None:
    while await feed.read() is not aio.EOF:
        pass


async def test_a_put_that_a_home_refuses_is_refused_at_the_compute() -> None:
    async with running(fake()) as home:
        store = PequodStore([home.address], [b"p", b"s"])
        async with running(store, backing_mode="write-through") as compute:
            client: AsyncClient = compute.client
            with pytest.raises(BackedKeyError):
                await client.put("p|bob|0001", "a")


@pytest.mark.parametrize("has_database", [True, False])
@pytest.mark.parametrize(
    ("rows", "setting"),
    [
        ({b"p|bob|%s" % (b"1" * 100): b"a"}, "key_bytes_max"),
        ({b"p|bob|0001": b"a" * 1001}, "value_bytes_max"),
        ({b"p|bob|%04d" % number: b"a" for number in range(11)}, "batch_commands_max"),
    ],
)
async def test_a_home_takes_no_more_from_a_compute_than_from_its_clients(
    rows: dict[bytes, bytes], setting: str, *, has_database: bool
) -> None:
    limits = {"key_bytes_max": 100, "value_bytes_max": 1000, "batch_commands_max": 10}
    async with running(fake() if has_database else None, backing_mode="write-through", **limits) as home:
        plain = Plain(home)
        request = pb.PeerWriteRequest(keys=list(rows), values=list(rows.values()), present=b"\1" * len(rows))
        with pytest.raises(aio.AioRpcError, match=setting):
            await plain.stub.Write(request)
        assert await home.client.count(prefix="p|") == 0
        await plain.channel.close()
