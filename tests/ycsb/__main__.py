"""Run the standard workloads of go-ycsb, A to F, at a server, with go-ycsb's own check of what is read.

python -m tests.ycsb --records 10000 --operations 100000
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pequod_bench.systems.server import started_server

from tests.ycsb.program import WORKLOADS, Ycsb, loaded_of, why_absent


def main() -> None:
    """Load and run each workload at a server of its own, and print go-ycsb's measures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=10_000)
    options.add_argument("--operations", type=int, default=100_000)
    options.add_argument("--threads", type=int, default=16)
    chosen = options.parse_args()
    if reason := why_absent():
        sys.exit(reason)
    sizes = {"operationcount": chosen.operations, "threadcount": chosen.threads, "dataintegrity": "true"}
    with TemporaryDirectory() as folder:
        for workload in WORKLOADS:
            with started_server() as (target, _):
                ycsb = Ycsb(Path(folder), target)
                loaded = loaded_of(workload, chosen.records, chosen.operations)
                ycsb.run("load", workload, recordcount=loaded, **sizes)
                print(f"workload {workload.upper()}\n{ycsb.run('run', workload, recordcount=chosen.records, **sizes)}")
                print(ycsb.run("check", workload), flush=True)


if __name__ == "__main__":
    main()
