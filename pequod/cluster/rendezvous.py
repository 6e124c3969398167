"""Rendezvous hashing: which of some servers a group belongs to, and which are its spares.

Each server has a score for each group, and the greatest one wins. If a server comes or goes, only its own groups change
hands: a fifth of them with five servers. The runner-up is the spare. Scores depend on nothing but the id, the weight
and the group, so that all clients agree without asking.

    t|ann|   c3 1.7   c2 0.6   c1 0.2      c3 owns it, c2 is the spare
    t|bob|   c1 9.5   c3 1.6   c2 0.6

>>> owners(b"t|ann|", [("c1", 1.0), ("c2", 1.0), ("c3", 1.0)])
['c3', 'c2', 'c1']
>>> ranked = ["c3", "c2", "c1", "c4"]
>>> [reader(ranked, spread=2, own=own) for own in ranked]
['c3', 'c2', 'c3', 'c2']
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import log
from typing import Final

#: The size of a hash.
DIGEST_BYTES: Final = 8
#: All bits that a float takes without rounding up to 1.
_BITS: Final = 52


def score(server: str, weight: float, group: bytes) -> float:
    """Return a server's score for a group.

    With -w / ln(u), for u evenly distributed in (0, 1), a server wins its share of the groups: its weight by the sum of
    all weights. A change of one weight moves groups from or to that server alone.

    Source:
        Wang, Ravishankar: "Using Name-Based Mappings to Increase Hit Rates" (1998); the weights are the usual ones.
    """
    hashed = int.from_bytes(blake2b(group, digest_size=DIGEST_BYTES, key=server.encode()).digest(), "big")
    even = ((hashed >> (64 - _BITS)) + 0.5) / (1 << _BITS)
    return -weight / log(even)


def owners(group: bytes, servers: Sequence[tuple[str, float]]) -> list[str]:
    """Return the ids of servers, each given with its weight: the owner of the group, then its spares.

    Cost:
        1 us a server.
    """
    ranked = sorted(((score(server, weight, group), server) for server, weight in servers), reverse=True)
    return [server for _, server in ranked]


def reader(ranked: Sequence[str], *, spread: int, own: str) -> str:
    """Return the server that answers reads of a group which come to ``own``: itself, if it shares them.

    Args:
        ranked: What `owners` returns; ``own`` is among them.
        spread: This number of servers share the reads of the group.
    """
    return ranked[ranked.index(own) % spread]
