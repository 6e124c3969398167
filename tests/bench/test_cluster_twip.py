"""Twip on small clusters is right, and says what larger ones would do."""

from __future__ import annotations

import io

from pequod_bench.cluster_twip import run
from pequod_bench.progress import ProgressBars
from pequod_bench.twip import TwipSettings
from rich.console import Console


def test_twip_on_clusters_is_right_and_priced() -> None:
    bars = ProgressBars(Console(quiet=True))
    report = run(TwipSettings(users=60, ticks=600, tweet_bytes=5), (1, 2), 2, bars)
    assert not report.difference
    assert [found.computes for found in report.runs] == [1, 2]
    assert report.prices is not None
    assert [one.computes for one in report.predictions] == [12, 24, 36, 48]
    printed = io.StringIO()
    report.print_table(Console(file=printed, width=100))
    assert "exact" in printed.getvalue()
    assert "speed-up" in printed.getvalue()
