"""Which server a group belongs to: all clients agree, in every process and version, and little moves."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pequod.cluster import owners as owners_module
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange, Placement
from pequod.cluster.owners import Owners, Rankings
from pequod.cluster.ranking import KEPT, Ranking
from pequod.cluster.rendezvous import owners, score
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState

COMPUTE = frozenset({ServerRole.COMPUTE})
HOME = frozenset({ServerRole.HOME})
PINNED = [
    ["c4", "c3", "c5", "c2", "c1"],
    ["c1", "c3", "c4", "c2", "c5"],
    ["c1", "c4", "c3", "c2", "c5"],
    ["c1", "c4", "c2", "c5", "c3"],
    ["c5", "c3", "c2", "c1", "c4"],
]
GROUPS = [b"t|%d|" % number for number in range(5000)]


def servers(count: int) -> list[tuple[str, float]]:
    return [(f"c{number}", 1.0) for number in range(1, count + 1)]


def test_owners_are_the_same_in_all_processes_and_versions() -> None:
    """A change of these values would send each client of another version to other servers."""
    assert [owners(group, servers(5)) for group in (b"t|ann|", b"t|bob|", b"p|bob|", b"|", b"\xff\0|")] == PINNED
    assert owners(b"t|ann|", [("c1", 10.0), ("c2", 1.0), ("c3", 1.0)]) == ["c1", "c3", "c2"]
    assert score("c1", 1.0, b"t|ann|") == pytest.approx(0.25115, abs=1e-5)


@given(st.binary(max_size=8), st.permutations(servers(5)))
def test_the_order_of_the_servers_does_not_matter(group: bytes, order: list[tuple[str, float]]) -> None:
    assert owners(group, order) == owners(group, servers(5))


def test_each_server_gets_the_share_of_its_weight() -> None:
    shares = Counter(owners(group, [("c1", 1.0), ("c2", 1.0), ("c3", 2.0)])[0] for group in GROUPS)
    assert [shares[name] / len(GROUPS) for name in ("c1", "c2", "c3")] == pytest.approx([0.25, 0.25, 0.5], abs=0.02)


@given(st.binary(max_size=8))
def test_a_server_that_goes_gives_its_groups_to_their_spares_and_moves_no_other(group: bytes) -> None:
    before = owners(group, servers(5))
    for gone in before:
        left = [server for server in servers(5) if server[0] != gone]
        assert owners(group, left) == [name for name in before if name != gone]


def test_a_greater_weight_only_takes_groups() -> None:
    heavier = [("c1", 3.0), *servers(5)[1:]]
    for group in GROUPS[:500]:
        before, after = owners(group, servers(5))[0], owners(group, heavier)[0]
        assert after in (before, "c1")


def entry(name: str, roles: frozenset[ServerRole], **members: object) -> ServerEntry:
    group = "a" if ServerRole.HOME in roles else ""
    return ServerEntry(name, "10.0.0.1:7744", roles, **({"group": group} | members))  # type: ignore[arg-type]


def names(found: tuple[ServerEntry, ...]) -> list[str]:
    return [server.id for server in found]


def test_reads_go_to_ready_computes_and_a_range_goes_by_its_first_key() -> None:
    state = ClusterState.of(
        ClusterMap("twip", 1),
        [
            entry("c1", COMPUTE),
            entry("c2", COMPUTE, state=ServerState.DRAINING),
            entry("c3", COMPUTE),
            entry("c4", COMPUTE, state=ServerState.JOINING),
            entry("h1", HOME),
        ],
    )
    found = Owners(state)
    assert sorted(names(found.readers(b"t|ann|"))) == ["c1", "c3"]
    assert found.readers(b"t|ann|0000000100") == found.readers(b"t|ann|") == found.readers(b"t|ann")
    found._check()


@pytest.mark.parametrize(
    "states", [[ServerState.DRAINING, ServerState.JOINING], [ServerState.JOINING, ServerState.JOINING], []]
)
def test_without_a_ready_compute_the_best_of_the_others_are_asked(states: list[ServerState]) -> None:
    computes = [entry(f"c{number}", COMPUTE, state=state) for number, state in enumerate(states, 1)]
    found = Owners(ClusterState.of(ClusterMap("twip", 1), computes))
    assert sorted(names(found.readers(b"t|ann|"))) == [one.id for one in computes if one.state is states[0]]


def test_reads_go_to_computes_that_have_the_map() -> None:
    """Others lack its latest joins."""
    versions = {"c1": 6, "c2": 7, "c3": 0, "c4": 8}
    computes = [entry(name, COMPUTE, map_version=version) for name, version in versions.items()]
    found = Owners(ClusterState.of(ClusterMap("twip", 7), computes))
    assert sorted(names(found.readers(b"t|ann|"))) == ["c2", "c3", "c4"]
    late = Owners(ClusterState.of(ClusterMap("twip", 7), computes[:1]))
    assert names(late.readers(b"t|ann|")) == ["c1"]


def test_a_write_goes_to_the_homes_of_its_range() -> None:
    ranges = (HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "b"))
    state = ClusterState.of(
        ClusterMap("twip", 1, home_ranges=ranges),
        [entry("h1", HOME), entry("h2", HOME), entry("h3", HOME, group="b"), entry("c1", COMPUTE)],
    )
    found = Owners(state)
    assert sorted(names(found.writers(b"p|bob|1"))) == ["h1", "h2"]
    assert found.writers(b"p|bob|1") == found.writers(b"p|bob|2")
    assert names(found.writers(b"s|ann|bob")) == ["h3"]
    assert found.writers(b"q|ann") == ()
    firsts = Counter(found.writers(b"p|%d|" % number)[0].id for number in range(200))
    assert min(firsts.values()) > 50
    found._check()


def test_without_home_ranges_a_write_goes_to_any_home() -> None:
    state = ClusterState.of(ClusterMap("twip", 1), [entry("s1", HOME | COMPUTE), entry("s2", HOME | COMPUTE)])
    assert sorted(names(Owners(state).writers(b"p|bob|1"))) == ["s1", "s2"]
    assert Owners(ClusterState.of(ClusterMap("twip", 1), [entry("c1", COMPUTE)])).writers(b"p|bob|1") == ()


def test_what_is_kept_of_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners_module, "GROUPS_MAX", 8)
    both = HOME | COMPUTE
    found = Owners(ClusterState.of(ClusterMap("twip", 1), [entry("s1", both), entry("s2", both), entry("s3", both)]))
    for group in random.Random(7).choices(GROUPS[:40], k=500):
        found.readers(group)
        found.writers(group)
        assert max(len(found._readers), len(found._writers)) <= 8
        found._check()


def test_placements_say_the_spread() -> None:
    placements = (Placement(b"t|", read_spread=2), Placement(b"t|ann|", level=0, read_spread=3))
    found = Owners(ClusterState.of(ClusterMap("twip", 1, placements=placements), []))
    assert found.read_spread_of(found.group_of(b"t|ann|1")) == 3
    assert found.read_spread_of(found.group_of(b"t|bob|1")) == 2
    assert found.read_spread_of(found.group_of(b"p|bob|1")) == 1


def test_reads_of_a_zone_go_to_its_computes_and_then_to_the_others() -> None:
    zones = {"c1": "eu", "c2": "us", "c3": "eu", "c4": "us", "c5": ""}
    entries = [entry(name, COMPUTE, zone=zone) for name, zone in zones.items()]
    state = ClusterState.of(ClusterMap("twip", 1), entries)
    everywhere, near, unknown = Owners(state), Owners(state, Rankings("eu")), Owners(state, Rankings("asia"))
    for group in GROUPS[:200]:
        order = names(everywhere.readers(group))
        found = names(near.readers(group))
        assert found == sorted(order, key=lambda name: zones[name] != "eu")
        assert set(found[:2]) == {"c1", "c3"}
        assert names(unknown.readers(group)) == order
    near._check()
    # Each zone shares its groups out over its own.
    firsts = Counter(names(near.readers(group))[0] for group in GROUPS[:200])
    assert firsts["c1"] + firsts["c3"] == 200
    assert min(firsts.values()) > 60
    gone = [replace(one, state=ServerState.DRAINING) if one.zone == "eu" else one for one in entries]
    assert "c1" not in names(Owners(ClusterState.of(state.map, gone), Rankings("eu")).readers(b"t|ann|"))


class Changing(RuleBasedStateMachine):
    """Computes that come, go, drain and lag, while groups are asked for: the kept ranks are those found anew."""

    def __init__(self) -> None:
        super().__init__()
        self.rankings = Rankings("eu")
        self.known = {
            f"c{number}": entry(f"c{number}", COMPUTE, zone=_zone(number), map_version=1) for number in range(14)
        }
        self.owners = self._now()

    def _now(self) -> Owners:
        return Owners(ClusterState.of(ClusterMap("twip", 1), self.known.values()), self.rankings)

    @rule(number=st.integers(0, 30), weight=st.sampled_from((1.0, 1.0, 2.0)), state=st.sampled_from(ServerState))
    def one_comes_or_changes(self, number: int, weight: float, state: ServerState) -> None:
        name = f"c{number}"
        self.known[name] = entry(name, COMPUTE, zone=_zone(number), weight=weight, state=state, map_version=1)
        self.owners = self._now()

    @rule(number=st.integers(0, 30))
    def one_goes(self, number: int) -> None:
        self.known.pop(f"c{number}", None)
        self.owners = self._now()

    @rule(count=st.integers(1, 8))
    def groups_are_asked_for(self, count: int) -> None:
        for group in GROUPS[:count]:
            self.owners.readers(group)

    @invariant()
    def what_is_kept_is_right(self) -> None:
        self.owners._check()
        self.rankings._check()
        everywhere = Owners(self.owners.state, Rankings("eu"))
        for group in GROUPS[:3]:
            assert self.owners.readers(group)[:4] == everywhere.all_readers(group)[:4]


def _zone(number: int) -> str:
    return "eu" if number % 3 else "us"


TestChanging = Changing.TestCase


def test_a_change_costs_a_group_that_is_kept_no_ranking_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ranking, hashed = Ranking(), list[str]()

    def counted(server: str, weight: float, group: bytes) -> float:
        hashed.append(server)
        return score(server, weight, group)

    monkeypatch.setattr("pequod.cluster.rendezvous.score", counted)
    ranking.update(servers(200))
    first = [ranking.first(group) for group in GROUPS[:20]]
    hashed.clear()
    # One goes, and one comes: what is kept of each group is ranked with the new one.
    ranking.update([*servers(199), ("c201", 1.0)])
    for group in GROUPS[:20]:
        ranking.first(group)
    assert len(hashed) <= 20 * (KEPT + 1)
    hashed.clear()
    ranking.update(servers(200))
    assert [ranking.first(group)[:7] for group in GROUPS[:20]] == [one[:7] for one in first]
    ranking._check()
