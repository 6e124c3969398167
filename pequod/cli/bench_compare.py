"""bench compare: the paper's evaluation beside other systems."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import typer
from pequod_bench.settings import CompareSettings

from pequod.cli.bench_options import measuring
from pequod.cli.exits import ExitCode, fail, say

if TYPE_CHECKING:
    from pequod_bench.paper.comparison import Comparison
    from pequod_bench.report.printed import Printed
    from pequod_bench.report.progress import ProgressBars

app: Final = typer.Typer()


@measuring(
    app,
    "compare",
    CompareSettings,
    short_help="The paper's figures, beside other systems.",
    shown=(
        "pequod bench compare --quick --out report                   (two or three minutes)",
        "pequod bench compare --reference --out report               (twenty minutes, on a quiet machine)",
        "pequod bench compare --systems pequod,redis --figures 7",
        "pequod bench compare --figures latency,ycsb",
        "pequod bench compare --from report/compare.json --readme bench/README.md",
        "pequod bench compare --reference --users 20000 --ticks 1000000 --figures 7 --out report   (an hour)",
    ),
)
def compare(settings: CompareSettings, bars: ProgressBars) -> Printed:
    """Repeat the Pequod paper's evaluation beside real peers: Redis, memcached and PostgreSQL.

    Figure 7, Twip on all systems; 8, ways to materialise; 9, Newp with separate and interleaved joins. Then latencies
    at fixed rates, and YCSB. Each server that is installed is started for its run, in its own directory; all get the
    same operations, and their final contents must be equal. If one fails, it is reported and the others run. Sizes in
    brackets: plain, --quick, --reference.
    """
    from pequod_bench.paper.comparison import from_json
    from pequod_bench.paper.report import Compared, refuse_unmarked, rewrite, write_report
    from pequod_bench.paper.study import plan, run

    from pequod.errors import PequodError

    def keep(found: Comparison) -> None:
        """Write what there is after each section."""
        if settings.out is not None:
            write_report(found, settings.out)
        if settings.readme is not None:
            rewrite(settings.readme, found)

    try:
        study = plan(settings)
        if settings.readme is not None:
            refuse_unmarked(settings.readme)
        if settings.out is not None:
            settings.out.mkdir(parents=True, exist_ok=True)
        if settings.again is not None:
            found = from_json(settings.again.read_text("utf-8"))
            keep(found)
            return Compared(found)
    except (PequodError, OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, str(error))
    for name, reason in study.skipped.items():
        say(f"{name} is left out: {reason}")
    # SIGTERM is treated as Ctrl-C: the running server is stopped, and its directory removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = run(study, bars, keep)
    finally:
        signal.signal(signal.SIGTERM, before)
    if settings.out is not None:
        say(f"the report is in {settings.out / 'compare.html'}")
    for failure in found.failures:
        say(f"{failure.section}: {failure.title} failed: {failure.reason}")
    return Compared(found)
