"""Routes are found quickly, and are what the owners of groups say."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pequod.client.cluster.node import Node
from pequod.client.cluster.routes import Routes
from pequod.client.columns import Columns
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange, Placement
from pequod.cluster.owners import Owners
from pequod.cluster.servers import ServerEntry, ServerRole

KEYS = st.text("tp|ab", max_size=8).map(str.encode)
MAPS = [
    ClusterMap("test", 1),
    ClusterMap("test", 1, placements=(Placement(b"", level=0), Placement(b"t|", level=2))),
    ClusterMap("test", 1, home_ranges=(HomeRange(b"p|", b"p|ab", "a"), HomeRange(b"t|a|", None, "b"))),
]


class PlainNode:
    """What routes see of a node."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.is_away = False
        self.writes = self.lent = 0
        self.answered_s = 0.0


def routes(known: ClusterMap) -> Routes:
    both = frozenset(ServerRole)
    servers = [
        *(ServerEntry(f"c{number}", f"there:{number}", frozenset({ServerRole.COMPUTE})) for number in (1, 2, 3)),
        *(ServerEntry(f"h{number}", f"there:1{number}", both, group="ab"[number % 2]) for number in (1, 2, 3, 4)),
    ]
    state = ClusterState.of(known, servers)
    return Routes(state, {server.id: cast("Node", PlainNode(server.id)) for server in servers})


@pytest.mark.parametrize("known", MAPS)
@given(st.lists(KEYS, min_size=1, max_size=30))
def test_a_key_s_node_is_that_of_its_owner_whatever_was_asked_before(known: ClusterMap, keys: list[bytes]) -> None:
    found, owners = routes(known), Owners(routes(known).state)
    for key in keys:
        assert cast("Node", found.reader(key)).id == owners.readers(key)[0].id
        assert cast("Node", found.writer(key)).id == (owners.writers(key) or owners.readers(key))[0].id


def test_who_is_away_is_not_asked_and_its_spare_is() -> None:
    found = routes(MAPS[0])
    owner, spare, *_ = found.readers(b"t|ann|")
    assert found.reader(b"t|ann|") is owner
    owner.is_away = True
    found.forget()
    assert found.reader(b"t|ann|") is spare
    for node in found.nodes.values():
        node.is_away = True
    found.forget()
    assert found.reader(b"t|ann|") is owner
    # Of those that are away, the one that answered last is the likeliest to answer.
    spare.answered_s = 1.0
    found.forget()
    assert found.reader(b"t|ann|") is spare


def test_the_writes_of_a_key_follow_those_under_way() -> None:
    found = routes(MAPS[0])
    owner, spare, *_ = found.writers(b"p|bob|1")
    columns = Columns()
    columns.put(b"p|bob|1", b"x")
    assert found.writer(b"p|bob|1") is owner
    assert found.lenders(columns, owner) == []
    owner.is_away, owner.writes = True, 1
    assert found.writer(b"p|bob|1") is owner
    owner.writes = 0
    assert found.writer(b"p|bob|1") is spare
    assert found.lenders(columns, spare) == [owner]
    owner.lent, spare.writes = 1, 1
    owner.is_away, spare.is_away = False, True
    assert found.writer(b"p|bob|1") is spare
    owner.lent = spare.writes = 0
    assert found.writer(b"p|bob|1") is owner


def test_reads_of_a_hot_group_go_to_the_first_ones_that_are_there() -> None:
    found = routes(ClusterMap("test", 1, placements=(Placement(b"t|", read_spread=3),)))
    first, second, third, fourth, *_ = found.readers(b"t|ann|")
    assert {found.reader(b"t|ann|") for _ in range(100)} == {first, second, third}
    second.is_away = True
    found.forget()
    assert {found.reader(b"t|ann|") for _ in range(100)} == {first, third, fourth}
