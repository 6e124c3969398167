"""A home feed with Mastodon's rules: pages are what SQL gives, over a restart and a failover; a rule left out shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pequod_bench.feed import run as feed
from pequod_bench.report.progress import QUIET
from pequod_bench.settings import FeedSettings
from pequod_bench.systems.postgres_cluster import find_postgres
from pequod_bench.systems.system import Missing

from tests.installed import lacking

TINY = FeedSettings(users=20, follows=6, events=400, pages=0.1, restarts=1, failovers=1)


@pytest.fixture(autouse=True)
def postgres() -> None:
    if isinstance(found := find_postgres(), Missing):
        lacking(found.reason)


@pytest.mark.usefixtures("forked_servers")
def test_each_page_is_what_sql_gives_and_a_killed_cache_changes_nothing() -> None:
    report = feed.run(TINY, QUIET)
    ours, *theirs = report.sides
    assert report.fault() == ""
    assert ours.pages > 50
    assert min(map(len, ours.ms.values())) > 2
    assert ours.feed_bytes > 0
    assert ours.lines > 100
    for redis in theirs:
        assert redis.pages > 25
        assert redis.writes_a_status > 0.5


def test_a_rule_that_is_left_out_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    shutil.copytree(feed.FOLDER, folder)
    joins = folder / "feed.joins"
    lines = joins.read_text("utf-8").splitlines()
    joins.write_text("\n".join(line for line in lines if "check hears|" not in line))
    monkeypatch.setattr(feed, "FOLDER", folder)
    report = feed.run(FeedSettings(users=20, follows=6, events=200, restarts=0, failovers=0, redis=False), QUIET)
    assert "and SQL gives" in report.fault()
