"""Views over a store without a master, tiny: what is counted, and that sessions see their own writes."""

from __future__ import annotations

import io

from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import VersionedSettings
from pequod_bench.versioned import run
from rich.console import Console


def test_versioned_views_are_read_at_some_nodes_and_an_index_at_all() -> None:
    report = run(VersionedSettings(12, 20, nodes=5), ProgressBars(Console(file=io.StringIO())))
    base, view, index = report.reads
    assert (base.requests, view.requests, index.requests) == (3, 3, 8)
    none, indexed, one, two = report.writes
    assert none.requests == indexed.requests == 3
    assert one.requests > 3 * none.requests
    assert two.requests > one.requests
    assert report.session_misses == 0
    for staleness in report.staleness:
        # A key that is drawn twice makes one row.
        assert staleness.stale_rows_swept == 0 < staleness.stale_rows <= 20
    output = io.StringIO()
    report.print_table(Console(file=output))
    assert "stale rows" in output.getvalue()
