"""`pequod bench cluster-latency`, tiny: a compute shows what a server alone shows, and every change is delivered."""

from __future__ import annotations

import io

import pytest
from pequod_bench.cluster_latency import run
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import ClusterLatencySettings
from rich.console import Console


@pytest.mark.usefixtures("forked_servers")
def test_a_small_cluster_has_latencies() -> None:
    settings = ClusterLatencySettings(timelines=4, later_reads=8, puts=3, burst=600)
    report = run(settings, ProgressBars(Console(quiet=True)))
    assert not report.difference
    assert [found.count for found in (report.first, report.later, report.alone, report.visible)] == [4, 8, 8, 3]
    # Both computes want all posts.
    assert report.burst_changes == 2 * settings.burst
    printed = io.StringIO()
    report.print_table(Console(file=printed, width=100))
    assert "1,200 changes delivered" in printed.getvalue()
