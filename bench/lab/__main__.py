"""`python -m lab`: the studies, with the options, the tables and the JSON of `pequod bench`."""

from __future__ import annotations

from typing import Final

import typer

from lab import hot_view, view_writes
from lab.fleet import simulated
from pequod.cli.bench_options import measuring

app: Final = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

measuring(
    app,
    "fleet",
    simulated.FleetSettings,
    {"servers": (12, 24), "users": 100},
    shown=("python -m lab fleet --servers 48,200,1000 --users 20000 --graph power-law     (some seconds)",),
)(simulated.run)

measuring(
    app,
    "hot-view",
    hot_view.HotViewSettings,
    {"rows": 40, "database": "sqlite"},
    shown=("python -m lab hot-view --rows 20000", "python -m lab hot-view --database sqlite --json"),
)(hot_view.run)

measuring(
    app,
    "view-writes",
    view_writes.ViewWritesSettings,
    {"records": 5, "writes": 10, "views": 1},
    shown=("python -m lab view-writes", "python -m lab view-writes --records 1000 --writes 5000 --json"),
)(view_writes.run)

if __name__ == "__main__":
    app()
