"""The group of the benchmarks."""

from __future__ import annotations

from typing import Final

import typer

from pequod.cli.group import BenchCommands
from pequod.cli.teaching import examples

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
