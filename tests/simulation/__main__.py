"""`python -m tests.simulation`, which is `make simulate`: print what was wrong, end with 1 if anything was."""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.clusters import simulate_cluster
from tests.simulation.run import simulate


def main() -> int:
    """Simulate schedules in processes; return how many were wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="simulate schedules and compare")
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=200, help="of each schedule")
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    parser.add_argument("--computes", type=int, default=0, help="servers that compute from the others")
    parser.add_argument("--relays", type=int, default=0, help="servers between them, which serve the computes")
    parser.add_argument("--groups", action="store_true", help="a cluster of two home groups, whose ranges move")
    parser.add_argument("--follow", action="store_true", help="with --groups: homes tell computes the map")
    parser.add_argument("--trace", action="store_true", help="print the counts of each schedule")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one for each core)")
    arguments = parser.parse_args()
    if arguments.groups and (arguments.computes or arguments.relays):
        parser.error("--groups has a number of computes of its own")
    if arguments.follow and not arguments.groups:
        parser.error("--follow is for the computes of --groups")
    if arguments.relays and not arguments.computes:
        parser.error("--relays are for computes: give --computes")

    begun_s, wrong, done, checked, unchecked, virtual_s = time.monotonic(), 0, 0, 0, 0, 0.0
    kind = f"--computes {arguments.computes} --relays {arguments.relays}"
    if arguments.groups:
        kind = "--groups --follow" if arguments.follow else "--groups"
    one = partial(simulate_cluster if arguments.groups else simulate, steps=arguments.steps)
    if arguments.groups:
        one.keywords.update(follow=arguments.follow)
    if arguments.computes:
        one.keywords.update(computes=arguments.computes, relays=arguments.relays)
    seeds = range(arguments.seed, arguments.seed + arguments.schedules)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for report in pool.map(one, seeds, chunksize=10):
            done += 1
            checked += report.checked
            unchecked += report.unchecked
            virtual_s += report.virtual_s
            if arguments.trace:
                print(report.seed, report.trace)
            if report.wrong:
                wrong += 1
                print(
                    f"WRONG: --seed {report.seed} --schedules 1 --steps {arguments.steps} {kind}\n  {report.wrong}",
                    flush=True,
                )
            if done % 100 == 0 or done == arguments.schedules:
                print(
                    f"{done} schedules, {wrong} wrong; {checked} answers compared, {unchecked} mixed snapshots; "
                    f"{virtual_s:.0f} s simulated in {time.monotonic() - begun_s:.0f} s",
                    flush=True,
                )
    return wrong


if __name__ == "__main__":
    sys.exit(main() > 0)
