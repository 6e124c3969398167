"""Changes that operators make to a map; each returns the map of the next version.

    home ranges     [p| ........ p}) a
    copying         [p| ... p|m) a   [p|m ... p}) a, copies_to b    a takes writes; b takes copies of the rows
    closed          [p| ... p|m) a   [p|m ... p}) a, moves_to b     writes of the second one are refused
    moved           [p| ... p|m) a   [p|m ... p}) b, moves_to b     they still are: a server may read it at a
    opened          [p| ... p|m) a   [p|m ... p}) b

>>> known = ClusterMap("twip", 4, home_ranges=(HomeRange(b"p|", b"p}", "a"),))
>>> [str(one) for one in copying(known, b"p|m", b"p}", "b").home_ranges]
["home range ['p|', 'p|m')", "home range ['p|m', 'p}')"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from pequod.cluster.grouping import Placement
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
from pequod.cluster.servers import ServerRole
from pequod.cluster.standing import commands
from pequod.errors import ClusterMapError
from pequod.escapes import shown


def placed(known: ClusterMap, placement: Placement) -> ClusterMap:
    """Return the map with a placement, in the place of the one with its prefix."""
    others = [one for one in known.placements if one.prefix != placement.prefix]
    return _next(known, placements=tuple(sorted([*others, placement], key=lambda one: one.prefix)))


def unplaced(known: ClusterMap, prefix: bytes) -> ClusterMap:
    """Return the map without the placement of a prefix.

    Raises:
        ClusterMapError: There is none.
    """
    others = tuple(one for one in known.placements if one.prefix != prefix)
    if len(others) == len(known.placements):
        raise ClusterMapError(f"placement {shown(prefix)}", "the map does not have it")
    return _next(known, placements=others)


def spread(known: ClusterMap, group: bytes, over: int) -> ClusterMap:
    """Return the map in which the reads of one group of keys are spread over a number of computes; 1: over none.

    Raises:
        ClusterMapError: It is no group of this map, or the number is not possible.
    """
    if not known.is_group(group):
        whole = known.group_of(group) if group else group
        hint = f"; the group of that key is {shown(whole)}" if whole != group else ""
        raise ClusterMapError(f"group {shown(group)}", f"it is no group of this map{hint}")
    others = tuple(one for one in known.placements if one.prefix != group)
    rest = replace(known, placements=others)
    if over == 1 and rest.is_group(group) and rest.read_spread_of(group) == 1:
        return _next(known, placements=others)
    present = next((one for one in known.placements if one.prefix == group), None)
    # With the slots that make the group now, longer keys stay in it.
    level = group.count(b"|") - 1 if present is None else present.level
    return placed(known, Placement(group, level, over))


def refuse_spread(state: ClusterState, group: bytes, over: int) -> None:
    """Pass if a cluster has as many computes as a group of keys is to be read at.

    Raises:
        ClusterMapError: It has fewer.
    """
    count = sum(ServerRole.COMPUTE in server.roles for server in state.servers)
    if over > max(count, 1):
        there = "no compute is" if not count else "1 compute is" if count == 1 else f"{count} computes are"
        raise ClusterMapError(
            f"group {shown(group)}", f"it cannot be read at {over} computes: {there} there; start more, or name fewer"
        )


def split(known: ClusterMap, keys: Iterable[bytes]) -> ClusterMap:
    """Return the map in which home ranges are cut at some keys; all stay in their groups.

    Raises:
        ClusterMapError: A key is of no home range, or one starts there already, or its range moves.
    """
    homes = known.home_ranges
    for key in keys:
        known_home = next((one for one in homes if one.first <= key and (one.last is None or key < one.last)), None)
        if known_home is None:
            raise ClusterMapError(f"key {shown(key)}", "it belongs to no home range")
        if known_home.first == key:
            raise ClusterMapError(str(known_home), "it starts at this key already")
        if known_home.state:
            raise ClusterMapError(str(known_home), f"it is cut when it is at rest; now it {known_home.state[2:]}")
        before, after = replace(known_home, last=key), replace(known_home, first=key)
        homes = tuple(part for one in homes for part in ((before, after) if one is known_home else (one,)))
    return _next(known, home_ranges=homes)


def owned(known: ClusterMap, homes: Iterable[HomeRange]) -> ClusterMap:
    """Return the map with more home ranges.

    Raises:
        ClusterMapError: A range overlaps another one.
    """
    return _next(known, home_ranges=tuple(sorted([*known.home_ranges, *homes], key=lambda one: one.first)))


def disowned(known: ClusterMap, ranges: Iterable[tuple[bytes, bytes | None]]) -> ClusterMap:
    """Return the map in which ranges belong to no home group any more.

    Raises:
        ClusterMapError: A part of one belongs to none already, or moves; or no home range would be left: then each
            server would take all keys.
    """
    homes = known.home_ranges
    for first, last in ranges:
        _refuse_holes(homes, first, last)
        left: list[HomeRange] = []
        for home in homes:
            inside = _common(home, first, last)
            if inside is not None and (group := home.moves_to or home.copies_to):
                raise ClusterMapError(str(home), f"it moves to {group}: {commands(home)}")
            left += [home] if inside is None else [part for side in _outside(home, *inside) for part in side]
        homes = tuple(left)
    if not homes:
        raise ClusterMapError("home ranges", "none would be left, and then each server would take all keys; keep one")
    return _next(known, home_ranges=homes)


def copying(known: ClusterMap, first: bytes, last: bytes | None, group: str) -> ClusterMap:
    """Return the map in which rows of a range are copied to another group, while its writes are taken as before.

    The copies bear the number of this map: a command that began before writes none any more. A range that an earlier
    try had closed to writes is open again.

    Raises:
        ClusterMapError: The range is empty, or a part of it belongs to no group, belongs to that group already, or
            moves elsewhere. A part that has come to the group, and is not opened, stays as it is.
    """
    return _begun(known, first, last, group, copies_to=group, moves_to="")


def moving(known: ClusterMap, first: bytes, last: bytes | None, group: str) -> ClusterMap:
    """Return the map in which a range is about to move to another group: until then its writes are refused.

    Raises:
        ClusterMapError: As `copying`.
    """
    return _begun(known, first, last, group, copies_to="", moves_to=group)


def _begun(
    known: ClusterMap, first: bytes, last: bytes | None, group: str, *, copies_to: str, moves_to: str
) -> ClusterMap:
    _refuse_holes(known.home_ranges, first, last)
    homes: list[HomeRange] = []
    for home in known.home_ranges:
        inside = _common(home, first, last)
        if inside is None:
            homes.append(home)
            continue
        if home.group == group and not home.moves_to and not home.copies_to:
            raise ClusterMapError(str(home), f"it is in {group} already")
        if (other := home.moves_to or home.copies_to) not in ("", group):
            raise ClusterMapError(str(home), f"it moves to {other} already: {commands(home)}")
        before, after = _outside(home, *inside)
        part = replace(home, first=inside[0], last=inside[1])
        if home.group != group:
            part = replace(part, copies_to=copies_to, moves_to=moves_to, move=known.version_after)
        homes += [*before, part, *after]
    return _next(known, home_ranges=tuple(homes))


def closed(known: ClusterMap, move: int) -> ClusterMap:
    """Return the map in which the ranges of a move take no writes any more: their rows are copied.

    Raises:
        ClusterMapError: The move was undone, or another command has overtaken it.
    """
    _refuse_overtaken(known, move)
    return _changed(known, move, lambda home: replace(home, moves_to=home.coming_to, copies_to=""))


def moved(known: ClusterMap, move: int) -> ClusterMap:
    """Return the map in which the closed ranges of a move have come to their new group, and take no writes yet.

    A server that goes by the map before reads them at the old groups: it would not see what is written at the new ones.

    Raises:
        ClusterMapError: As `closed`.
    """
    _refuse_overtaken(known, move)
    return _changed(known, move, lambda home: replace(home, group=home.moves_to or home.group))


def reopened(known: ClusterMap, move: int) -> ClusterMap:
    """Return the map in which the ranges of a move that have not come take writes where they are, and do not move.

    Raises:
        ClusterMapError: As `closed`; or they have come.
    """
    _refuse_overtaken(known, move)
    return _changed(known, move, lambda home: replace(home, moves_to="", copies_to="", move=0))


def opened(known: ClusterMap, first: bytes, last: bytes | None) -> ClusterMap:
    """Return the map in which the moving ranges within a range take writes where they are: they have come, or stay.

    Requires:
        All servers go by the map.
    """
    return _next(
        known,
        home_ranges=tuple(
            replace(home, moves_to="", copies_to="", move=0) if _moves_within(home, first, last) else home
            for home in known.home_ranges
        ),
    )


def moves_within(known: ClusterMap, first: bytes, last: bytes | None) -> list[HomeRange]:
    """Return the moving ranges within a range, and those that have come and are not opened."""
    return [home for home in known.home_ranges if _moves_within(home, first, last)]


def parts_of(known: ClusterMap, first: bytes, last: bytes | None) -> list[HomeRange]:
    """Return the parts of home ranges that together are a range.

    Raises:
        ClusterMapError: The range is empty, or a part of it belongs to no group.
    """
    _refuse_holes(known.home_ranges, first, last)
    common = [(home, _common(home, first, last)) for home in known.home_ranges]
    return [replace(home, first=inside[0], last=inside[1]) for home, inside in common if inside is not None]


def moves_of(known: ClusterMap, move: int) -> list[HomeRange]:
    """Return the ranges of a move that have not come to their new group."""
    return [home for home in known.home_ranges if home.move == move and home.coming_to]


def _refuse_overtaken(known: ClusterMap, move: int) -> None:
    if not moves_of(known, move):
        raise ClusterMapError(
            f"the move of version {move}", "it was undone, or another command has begun it again; this one ends"
        )


def _changed(known: ClusterMap, move: int, change: Callable[[HomeRange], HomeRange]) -> ClusterMap:
    """Return the map with a change of the ranges of a move that have not come to their new group."""
    mine = moves_of(known, move)
    return _next(known, home_ranges=tuple(change(home) if home in mine else home for home in known.home_ranges))


def _moves_within(home: HomeRange, first: bytes, last: bytes | None) -> bool:
    return bool(home.moves_to or home.copies_to) and _common(home, first, last) == (home.first, home.last)


def _common(home: HomeRange, first: bytes, last: bytes | None) -> tuple[bytes, bytes | None] | None:
    """Return what a home range and a range have in common, None if that is nothing."""
    ends = [end for end in (home.last, last) if end is not None]
    start, end = max(home.first, first), min(ends, default=None)
    return None if end is not None and start >= end else (start, end)


def _refuse_holes(homes: Iterable[HomeRange], first: bytes, last: bytes | None) -> None:
    """Pass if all of a range belongs to home groups."""
    if last is not None and first >= last:
        raise ClusterMapError(f"the range from {shown(first)}", "it is empty: its end is not behind it")
    at: bytes | None = first
    for home in homes:
        if (inside := _common(home, first, last)) is not None and inside[0] == at:
            at = inside[1]
    if at != last:
        raise ClusterMapError(
            f"the range from {shown(first)}",
            f"from {'the end' if at is None else shown(at)} on it belongs to no home group",
        )


def _outside(home: HomeRange, first: bytes, last: bytes | None) -> tuple[list[HomeRange], list[HomeRange]]:
    """Return the parts of a home range before and after a part of it."""
    before = [replace(home, last=first)] if home.first < first else []
    after = [replace(home, first=last)] if last is not None and last != home.last else []
    return before, after


def _next(known: ClusterMap, **changes: object) -> ClusterMap:
    """Return the map with changes, as its next version.

    Raises:
        ClusterMapError: There is no next one, or the parts do not go together.
    """
    return replace(known, version=known.version_after, **changes)  # type: ignore[arg-type]
