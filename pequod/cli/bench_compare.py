"""bench compare: the paper's evaluation beside other systems."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from pequod_bench.settings import CompareSettings

from pequod.cli.bench import Json, progress_bars
from pequod.cli.bench_options import of_settings
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_bench.paper.comparison import Comparison

app: Final = typer.Typer()

Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write compare.html, compare.md and compare.json there.")
]
Again = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Measure nothing: report on a compare.json of an earlier run."),
]
Readme = Annotated[
    Path | None,
    typer.Option(
        "--readme",
        metavar="FILE",
        help="Put the figures into a Markdown file, between the two lines <!-- compare: figures --> and "
        "<!-- compare: end -->.",
    ),
]


@app.command(
    "compare",
    short_help="The paper's figures, beside other systems.",
    epilog=examples(
        "pequod bench compare --quick --out report                   (two or three minutes)",
        "pequod bench compare --reference --out report               (twenty minutes, on a quiet machine)",
        "pequod bench compare --systems pequod,redis --figures 7",
        "pequod bench compare --figures latency,ycsb",
        "pequod bench compare --from report/compare.json --readme bench/README.md",
        "pequod bench compare --reference --users 20000 --ticks 1000000 --figures 7 --out report   (an hour)",
    ),
)
@of_settings(CompareSettings)
def compare(
    settings: CompareSettings, out: Out = None, again: Again = None, readme: Readme = None, json: Json = False
) -> None:
    """Repeat the Pequod paper's evaluation beside real peers: Redis, memcached and PostgreSQL.

    Figure 7, Twip on all systems; 8, ways to materialise; 9, Newp with separate and interleaved joins. Then latencies
    at fixed rates, and YCSB. Each server that is installed is started for its run, in its own directory; all get the
    same operations, and their final contents must be equal. If one fails, it is reported and the others run. Sizes in
    brackets: plain, --quick, --reference.
    """
    from pequod_bench.paper.study import UnknownNameError, plan, run

    from pequod.errors import PequodError

    try:
        study = plan(settings)
    except UnknownNameError as error:
        fail(ExitCode.USAGE, str(error))

    from pequod_bench.paper.comparison import from_json
    from pequod_bench.paper.report import refuse_unmarked, rewrite, write_report

    def keep(found: Comparison) -> None:
        """Write what there is after each section."""
        if out is not None:
            write_report(found, out)
        if readme is not None:
            rewrite(readme, found)

    try:
        if readme is not None:
            refuse_unmarked(readme)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        if again is not None:
            found = from_json(again.read_text("utf-8"))
            keep(found)
            _print(found, json)
            return
    except (PequodError, OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, str(error))
    for name, reason in study.skipped.items():
        say(f"{name} is left out: {reason}")
    # SIGTERM is treated as Ctrl-C: the running server is stopped, and its directory removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = run(study, progress_bars(json), keep)
    finally:
        signal.signal(signal.SIGTERM, before)
    if out is not None:
        say(f"the report is in {out / 'compare.html'}")
    _print(found, json)
    _judge(found)


def _judge(found: Comparison) -> None:
    """End with an exit code other than 0 if something was wrong or failed."""
    for failure in found.failures:
        say(f"{failure.section}: {failure.title} failed: {failure.reason}")
    if differences := found.differences():
        fail(ExitCode.WRONG, f"the answers are wrong: {differences[0]}")
    if found.failures:
        fail(ExitCode.WRONG, "not everything could be measured; the report says what")


def _print(found: Comparison, json: bool) -> None:
    from pequod_bench.paper.report import to_markdown

    print(found.to_json() if json else to_markdown(found))
