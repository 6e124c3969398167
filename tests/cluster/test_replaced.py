"""A join of a map takes the place of another: at all computes, and each answer has the old rows or the new ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from pequod_server import PequodServer
from pequod_server.calls import preparing

from pequod.client import AsyncClient
from pequod.engine.reads.building import Building
from pequod.errors import (
    CoordinatorUnavailableError,
    JoinError,
    MapFixedError,
    NotReplaceableError,
    ReplacementEndedError,
    UnknownJoinError,
)
from tests.cluster.conftest import Etcd
from tests.cluster.test_joins import KARMA, TIMELINE, Cluster, names
from tests.cluster.test_static import serving, write
from tests.cluster.waiting import answered, eventually

SUM = "karma|<author> = sum vote|<author>|<id>"
OLD = {f"karma|a{number}".encode(): b"2" for number in range(9)}
NEW = {f"karma|a{number}".encode(): b"7" for number in range(9)}


class Held:
    """Holds the building of joins at some servers, until a test lets them go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.servers: list[PequodServer] = []
        build = Building.build_some

        def build_some(building: Building, now: float) -> bool:
            held = [server.engine._building for server in self.servers]
            return build(building, now) or building in held

        monkeypatch.setattr(Building, "build_some", build_some)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


class Pair(Cluster):
    """Two computes with the same base data of their own, and a client of each."""

    async def begin(self) -> None:
        await self.init(f"{KARMA};")
        self.servers = [await self.compute("c1"), await self.compute("c2")]
        self.clients = [await self.client(server) for server in self.servers]

    async def compute(self, name: str) -> PequodServer:
        server = await self.server(name)
        client = await self.client(server)
        await client.multi_put({f"vote|a{number}|{at}": value for number in range(9) for at, value in enumerate("52")})
        assert set((await rows(client)).values()) <= {b"2", b"7"}
        return server


def _has_cleared(server: PequodServer) -> bool:
    return not server.engine._catalog.gone


async def rows(client: AsyncClient) -> dict[bytes, bytes]:
    return dict(await client.scan(prefix="karma|"))


@pytest.fixture
async def pair(etcd: Etcd) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        pair = Pair(etcd, stack)
        await pair.begin()
        yield pair


async def waits_for(client: AsyncClient, *servers: str) -> None:
    """Wait until the replacement waits for these servers alone."""

    async def waits() -> bool:
        return [one.waits_for for one in await client.replacements() if not one.ended] == [servers]

    await answered(waits)


async def has_ended(client: AsyncClient) -> None:
    """Wait until no replacement is under way."""

    async def ended() -> bool:
        return all(one.ended for one in await client.replacements())

    await answered(ended)


async def test_all_computes_prepare_before_any_of_them_shows_the_new_rows(pair: Pair, held: Held) -> None:
    other = pair.servers[1]
    held.servers = [other]
    answers: list[list[dict[bytes, bytes]]] = [[], []]

    async def read(at: int) -> None:
        while True:
            answers[at].append(await rows(pair.clients[at]))

    readers = [asyncio.create_task(read(at)) for at in range(2)]
    replaced = asyncio.create_task(pair.clients[0].replace_join("karma", SUM))
    await waits_for(pair.clients[0], "c2")
    assert [await rows(client) for client in pair.clients] == [OLD, OLD]
    (status,) = await pair.clients[1].replacements()
    assert (status.join, status.text, status.is_in_place) == ("karma", SUM, False)
    computed = [server.engine._reads.rows_computed for server in pair.servers]
    held.servers = []
    assert (await replaced).is_in_place
    assert [await rows(client) for client in pair.clients] == [NEW, NEW]
    assert [server.engine._reads.rows_computed for server in pair.servers] == computed, "they were built"
    for reader, seen in zip(readers, answers, strict=True):
        reader.cancel()
        assert all(answer in (OLD, NEW) for answer in seen)
        assert OLD in seen
        # None goes back.
        assert sorted(seen, key=lambda answer: answer == NEW) == seen
    # The other server has heard a moment later that all go by the map.
    await has_ended(pair.clients[1])
    assert [one.is_in_place for one in await pair.clients[1].replacements()] == [True]
    for server in pair.servers:
        server.engine._check()
        await eventually(partial(_has_cleared, server))


async def test_a_cancelled_replacement_ends_at_all_computes(pair: Pair, held: Held) -> None:
    held.servers = [pair.servers[0]]
    replaced = asyncio.create_task(pair.clients[0].replace_join("karma", SUM))
    await waits_for(pair.clients[1], "c1")
    with pytest.raises(NotReplaceableError, match="is under way; wait for its end"):
        await pair.clients[1].replace_join("karma", "karma|<author> = max vote|<author>|<id>")
    await pair.clients[1].cancel_replacement("other")
    await pair.clients[1].cancel_replacement("karma")
    with pytest.raises(ReplacementEndedError, match="it was cancelled"):
        await replaced
    assert [await rows(client) for client in pair.clients] == [OLD, OLD]
    assert [server.engine.replacement for server in pair.servers] == [None, None]
    held.servers = []
    assert (await pair.clients[1].replace_join("karma", SUM)).is_in_place


async def test_any_compute_puts_back_what_a_join_was_also_one_that_started_since(pair: Pair) -> None:
    with pytest.raises(NotReplaceableError, match="no earlier text"):
        await pair.clients[0].undo_replacement("karma")
    first = await pair.clients[0].replace_join("karma", SUM)
    assert (await pair.clients[1].replace_join("karma", SUM)).id == first.id, "it is there"
    late = await pair.client(await pair.compute("c3"))
    assert await rows(late) == NEW
    assert (await late.undo_replacement("karma")).text == KARMA
    for client in (*pair.clients, late):
        assert await rows(client) == OLD


async def test_a_compute_that_starts_in_between_has_nothing_to_prepare(pair: Pair, held: Held) -> None:
    held.servers = [pair.servers[1]]
    replaced = asyncio.create_task(pair.clients[0].replace_join("karma", SUM))
    await waits_for(pair.clients[0], "c2")
    late = await pair.client(await pair.compute("c0"))
    assert await rows(late) == OLD
    await waits_for(late, "c2")
    held.servers = []
    assert (await replaced).is_in_place
    assert await rows(late) == NEW


async def test_the_compute_that_was_asked_goes_and_the_others_end_its_work(pair: Pair, held: Held) -> None:
    held.servers = [pair.servers[1]]
    replaced = asyncio.create_task(pair.clients[0].replace_join("karma", SUM))
    await waits_for(pair.clients[1], "c2")
    replaced.cancel()
    await pair.servers[0].stop()
    held.servers = []
    await has_ended(pair.clients[1])
    assert await rows(pair.clients[1]) == NEW


async def test_a_compute_that_may_not_change_the_map_leaves_it_to_another(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = pair.servers[0].member
    assert member is not None

    async def refuse(_: object) -> None:
        raise CoordinatorUnavailableError(member.place, "permission denied")

    monkeypatch.setattr(member._coordinator, "put_map", refuse)
    monkeypatch.setattr(preparing, "_TURN_S", 0.1)
    with pytest.raises(CoordinatorUnavailableError):
        await pair.clients[0].replace_join("karma", SUM)
    assert pair.servers[0].engine.replacement is None
    assert (await pair.clients[1].replace_join("karma", SUM)).is_in_place


async def test_a_join_that_is_dropped_meanwhile_ends_its_replacement(pair: Pair, held: Held) -> None:
    held.servers = pair.servers
    replaced = asyncio.create_task(pair.clients[0].replace_join("karma", SUM))
    await waits_for(pair.clients[0], "c1", "c2")
    await pair.clients[1].drop_join("karma")
    with pytest.raises(ReplacementEndedError, match="the join was dropped"):
        await replaced
    assert [names(server) for server in pair.servers] == [[], []]


async def test_what_cannot_take_its_place_is_refused_and_the_map_stays(pair: Pair) -> None:
    client, member = pair.clients[0], pair.servers[0].member
    assert member is not None
    version = member.map.version
    for text in (TIMELINE, "karma|<author> = coutn vote|<author>|<id>", "karma|<author> = copy karma|<author>"):
        with pytest.raises(JoinError):
            await client.replace_join("karma", text)
    with pytest.raises(UnknownJoinError):
        await client.replace_join("t", TIMELINE)
    home = await pair.client(await pair.server("h1", cluster_roles="home", cluster_group="a"))
    with pytest.raises(UnknownJoinError):
        await home.replace_join("karma", SUM)
    own = await pair.client(await pair.server("c3", joins=TIMELINE))
    with pytest.raises(NotReplaceableError, match="it is in the settings of this server"):
        await own.replace_join("t", f"{TIMELINE} unless mute|<user>|<poster>")
    assert member.map.version == version


async def test_a_home_refuses_a_join_that_is_about_to_take_the_place_of_another(pair: Pair, held: Held) -> None:
    home = await pair.client(await pair.server("h1", cluster_roles="home", cluster_group="a"))
    held.servers = pair.servers
    replaced = asyncio.create_task(pair.clients[0].replace_join("karma", SUM))
    await waits_for(home, "c1", "c2")
    with pytest.raises(JoinError, match="about to take the place of the join 'karma'"):
        await home.add_join(SUM)
    held.servers = []
    assert (await replaced).is_in_place


async def test_the_joins_of_a_file_are_replaced_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    write(path, 1, KARMA)
    async with serving(path) as (_, address), AsyncClient(address) as client:
        with pytest.raises(MapFixedError):
            await client.replace_join("karma", SUM)
        assert [join.text for join in await client.joins()] == [KARMA]
        assert await client.replacements() == []
