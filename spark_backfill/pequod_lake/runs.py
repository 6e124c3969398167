"""Runs: what a span of SCUs has become, and which step each takes next.

    SCU     1     2     3     4     5     6     7
          [-- authority --][delta][merged ][sorted][raw]          runs at one snapshot: no gap, no overlap

The authority may have deltas behind it, which belong to it: few rows are not worth writing files of many for.

A step turns runs into the run that takes their place. Steps are decided here, without clock or I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pequod_lake.clock import Stamp


class Stage(Enum):
    """How far a run has come."""

    RAW = "raw"
    REMAPPED = "remapped"
    SORTED = "sorted"
    MERGED = "merged"
    #: Belongs to the authority, beside its files.
    DELTA = "delta"
    AUTHORITY = "authority"

    @property
    def is_sorted(self) -> bool:
        """Whether there is a file for each view, in its order."""
        return self in {Stage.SORTED, Stage.MERGED, Stage.DELTA, Stage.AUTHORITY}

    @property
    def is_remapped(self) -> bool:
        """Whether columns with ids hold numbers."""
        return self is not Stage.RAW


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A file of a run. Files never change."""

    #: Relative to the folder of the lake.
    path: str
    table: str
    #: The view that it is sorted by; empty for the primary view, and for files that are not sorted.
    view: str
    row_count: int
    size_bytes: int
    #: CRC-32 of the whole file, and of its footer.
    crc: int
    footer_crc: int
    footer_bytes: int
    #: The keys of the first and the last row, in the order of its view (keys.py); empty where they are not known, as in
    #: files that are not sorted.
    first_key: str = ""
    last_key: str = ""
    #: What its rows say (contents.py); empty if nobody knows, as in files that are not sorted.
    content: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """What the SCUs ``first_scu`` to ``last_scu`` have become.

    Invariants:
        1. ``first_scu <= last_scu``; SCU 0 is the empty lake.
        2. From the stage `sorted` on, each primary key is in at most one row of a table.
    """

    id: int
    first_scu: int
    last_scu: int
    stage: Stage
    #: The number of merges behind it.
    level: int
    #: When the first of its SCUs was committed.
    first_stamp: Stamp
    files: tuple[LakeFile, ...]
    #: The files by table and view, as soon as they are asked for.
    _by_view: dict[tuple[str, str], tuple[LakeFile, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def row_count(self) -> int:
        """The number of rows of all tables, in their primary views."""
        return sum(file.row_count for file in self.files if not file.view)

    def of(self, table: str, view: str = "") -> tuple[LakeFile, ...]:
        """Return the files of one view of a table, in key order if the run is sorted."""
        if not self._by_view and self.files:
            found: dict[tuple[str, str], list[LakeFile]] = {}
            for file in self.files:
                found.setdefault((file.table, file.view), []).append(file)
            # At once: threads share runs.
            self._by_view.update({name: tuple(files) for name, files in found.items()})
        return self._by_view.get((table, view), ())


class StepKind(Enum):
    """What a step does."""

    REMAP = "remap"
    SORT = "sort"
    MERGE = "merge"
    DELTA = "delta"
    AUTHORITY = "authority"


@dataclass(frozen=True, slots=True)
class LakeStep:
    """Work for one worker: runs that follow each other become one run."""

    kind: StepKind
    runs: tuple[Run, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The numbers of its runs."""
        return tuple(run.id for run in self.runs)

    def __str__(self) -> str:
        """Return what a log says of it."""
        return f"{self.kind.value} of SCU {self.runs[0].first_scu} to {self.runs[-1].last_scu}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """When runs are merged.

    Source:
        LazyBase 3.3: a tree over SCU numbers, eight at a time, or after sufficient time.
    """

    fan_in: int = 8
    #: Runs are brought into the authority when they have this share of its rows.
    authority_ratio: float = 0.25
    #: Or when the oldest of them is so old.
    authority_after_s: float = 60.0
    #: They become a delta, unless they have with the present deltas this share of its rows: then its files are written.
    delta_ratio: float = 0.125


COMPACT: Final = MergePolicy(fan_in=1 << 30, authority_ratio=0.0, authority_after_s=0.0, delta_ratio=0.0)
#: A delta is merged with those behind it if it has at most this multiple of their rows, or no more than this number. So
#: each delta is larger than all that follow together, and their number grows with the logarithm of their rows.
_DELTA_TIMES: Final = 4
_DELTA_ROWS: Final = 4_096


def check_runs(runs: Sequence[Run]) -> None:
    """Check that runs cover every SCU once, from 0 on."""
    expected = 0
    for run in runs:
        assert run.first_scu == expected, (run.first_scu, expected)
        assert run.first_scu <= run.last_scu, run
        expected = run.last_scu + 1
    assert not runs or runs[0].stage is Stage.AUTHORITY, runs[0]
    assert all(run.stage is not Stage.AUTHORITY for run in runs[1:])
    assert all(run.stage is not Stage.DELTA for run in runs[authority_count(runs) :])


def authority_count(runs: Sequence[Run]) -> int:
    """Return how many runs are the authority: the first one, and its deltas."""
    return next((at for at, run in enumerate(runs) if run.stage not in {Stage.AUTHORITY, Stage.DELTA}), len(runs))


def next_steps(
    runs: Sequence[Run], policy: MergePolicy, *, has_ids: bool, age_s: Callable[[Stamp], float]
) -> list[LakeStep]:
    """Return the steps that may be taken now, the most urgent first; steps of one answer may share runs.

    Args:
        age_s: Returns how long ago a moment was.
    """
    steps = list[LakeStep]()
    ready = Stage.RAW
    if has_ids:
        # Ids are given in the order of SCUs, so that the texts of all earlier ones have theirs.
        raw = next((run for run in runs if run.stage is Stage.RAW), None)
        steps += [] if raw is None else [LakeStep(StepKind.REMAP, (raw,))]
        ready = Stage.REMAPPED
    steps += [LakeStep(StepKind.SORT, (run,)) for run in runs if run.stage is ready]
    count = authority_count(runs)
    authority, deltas, rest = runs[0], tuple(runs[1:count]), runs[count:]
    young = list[Run]()
    for run in rest:
        if not run.stage.is_sorted:
            break
        young.append(run)
    merges = _merges(rest, policy.fan_in)
    if merges and merges[0].runs[0] == rest[0] and _rows(merges[0].runs) >= authority.row_count:
        # The authority is no larger than what would be merged: one step does both.
        merges[0] = LakeStep(StepKind.AUTHORITY, (authority, *deltas, *merges[0].runs))
    steps += merges
    is_full = _rows([*deltas, *young]) >= authority.row_count * policy.delta_ratio
    whole = LakeStep(StepKind.AUTHORITY, (authority, *deltas, *young))
    if young:
        is_large = any(run.level for run in young) and _rows(young) >= authority.row_count * policy.authority_ratio
        waiting_s = age_s(young[0].first_stamp)
        step = whole if is_full else LakeStep(StepKind.DELTA, (*_near(deltas, young), *young))
        if waiting_s >= 2 * policy.authority_after_s:
            # Where rows come faster than they are sorted, the authority would wait for ever.
            steps.insert(0, step)
        elif is_large or waiting_s >= policy.authority_after_s:
            steps.append(step)
    elif deltas and is_full:
        steps.append(whole)
    return steps


def compacting_steps(runs: Sequence[Run], *, has_ids: bool) -> list[LakeStep]:
    """Return the steps that may be taken now to bring all runs into the authority.

    It is written once, when all others are sorted: once for each of them would be the square of their number.
    """
    steps = next_steps(runs, COMPACT, has_ids=has_ids, age_s=lambda _stamp: 0.0)
    return [step for step in steps if step.kind in {StepKind.REMAP, StepKind.SORT}] or steps


def _near(deltas: Sequence[Run], young: Sequence[Run]) -> Sequence[Run]:
    """Return the last deltas, which are merged with younger runs: none is much larger than what comes after it."""
    rows, first = _rows(young), len(deltas)
    while first > 0 and deltas[first - 1].row_count <= max(_DELTA_TIMES * rows, _DELTA_ROWS):
        first -= 1
        rows += deltas[first].row_count
    return deltas[first:]


def _rows(runs: Sequence[Run]) -> int:
    return sum(run.row_count for run in runs)


def _merges(runs: Sequence[Run], fan_in: int) -> list[LakeStep]:
    """Return merges of ``fan_in`` runs of one level that follow each other."""
    found = list[LakeStep]()
    alike = list[Run]()
    for run in runs:
        fits = run.stage.is_sorted and (not alike or alike[-1].level == run.level)
        if not fits:
            alike.clear()
        if run.stage.is_sorted:
            alike.append(run)
        if len(alike) == fan_in:
            found.append(LakeStep(StepKind.MERGE, tuple(alike)))
            alike.clear()
    return found
