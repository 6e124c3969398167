"""Twip on small clusters is right, and says what each role takes."""

from __future__ import annotations

import io

import pytest
from pequod_bench.report.progress import QUIET
from pequod_bench.settings import ClusterSettings
from pequod_bench.twip.cluster import run
from rich.console import Console


@pytest.mark.usefixtures("forked_servers")
def test_twip_on_clusters_is_right_whatever_their_size() -> None:
    report = run(ClusterSettings(users=60, ticks=600, tweet_bytes=5, batch=16, computes=(1, 2), homes=2), QUIET)
    assert not report.fault()
    assert [(one.computes, one.correct) for one in report.runs] == [(1, True), (2, True)]
    for one in report.runs:
        assert min(one.home_cpu_us_per_tick, one.compute_cpu_us_per_tick, one.home_mib, one.compute_mib) > 0
        assert 1 <= one.imbalance <= one.computes
    printed = io.StringIO()
    report.print_table(Console(file=printed, width=100))
    assert "exact" in printed.getvalue()


@pytest.mark.usefixtures("forked_servers")
def test_twip_on_a_server_with_workers_is_right_and_says_what_the_home_takes() -> None:
    report = run(ClusterSettings(users=60, ticks=600, tweet_bytes=5, batch=16, workers=(2,)), QUIET)
    assert not report.fault()
    ((size, correct, home_us, all_us),) = [
        (one.computes, one.correct, one.home_cpu_us_per_tick, one.compute_cpu_us_per_tick) for one in report.runs
    ]
    assert (size, correct) == (2, True)
    assert 0 < home_us < all_us
