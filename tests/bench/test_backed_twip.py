"""Twip before a PostgreSQL, tiny: it runs in both ways of changes, and the timelines are right."""

from __future__ import annotations

import io

import pytest
from pequod_bench.backed_twip import FEEDS, BackedTwipSettings, run
from pequod_bench.report.progress import ProgressBars
from pequod_bench.systems.postgres_system import POSTGRES
from pequod_bench.systems.system import Missing
from rich.console import Console

from tests.installed import lacking


@pytest.mark.usefixtures("forked_servers")
def test_timelines_are_what_the_writes_make() -> None:
    if isinstance(missing := POSTGRES.find(), Missing):
        lacking(missing.reason)
    report = run(
        # Of this seed, the first six writes of each writer end and begin subscriptions to those who post.
        BackedTwipSettings(users=20, seconds=0.25, writers=2, checkers=2, seed=8, rate=400.0),
        ProgressBars(Console(file=io.StringIO())),
    )
    assert [found.feed for found in report.feeds] == list(FEEDS)
    assert report.is_correct
    assert report.alone_posts_per_s > 0
    assert all(found.checks_per_s > 0 and found.lag_p50_ms <= found.lag_p99_ms for found in report.feeds)
