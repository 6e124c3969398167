"""`python -m tests.views.versioned.schedules`, which is `make views-schedules`: random schedules by the million.

Each is a handful of updates by coordinators of their own, readers and collectors beside them, over replicas whose
messages are late, lost or repaired, while coordinators die: whatever happens, a sweep leaves the view of the base.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from pequod_views.versioned import VersionedView
from pequod_views.versioned.conditions import ColumnCondition

from tests.views.versioned.oracle import judge, judge_swept, rows_in, seen_in, updates_in, view_of
from tests.views.versioned.simulated import Simulation
from tests.views.versioned.updates import joined, random_updates

VIEW: Final = VersionedView("assigned_to", "ticket", "assigned", ("status", "title"))
#: Selections: on a column that readers see, on one that they do not see, on the view key, and on several at once.
SELECTIONS: Final = tuple(
    VersionedView("assigned_to", "ticket", "assigned", columns, tuple(map(ColumnCondition.of, where)))
    for columns, where in (
        (("status", "title"), ['status = "x"']),
        (("title",), ['status = "x"']),
        (("status",), ['assigned != "b"']),
        (("status", "title"), ['status != "y"', "title exists"]),
        ((), ['status in ["x"]', 'title < "y"', 'assigned >= "b"']),
    )
)
_CHUNK: Final = 500
#: How many schedules have the view without conditions, of one.
_PLAIN: Final = 0.4
#: Of this many dead updates each subset is tried.
_DEAD_MAX: Final = 7


def majorities_agree(simulation: Simulation) -> None:
    """Judge the view as every majority of the replicas has it, between two propagations."""
    if simulation.begun or simulation.dead:
        return
    view = simulation.view
    wanted = view_of(view, simulation.done)
    for some in itertools.combinations(simulation.replicas, len(simulation.replicas) // 2 + 1):
        assert seen_in(view, simulation.records(view.name, list(some))) == wanted


def of_seed(seed: int) -> VersionedView:
    """Return the view of a schedule or a run."""
    rng = random.Random(seed)
    return VIEW if rng.random() < _PLAIN else rng.choice(SELECTIONS)


def simulate(seed: int, view: VersionedView | None = None) -> None:
    """Carry out one random schedule, of a view that the seed says."""
    rng = random.Random(seed)
    view = view or of_seed(seed)
    count, keys = rng.choice([3, 3, 4, 6, 10]), rng.choice([1, 1, 2])
    updates = random_updates(rng, count, keys, rng.choice([0.2, 0.5]) if view.where else 0.65)
    simulation = Simulation(
        seed,
        view,
        joined(rng, updates, rng.choice([0, 0, 0.5])),
        replicas=rng.choice([1, 3, 3, 5]),
        loss=rng.choice([0, 0, 0.1, 0.3]),
        death=rng.choice([0, 0, 0.03, 0.15]),
        read_repair=rng.random() < 0.5,
        homes=rng.choice([1, 2, 3]),
        expiry=rng.choice([0, 0, 0.01, 0.05]),
        on_done=majorities_agree,
    )
    for key in rng.choices("abc", k=rng.choice([0, 0, 1, 3])):
        simulation.read_beside(key)
    collectors = rng.choice([0, 0, 1, 2])
    for _ in range(collectors):
        simulation.collect_beside()
    simulation.run()
    if not simulation.dead and not simulation.begun:
        judge(view, simulation.done, simulation.records(view.name), are_all_kept=not collectors)
    if rng.random() < 0.5:
        _judge_the_dead(simulation)
    if rng.random() < 0.5:
        # A sweep may miss what is at one replica alone; readers finish it when they see it.
        simulation.sweep()
        _judge_majorities(simulation)
        simulation.spread()
        simulation.finish()
    else:
        simulation.spread()
        simulation.sweep()
        judge_swept(view, simulation.records(view.name), simulation.records(view.base))
        simulation.forget()
        judge_swept(view, simulation.records(view.name), simulation.records(view.base))
    simulation.spread()
    majorities = itertools.combinations(simulation.replicas, len(simulation.replicas) // 2 + 1)
    wanted = view_of(view, updates_in(view, simulation.records(view.base)))
    assert all(rows_in(view, simulation.records(view.name, list(some))) == (wanted, []) for some in majorities)


def _judge_majorities(simulation: Simulation) -> None:
    """After a sweep each majority has the view of the base, but for rows that a reader sees have to be mended first."""
    view = simulation.view
    wanted = view_of(view, updates_in(view, simulation.records(view.base)))
    for some in itertools.combinations(simulation.replicas, len(simulation.replicas) // 2 + 1):
        found, unfinished = rows_in(view, simulation.records(view.name, list(some)))
        assert wanted.keys() <= found.keys()
        assert all(wanted.get(place) == row for place, row in found.items() if place not in unfinished)


def _judge_the_dead(simulation: Simulation) -> None:
    """Once rows are finished, a view has all that was propagated, and what dead coordinators began, or not.

    Of columns that a dead one was to propagate at once it may have some: another coordinator that makes the same row
    live keeps the cells that are there.
    """
    # What is at one replica alone may be seen or not.
    simulation.spread()
    simulation.finish()
    view, dead = simulation.view, list(itertools.chain(*simulation.dead))
    found = rows_in(view, simulation.records(view.name))
    if len(dead) > _DEAD_MAX:
        return
    subsets = itertools.chain.from_iterable(itertools.combinations(dead, size) for size in range(len(dead) + 1))
    assert any(found == (view_of(view, [*simulation.done, *some]), []) for some in subsets)


def _chunk(start: int, stop: int) -> list[tuple[int, str]]:
    """Carry out schedules; return the seeds that were wrong."""
    wrong: list[tuple[int, str]] = []
    for seed in range(start, stop):
        try:
            simulate(seed)
        except AssertionError as error:
            wrong.append((seed, str(error)))
    return wrong


def main(seed: int, schedules: int, jobs: int) -> int:
    """Carry out schedules in processes; return how many of them were wrong."""
    wrong, done, since = 0, 0, time.monotonic()
    starts = range(seed, seed + schedules, _CHUNK)
    stops = [min(start + _CHUNK, starts.stop) for start in starts]
    with ProcessPoolExecutor(jobs, initializer=os.nice, initargs=(10,)) as pool:
        for at, found in enumerate(pool.map(_chunk, starts, stops)):
            done += stops[at] - starts[at]
            wrong += len(found)
            for one, text in found:
                print(f"WRONG seed {one}: {text[:1000]}", flush=True)
            if at % 20 == 19 or done == schedules:
                print(f"{done:,} schedules, {wrong} wrong, {time.monotonic() - since:.0f} s", flush=True)
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.views.versioned.schedules", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000_000, help="how many (1000000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first; each has the next (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each core)")
    arguments = parser.parse_args()
    sys.exit(bool(main(arguments.seed, arguments.schedules, arguments.jobs)))
