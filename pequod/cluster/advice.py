"""What an operator could do about servers that have more to do than others; figures in, advice out.

    homes       a 0.8 cores, b 0.2      a part of a's ranges that takes 0.3 moves to b          a 0.5, b 0.5
    computes    t|ann| takes 0.7        its reads are spread over 3 computes                    0.24 at each
    computes    c1 0.9, c2 0.3          c1 gets a smaller share of all groups, c2 a greater one

Nothing is advised that makes little difference, so that maps do not swing: servers may differ by a quarter, a group
that is spread stays spread until it is much colder, and weights change by a quarter at a time.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from typing import Final, NamedTuple

from pequod.answers.heat import HeatStatistics, RangeHeat
from pequod.cluster.edits import moves_within
from pequod.cluster.map import ClusterMap, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.cluster.standing import commands
from pequod.escapes import shown

#: A home group may have this much more than the mean.
_SLACK: Final = 1.25
#: Below these sums, home groups are not worth a move.
_CORES_MIN: Final = 0.1
_BYTES_MIN: Final = 1 << 20
#: A move has to take off the busiest group at least this part of what that has.
_GAIN_MIN: Final = 0.05
#: A group is spread no more when it takes less than this part of what makes one hot.
_COLD: Final = 0.4
#: Weights stay while a compute differs less from the mean; they change by a step at a time, within bounds.
_WEIGHT_SLACK: Final = 0.3
_WEIGHT_STEP: Final = 1.25
_WEIGHTS: Final = (0.25, 4.0)
_WEIGHT_CORES_MIN: Final = 0.2


class Asked(NamedTuple):
    """A server, and its heat; None: it does not answer."""

    server: ServerEntry
    heat: HeatStatistics | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far advice goes."""

    #: Ranges that move.
    moves: int = 4
    #: Bytes that move, all together, as homes have them in memory.
    bytes: int = 1 << 30
    #: Computes that a group is read at.
    spread: int = 4
    #: A group that takes more of a core at one compute is hot.
    hot_cores: float = 0.25


@dataclass(frozen=True, slots=True)
class Move:
    """A part of a home range that should belong to another group."""

    home: HomeRange
    first: bytes
    last: bytes
    to: str
    keys: int
    bytes: int
    cores: float
    reason: str

    @property
    def splits(self) -> list[builtins.bytes]:
        """The keys at which it cuts the home range."""
        return [key for key in (self.first, self.last) if key not in (self.home.first, self.home.last)]


@dataclass(frozen=True, slots=True)
class Spread:
    """A group of keys that should be read at another number of computes."""

    group: bytes
    over: int
    before: int
    cores: float
    reason: str


@dataclass(frozen=True, slots=True)
class Weigh:
    """A compute that should have another share of the groups."""

    server: str
    weight: float
    before: float
    reason: str


@dataclass(frozen=True, slots=True)
class Balance:
    """What a home group has, now and after the moves."""

    group: str
    cores: float
    cores_after: float
    bytes: int
    bytes_after: int


@dataclass(slots=True)
class Advice:
    """All advice at one moment."""

    moves: list[Move] = field(default_factory=list)
    spreads: list[Spread] = field(default_factory=list)
    weights: list[Weigh] = field(default_factory=list)
    balance: list[Balance] = field(default_factory=list)
    #: Why something is not advised that seems to be needed.
    notes: list[str] = field(default_factory=list)
    #: Why nothing is known of a home group: none of its homes answers. Empty: some home of each does.
    silence: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.moves or self.spreads or self.weights)

    @property
    def told(self) -> list[str]:
        """What people are told beside the advice."""
        return [*self.notes, *([self.silence] if self.silence else [])]


def advise(known: ClusterMap, asked: Sequence[Asked], bounds: Bounds) -> Advice:
    """Return what should be done, with the reasons."""
    advice = Advice()
    for one in asked:
        if one.heat is None:
            advice.notes.append(f"{one.server.id} does not answer: its heat is not known")
    advice.notes += [
        f"{home}, of {home.group}, is not at rest: it {home.state.removeprefix(', ')} since version {home.move}. If no "
        f"command is at it, {commands(home)}"
        for home in moves_within(known, b"", None)
    ]
    _Homes(known, asked, bounds, advice).advise()
    computes = [one for one in asked if one.server.is_ready and ServerRole.COMPUTE in one.server.roles]
    _advise_spreads(known, computes, bounds, advice)
    if not any(one.over > one.before for one in advice.spreads):
        _advise_weights(computes, advice)
    return advice


class _Part(NamedTuple):
    """A part of a home range."""

    home: HomeRange
    first: bytes
    last: bytes | None
    keys: int
    bytes: int
    cores: float


class _Homes:
    """Balances home groups."""

    def __init__(self, known: ClusterMap, asked: Sequence[Asked], bounds: Bounds, advice: Advice) -> None:
        self._bounds = bounds
        self._advice = advice
        self._parts: dict[str, list[_Part]] = {}
        homes = sorted((one for one in asked if one.server.group and one.server.is_ready), key=_group_of)
        for group, members in groupby(homes, key=_group_of):
            heats = [one.heat for one in members if one.heat is not None]
            if heats:
                self._parts[group] = list(_parts_of(known, group, heats))

    def advise(self) -> None:
        """Advise moves."""
        parts, advice = self._parts, self._advice
        before = {group: (self._sum(group, "cores"), self._sum(group, "bytes")) for group in parts}
        what = self._what()
        if what and len(parts) > 1:
            bytes_left = self._bounds.bytes
            while len(advice.moves) < self._bounds.moves:
                move = self._next(what, bytes_left)
                if move is None:
                    break
                bytes_left -= move.bytes
                advice.moves.append(move)
        elif what:
            advice.notes.append(
                f"all home ranges are in group {next(iter(parts))}: start homes of another one to share"
            )
        advice.balance = [
            Balance(group, cores, self._sum(group, "cores"), round(size), round(self._sum(group, "bytes")))
            for group, (cores, size) in before.items()
        ]

    def _what(self) -> str:
        """Return what the groups differ in: cores, or else bytes; empty: nothing worth a move."""
        for what, least in (("cores", _CORES_MIN), ("bytes", _BYTES_MIN)):
            sums = [self._sum(group, what) for group in self._parts]
            if sum(sums) >= least:
                return what if max(sums) > _SLACK * sum(sums) / max(2, len(sums)) else ""
        return ""

    def _sum(self, group: str, what: str) -> float:
        return float(sum(getattr(part, what) for part in self._parts[group]))

    def _next(self, what: str, bytes_left: int) -> Move | None:
        """Return the move that helps most, and have it done in the figures; None: there is none."""
        sums = {group: self._sum(group, what) for group in self._parts}
        mean = sum(sums.values()) / len(sums)
        source, target = max(sums, key=sums.__getitem__), min(sums, key=sums.__getitem__)
        if sums[source] <= _SLACK * mean:
            return None
        wanted = min(sums[source] - mean, mean - sums[target])
        best: list[_Part] = []
        best_off = wanted
        too_large = False
        for run in _runs(self._parts[source]):
            weight = sum(getattr(part, what) for part in run)
            is_gain = weight >= _GAIN_MIN * sums[source] and sums[target] + weight <= (1 - _GAIN_MIN) * sums[source]
            if is_gain and abs(weight - wanted) < best_off:
                if sum(part.bytes for part in run) > bytes_left:
                    too_large = True
                    continue
                best, best_off = run, abs(weight - wanted)
        if not best:
            self._advice.notes.append(_why_none(self._parts[source], source, what, too_large=too_large))
            return None
        return self._moved(best, source, target, what, sums, mean)

    def _moved(
        self, run: list[_Part], source: str, target: str, what: str, sums: Mapping[str, float], mean: float
    ) -> Move:
        self._parts[source] = [part for part in self._parts[source] if part not in run]
        # It has come: it does not move on.
        self._parts[target] += [part._replace(last=None) for part in run]
        last = run[-1].last
        assert last is not None, "runs have an end"
        weight = sum(getattr(part, what) for part in run)
        reason = (
            f"group {source} has {_figure(what, sums[source])}, the mean is {_figure(what, mean)}; "
            f"this part has {_figure(what, weight)}"
        )
        keys, size, cores = sum(p.keys for p in run), sum(p.bytes for p in run), sum(p.cores for p in run)
        return Move(run[0].home, run[0].first, last, target, keys, size, cores, reason)


def _group_of(one: Asked) -> str:
    return one.server.group


def _parts_of(known: ClusterMap, group: str, heats: Sequence[HeatStatistics]) -> Iterator[_Part]:
    """Yield the parts of a group's ranges: as the home with the most rows has them, with the heat of all."""
    by_size = sorted(heats, key=lambda heat: sum(part.bytes for part in heat.ranges), reverse=True)
    cut: Sequence[RangeHeat] = by_size[0].ranges
    for part in cut:
        home = known.home_range_of(part.first)
        if home is None or home.group != group or home.state:
            continue
        others = [other for heat in by_size[1:] for other in heat.ranges if _is_in(other.first, part)]
        cores = part.cores + sum(other.cores for other in others)
        yield _Part(home, part.first, part.last, part.keys, part.bytes, cores)


def _is_in(key: bytes, part: RangeHeat) -> bool:
    return part.first <= key and (part.last is None or key < part.last)


def _runs(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yield neighbouring parts of one home range that have an end."""
    for at in range(len(parts)):
        run: list[_Part] = []
        for part in parts[at:]:
            if part.home is not parts[at].home or part.last is None or (run and part.first < (run[-1].last or b"")):
                break
            run.append(part)
            yield list(run)


def _why_none(parts: Sequence[_Part], group: str, what: str, *, too_large: bool) -> str:
    if too_large:
        return f"group {group} has more than the others, and what could move is larger than the bound on bytes"
    heaviest = max(parts, key=lambda part: getattr(part, what))
    weight = _figure(what, getattr(heaviest, what))
    end = "the end" if heaviest.last is None else shown(heaviest.last)
    part = f"[{shown(heaviest.first)}, {end})"
    return f"group {group} has more than the others, and no move helps: {part} alone has {weight}"


def _figure(what: str, value: float) -> str:
    return f"{value:.2f} cores" if what == "cores" else f"{value:,.0f} bytes"


def _advise_spreads(known: ClusterMap, computes: Sequence[Asked], bounds: Bounds, advice: Advice) -> None:
    """Advise the groups that are read at more computes, and those that are again read at one."""
    cores: dict[bytes, float] = {}
    heats = [one.heat for one in computes if one.heat is not None]
    for heat in heats:
        for one in heat.groups:
            if one.reads:
                share = one.reads / (one.reads + one.writes)
                cores[one.group] = cores.get(one.group, 0.0) + one.cores * share
    for group, total in sorted(cores.items(), key=lambda entry: entry[1], reverse=True):
        before = known.read_spread_of(group)
        over = min(ceil(total / bounds.hot_cores), len(computes), bounds.spread)
        if not known.is_group(group) or total / before < bounds.hot_cores:
            continue
        if over > before:
            reason = f"its reads take {total:.2f} cores at {before}, {total / over:.2f} each at {over}"
            advice.spreads.append(Spread(group, over, before, total, reason))
        elif before >= bounds.spread or before >= len(computes):
            advice.notes.append(
                f"the reads of {shown(group)} take {total:.2f} cores at {before} computes: no more may be"
            )
    if len(heats) < len(computes):
        # What is not known to be hot may be.
        return
    for placement in known.placements:
        total = cores.get(placement.prefix, 0.0)
        is_one_group = placement.prefix.count(b"|") > 1 and known.is_group(placement.prefix)
        if is_one_group and placement.read_spread > 1 and total < _COLD * bounds.hot_cores:
            reason = f"its reads take {total:.2f} cores"
            advice.spreads.append(Spread(placement.prefix, 1, placement.read_spread, total, reason))


def _advise_weights(computes: Iterable[Asked], advice: Advice) -> None:
    """Advise the weights of computes that have more or less to do than the mean."""
    known = [(one.server, one.heat.cores) for one in computes if one.heat is not None]
    mean = sum(cores for _, cores in known) / max(1, len(known))
    if len(known) < 2 or mean < _WEIGHT_CORES_MIN:
        return
    for server, cores in known:
        if abs(cores / mean - 1) <= _WEIGHT_SLACK:
            continue
        step = min(_WEIGHT_STEP, max(1 / _WEIGHT_STEP, mean / cores if cores else _WEIGHT_STEP))
        weight = round(min(_WEIGHTS[1], max(_WEIGHTS[0], server.weight * step)), 2)
        if weight != server.weight:
            reason = f"it keeps {cores:.2f} cores busy, the mean is {mean:.2f}"
            advice.weights.append(Weigh(server.id, weight, server.weight, reason))
