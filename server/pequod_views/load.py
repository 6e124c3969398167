"""How much each part and each manager has to write, and what is better split or handed over: rules without I/O.

    rates    a 900/s at m1, b 100/s at m1, c 0/s at m2     m1 has 1,000 rows a second, m2 none
    moves    a part goes to another manager for one that comes back: counts of parts stay even
    split    a part is cut at the key that has as many changes before it as behind it

>>> parts = [PartLoad(("v", b"a"), "m1", 1, 900.0), PartLoad(("v", b"b"), "m1", 1, 800.0),
...          PartLoad(("v", b"c"), "m2", 1, 0.0), PartLoad(("v", b"d"), "m2", 1, 0.0)]
>>> moves(parts, ["m1", "m2"])
{('v', b'b'): 'm2', ('v', b'd'): 'm1'}
>>> middle([b"a", b"b", b"b", b"c"], b"a"), middle([b"b"] * 9 + [b"c"], b"a"), middle([b"a"], b"a")
(b'b', None, None)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pequod_views.parts import Place

#: The greatest load must fall by this share, or parts stay where they are: each move costs a new watch.
_GAIN_MIN: Final = 0.1
#: A half may have this share of the changes at most: a part with one hot key cannot be split.
_HALF_MAX: Final = 0.8
#: How much of a rate is that of the last beat.
_FRESH: Final = 0.5


@dataclass(frozen=True, slots=True)
class PartLoad:
    """A part, its holder, and the rows that it takes in."""

    place: Place
    owner: str
    epoch: int
    rows_per_s: float


class Rates:
    """The rows a second of parts, by what the ledger counts at each beat."""

    def __init__(self) -> None:
        self._counts: dict[Place, int] = {}
        self._rates: dict[Place, float] = {}
        self._at_s = 0.0

    def take(self, counts: Mapping[Place, int], now_s: float) -> dict[Place, float]:
        """Take the changes that parts have had so far; return the rate of each, 0 for one that is new."""
        took_s = max(now_s - self._at_s, 1e-3)
        rates = dict[Place, float]()
        for place, count in counts.items():
            grown = max(0, count - self._counts.get(place, count))
            rates[place] = _FRESH * grown / took_s + (1 - _FRESH) * self._rates.get(place, grown / took_s)
        self._counts, self._rates, self._at_s = dict(counts), rates, now_s
        return rates


def quota_of(name: str, managers: Sequence[str], part_count: int) -> int:
    """Return how many parts a manager may hold.

    >>> [quota_of(name, ["a", "b", "c"], 7) for name in "abc"]
    [3, 2, 2]
    """
    if name not in managers:
        return 0
    each, more = divmod(part_count, len(managers))
    return each + (managers.index(name) < more)


def loads_of(parts: Iterable[PartLoad], managers: Sequence[str]) -> dict[str, float]:
    """Return the rows a second of each manager."""
    loads = dict.fromkeys(managers, 0.0)
    for part in parts:
        if part.owner in loads:
            loads[part.owner] += part.rows_per_s
    return loads


def moves(parts: Sequence[PartLoad], managers: Sequence[str]) -> dict[Place, str]:
    """Return which parts are better held by other managers, each with its new holder; nothing if that gains little.

    Each manager has as many parts afterwards as its quota.
    """
    room = {name: quota_of(name, managers, len(parts)) for name in managers}
    loads = dict.fromkeys(managers, 0.0)
    found = dict[Place, str]()
    for part in sorted(parts, key=lambda one: (-one.rows_per_s, one.place)):
        open_to = [name for name in managers if room[name]]
        owner = min(open_to, key=lambda name: (loads[name], name != part.owner, name))
        if part.owner in open_to and loads[part.owner] + part.rows_per_s <= max(loads.values()):
            owner = part.owner
        room[owner] -= 1
        loads[owner] += part.rows_per_s
        if owner != part.owner:
            found[part.place] = owner
    most = max(loads_of(parts, managers).values(), default=0.0)
    return found if max(loads.values(), default=0.0) < (1 - _GAIN_MIN) * most else {}


def middle(keys: Sequence[bytes], first: bytes) -> bytes | None:
    """Return the key at which a part that begins with ``first`` is split; None if no half would be much smaller.

    Args:
        keys: Of its changes, as they came.
    """
    counts = Counter(keys)
    best, best_most, before = None, _HALF_MAX * len(keys), 0
    for key in sorted(counts):
        most = max(before, len(keys) - before)
        if key > first and before and most <= best_most and (best is None or most < best_most):
            best, best_most = key, float(most)
        before += counts[key]
    return best
