"""bench versioned: views over a store without a master."""

from __future__ import annotations

from typing import Final

import typer
from pequod_bench.settings import VersionedSettings

from pequod.cli.bench import Json, progress_bars, show
from pequod.cli.bench_options import of_settings
from pequod.cli.teaching import examples

app: Final = typer.Typer()


@app.command(
    "versioned",
    short_help="Views over a store without a master.",
    epilog=examples(
        "pequod bench versioned                          (a minute or two)",
        "pequod bench versioned --nodes 12 --json",
    ),
)
@of_settings(VersionedSettings, {"rows": 20, "calls": 20})
def versioned(settings: VersionedSettings, json: Json = False) -> None:
    """Read and write a store without a master, with and without views, as the paper of versioned views does.

    Reads by key, by a view and by an index that all nodes are asked for; writes with no view, with an index, with one
    view and with two; what a session's read of its own write costs; stale rows by the number of records that are
    updated, and their collection. The paper's ratios are beside. A session that misses its own write gives exit code 1.
    """
    from pequod_bench.versioned import run

    report = run(settings, progress_bars(json))
    show(report, json, "a session did not see its own write" if report.session_misses else "")
