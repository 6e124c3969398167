"""cluster demo: a whole cluster on this machine, Twip on it, and servers that are killed on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer
from pequod_bench.settings import DemoSettings
from pequod_installed.names import how_to_install

from pequod.cli.bench_options import measuring
from pequod.cli.exits import ExitCode, fail

if TYPE_CHECKING:
    from pequod_bench.report.printed import Printed
    from pequod_bench.report.progress import ProgressBars

app: Final = typer.Typer()


@measuring(
    app,
    "demo",
    DemoSettings,
    without=("initial_posts", "mode", "window", "verify", "client_loop", "server_loop"),
    shown=(
        "pequod cluster demo                                       (half a minute)",
        "pequod cluster demo --homes 2 --computes 3 --graph follows.tsv.gz",
        "pequod cluster demo --etcd --postgres",
    ),
)
def demo(settings: DemoSettings, bars: ProgressBars) -> Printed:
    """Start a cluster on this machine, run Twip on it, kill a compute and a home, and compare all timelines.

    Everything is in a folder that is removed at the end. Exit code 1 if a timeline is wrong or a read failed.
    """
    try:
        from pequod_bench.twip.cluster_demo import run
    except ImportError as error:
        fail(ExitCode.REFUSED, f"the demo needs more packages ({error.name}): {how_to_install('bench', 'server')}")
    if settings.kill and min(settings.homes, settings.computes) < 2:
        fail(ExitCode.USAGE, "a cluster that loses a server needs two of its kind: say --no-kill")
    return run(settings, bars)
