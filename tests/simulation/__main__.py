"""`python -m tests.simulation`, which is `make simulate`: print what was wrong, end with 1 if anything was."""

import argparse
import sys
import time

from tests.simulation.run import simulate

parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="simulate schedules and compare")
parser.add_argument("--schedules", type=int, default=1000)
parser.add_argument("--steps", type=int, default=200, help="of each schedule")
parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
parser.add_argument("--computes", type=int, default=0, help="servers that compute from the others")
parser.add_argument("--trace", action="store_true", help="print the counts of each schedule")
arguments = parser.parse_args()

started_s, wrong, checked, unchecked, virtual_s = time.process_time(), 0, 0, 0, 0.0
for seed in range(arguments.seed, arguments.seed + arguments.schedules):
    report = simulate(seed, steps=arguments.steps, computes=arguments.computes)
    checked += report.checked
    unchecked += report.unchecked
    virtual_s += report.virtual_s
    if arguments.trace:
        print(report.seed, report.trace)
    if report.wrong:
        wrong += 1
        print(
            f"WRONG: --seed {seed} --schedules 1 --steps {report.steps} --computes {arguments.computes}\n"
            f"  {report.wrong}",
            flush=True,
        )
print(
    f"{arguments.schedules} schedules, {wrong} wrong; {checked} answers compared, {unchecked} mixed snapshots; "
    f"{virtual_s:.0f} s simulated",
    flush=True,
)
print(f"{time.process_time() - started_s:.1f} s of CPU", file=sys.stderr)
sys.exit(wrong > 0)
