"""What the benchmarks' commands share: the group, and how a report is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Protocol

import typer

from pequod.cli.exits import ExitCode, fail
from pequod.cli.group import BenchCommands
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_bench.report.progress import ProgressBars
    from rich.console import Console

_HELP: Final = """Measure Pequod, and check that what it answers is right.

Each command says in its help how long it takes. Those with --smoke run in seconds, to show that everything works.

Exit code 1 if an answer is wrong.
"""

app: Final = typer.Typer(
    cls=BenchCommands,
    help=_HELP,
    epilog=examples(
        "pequod bench twip                                      (the whole: server, client, join)",
        "pequod bench micro --only fan-out                      (one operation)",
        "pequod bench compare --quick --out report              (beside Redis, memcached, PostgreSQL)",
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)

Smoke = Annotated[bool, typer.Option("--smoke", help="Tiny sizes: shows that all runs, figures mean nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and no progress bar.")]


class Report(Protocol):
    """What a benchmark found."""

    def to_json(self) -> str:
        """Return it as one JSON object."""

    def print_table(self, console: Console) -> None:
        """Print it for a person."""


def progress_bars(json: bool) -> ProgressBars:
    """Return bars on standard error, or none with JSON output."""
    from pequod_bench.report.progress import ProgressBars
    from rich.console import Console

    return ProgressBars(Console(stderr=True, quiet=json))


def show(report: Report, json: bool, difference: str = "") -> None:
    """Print a report; end with exit code 1 if something was not what it had to be."""
    from rich.console import Console

    if json:
        print(report.to_json())
    else:
        report.print_table(Console(highlight=False))
    if difference:
        fail(ExitCode.WRONG, f"the answers are wrong: {difference}")
