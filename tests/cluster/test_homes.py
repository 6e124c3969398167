"""Homes refuse writes of keys that are not theirs, and of keys that move; every way to write is held to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_proto import pequod_pb2 as pb
from pequod_proto.pequod_pb2_grpc import PequodStub
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.homes.compute.store import PequodStore
from pequod_server.homes.rules import HomeRules

import pequod
from pequod.client import AsyncClient
from pequod.cluster.edits import disowned, moved, moves_within, moving, opened, owned, placed, unplaced
from pequod.cluster.map import ClusterMap, HomeRange, Placement
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import BackingUnavailableError, ClusterMapError, NotHomeError
from tests.cluster.conftest import Etcd
from tests.cluster.test_joins import Cluster
from tests.cluster.waiting import eventually
from tests.peer.homes import running
from tests.server.serving import connect

KNOWN = ClusterMap("twip", 4, home_ranges=(HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "b")))
HOME = ServerEntry("h1", "127.0.0.1:1", frozenset({ServerRole.HOME}), "a")
COMPUTE = ServerEntry("c1", "127.0.0.1:2", frozenset({ServerRole.COMPUTE}))


@pytest.fixture
async def cluster(etcd: Etcd) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        cluster = Cluster(etcd, stack)
        coordinator = EtcdCoordinator(etcd.endpoints, cluster.name)
        await coordinator.put_map(replace(KNOWN, cluster=cluster.name, version=1))
        await coordinator.close()
        yield cluster


async def rules_of(entry: ServerEntry, known: ClusterMap) -> HomeRules:
    rules = HomeRules(entry)
    await rules.take_in(known)
    rules._check()
    return rules


def taken(rules: HomeRules, *keys: bytes) -> list[bool]:
    return [rules.error_of(key) is None for key in keys]


async def test_a_home_takes_the_keys_of_its_group_and_a_compute_passes_on_those_of_all() -> None:
    keys = (b"p|bob|1", b"s|ann|bob", b"q|1", b"p}", b"")
    assert taken(await rules_of(HOME, KNOWN), *keys) == [True, False, False, False, False]
    assert taken(await rules_of(COMPUTE, KNOWN), *keys) == [True, True, False, False, False]
    assert taken(await rules_of(HOME, ClusterMap("twip", 1)), *keys) == [True] * 5


async def test_a_home_refuses_a_table_that_its_database_does_not_have(caplog: pytest.LogCaptureFixture) -> None:
    given = owned(KNOWN, [HomeRange(b"q|a", b"q|b", "a")])
    for known in (given, moving(KNOWN, b"s|", b"s}", "a")):
        rules = HomeRules(HOME, tables=[b"p"])
        await rules.take_in(known)
        rules._check()
        assert "lacks tables that the map gives it" in caplog.text
        assert taken(rules, b"p|bob|1", b"q|a1", b"s|ann|bob") == [True, False, False]
        caplog.clear()
    # What is not of one table alone is for servers that clients read.
    await HomeRules(HOME, tables=[b"p"]).take_in(ClusterMap("twip", 1, home_ranges=(HomeRange(b"", None, "a"),)))
    assert not caplog.text


async def test_while_a_range_moves_no_home_takes_it_and_the_new_one_takes_copies_alone() -> None:
    other = replace(HOME, id="h2", group="b")
    steps = [
        known := moving(KNOWN, b"p|m", b"p}", "b"),
        come := moved(known, known.version),
        opened(come, b"p|m", b"p}"),
    ]
    taking = [[await rules_of(entry, one) for entry in (HOME, other, COMPUTE)] for one in steps]
    assert [[taken(rules, b"p|l", b"p|m", b"s|") for rules in some] for some in taking] == [
        [[True, False, False], [False, False, True], [True, False, True]],
        [[True, False, False], [False, False, True], [True, False, True]],
        [[True, False, False], [False, True, True], [True, True, True]],
    ]

    def takes_copies(rules: HomeRules, key: bytes) -> bool:
        try:
            rules.refuse_copies([key], known.version)
        except NotHomeError:
            return False
        return True

    copies = [[[takes_copies(rules, key) for key in (b"p|l", b"p|m", b"s|")] for rules in some] for some in taking]
    none = [False, False, False]
    assert copies == [[none, [False, True, False], none], [none] * 3, [none] * 3]


async def test_a_map_is_taken_in_when_writes_that_were_let_in_before_are_done() -> None:
    rules = await rules_of(HOME, KNOWN)
    async with rules.writing():
        taking = asyncio.create_task(rules.take_in(moving(KNOWN, b"p|", b"p}", "b")))
        await asyncio.sleep(0.01)
        assert not taking.done()
        assert rules.error_of(b"p|bob|1") is not None
    await taking


KEYS = st.binary(max_size=2)


@given(st.lists(KEYS, min_size=2, max_size=6, unique=True), KEYS, st.none() | KEYS, st.data())
def test_moves_cut_ranges_and_lose_no_key(
    cuts: list[bytes], first: bytes, last: bytes | None, data: st.DataObject
) -> None:
    cuts.sort()
    homes = tuple(HomeRange(one, other, data.draw(st.sampled_from("ab"))) for one, other in pairwise(cuts))
    known = ClusterMap("twip", 1, home_ranges=homes)
    try:
        during = moving(known, first, last, "c")
    except ClusterMapError:
        is_owned = all(known.home_range_of(key) is not None for key in (first,))
        assert not is_owned or last is None or last > cuts[-1] or first >= last
        return
    come, undone = moved(during, during.version), opened(during, first, last)
    # To move what has come changes nothing, so a command that ended may be run again.
    assert moving(come, first, last, "c").home_ranges == come.home_ranges
    after = opened(come, first, last)
    assert [one.version for one in (during, come, after, undone)] == [2, 3, 4, 3]
    assert moves_within(during, first, last) and moves_within(come, first, last)
    assert not moves_within(after, b"", None)
    for key in {*cuts, first, b"", b"\xff", *data.draw(st.lists(KEYS))}:
        before = known.home_range_of(key)
        group = None if before is None else before.group
        inside = first <= key and (last is None or key < last)
        for one, wanted in ((undone, group), (after, "c" if inside else group)):
            found = one.home_range_of(key)
            assert (None if found is None else found.group) == wanted
        midway = during.home_range_of(key)
        assert (None if midway is None else (midway.group, midway.moves_to)) == (
            None if group is None else (group, "c" if inside else "")
        )


def test_edits_that_are_not_possible_are_refused() -> None:
    with pytest.raises(ClusterMapError, match="each key has one home group"):
        owned(KNOWN, [HomeRange(b"p|x", b"p|y", "c")])
    with pytest.raises(ClusterMapError, match="it is in b already"):
        moving(KNOWN, b"s|", b"s}", "b")
    with pytest.raises(ClusterMapError, match="belongs to no home group"):
        moving(KNOWN, b"p|", b"s}", "c")
    with pytest.raises(
        ClusterMapError, match=r"it moves to b already: `pequod cluster move PLACE 'p.' 'p}' --to b` goes on"
    ):
        moving(moving(KNOWN, b"p|", b"p}", "b"), b"p|", b"p}", "c")
    with pytest.raises(ClusterMapError, match="the map does not have it"):
        unplaced(KNOWN, b"t|")
    assert unplaced(placed(placed(KNOWN, Placement(b"t|", 0)), Placement(b"t|", 2)), b"t|").placements == ()


def test_ranges_that_are_taken_from_their_groups_leave_the_others() -> None:
    one = disowned(KNOWN, [(b"p|b", b"p|m"), (b"s|", b"s}")])
    assert [(home.first, home.last, home.group) for home in one.home_ranges] == [
        (b"p|", b"p|b", "a"),
        (b"p|m", b"p}", "a"),
    ]
    assert one.version == 5
    for ranges, why in (
        ([(b"p|", b"p}"), (b"s|", b"s}")], "none would be left, and then each server would take all keys"),
        ([(b"p|a", b"q|")], "from 'p}' on it belongs to no home group"),
        ([(b"p|b", b"p|b")], "it is empty"),
    ):
        with pytest.raises(ClusterMapError, match=re.escape(why)):
            disowned(KNOWN, ranges)
    with pytest.raises(
        ClusterMapError, match=r"it moves to b: .* `pequod cluster move PLACE 'p.m' 'p}' --undo` ends it"
    ):
        disowned(moving(KNOWN, b"p|m", b"p}", "b"), [(b"p|", b"p}")])


async def test_every_way_to_write_is_refused_at_a_home_of_another_group(cluster: Cluster) -> None:
    home = await cluster.server("h1", cluster_roles="home", cluster_group="a")
    client = await cluster.client(home)
    assert home.member is not None
    await client.multi_put({"p|bob|1": "1", "p|bob|2": "2"})
    await client.put("p|bob|3", "3")
    async with connect(int(home.member.entry.address.rpartition(":")[2])) as channel:
        stub = PequodStub(channel)  # type: ignore[no-untyped-call]
        await stub.Put(pb.PutRequest(key=b"p|bob|4", value=b"4"))
        for call in (
            client.put("s|ann|bob", "1"),
            client.remove("s|ann|bob"),
            client.multi_put({"p|bob|5": "1", "s|ann|bob": "1"}),
            client.transaction([pequod.absent("s|ann|bob")], [pequod.Put("p|bob|5", "1")]),
            client.transaction([], [], [pequod.Put("s|ann|bob", "1")]),
            client.remove_range("p|", "s}"),
            client.remove_range("p|"),
        ):
            with pytest.raises(NotHomeError) as raised:
                await call
            assert raised.value.map_version == 1
        outcomes = await asyncio.gather(
            client.put("p|bob|6", "6"), client.put("q|1", ""), client.get("s|ann|bob"), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), NotHomeError, type(None)]
        for request in (pb.PutRequest(key=b"s|ann|bob", value=b"1"), pb.RemoveRequest(key=b"s|ann|bob")):
            with pytest.raises(Exception, match="belongs to no home group of this server"):
                await (stub.Put if isinstance(request, pb.PutRequest) else stub.Remove)(request)
    assert [key for key, _ in await client.scan()] == [b"p|bob|1", b"p|bob|2", b"p|bob|3", b"p|bob|4", b"p|bob|6"]
    assert await client.remove_range("p|bob|2", "p|bob|4") == 2


async def test_a_home_that_was_paused_takes_no_write_before_it_has_asked_for_the_map() -> None:
    now_s = 100.0
    rules = HomeRules(HOME, lambda: now_s)
    await rules.take_in(KNOWN)
    for _ in range(5):
        rules.beat()
        now_s += 2.9
        assert taken(rules, b"p|bob|1") == [True]
    now_s += 0.2
    assert isinstance(rules.error_of(b"p|bob|1"), BackingUnavailableError)
    assert rules.bounds == ([], [])
    rules.beat()
    with pytest.raises(BackingUnavailableError, match="paused"):
        rules.refuse_range(b"p|", b"p}")
    with pytest.raises(BackingUnavailableError, match="paused"):
        rules.refuse([b"p|bob|1"])
    during = moving(KNOWN, b"p|m", b"p}", "b")
    rules.confirm(moved(during, during.version))
    assert taken(rules, b"p|l", b"p|m") == [True, False]
    now_s += 100
    await rules.take_in(KNOWN)
    # A map that may have been on its way during the pause is no confirmation.
    assert taken(rules, b"p|l") == [False]


async def test_a_home_wakes_after_a_range_has_moved_without_it(cluster: Cluster, etcd: Etcd) -> None:
    home = await cluster.server("h1", cluster_roles="home", cluster_group="a")
    assert home.member is not None
    coordinator = EtcdCoordinator(etcd.endpoints, cluster.name)
    known = (await coordinator.read()).map
    rules = home.member.rules
    await eventually(lambda: rules._ran_s is not None)
    async with AsyncClient(home.member.entry.address) as client:
        await client.put("p|zoe|1", "before")
        clock, rules._clock = rules._clock, lambda: clock() + 5.0
        # What the home is told of maps does not come in time.
        for task in home.member._tasks[:2]:
            task.cancel()
        during = moving(known, b"p|m", b"p}", "b")
        for step in (during, moved(during, during.version)):
            await coordinator.put_map(step)
        with pytest.raises(BackingUnavailableError, match="paused"):
            await client.put("p|zoe|1", "lost")
        await eventually(lambda: not rules.must_confirm())
        with pytest.raises(NotHomeError):
            await client.put("p|zoe|1", "lost")
        await client.put("p|bob|1", "again")
    await coordinator.close()


async def test_a_read_at_a_compute_that_does_not_know_the_newest_map_is_unavailable(cluster: Cluster) -> None:
    home = await cluster.server("h1", cluster_roles="home", cluster_group="a")
    assert home.member is not None
    store = PequodStore([home.member.entry.address], [b"p", b"s"])
    async with running(store) as compute:
        assert await compute.client.get("p|bob|1") is None
        with pytest.raises(BackingUnavailableError):
            await compute.client.get("s|ann|bob")
