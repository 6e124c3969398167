"""The values of a cluster: what can be is accepted, what cannot be is refused with its place."""

import doctest
import importlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pequod_proto import pequod_pb2 as pb

import pequod.cluster
from pequod.cluster.document import TEMPLATE, read, written
from pequod.cluster.grouping import Grouping
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange, Placement
from pequod.cluster.messages import message_of_difference, message_of_state, server_of, state_after, state_of
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from pequod.errors import ClusterMapError

MODULES = sorted(path.stem for path in Path(pequod.cluster.__path__[0]).glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"pequod.cluster.{name}")).failed == 0


WRONG: dict[str, Callable[[], object]] = {
    "cluster: '' is no name": lambda: ClusterMap("", 1),
    "cluster: 'a/b' is no name": lambda: ClusterMap("a/b", 1),
    "version: -1 is not from 0 to 9223372036854775807": lambda: ClusterMap("twip", -1),
    "placement 't': its prefix does not end with '|'": lambda: Placement(b"t"),
    "placement 't|', level: 17 is not from 0 to 16": lambda: Placement(b"t|", level=17),
    "placement 't|', read_spread: 0 is not from 1": lambda: Placement(b"t|", read_spread=0),
    "placement 's|': it does not come after 't|'": lambda: ClusterMap(
        "twip", 1, placements=(Placement(b"t|"), Placement(b"s|"))
    ),
    "placement 't|': it does not come after 't|'": lambda: ClusterMap(
        "twip", 1, placements=(Placement(b"t|"), Placement(b"t|"))
    ),
    "home range ['b', 'b'): it is empty": lambda: HomeRange(b"b", b"b", "a"),
    "home range ['', end), group: '' is no name": lambda: HomeRange(b"", None, ""),
    "home range ['b', 'c'): it does not come after home range ['', 'b\\x00')": lambda: ClusterMap(
        "twip", 1, home_ranges=(HomeRange(b"", b"b\0", "a"), HomeRange(b"b", b"c", "b"))
    ),
    "home range ['b', 'c'): it does not come after home range ['a', end)": lambda: ClusterMap(
        "twip", 1, home_ranges=(HomeRange(b"a", None, "a"), HomeRange(b"b", b"c", "b"))
    ),
    "a server's id: '' is no name": lambda: ServerEntry("", "there:1", group="a"),
    "server s1, address: 'there' is no address": lambda: ServerEntry("s1", "there", group="a"),
    "server s1, roles: there is none": lambda: ServerEntry("s1", "there:1", frozenset()),
    "server s1, group: '' is no name": lambda: ServerEntry("s1", "there:1"),
    "server s1, group: 'a' is given": lambda: ServerEntry("s1", "there:1", frozenset({ServerRole.COMPUTE}), "a"),
    "server s1, weight: 0 is not": lambda: ServerEntry("s1", "there:1", group="a", weight=0.0),
    "server s1, weight: nan is not": lambda: ServerEntry("s1", "there:1", group="a", weight=float("nan")),
    "server s1, weight: inf is not": lambda: ServerEntry("s1", "there:1", group="a", weight=float("inf")),
    "server s1: another server has this id": lambda: ClusterState.of(
        ClusterMap("twip", 1), [ServerEntry("s1", "there:1", group="a"), ServerEntry("s1", "there:2", group="a")]
    ),
    "home range ['', end): no server is a home of its group 'b'": lambda: ClusterState.of(
        ClusterMap("twip", 1, home_ranges=(HomeRange(b"", None, "a", "b"),)), [ServerEntry("s1", "there:1", group="a")]
    ).check_groups(),
    "server s2, address: server s1 has there:1 already": lambda: ClusterState.of(
        ClusterMap("twip", 1), [ServerEntry(name, "there:1", group="a") for name in ("s1", "s2")]
    ).check_addresses(),
    "version: 18446744073709551616 is not from 0 to": lambda: read('cluster = "a"\nversion = 18446744073709551616'),
    "the map: it is no TOML": lambda: read("cluster ="),
    "the map, cluster: it is missing": lambda: read(""),
    "the map, version: it has to be a whole number": lambda: read('cluster = "a"\nversion = true'),
    "the map, servers: it has to be tables": lambda: read('cluster = "a"\nversion = 1\nservers = [1]'),
    "the map, server: there is no such member; there are cluster,": lambda: read('cluster="a"\nversion=1\nserver=1'),
    "placements, number 1, prefix: a backslash must": lambda: read(
        'cluster = "a"\nversion = 1\n[[placements]]\nprefix = "\\\\q"'
    ),
    "placements, number 1, spread: there is no such member; there are prefix,": lambda: read(
        'cluster = "a"\nversion = 1\n[[placements]]\nprefix = "t|"\nspread = 2'
    ),
    "servers, number 1, roles: 'homes' is none of home, compute": lambda: read(
        'cluster = "a"\nversion = 1\n[[servers]]\nid = "s"\naddress = "there:1"\nroles = ["homes"]'
    ),
    "server s1, state: 'gone' is no state": lambda: server_of(pb.ClusterServer(id="s1", state="gone")),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_is_refused_with_its_place(message: str) -> None:
    with pytest.raises(ClusterMapError, match=f"^{re.escape(message)}"):
        WRONG[message]()


KEYS = st.binary(max_size=6) | st.text("a|\\\x7f'\"\n\ud7ffé", max_size=6).map(str.encode)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,4}", fullmatch=True)
PLACEMENTS = st.lists(
    st.builds(
        Placement,
        st.lists(st.sampled_from([b"t|", b"s|", b"a|", b"|"]), max_size=3).map(b"".join),
        level=st.integers(0, 4),
        read_spread=st.integers(1, 4),
    ),
    unique_by=lambda one: one.prefix,
    max_size=4,
).map(lambda found: tuple(sorted(found, key=lambda one: one.prefix)))


@st.composite
def home_ranges(draw: st.DrawFn) -> tuple[HomeRange, ...]:
    bounds = sorted(draw(st.sets(KEYS, max_size=6)))
    groups = st.sampled_from("abc")
    ranges = []
    for first, last in zip(bounds[::2], bounds[1::2], strict=False):
        group, other = draw(groups), draw(groups)
        ranges.append(HomeRange(first, last, group, "" if group == other else other))
    if len(bounds) % 2:
        ranges.append(HomeRange(bounds[-1], None, "a"))
    return tuple(ranges)


SERVERS = st.lists(
    st.tuples(
        NAMES,
        st.sets(st.sampled_from(ServerRole), min_size=1).map(frozenset),
        st.floats(0, 1000, exclude_min=True),
        st.text(max_size=3),
        st.sampled_from(ServerState),
    ).map(
        lambda drawn: ServerEntry(
            drawn[0], "10.0.0.1:7744", drawn[1], "a" if ServerRole.HOME in drawn[1] else "", *drawn[2:]
        )
    ),
    unique_by=lambda server: server.id,
    max_size=4,
)
JOINS = st.text("<t|user> =;'\"\\\n\r\t\0\x7fé", max_size=20)
STATES = st.builds(
    ClusterState.of,
    st.builds(ClusterMap, NAMES, st.integers(0, 1 << 60), JOINS, PLACEMENTS, home_ranges()),
    SERVERS,
)


@given(STATES)
def test_a_state_is_read_back_from_its_text_and_from_its_message(state: ClusterState) -> None:
    assert read(written(state)) == state
    later = tuple(replace(server, map_version=number) for number, server in enumerate(state.servers))
    assert read(written(replace(state, servers=later))) == state
    state = replace(state, servers=later)
    message = pb.FollowClusterReply.FromString(message_of_state(state).SerializeToString())
    assert state_of(message) == state


@given(STATES, STATES, st.booleans())
def test_a_difference_leads_from_a_state_to_the_next_and_has_what_changed_alone(
    before: ClusterState, other: ClusterState, has_new_map: bool
) -> None:
    after = other if has_new_map else replace(other, map=before.map)
    message = pb.FollowClusterReply.FromString(message_of_difference(before, after).SerializeToString())
    assert state_after(before, message) == after
    assert message.HasField("map") == (after.map != before.map)
    assert {server.id for server in message.servers} == {one.id for one in set(after.servers) - set(before.servers)}
    # One that sends whole states is followed as well.
    assert state_after(before, message_of_state(after)) == after


def test_a_message_with_fewer_fields_has_the_defaults() -> None:
    message = pb.FollowClusterReply(
        map=pb.ClusterMap(cluster="twip", placements=[pb.ClusterPlacement(prefix=b"t|")]),
        servers=[pb.ClusterServer(id="c1", address="there:1", roles=["compute", "of-the-future"], state="ready")],
    )
    state = state_of(message)
    assert state.map.placements == (Placement(b"t|"),)
    assert state.servers == (ServerEntry("c1", "there:1", frozenset({ServerRole.COMPUTE})),)


def test_the_template_is_a_map_and_tells_every_member() -> None:
    state = read(TEMPLATE)
    state.check_groups()
    assert len(state.servers) == len(state.map.home_ranges) == 1
    uncommented = re.sub(r"^# (\[\[|\w+ = )", r"\1", TEMPLATE, flags=re.MULTILINE)
    assert read(uncommented).map.placements == (Placement(b"top|", 0, 2),)


@given(PLACEMENTS, KEYS | st.text("tsa|", max_size=8).map(str.encode))
def test_a_group_is_a_prefix_and_its_own_group(placements: tuple[Placement, ...], key: bytes) -> None:
    grouping = Grouping(placements)
    group = grouping.group_of(key)
    assert group.endswith(b"|")
    assert (key + b"|").startswith(group)
    assert grouping.group_of(group) == group


@given(PLACEMENTS, st.text("tsa|", max_size=8).map(str.encode))
def test_the_group_of_a_key_follows_from_the_longest_prefix(placements: tuple[Placement, ...], key: bytes) -> None:
    level, prefix = 1, b""
    for placement in placements:
        if key.startswith(placement.prefix) and len(placement.prefix) >= len(prefix):
            level, prefix = placement.level, placement.prefix
    *whole, rest = key.split(b"|")
    slots = [*whole, rest] if rest or not whole else whole
    named = b"".join(slot + b"|" for slot in slots[: level + 1])
    assert Grouping(placements).group_of(key) == max(named, prefix, key=len)


@given(home_ranges(), KEYS)
def test_a_key_has_the_home_range_that_holds_it(ranges: tuple[HomeRange, ...], key: bytes) -> None:
    holding = [home for home in ranges if home.first <= key and (home.last is None or key < home.last)]
    assert ClusterMap("twip", 1, home_ranges=ranges).home_range_of(key) == (holding[0] if holding else None)
