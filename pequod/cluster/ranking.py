"""The first servers of many groups, kept while servers come and go: a change costs a kept group some hashes, not all.

    servers    c1 .. c999                  ranked for t|ann| once: a hash for each
    t|ann|     c7 c512 c90 c3 ...          the first 8 are kept
    c512 goes  c7 c90 c3 ...               no hash
    c1000      c7 c90 c1000 c3 ...         ranked among those that are kept

Ranks are those of `pequod.cluster.rendezvous`, so that all clients agree. The native core finds the first servers of
a new group in one call.

>>> ranking = Ranking()
>>> ranking.update((f"c{number}", 1.0) for number in range(1, 1000))
>>> first = ranking.first(b"t|ann|")
>>> ranking.update((f"c{number}", 1.0) for number in range(1, 1000) if f"c{number}" != first[1])
>>> ranking.first(b"t|ann|") == (first[0], *first[2:])
True
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from hashlib import blake2b
from heapq import nlargest
from typing import Final, NamedTuple

from pequod.cluster.rendezvous import DIGEST_BYTES, owners
from pequod.native import core

#: Servers that are kept for a group.
KEPT: Final = 8
#: With fewer left, they are ranked anew.
_LEFT_MIN: Final = 4
#: Groups whose servers are kept; each takes about 250 bytes.
_GROUPS_MAX: Final = 65536
#: Changes that are known; for a group that was not asked for since, all servers are ranked anew.
_CHANGES_MAX: Final = 256
#: Where one in this number of servers has changed, ranking all anew is as quick as carrying on.
_CHANGED_PART: Final = 2 if core is None else 16
#: The native core takes no longer groups: one block of the hash.
_NATIVE_GROUP_BYTES_MAX: Final = 128


class _Kept(NamedTuple):
    #: How many changes there were.
    change_count: int
    servers: tuple[str, ...]


class _Packed(NamedTuple):
    """Servers as the native core takes them."""

    #: In order: of servers with one score, the last one is the first.
    ids: list[str]
    keyed: bytes
    weights: bytes


class Ranking:
    """Ranks servers for groups.

    Invariants:
        1. What is kept for a group and has seen all changes is the start of what `owners` returns.
    """

    def __init__(self) -> None:
        self._weights: dict[str, float] = {}
        self._keyed: list[tuple[blake2b, str]] = []
        self._are_alike = True
        #: Made when a group is ranked anew.
        self._packed: _Packed | None = None
        #: The latest changes: servers that have come, gone, or got another weight.
        self._changed: list[str] = []
        self._change_count = 0
        self._groups: dict[bytes, _Kept] = {}

    def update(self, servers: Iterable[tuple[str, float]]) -> None:
        """Rank these servers from now on, each given with its weight.

        Cost:
            O(n) for n servers, without a hash.
        """
        before, self._weights = self._weights, dict(servers)
        changed = [name for name, _ in before.items() ^ self._weights.items()]
        if not changed:
            return
        self._change_count += len(changed)
        self._changed = [*self._changed, *changed][-_CHANGES_MAX:]
        self._packed = None
        if core is not None:
            return
        known = {name: one for one, name in self._keyed}
        self._keyed = [
            (known.get(name) or blake2b(digest_size=DIGEST_BYTES, key=name.encode()), name) for name in self._weights
        ]
        self._are_alike = len(set(self._weights.values())) == 1

    def first(self, group: bytes) -> tuple[str, ...]:
        """Return the ids of the first servers for a group, or of all: the owner, then its spares.

        Cost:
            0.04 to 0.2 us a server for a new group, by the processor's vectors; 0.6 us without the native core. Later
            1 us, and 1 us for each server that has come since.
        """
        kept = self._groups.get(group)
        if kept is not None and kept.change_count == self._change_count:
            return kept.servers
        found = self._ranked_anew(group) if kept is None else self._carried_on(group, kept)
        if len(self._groups) >= _GROUPS_MAX:
            self._groups.clear()
        self._groups[group] = _Kept(self._change_count, found)
        return found

    def _carried_on(self, group: bytes, kept: _Kept) -> tuple[str, ...]:
        """Return the first servers for a group, by those that were the first before some changes."""
        missed = self._change_count - kept.change_count
        if missed > min(len(self._changed), max(2, len(self._weights) // _CHANGED_PART)):
            return self._ranked_anew(group)
        changed = set(self._changed[-missed:])
        left = [name for name in kept.servers if name not in changed]
        if len(left) < _LEFT_MIN:
            return self._ranked_anew(group)
        come = [name for name in changed if name in self._weights]
        ranked = owners(group, [(name, self._weights[name]) for name in (*left, *come)])
        # Those behind the last one that is left may come after others, which are not kept.
        return tuple(ranked[: ranked.index(left[-1]) + 1][:KEPT])

    def _ranked_anew(self, group: bytes) -> tuple[str, ...]:
        if core is not None and 0 < len(group) <= _NATIVE_GROUP_BYTES_MAX:
            packed = self._packed or self._pack()
            found = core.first_ranked(packed.keyed, packed.weights, group, KEPT)
            return tuple(packed.ids[at] for at in found)
        servers = list(self._weights.items())
        if core is None and self._are_alike and len(servers) > KEPT:
            # Among equal weights, the greatest hash has the greatest score.
            hashed = []
            for keyed, name in self._keyed:
                one = keyed.copy()
                one.update(group)
                hashed.append((one.digest(), name))
            servers = [(name, self._weights[name]) for _, name in nlargest(2 * KEPT, hashed)]
        return tuple(owners(group, servers)[:KEPT])

    def _pack(self) -> _Packed:
        assert core is not None
        ids = sorted(self._weights)
        keyed = core.keyed([name.encode() for name in ids])
        self._packed = _Packed(ids, keyed, array("d", map(self._weights.__getitem__, ids)).tobytes())
        return self._packed

    def _check(self) -> None:
        for group, kept in self._groups.items():
            if kept.change_count == self._change_count:
                ranked = owners(group, list(self._weights.items()))
                assert list(kept.servers) == ranked[: len(kept.servers)], f"1: {group!r}"
