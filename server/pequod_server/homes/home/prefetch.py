"""Which ranges a compute needs next: for each key that it loads, the group that the key leads to.

load   s|ann| .. s|ann}   next: s|ann| -> p| slot |
rows   s|ann|bob  s|ann|liz      ->   p|bob| .. p|bob}   p|liz| .. p|liz}
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod.language.missing import NextGroups
from pequod.language.ranges import Range, prefix_end
from pequod_server.backing import KeyRange
from pequod_server.homes.compute.loads import decoded

#: The compute asks for the others in a second load.
_MORE_MAX: Final = 1024


def ahead_of(
    request: pb.PeerLoadRequest, is_allowed: Callable[[KeyRange], bool]
) -> Callable[[list[bytes]], list[KeyRange]]:
    """Return what tells, by the keys of a load in their order, which ranges the compute needs next.

    Args:
        is_allowed: Returns whether the compute may have a range unasked.
    """
    known = [decoded(one) for one in request.next if one.before and one.prefix]
    whole = {one.before: KeyRange(one.before, prefix_end(one.before)) for one in known}
    allowed = {before for before, one in whole.items() if is_allowed(one)}
    wanted = [one for one in known if one.before in allowed]

    def more_of(keys: list[bytes]) -> list[KeyRange]:
        found: dict[Range, None] = {}
        for groups in wanted:
            found |= dict.fromkeys(groups.of(_under(keys, groups)[: _MORE_MAX - len(found)]))
        return [KeyRange(*one) for one in found]

    return more_of


def _under(keys: list[bytes], groups: NextGroups) -> list[bytes]:
    """Return the keys that lead to groups."""
    end = prefix_end(groups.prefix)
    stop = len(keys) if end is None else bisect_left(keys, end)
    return keys[bisect_left(keys, groups.prefix) : stop]
