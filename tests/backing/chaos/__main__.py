"""`python -m tests.backing.chaos`, which is `make chaos`: print each run, end with 1 if anything was wrong."""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.backing.chaos.run import Run
from tests.backing.chaos.sites import site
from tests.backing.conftest import Postgres, binaries


async def main(arguments: argparse.Namespace, folder: Path, postgres: Postgres | None) -> tuple[int, int]:
    """Carry out the runs; return how many there were, and how many of them were wrong."""
    runs = wrong = 0
    end_s = time.monotonic() + (arguments.seconds or 0)
    async with site(arguments.store, folder, postgres) as place:
        while time.monotonic() < end_s if arguments.seconds else runs < arguments.runs:
            seed = arguments.seed + runs
            runs += 1
            if postgres is not None and arguments.store != "failover" and not postgres.is_running:
                postgres.start()
            run = Run(place, folder, seed)
            try:
                report = await run.carry_out()
                wrongs = report.wrongs
            except Exception as error:
                report, wrongs = run.report, [f"{type(error).__name__}: {error}"]
            print(f"{'WRONG' if wrongs else 'ok   '} {report}", flush=True)
            for text in wrongs[:10]:
                print(f"      {text}", flush=True)
            if wrongs:
                wrong += 1
                print("      " + "\n      ".join(run.server.log.read_text().splitlines()[-30:]), flush=True)
    return runs, wrong


parser = argparse.ArgumentParser(prog="python -m tests.backing.chaos", description=__doc__)
parser.add_argument("--runs", type=int, default=200, help="how many (200)")
parser.add_argument("--seconds", type=float, help="instead: for how long a next one is begun")
parser.add_argument("--seed", type=int, default=1, help="of the first; each has the next (1)")
parser.add_argument(
    "--store", choices=["sqlite", "notify", "slot", "failover"], default="slot", help="the database and its feed"
)
arguments = parser.parse_args()
# So that the server and the cluster end, too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
programs = binaries()
with (
    tempfile.TemporaryDirectory(prefix="pequod-chaos-", ignore_cleanup_errors=True) as folder_name,
    tempfile.TemporaryDirectory(prefix="pequod-pg-", ignore_cleanup_errors=True) as short,
):
    cluster = None
    if arguments.store != "sqlite":
        if programs is None:
            parser.error("PostgreSQL is not installed here: no initdb in /usr/lib/postgresql/*/bin or on the PATH")
        cluster = Postgres(programs, Path(short))
        cluster.start()
    try:
        run_count, wrong_count = asyncio.run(main(arguments, Path(folder_name), cluster))
    finally:
        if cluster is not None and cluster.is_running:
            cluster.stop(kill=True)
print(f"{run_count} runs on {arguments.store}, {wrong_count} of them wrong")
sys.exit(bool(wrong_count))
