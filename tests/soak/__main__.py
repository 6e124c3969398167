"""`python -m tests.soak`, which is `make soak-server`: print the report, end with 1 if there are faults."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.soak.probed_server import PLANTS
from tests.soak.soak import soak

parser = argparse.ArgumentParser(prog="python -m tests.soak", description="A server under clients that misbehave.")
parser.add_argument("--seconds", type=float, default=300, help="how long they do (300)")
parser.add_argument("--seed", type=int, default=1, help="of what is drawn (1)")
parser.add_argument("--plant", choices=PLANTS, help="a fault of the server, which must be found")
arguments = parser.parse_args()
with tempfile.TemporaryDirectory() as folder:
    report = asyncio.run(soak(arguments.seconds, arguments.seed, Path(folder), plant=arguments.plant))
print(f"{report.seconds:.0f} s, {report.rounds} rounds of the honest client with {report.reads} reads compared")
print(f"{report.killed} client processes killed; {report.calls} calls, {report.failed_calls} of them failed")
print(f"{report.calls_left} calls that have not ended")
for name, held in (("before", report.before), ("after", report.after)):
    print(f"{name:7}{held}")
for elapsed, rss_bytes in report.samples[:: max(1, len(report.samples) // 15)]:
    print(f"{elapsed:7.0f} s {rss_bytes / 2**20:8.1f} MiB")
if report.growth is not None:
    print(f"memory in the last quarter after the warm-up, against the second: {report.growth:+.2%}")
for fault in report.faults:
    print(f"FAULT {fault}")
sys.exit(bool(report.faults))
