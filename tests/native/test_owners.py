"""The native core finds the group and the owner of a key as `Grouping` and `owners` do."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pequod.cluster.grouping import Grouping, Placement
from pequod.cluster.rendezvous import owners, reader
from pequod.native.http2.relay import new_owners
from tests.native.core import hot

KEYS = st.one_of(
    st.binary(max_size=400),
    st.lists(st.sampled_from([b"t", b"ann", b"bob", b"0000000001", b"", b"x" * 127, b"y" * 128]), max_size=5).map(
        b"|".join
    ),
)
IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=16)
WEIGHTS = st.sampled_from([1.0, 1.0, 1.0, 0.5, 2.0, 3.25])
PLACEMENTS = st.builds(
    Placement,
    st.sampled_from([b"", b"t|", b"t|ann|", b"t|ann|bob|", b"ann|", b"|"]),
    level=st.integers(0, 4),
    read_spread=st.integers(1, 10),
)


@given(
    key=KEYS,
    servers=st.dictionaries(IDS, WEIGHTS, min_size=1, max_size=8),
    placements=st.lists(PLACEMENTS, max_size=4, unique_by=lambda one: one.prefix),
)
@example(key=b"t", servers={"0": 1.0, "00": 1.0}, placements=[Placement(b"t|", level=0, read_spread=2)])
@example(
    key=b"t|ann|1",
    servers={f"w{number}": 1.0 for number in range(5)},
    placements=[Placement(b"t|", level=1, read_spread=2)],
)
@example(key=b"t|ann|bob|1", servers={"w0": 1.0}, placements=[Placement(b"t|ann|", level=0)])
@example(key=b"t|ann|bob|1", servers={"w0": 1.0}, placements=[Placement(b"t|", level=3), Placement(b"t|ann|", level=2)])
@example(key=b"t|" + b"a" * 125 + b"|x", servers={"w0": 1.0, "w1": 1.0}, placements=[])
@example(key=b"t|" + b"a" * 126, servers={"w0": 1.0, "w1": 1.0}, placements=[])
@example(key=b"t|" + b"a" * 254, servers={"w0": 1.0, "w1": 1.0}, placements=[])
def test_the_owner_of_a_key_is_that_of_python(
    key: bytes, servers: dict[str, float], placements: list[Placement]
) -> None:
    grouping = Grouping(tuple(placements))
    ordered = sorted(placements, key=lambda one: len(one.prefix), reverse=True)
    native = new_owners(list(servers.items()), [(one.prefix, one.level, one.read_spread) for one in ordered])
    group = grouping.group_of(key)
    assert native.group_of(key) == group
    owner = native.owner_of(key)
    assert (owner == -1) == (not 0 < len(group) <= 128)
    if owner == -1:
        assert native.reader_of(key, 0) == -1
        return
    ranked, names = owners(group, list(servers.items())), list(servers)
    assert names[owner] == ranked[0]
    spread = grouping.read_spread_of(group)
    wanted = [reader(ranked, spread=spread, own=own) for own in names]
    assert [names[native.reader_of(key, at)] for at in range(len(names))] == wanted


@pytest.mark.parametrize("length", [1, 60, 64, 100, 122])
def test_the_owners_of_many_groups_are_those_of_python(length: int) -> None:
    servers = [(f"w{number}", 1.0) for number in range(5)]
    native = new_owners(servers, [])
    users = [b"%d" % number + b"u" * length for number in range(500)]
    wanted = [int(owners(b"t|" + user + b"|", servers)[0][1:]) for user in users]
    assert [native.owner_of(b"t|" + user) for user in users] == wanted
    assert [native.owner_of(b"t|" + user + b"|1") for user in users] == wanted
    assert set(wanted) == set(range(5))


@pytest.mark.parametrize(
    ("servers", "placements"),
    [
        ((), ()),
        (((b"", 1.0),), ()),
        (((b"w" * 65, 1.0),), ()),
        ((("w0", 1.0),), ()),
        (((b"w0", 1),), ()),
        ([(b"w0", 1.0)], ()),
        (((b"w0", 1.0),), ((b"t|", 1.0),)),
        (((b"w0", 1.0),), ((b"t|",),)),
    ],
)
def test_owners_of_what_is_no_servers_are_refused(servers: object, placements: tuple[object, ...]) -> None:
    spreads = ((b"t|", 1),) * len(placements)
    with pytest.raises(ValueError, match="owners are of servers"):
        hot.Owners(servers, placements, spreads)  # type: ignore[arg-type]


@pytest.mark.parametrize("spreads", [(), ((b"t|", 1.0),), ((b"t|", 1), (b"p|", 1))])
def test_owners_are_refused_whose_placements_say_not_over_how_many(spreads: object) -> None:
    with pytest.raises(ValueError, match="owners are of servers"):
        hot.Owners(((b"w0", 1.0),), ((b"t|", 1),), spreads)  # type: ignore[arg-type]


def test_a_key_is_bytes() -> None:
    native = hot.Owners(((b"w0", 1.0),), (), ())
    for find in (native.group_of, native.owner_of):
        with pytest.raises(TypeError):
            find("t|ann|")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.reader_of("t|ann|", 0)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        native.reader_of(b"t|ann|", 1)
