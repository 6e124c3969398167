"""A server that starts asks homes for their maps: it does not begin by one that is not theirs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from pequod_server.cluster.confirming import MapConfirmer, SilentHomesError, UnconfirmedMapError, asking, confirmed
from pequod_server.cluster.etcd import EtcdCoordinator
from pequod_server.homes.compute.channel import PeerCredentials

from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from pequod.errors import ClusterMapError
from tests.cluster.conftest import Etcd
from tests.cluster.test_joins import Cluster
from tests.simulation.registry import Registry, SimulatedCoordinator

COMPUTE = ServerEntry("c1", "10.0.0.1:1", frozenset({ServerRole.COMPUTE}))
BOTH = ServerEntry("b1", "10.0.0.2:1", group="a")
HOMES = [ServerEntry(f"h{at}", f"10.0.1.{at}:1", frozenset({ServerRole.HOME}), "a", map_version=3) for at in range(4)]
KNOWN = ClusterMap("twip", 3, "t|<a> = count p|<a>|<b>", home_ranges=(HomeRange(b"p|", b"p}", "a"),))
STATE = ClusterState.of(KNOWN, HOMES)


class Homes:
    """What homes say, by their ids; the others do not answer."""

    def __init__(self, maps: Mapping[str, ClusterMap]) -> None:
        self.maps = maps
        self.asked: list[str] = []

    async def __call__(self, home: ServerEntry) -> ClusterMap:
        self.asked.append(home.id)
        if home.id not in self.maps:
            raise ClusterMapError(f"{home.id} at {home.address}", "nobody is there")
        return self.maps[home.id]


def all_say(known: ClusterMap) -> Homes:
    # Nobody is told the joins.
    return Homes({home.id: replace(known, joins="") for home in HOMES})


@pytest.mark.parametrize("version", [3, 2])
async def test_homes_confirm_their_own_map_and_one_that_they_do_not_have_yet(version: int) -> None:
    homes = all_say(replace(KNOWN, version=version))
    await MapConfirmer(COMPUTE, homes).confirm("etcd", STATE)
    # Of many homes of a group, two say it.
    assert len(homes.asked) == 2


@pytest.mark.parametrize("entry", [COMPUTE, BOTH])
async def test_a_later_map_of_a_home_and_another_one_of_this_version_stop_a_start(entry: ServerEntry) -> None:
    later = MapConfirmer(entry, all_say(replace(KNOWN, version=5)))
    with pytest.raises(UnconfirmedMapError, match=r"servers go by version 5 .*`pequod cluster map restore PLACE FILE`"):
        await later.confirm("etcd", STATE)
    other = MapConfirmer(entry, all_say(replace(KNOWN, home_ranges=(HomeRange(b"p|", None, "a"),))))
    with pytest.raises(UnconfirmedMapError, match=r"goes by another map of this version.*map save FILE --target 10"):
        await other.confirm("etcd", STATE)


async def test_a_compute_needs_the_answer_of_one_home_and_a_home_needs_none() -> None:
    silent = Homes({})
    with pytest.raises(SilentHomesError, match=r"no home says which map it goes by: h\d at 10.*start the homes"):
        await MapConfirmer(COMPUTE, silent).confirm("etcd", STATE)
    await MapConfirmer(BOTH, silent).confirm("etcd", STATE)
    one = Homes({silent.asked[0]: KNOWN})
    await MapConfirmer(COMPUTE, one).confirm("etcd", STATE)
    assert len(one.asked) == 2


async def test_computes_are_asked_for_a_later_map_and_nobody_waits_for_them() -> None:
    computes = [replace(COMPUTE, id=f"c{at}") for at in range(2, 9)]
    state = ClusterState.of(KNOWN, computes)
    for entry in (COMPUTE, HOMES[0]):
        silent = Homes({})
        await MapConfirmer(entry, silent).confirm("etcd", state)
        assert len(silent.asked) == 2
        later = Homes({silent.asked[0]: replace(KNOWN, version=4)})
        with pytest.raises(UnconfirmedMapError, match="servers go by version 4"):
            await MapConfirmer(entry, later).confirm("etcd", state)


async def test_a_home_that_starts_itself_is_not_asked() -> None:
    starting = [replace(home, state=ServerState.JOINING) for home in HOMES]
    await MapConfirmer(COMPUTE, homes := Homes({})).confirm("etcd", ClusterState.of(KNOWN, starting))
    await MapConfirmer(HOMES[0], homes).confirm("etcd", ClusterState.of(KNOWN, [HOMES[0]]))
    assert homes.asked == []


async def test_a_start_waits_for_homes_for_a_while_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry(KNOWN)
    for home in HOMES:
        registry.register(home)
    coordinator = SimulatedCoordinator(registry, Random(1), "c1")
    homes = Homes({})
    confirmer = MapConfirmer(COMPUTE, homes, wait_s=0)
    with pytest.raises(UnconfirmedMapError, match="no home says which map it goes by"):
        await confirmed(coordinator, confirmer)
    assert not caplog.records
    confirmer.wait_s = 60
    # The third answer is the first one that there is.
    homes.asked.clear()

    class Late(Homes):
        async def __call__(self, home: ServerEntry) -> ClusterMap:
            if len(self.asked) > 3:
                self.maps = {home.id: KNOWN}
            return await super().__call__(home)

    assert (await confirmed(coordinator, MapConfirmer(COMPUTE, Late({})))).map == KNOWN
    assert [record.getMessage() for record in caplog.records] == ["the start waits for the homes"]


async def test_a_compute_asks_with_its_own_token(etcd: Etcd, tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    digest = sha256(b"secret").hexdigest()
    access.write_text(f'[roles.compute]\nfeed = ["p|"]\n[tokens.c1]\nrole = "compute"\nsha256 = "{digest}"\n')
    async with AsyncExitStack() as stack:
        cluster = Cluster(etcd, stack)
        coordinator = EtcdCoordinator(etcd.endpoints, cluster.name)
        await coordinator.put_map(replace(KNOWN, cluster=cluster.name, version=1))
        home = await cluster.server("h1", cluster_group="a", cluster_roles="home", access_file=str(access))
        assert home.member is not None
        entry = home.member.entry
        state = await coordinator.read()
        await MapConfirmer(COMPUTE, asking(PeerCredentials(token="secret"))).confirm("etcd", state)
        told = rf"no home says which map it goes by: h1 at {entry.address}: .*token"
        with pytest.raises(UnconfirmedMapError, match=told):
            await MapConfirmer(COMPUTE, asking(PeerCredentials(token="wrong"))).confirm("etcd", state)
        await coordinator.close()
