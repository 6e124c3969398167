"""`python -m tests.views.chaos`, which is `make views-chaos`: print each run, end with 1 if anything was wrong."""

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.backing.conftest import Postgres, started
from tests.views.chaos.behind import Behind, PostgresBehind, SqliteBehind
from tests.views.chaos.run import Run, Stage
from tests.views.kafka_broker import started_kafka
from tests.views.mariadb import started_mariadb
from tests.views.sites import KafkaSite, MariadbSite, PostgresSite, ServerSite, Site, SqliteSite


async def main(arguments: argparse.Namespace, folder: Path, site: Site, behind: Behind | None) -> int:
    """Carry out the runs; return how many of them were wrong."""
    wrong = 0
    if isinstance(site, ServerSite):
        await site.clear()
    stage = Stage(site, folder, behind, await behind.install(folder) if behind is not None else ())
    try:
        await stage.start()
        for seed in range(arguments.seed, arguments.seed + arguments.runs):
            run = Run(stage, seed)
            try:
                await run.carry_out()
            except Exception as error:
                run.report.wrongs.append(f"{type(error).__name__}: {error}")
            print(f"{'WRONG' if run.report.wrongs else 'ok   '} {run.report}", flush=True)
            for text in run.report.wrongs[:10]:
                print(f"      {text[:2000]}", flush=True)
            if run.report.wrongs:
                wrong += 1
                print("      " + "\n      ".join(stage.log.read_text().splitlines()[-40:]), flush=True)
    finally:
        await stage.stop()
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.views.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="how many (200)")
    parser.add_argument("--seed", type=int, default=1, help="of the first; each has the next (1)")
    parser.add_argument(
        "--target",
        choices=["postgres", "sqlite", "mariadb", "kafka"],
        default="postgres",
        help="the database (postgres)",
    )
    parser.add_argument(
        "--behind", choices=["nothing", "sqlite", "postgres"], default="nothing", help="the server (nothing)"
    )
    arguments = parser.parse_args()
    # So that the processes end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with (
        tempfile.TemporaryDirectory(prefix="pequod-views-", ignore_cleanup_errors=True) as folder_name,
        contextlib.ExitStack() as stack,
    ):
        place: Site
        if arguments.target == "sqlite":
            place = SqliteSite(Path(folder_name) / "live.db")
        elif arguments.target == "mariadb":
            place = MariadbSite(stack.enter_context(started_mariadb()))
        elif arguments.target == "kafka":
            place = KafkaSite(stack.enter_context(started_kafka()))
        else:
            place = PostgresSite(stack.enter_context(started(Postgres)))
        back: Behind | None = None
        if arguments.behind == "sqlite":
            back = SqliteBehind(Path(folder_name) / "base.db")
        elif arguments.behind == "postgres":
            back = PostgresBehind(stack.enter_context(started(Postgres)))
        since_s = time.monotonic()
        wrong_count = asyncio.run(main(arguments, Path(folder_name), place, back))
    print(
        f"{arguments.runs} runs on {arguments.target} with {arguments.behind} behind the server, {wrong_count} of them "
        f"wrong, {time.monotonic() - since_s:.0f} s"
    )
    sys.exit(bool(wrong_count))
