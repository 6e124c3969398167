"""What is advised from figures: moves of home ranges, groups that are spread, weights; or nothing."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from pequod.answers.heat import GroupHeat, HeatStatistics, RangeHeat
from pequod.cli import cluster_advise
from pequod.cluster import edits
from pequod.cluster.advice import Advice, Asked, Bounds, Spread, advise
from pequod.cluster.map import ClusterMap, HomeRange, Placement
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.errors import ClusterMapError

MAP = ClusterMap("twip", 1, home_ranges=(HomeRange(b"p|", b"p}", "a"), HomeRange(b"s|", b"s}", "b")))


def home(group: str, *parts: tuple[bytes, bytes, int, float], name: str = "") -> Asked:
    """Return a home with parts of ranges: the first and the last key, keys of 100 bytes, cores."""
    entry = ServerEntry(name or f"h{group}", "10.0.0.1:7744", frozenset({ServerRole.HOME}), group)
    ranges = [RangeHeat(first, last, keys, keys * 100, cores, 0.0, 0.0) for first, last, keys, cores in parts]
    return Asked(entry, HeatStatistics(sum(part.cores for part in ranges), (), tuple(ranges)))


def compute(name: str, cores: float, **groups: float) -> Asked:
    entry = ServerEntry(name, "10.0.0.2:7744", frozenset({ServerRole.COMPUTE}))
    heat = [GroupHeat(f"t|{group}|".encode(), share, 0.0, 100.0, 0.0) for group, share in groups.items()]
    return Asked(entry, HeatStatistics(cores, tuple(heat)))


def test_the_part_that_evens_out_the_home_groups_moves() -> None:
    busy = home("a", (b"p|", b"p|c|", 100, 0.30), (b"p|c|", b"p|m|", 100, 0.30), (b"p|m|", b"p}", 100, 0.20))
    advice = advise(MAP, [busy, home("b", (b"s|", b"s}", 50, 0.20))], Bounds())
    (move,) = advice.moves
    assert (move.first, move.last, move.to, move.keys, move.bytes) == (b"p|", b"p|c|", "b", 100, 10_000)
    assert move.splits == [b"p|c|"]
    assert move.reason == "group a has 0.80 cores, the mean is 0.50 cores; this part has 0.30 cores"
    assert [(one.group, round(one.cores_after, 6), one.bytes_after) for one in advice.balance] == [
        ("a", 0.5, 20_000),
        ("b", 0.5, 15_000),
    ]
    # What is advised can be typed: the map takes it.
    moved = edits.copying(MAP, move.first, move.last, move.to)
    assert [one.first for one in moved.home_ranges] == [b"p|", b"p|c|", b"s|"]


def test_bytes_decide_where_all_have_little_to_do() -> None:
    parts = [(b"p|%02d|" % at, b"p|%02d|" % (at + 1), 10_000, 0.001) for at in range(6)]
    advice = advise(MAP, [home("a", *parts), home("b")], Bounds())
    assert sum(move.bytes for move in advice.moves) == 3_000_000
    assert {one.bytes_after for one in advice.balance} == {3_000_000}
    few = advise(MAP, [home("a", *parts), home("b")], Bounds(bytes=2_000_000))
    assert sum(move.bytes for move in few.moves) <= 2_000_000
    assert not advise(MAP, [home("a", *parts), home("b")], Bounds(moves=0)).moves


@pytest.mark.parametrize(
    "homes",
    [
        [home("a", (b"p|", b"p}", 9, 0.02)), home("b", (b"s|", b"s}", 9, 0.01))],
        [home("a", (b"p|", b"p|m|", 9, 0.3), (b"p|m|", b"p}", 9, 0.25)), home("b", (b"s|", b"s}", 9, 0.45))],
    ],
    ids=["they are idle", "they are even"],
)
def test_nothing_is_advised_where_little_is_gained(homes: list[Asked]) -> None:
    advice = advise(MAP, homes, Bounds())
    assert advice.is_empty
    assert not advice.notes


def test_it_is_said_why_a_busy_group_keeps_what_it_has() -> None:
    one_part = [home("a", (b"p|bob|", b"p|bob}", 9, 0.9)), home("b", (b"s|", b"s}", 9, 0.1))]
    alone = advise(MAP, one_part, Bounds())
    assert alone.is_empty
    assert alone.notes == [
        "group a has more than the others, and no move helps: ['p|bob|', 'p|bob}') alone has 0.90 cores"
    ]
    assert "start homes of another one" in advise(MAP, one_part[:1], Bounds()).notes[0]
    away = advise(MAP, [*one_part, Asked(replace(one_part[0].server, id="h9"), None)], Bounds())
    assert "h9 does not answer: its heat is not known" in away.notes


def test_all_homes_of_a_group_count_and_a_range_that_moves_already_stays() -> None:
    parts = (b"p|", b"p|m|", 100, 0.1), (b"p|m|", b"p}", 100, 0.1)
    two = [home("a", *parts, name="h1"), home("a", *parts, name="h2"), home("b", (b"s|", b"s}", 9, 0.0))]
    advice = advise(MAP, two, Bounds())
    assert [(one.group, one.cores, one.bytes) for one in advice.balance] == [("a", 0.4, 20_000), ("b", 0.0, 900)]
    assert len(advice.moves) == 1
    moving = advise(edits.copying(MAP, b"p|", b"p}", "b"), two, Bounds())
    assert not moving.moves
    assert moving.notes[0].startswith("home range ['p|', 'p}'), of a, is not at rest: it copies to b since version 2.")
    assert "`pequod cluster move PLACE 'p|' 'p}' --undo` ends it" in moving.notes[0]


def test_commands_have_keys_as_a_shell_takes_them() -> None:
    group = b"t|it's \xff|"
    told = cluster_advise._spread_command("etcd:h/twip", Spread(group, 3, 1, 0.7, "it is hot"))
    printed = subprocess.run(["bash", "-c", f"printf '%s\\n' {told}"], capture_output=True, check=True).stdout
    assert printed.splitlines() == [b"pequod", b"cluster", b"spread", b"etcd:h/twip", group, b"--over", b"3"]


def test_a_hot_group_is_spread_over_as_many_computes_as_it_needs() -> None:
    computes = [compute("c1", 0.9, ann=0.7, bob=0.1), compute("c2", 0.3), compute("c3", 0.3)]
    advice = advise(MAP, computes, Bounds())
    (spread,) = advice.spreads
    assert (spread.group, spread.before, spread.over) == (b"t|ann|", 1, 3)
    assert not advice.weights, "a hot group is no reason for a weight"
    assert advise(MAP, computes, Bounds(spread=2)).spreads[0].over == 2
    known = edits.spread(MAP, spread.group, spread.over)
    assert known.read_spread_of(b"t|ann|") == 3
    assert known.group_of(b"t|ann|0000000100|bob") == b"t|ann|"
    # It is as hot, and is read at three; then it is cold, and is read at one again, but not at once.
    even = [compute(name, 0.5, ann=0.23) for name in ("c1", "c2", "c3")]
    assert not advise(known, even, Bounds()).spreads
    cooler = [compute(name, 0.5, ann=0.04) for name in ("c1", "c2", "c3")]
    assert not advise(known, cooler, Bounds()).spreads
    cold = [compute(name, 0.5, ann=0.03) for name in ("c1", "c2", "c3")]
    assert [(one.over, one.before) for one in advise(known, cold, Bounds()).spreads] == [(1, 3)]
    assert not advise(known, [*cold, Asked(replace(cold[0].server, id="c9"), None)], Bounds()).spreads
    assert edits.spread(known, b"t|ann|", 1).placements == ()


def test_a_group_that_is_spread_keeps_what_its_placement_says() -> None:
    known = replace(MAP, placements=(Placement(b"top|", level=0), Placement(b"v|", level=2)))
    whole = edits.spread(known, b"top|", 2)
    assert [(one.level, one.read_spread) for one in whole.placements] == [(0, 2), (2, 1)]
    assert edits.spread(whole, b"top|", 1).placements == known.placements
    deep = edits.spread(known, b"v|a|b|", 4)
    assert (deep.group_of(b"v|a|b|c"), deep.read_spread_of(b"v|a|b|"), deep.group_of(b"v|a|x|y")) == (
        b"v|a|b|",
        4,
        b"v|a|x|",
    )
    for wrong in (b"v|a|", b"top|2026|", b"t|ann", b""):
        with pytest.raises(ClusterMapError, match="it is no group of this map"):
            edits.spread(known, wrong, 2)


def test_computes_with_more_to_do_get_a_smaller_share_by_a_step_at_a_time() -> None:
    uneven = [compute("c1", 0.8), compute("c2", 0.4), compute("c3", 0.3)]
    assert [(one.server, one.before, one.weight) for one in advise(MAP, uneven, Bounds()).weights] == [
        ("c1", 1.0, 0.8),
        ("c3", 1.0, 1.25),
    ]
    for computes in ([compute("c1", 0.5), compute("c2", 0.4)], [compute("c1", 0.02), compute("c2", 0.2)], uneven[:1]):
        assert not advise(MAP, computes, Bounds()).weights
    least = replace(uneven[0].server, weight=0.25)
    assert [one.server for one in advise(MAP, [Asked(least, uneven[0].heat), *uneven[1:]], Bounds()).weights] == ["c3"]


def test_home_ranges_are_cut_and_keep_their_groups() -> None:
    cut = edits.split(MAP, [b"p|h", b"p|q"])
    assert cut.version == 2
    assert [(one.first, one.last, one.group) for one in cut.home_ranges] == [
        (b"p|", b"p|h", "a"),
        (b"p|h", b"p|q", "a"),
        (b"p|q", b"p}", "a"),
        (b"s|", b"s}", "b"),
    ]
    for key, text in ((b"q|", "no home range"), (b"s|", "it starts at this key already")):
        with pytest.raises(ClusterMapError, match=text):
            edits.split(MAP, [key])
    with pytest.raises(ClusterMapError, match="it is cut when it is at rest"):
        edits.split(edits.copying(MAP, b"p|", b"p}", "b"), [b"p|m"])


def test_advice_is_empty_without_figures() -> None:
    assert advise(MAP, [], Bounds()) == Advice()
