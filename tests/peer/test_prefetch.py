"""A first read at a compute is one load: what its keys lead to comes with them, and is told of afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import grpc
import pytest
from google.rpc import status_pb2
from grpc_status import rpc_status
from pequod_grammar import parse
from pequod_proto import pequod_pb2 as pb
from pequod_server.backing import (
    FakeStore,
    KeyRange,
    Landing,
    Loaded,
    parse_mappings,
)
from pequod_server.database.loader import Loader
from pequod_server.homes.compute.channel import PeerCredentials
from pequod_server.homes.home.service import PeerService
from pequod_server.homes.subscriptions import Subscriptions
from pequod_server.wire.handlers import Context, end_call

from pequod.client import AsyncClient
from pequod.engine import Engine, MissingError, NextGroups, Range
from pequod.errors import BadRequestError
from tests.peer.homes import (
    LATEST,
    MAPPING,
    OWNED,
    TIMELINE,
    Running,
    computing,
    expected,
    fake,
    rows_of,
    running,
    until,
)
from tests.peer.test_wire import ACCESS, Plain, load

POSTS = {
    b"p|%b|%04d" % (poster, at): b"%b %d" % (poster, at) for poster in (b"bob", b"liz", b"tom") for at in (1, 2, 3)
}
FOLLOWS = {b"s|ann|bob": b"1", b"s|ann|liz": b"1", b"s|eve|bob": b"1", b"s|eve|tom": b"1"}


def loads_of(home: Running) -> tuple[int, int]:
    """Return how many loads a home has answered, and their rows."""
    counters = home.server.peers.gone
    return counters.loads, counters.loaded_rows


def test_a_read_tells_which_groups_it_lacks_next() -> None:
    engine = Engine(backed=OWNED)
    engine.add_joins(parse(TIMELINE))
    with pytest.raises(MissingError) as caught:
        engine.scan(b"t|ann|0002", b"t|ann|0004")
    assert caught.value.lacking == (Range(b"s|ann|", b"s|ann}"),)
    (groups,) = caught.value.next_groups
    assert groups == NextGroups(b"s|ann|", b"p|", None, b"|", b"0002", b"0004")
    assert groups.of([b"s|ann|bob", b"s|ann|a|b", b"s|ann|"]) == [Range(b"p|bob|0002", b"p|bob|0004")]
    engine.load(b"s|ann|", b"s|ann}", [(b"s|ann|bob", b"1")])
    with pytest.raises(MissingError) as caught:
        engine.scan(b"t|ann|0002", b"t|ann|0004")
    assert caught.value.lacking == (Range(b"p|bob|0002", b"p|bob|0004"),)
    assert caught.value.next_groups == ()


@pytest.mark.parametrize("has_database", [False, True])
async def test_a_first_read_is_one_load_whose_groups_are_told_of(*, has_database: bool) -> None:
    store = fake() if has_database else None
    async with running(store) as home, computing([home.address]) as compute:
        if store is None:
            await home.client.multi_put(POSTS | FOLLOWS)
        else:
            store.commit(POSTS | FOLLOWS)
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == expected((POSTS | FOLLOWS).items(), b"ann")
        assert loads_of(home) == (1, 2 + 6)
        # Bob's posts are here, and only Tom's come.
        assert await rows_of(compute, "t|eve|", freshness=LATEST) == expected((POSTS | FOLLOWS).items(), b"eve")
        assert loads_of(home) == (2, 2 + 6 + 2 + 3)
        later = {b"p|liz|0009": b"late", b"p|tom|0009": b"late"}
        if store is None:
            await home.client.multi_put(later)
        else:
            store.commit(later)
        rows = (POSTS | FOLLOWS | later).items()
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == expected(rows, b"ann")
        assert await rows_of(compute, "t|eve|", freshness=LATEST) == expected(rows, b"eve")
        assert loads_of(home)[0] == 2
        # A new feed goes on with what came unasked.
        before = set(home.server.peers.feeds)
        home.server.peers.end()
        await until(lambda: home.server.peers.feeds and not before & set(home.server.peers.feeds))
        last = {b"p|liz|0010": b"last"}
        if store is None:
            await home.client.multi_put(last)
        else:
            store.commit(last)
        rows = (POSTS | FOLLOWS | later | last).items()
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == expected(rows, b"ann")
        # It is released as all else when it is forgotten.
        relay = home.server.peers.origin.relay
        assert relay.wants.mask_of(b"p|liz|0001")
        compute.server.engine.forget(b"p|", b"p}")
        await until(lambda: not relay.wants.mask_of(b"p|liz|0001"))


async def test_a_cold_home_asks_its_database_twice_and_not_for_each_group() -> None:
    store = fake()
    async with running(store) as home, computing([home.address]) as compute:
        store.commit(POSTS | FOLLOWS)
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == expected((POSTS | FOLLOWS).items(), b"ann")
        assert home.server.loader is not None
        assert home.server.loader.counters.flights == 2


async def test_only_the_part_of_a_group_comes_that_the_read_shows() -> None:
    async with running() as home, computing([home.address]) as compute:
        await home.client.multi_put(POSTS | FOLLOWS)
        rows = await compute.client.scan("t|ann|0002", "t|ann|0004")
        assert rows == [row for row in expected((POSTS | FOLLOWS).items(), b"ann") if b"|0001|" not in row[0]]
        assert loads_of(home) == (1, 2 + 4)


async def test_a_compute_gets_nothing_unasked_of_a_table_that_it_may_see_in_part(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    tokens = "".join(
        f'[tokens.{name}]\nrole = "{name}"\nsha256 = "{sha256(name.encode()).hexdigest()}"\n'
        for name in ("compute", "web")
    )
    access.write_text(ACCESS + tokens)
    async with running(access_file=access) as home, Plain(home, "compute") as plain:
        async with AsyncClient(home.address, token="web") as client:
            await client.multi_put(POSTS | FOLLOWS)
        feed = plain.feed(pb.PeerFeedRequest(hello=pb.PeerFeedHello(version_min=2, version_max=2, feed=7)))
        await feed.read()
        groups = pb.PeerNextGroups(prefix=b"s|ann|", before=b"p|", after=b"|")
        assert len(await plain.load(load((b"s|ann|", b"s|ann}"), feed=7, next=[groups]))) == 2


async def test_a_stream_of_loads_goes_on_after_one_that_is_refused() -> None:
    async with running() as home:
        await home.client.multi_put(POSTS)
        channel = PeerCredentials().connect(home.address)
        for _ in range(2):
            with pytest.raises(BadRequestError, match="not of one table"):
                _ = [reply async for reply in channel.load(load((b"", b"\xff")))]
            found = [reply async for reply in channel.load(load((b"p|bob|", b"p|bob}")))]
            assert [key for reply in found for key in reply.keys] == [key for key in POSTS if key.startswith(b"p|bob|")]
        streams = home.server.peers._load_streams
        assert len(streams) == 1
        await channel.close()
        await until(lambda: not streams)


async def test_many_loads_share_a_stream() -> None:
    async with running() as home:
        await home.client.multi_put(POSTS)
        channel = PeerCredentials().connect(home.address)

        async def keys(poster: str) -> list[bytes]:
            first, last = f"p|{poster}|".encode(), f"p|{poster}}}".encode()
            return [key async for reply in channel.load(load((first, last))) for key in reply.keys]

        posters = ["bob", "liz", "tom", "none"] * 50
        found = await asyncio.gather(*map(keys, posters))
        assert found == [[key for key in POSTS if key.startswith(f"p|{poster}|".encode())] for poster in posters]
        await channel.close()


async def test_a_home_that_ends_streams_of_loads_is_asked_with_a_call_for_each_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unknown(_self: PeerService, _requests: object, _context: Context) -> None:
        end_call(rpc_status.to_status(status_pb2.Status(code=grpc.StatusCode.UNIMPLEMENTED.value[0], message="no")))

    monkeypatch.setattr(PeerService, "_loads", unknown)
    async with running() as home, computing([home.address]) as compute:
        await home.client.multi_put(POSTS | FOLLOWS)
        assert await rows_of(compute, "t|ann|", freshness=LATEST) == expected((POSTS | FOLLOWS).items(), b"ann")
        assert await rows_of(compute, "t|eve|", freshness=LATEST) == expected((POSTS | FOLLOWS).items(), b"eve")


class _Prefetching(FakeStore):
    """A database that gives bob's posts with everything, once it may; as a home it tells loaded ranges alone."""

    def __init__(self) -> None:
        super().__init__(parse_mappings(MAPPING))
        self.may_answer = asyncio.Event()
        self.has_read = asyncio.Event()
        self.released: list[KeyRange] = []

    async def load_and_prefetch(self, ranges: Sequence[KeyRange], next_groups: Sequence[NextGroups]) -> Loaded:
        assert next_groups
        more = (KeyRange(b"p|bob|", b"p|bob}"),)
        loaded = await self.load([*ranges, *more])
        self.has_read.set()
        await self.may_answer.wait()
        return Loaded(loaded.rows, loaded.horizon, loaded.timeline, more)

    def release(self, ranges: Sequence[KeyRange]) -> None:
        self.released += ranges


@pytest.mark.parametrize("is_released", [False, True])
async def test_what_was_released_while_it_came_is_not_taken_in(*, is_released: bool) -> None:
    store = _Prefetching()
    engine = Engine(backed=OWNED)
    engine.add_joins(parse(TIMELINE))
    loader = Loader(engine, store)
    await loader.start()
    store.commit(POSTS | FOLLOWS)
    bob = Range(b"p|bob|", b"p|bob}")
    await loader.flights.load([bob])
    await until(lambda: not engine.absent(*bob))
    engine.forget(*bob)
    with pytest.raises(MissingError) as caught:
        engine.scan(b"t|ann|", b"t|ann}")
    reading = asyncio.create_task(loader.flights.load(caught.value.ranges, caught.value.next_groups))
    await store.has_read.wait()
    if is_released:
        # The store may take this as the end of what it has just given.
        loader.flights.release()
        assert store.released == [KeyRange(*bob)]
    store.may_answer.set()
    await reading
    assert engine.absent(*bob) == ([bob] if is_released else [])
    loader.flights.release()
    assert store.released == [KeyRange(*bob)] * (2 if is_released else 0)
    await loader.stop()
    engine._check()


def test_a_load_is_not_widened_by_a_range_that_was_reloaded_meanwhile() -> None:
    landing = Landing()
    asked, beside, other = (KeyRange(b"p|%b|" % one, b"p|%b}" % one) for one in (b"a", b"b", b"c"))
    token = landing.start([asked])
    landing.reload([beside])
    assert not landing.widen(token, [beside])
    assert landing.widen(token, [other])
    assert landing.is_flying(b"p|c|1")
    landing.reload([other])
    assert not landing.is_under_way(token)
    assert not landing.widen(token, [other])


def test_whether_any_key_of_a_range_is_wanted() -> None:
    wants = Subscriptions()
    wants.add(b"b", b"d", 1)
    wants.add(b"d", b"f", 2)
    for first, last, bit, is_wanted in (
        (b"a", b"b", 1, False),
        (b"a", b"c", 1, True),
        (b"c", b"e", 1, True),
        (b"d", b"e", 1, False),
        (b"c", None, 2, True),
        (b"f", None, 2, False),
        (b"a", None, 4, False),
        (b"e", b"z", 2, True),
    ):
        assert wants.touches(first, last, bit) is is_wanted, (first, last, bit)
