"""What it costs to read few rows of the authority of a lake with deltas, by how it is done.

    looked through      nothing is kept of files, and the general query does it: each run is filtered and combined
    from the disk       the point query; what was read is not kept
    from memory         the same, with row groups that are kept, as `CacheLimits` has it

All ways take turns with the same keys, and their answers are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any, Final

import numpy as np
from pequod_lake import CacheLimits, Lake, LakeSnapshot

_ROUNDS: Final = 200
_RANGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Reads:
    """One kind of query, done in one way."""

    kind: str
    way: str
    #: The median, in seconds of CPU.
    cpu_s: float


def measure(lake: Lake, size: int, authors: int) -> tuple[list[Reads], str]:
    """Read rows of the table `posts` at the authority; return the figures, and what answer was wrong."""
    dice = np.random.default_rng(2)
    ids = dice.integers(size, size=_ROUNDS).tolist()
    some = dice.integers(authors, size=_ROUNDS // 10).tolist()
    kinds: dict[str, tuple[list[int], Callable[[LakeSnapshot, int], Any], Callable[[LakeSnapshot, int], Any]]] = {
        "point": (ids, _looked_up, _point),
        f"range of {_RANGE:,} keys": (ids[:: _ROUNDS // len(some)], _range, _range),
        "an author's rows, by the view": (some, _by_author, _by_author),
    }
    nothing = CacheLimits(bytes_max=0)
    found, wrong = list[Reads](), ""
    location = lake.place.name
    with (
        Lake(location, cache=nothing) as bare,
        Lake(location, cache=CacheLimits(bytes_max=1 << 30)) as kept,
        bare.snapshot("authority") as cold,
        kept.snapshot("authority") as warm,
    ):
        for kind, (values, general, special) in kinds.items():
            ways = {"looked through": (cold, general), "from the disk": (cold, special), "from memory": (warm, special)}
            if general is special:
                del ways["looked through"]
            for value in values:
                special(warm, value)
            times: dict[str, list[float]] = {way: [] for way in ways}
            for value in values:
                answers = []
                for way, (snapshot, query) in ways.items():
                    start_s = process_time()
                    answers.append(query(snapshot, value))
                    times[way].append(process_time() - start_s)
                if any(one != answers[0] for one in answers):
                    wrong = wrong or f"{kind} {value}: the ways have different answers"
            found += [Reads(kind, way, median(one)) for way, one in times.items()]
    return found, wrong


def _looked_up(snapshot: LakeSnapshot, key: int) -> Any:
    return next(iter(snapshot.scan("posts", [("id", "=", key)]).rows.to_pylist()), None)


def _point(snapshot: LakeSnapshot, key: int) -> Any:
    return snapshot.get("posts", key)


def _range(snapshot: LakeSnapshot, key: int) -> Any:
    return snapshot.scan("posts", [("id", ">=", key), ("id", "<", key + _RANGE)]).rows


def _by_author(snapshot: LakeSnapshot, author: int) -> Any:
    return snapshot.scan("posts", [("author", "=", author)], view="by_author").rows
