"""Which keys are computed at one server: their group, a prefix.

A group has the table and the first slots of a key, as many as the *placement level* of the longest placement prefix
says. Slots end at `|`: widths of slots are not known here, and need not be, since a group is only a hint.

>>> Grouping((Placement(b"top|", level=0),)).group_of(b"top|2026")
b'top|'
>>> Grouping(()).group_of(b"t|ann|0000000100|bob"), Grouping(()).group_of(b"karma|ann")
(b't|ann|', b'karma|ann|')
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pequod.errors import ClusterMapError
from pequod.escapes import shown

#: The level of tables without a placement.
LEVEL: Final = 1
#: The computes of a group, without a placement.
READ_SPREAD: Final = 1
_LEVEL_MAX: Final = 16
_READ_SPREAD_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class Placement:
    """How keys with a prefix are shared out over computes.

    Raises:
        ClusterMapError: Something in it is not possible.
    """

    #: A table such as `t|`, or a part of one such as `t|ann|`; empty for all tables.
    prefix: bytes
    #: How many slots of a key make its group, at least the prefix itself. 0: all keys with the prefix are one group.
    level: int = LEVEL
    #: Reads of a group are spread over this number of computes, at random.
    read_spread: int = READ_SPREAD

    def __post_init__(self) -> None:
        place = f"placement {shown(self.prefix)}"
        if self.prefix and not self.prefix.endswith(b"|"):
            raise ClusterMapError(place, "its prefix does not end with '|'")
        if not 0 <= self.level <= _LEVEL_MAX:
            raise ClusterMapError(f"{place}, level", f"{self.level} is not from 0 to {_LEVEL_MAX}")
        if not 1 <= self.read_spread <= _READ_SPREAD_MAX:
            raise ClusterMapError(f"{place}, read_spread", f"{self.read_spread} is not from 1 to {_READ_SPREAD_MAX}")


class Grouping:
    """The groups of keys, under the placements of a map.

    Invariants:
        1. A group ends with `|`.
        2. `group_of(group) == group`.
    """

    def __init__(self, placements: tuple[Placement, ...]) -> None:
        self._all = Placement(b"")
        #: By table, the longest prefix first.
        self._tables: dict[bytes, list[Placement]] = {}
        for placement in sorted(placements, key=lambda one: len(one.prefix), reverse=True):
            if not placement.prefix:
                self._all = placement
            else:
                self._tables.setdefault(placement.prefix[: placement.prefix.index(b"|") + 1], []).append(placement)
        self._is_plain = not self._tables and self._all.level == 1

    def group_of(self, key: bytes) -> bytes:
        """Return the group of a key; that of a range is the group of its first key.

        Cost:
            0.3 us where no placement says otherwise.
        """
        if self._is_plain:
            # As `_cut`, for nearly all keys, in half the time.
            bar = key.find(b"|")
            end = key.find(b"|", bar + 1) if bar >= 0 else -1
            return key[: end + 1] if end >= 0 else _cut(key, 1)
        placement = self._placement_of(key)
        group = _cut(key, placement.level)
        return group if len(group) >= len(placement.prefix) else placement.prefix

    def read_spread_of(self, group: bytes) -> int:
        """Return the number of computes over which reads of a group are spread."""
        return self._placement_of(group).read_spread

    def _placement_of(self, key: bytes) -> Placement:
        for placement in self._tables.get(key[: key.find(b"|") + 1], ()):
            if key.startswith(placement.prefix):
                return placement
        return self._all


def _cut(key: bytes, level: int) -> bytes:
    """Return the table and the first slots of a key, each with its delimiter."""
    end = 0
    for _ in range(level + 1):
        end = key.find(b"|", end) + 1
        if not end:
            return key if key.endswith(b"|") else key + b"|"
    return key[:end]


@lru_cache(maxsize=64)
def grouping(placements: tuple[Placement, ...]) -> Grouping:
    """Return the grouping of placements, made once."""
    return Grouping(placements)
