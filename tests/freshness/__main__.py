"""`python -m tests.freshness`, which is `make freshness`: count the tries, end with 1 if one was wrong."""

import argparse
import asyncio
import signal
import sys
import tempfile
from math import inf
from pathlib import Path

from tests.backing.conftest import Postgres, binaries
from tests.freshness.places import beside_postgres, beside_sqlite
from tests.freshness.tries import Report, Run

TELL_S = 20.0


async def main(arguments: argparse.Namespace, folder: Path, postgres: Postgres | None) -> Report:
    """Carry out one run."""
    place = beside_sqlite(folder) if postgres is None else beside_postgres(folder, postgres, arguments.store)
    async with place as servers:
        run = Run(
            servers,
            seed=arguments.seed,
            sessions=arguments.sessions,
            has_tokens=not arguments.without_tokens,
            fault_s=arguments.fault_s,
        )
        telling = asyncio.create_task(tell(run))
        try:
            await run.carry_out(arguments.tries, seconds=arguments.seconds)
        except* Exception as group:
            run.report.wrongs += [f"{type(error).__name__}: {error}" for error in group.exceptions]
            for server in servers.servers:
                print("      " + "\n      ".join(server.log.read_text().splitlines()[-20:]), flush=True)
        telling.cancel()
        return run.report


async def tell(run: Run) -> None:
    """Print how far a run is, from time to time."""
    while True:
        await asyncio.sleep(TELL_S)
        print(f"{run.report.tries:,} tries, {run.report.misses} misses", file=sys.stderr, flush=True)


parser = argparse.ArgumentParser(prog="python -m tests.freshness", description=__doc__)
parser.add_argument("--store", choices=["sqlite", "notify", "slot"], default="slot", help="the database and its feed")
parser.add_argument("--tries", type=int, default=100_000, help="how often a session reads what it wrote (100000)")
parser.add_argument("--seconds", type=float, default=inf, help="after which it ends with fewer tries")
parser.add_argument("--sessions", type=int, default=16, help="at once (16)")
parser.add_argument("--fault-s", type=float, default=4.0, help="between two faults, on average; 0: there are none (4)")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--without-tokens", action="store_true", help="show that the same without tokens does miss writes")
arguments = parser.parse_args()
# So that the servers and the cluster end, too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with (
    tempfile.TemporaryDirectory(prefix="pequod-freshness-", ignore_cleanup_errors=True) as folder_name,
    tempfile.TemporaryDirectory(prefix="pequod-pg-", ignore_cleanup_errors=True) as short,
):
    cluster = None
    if arguments.store != "sqlite":
        programs = binaries()
        if programs is None:
            parser.error("PostgreSQL is not installed here: no initdb in /usr/lib/postgresql/*/bin or on the PATH")
        cluster = Postgres(programs, Path(short))
        cluster.start()
    try:
        report = asyncio.run(main(arguments, Path(folder_name), cluster))
    finally:
        if cluster is not None and cluster.is_running:
            cluster.stop(kill=True)
with_or_without = "without" if arguments.without_tokens else "with"
print(f"{arguments.store}, {with_or_without} tokens: {report}")
for text in report.wrongs[:10]:
    print(f"  WRONG: {text}")
if arguments.without_tokens and not report.misses:
    print("  WRONG: no try missed its write, so that this proves nothing")
sys.exit(bool(report.wrongs) or (arguments.without_tokens and not report.misses))
