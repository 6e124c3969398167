"""Twip on small clusters is right, and says what larger ones would do."""

from __future__ import annotations

import io

from pequod_bench.cluster_twip import run
from pequod_bench.progress import ProgressBars
from pequod_bench.stream import CHECK, make_stream
from pequod_bench.twip import TwipSettings
from rich.console import Console


def test_twip_on_clusters_is_right_and_priced() -> None:
    bars = ProgressBars(Console(quiet=True))
    checks = make_stream("synthetic", 60, 600, 1).count(CHECK)
    report = run(TwipSettings(users=60, ticks=600, tweet_bytes=5), (1, 2), 2, 300, bars)
    assert not report.difference
    assert [found.computes for found in report.runs] == [1, 2]
    assert report.prices is not None
    assert [one.computes for one in report.predictions] == [1, 2, 4, 8, 12, 24, 36, 48]
    # In each phase the servers counted what the model counts.
    assert [len([one for one in report.accounts if one.computes == size]) for size in (1, 2)] == [5, 5]
    timed = [one for one in report.accounts if one.computes == 2][2:4]
    assert sum(one.compute.commands for one in timed) == checks + 2, "one read in each phase waits for its end"
    printed = io.StringIO()
    report.print_table(Console(file=printed, width=100))
    assert "exact" in printed.getvalue()
    assert "the paper's figure 10" in printed.getvalue()
