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

from tests.views.versioned.oracle import judge, judge_swept, rows_in, updates_in, view_of
from tests.views.versioned.simulated import Simulation
from tests.views.versioned.updates import random_updates

VIEW: Final = VersionedView("assigned_to", "ticket", "assigned", ("status", "title"))
_CHUNK: Final = 500
#: Of this many dead updates each subset is tried.
_DEAD_MAX: Final = 7


def majorities_agree(simulation: Simulation) -> None:
    """Judge the view as every majority of the replicas has it, between two propagations."""
    if simulation.begun or simulation.dead:
        return
    wanted = view_of(VIEW, simulation.done)
    for some in itertools.combinations(simulation.replicas, len(simulation.replicas) // 2 + 1):
        assert rows_in(simulation.records(VIEW.name, list(some))) == (wanted, [])


def simulate(seed: int) -> None:
    """Carry out one random schedule."""
    rng = random.Random(seed)
    count, keys = rng.choice([3, 3, 4, 6, 10]), rng.choice([1, 1, 2])
    simulation = Simulation(
        seed,
        VIEW,
        random_updates(rng, count, keys),
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
        judge(VIEW, simulation.done, simulation.records(VIEW.name), are_all_kept=not collectors)
    if rng.random() < 0.5:
        _judge_the_dead(simulation)
    if rng.random() < 0.5:
        # A sweep may miss what is at one replica alone; readers finish it when they see it.
        simulation.sweep()
        simulation.spread()
        simulation.finish()
    else:
        simulation.spread()
        simulation.sweep()
        judge_swept(VIEW, simulation.records(VIEW.name), simulation.records(VIEW.base))
        simulation.forget()
        judge_swept(VIEW, simulation.records(VIEW.name), simulation.records(VIEW.base))
    simulation.spread()
    majorities = itertools.combinations(simulation.replicas, len(simulation.replicas) // 2 + 1)
    wanted = view_of(VIEW, updates_in(VIEW, simulation.records(VIEW.base)))
    assert all(rows_in(simulation.records(VIEW.name, list(some))) == (wanted, []) for some in majorities)


def _judge_the_dead(simulation: Simulation) -> None:
    """Once rows are finished, a view has all that was propagated, and what dead coordinators began, or not."""
    # What is at one replica alone may be seen or not.
    simulation.spread()
    simulation.finish()
    found = rows_in(simulation.records(VIEW.name))
    dead = simulation.dead
    if len(dead) > _DEAD_MAX:
        return
    subsets = itertools.chain.from_iterable(itertools.combinations(dead, size) for size in range(len(dead) + 1))
    assert any(found == (view_of(VIEW, [*simulation.done, *some]), []) for some in subsets)


def _chunk(start: int, stop: int) -> list[tuple[int, str]]:
    """Carry out schedules; return the seeds that were wrong."""
    os.nice(10)
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
    with ProcessPoolExecutor(jobs) as pool:
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
